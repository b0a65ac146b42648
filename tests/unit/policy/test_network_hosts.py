"""The guarded way out: each spelling of a host, each rule and each address is decided as its sentence says."""

from __future__ import annotations

import pytest

from sandbox_kernel.core.codes import NetworkCode
from sandbox_kernel.policy.network import NetworkPolicy, Refused, Target


def target(host: bytes | str, port: int | None = 443) -> Target:
    return NetworkPolicy([]).target(host, port, default_port=None)


def refused_host(host: bytes | str) -> Refused:
    with pytest.raises(Refused) as caught:
        target(host)
    return caught.value


# --- hosts as they are written ---------------------------------------------------------------------------------------

SAME: dict[str, tuple[bytes | str, str]] = {
    "a name stays as it is": (b"api.example.test", "api.example.test"),
    "large letters are small": (b"API.Example.TEST", "api.example.test"),
    "one final dot is the root of every name": (b"api.example.test.", "api.example.test"),
    "an underscore may be in a label, as buckets have it": (b"my_bucket.example.test", "my_bucket.example.test"),
    "hyphens in the third and fourth place are in use": (b"r3---sn-x.example.test", "r3---sn-x.example.test"),
    "an address within a name is a name": (b"127.0.0.1.example.test", "127.0.0.1.example.test"),
    "a last label of letters that are also hex digits is a name": (b"dead.beef", "dead.beef"),
    "a label of 63 characters": (b"a" * 63 + b".test", "a" * 63 + ".test"),
    "a name of 253 characters and the final dot": (b"a." * 124 + b"test1.", "a." * 124 + "test1"),
    "an international name in its form for machines": (b"xn--mnchen-3ya.test", "xn--mnchen-3ya.test"),
    "an international name as a person writes it": ("M\u00fcnchen.test", "xn--mnchen-3ya.test"),
    "a sharp s is no double s": ("fa\u00df.test", "xn--fa-hia.test"),
    "wide letters and an ideographic dot mean the usual ones": ("\uff21\uff30\uff29\u3002test", "api.test"),
    "an IPv4 address": (b"93.184.215.14", "93.184.215.14"),
    "an IPv6 address in brackets": (b"[2001:DB8:0::7]", "2001:db8::7"),
    "an IPv6 address without them, where no port can be meant": (b"2001:db8::7", "2001:db8::7"),
}


@pytest.mark.parametrize("sentence", SAME)
def test_a_host_has_one_form(sentence: str) -> None:
    raw, form = SAME[sentence]
    found = target(raw)
    assert found.host == form
    assert target(found.host) == found


C = NetworkCode
REFUSED: dict[str, tuple[bytes | str, NetworkCode]] = {
    "nothing": (b"", C.HOST_EMPTY),
    "a NUL ends a name for some": (b"evil.test\0.example.test", C.HOST_CHARACTER),
    "a NUL at the end": (b"example.test\0", C.HOST_CHARACTER),
    "a carriage return": (b"example.test\r", C.HOST_CHARACTER),
    "a header behind a line break": (b"example.test\r\nHost: evil.test", C.HOST_CHARACTER),
    "a line feed at the end, which a pattern may overlook": (b"example.test\n", C.HOST_CHARACTER),
    "a tab": (b"exam\tple.test", C.HOST_CHARACTER),
    "another control": (b"exam\x7fple.test", C.HOST_CHARACTER),
    "a space": (b" example.test", C.HOST_CHARACTER),
    "an address and a space, which inet_aton takes": (b"127.0.0.1 .example.test", C.HOST_CHARACTER),
    "a user's name": (b"example.test@evil.test", C.HOST_CHARACTER),
    "a dot in percent": (b"example%2etest", C.HOST_CHARACTER),
    "a NUL in percent": (b"evil.test%00.example.test", C.HOST_CHARACTER),
    "a slash": (b"example.test/", C.HOST_CHARACTER),
    "a backslash": (b"example.test\\@evil.test", C.HOST_CHARACTER),
    "a question mark": (b"example.test?", C.HOST_CHARACTER),
    "a hash": (b"example.test#", C.HOST_CHARACTER),
    "a star": (b"*.example.test", C.HOST_CHARACTER),
    "a zone": (b"[fe80::1%25lo]", C.HOST_CHARACTER),
    "a zone in brackets of its own": (b"fe80::1%lo", C.HOST_CHARACTER),
    "bytes that are not ASCII": ("m\u00fcnchen.test".encode(), C.HOST_CHARACTER),
    "a wide percent sign": ("example\uff05\uff12\uff45test", C.HOST_CHARACTER),
    "a sign that stands for a slash": ("a\u2100b.test", C.HOST_CHARACTER),
    "an open bracket": (b"[::1", C.HOST_ADDRESS),
    "a closed bracket": (b"::1]", C.HOST_ADDRESS),
    "two pairs of brackets": (b"[[::1]]", C.HOST_ADDRESS),
    "a name in brackets": (b"[example.test]", C.HOST_ADDRESS),
    "an IPv4 address in brackets": (b"[127.0.0.1]", C.HOST_ADDRESS),
    "a host with its port": (b"example.test:80", C.HOST_ADDRESS),
    "two parts of an address": (b"127.1", C.HOST_ADDRESS),
    "three parts": (b"127.0.1", C.HOST_ADDRESS),
    "a part in hex": (b"0x7f.1", C.HOST_ADDRESS),
    "a whole address in hex": (b"0x7f000001", C.HOST_ADDRESS),
    "a hex part without digits, which the URL standard takes": (b"127.0.0.0x", C.HOST_ADDRESS),
    "large letters of hex": (b"0X7F.0.0.1", C.HOST_ADDRESS),
    "a part in octal": (b"0177.0.0.1", C.HOST_ADDRESS),
    "a whole address in octal": (b"017700000001", C.HOST_ADDRESS),
    "leading zeros": (b"127.0.0.01", C.HOST_ADDRESS),
    "a whole address in one number": (b"2130706433", C.HOST_ADDRESS),
    "zero": (b"0", C.HOST_ADDRESS),
    "a part over 255": (b"127.0.0.256", C.HOST_ADDRESS),
    "five parts": (b"127.0.0.0.1", C.HOST_ADDRESS),
    "an address with a final dot": (b"127.0.0.1.", C.HOST_ADDRESS),
    "an address with an empty part": (b"127..1", C.HOST_ADDRESS),
    "a name that ends in a number": (b"example.1", C.HOST_ADDRESS),
    "an IPv4 address in IPv6": (b"[::ffff:127.0.0.1]", C.HOST_ADDRESS),
    "the same in hex": (b"[::ffff:7f00:1]", C.HOST_ADDRESS),
    "the same at length": (b"[0:0:0:0:0:ffff:7f00:0001]", C.HOST_ADDRESS),
    "a compatible address": (b"[::127.0.0.1]", C.HOST_ADDRESS),
    "wide digits": ("\uff11\uff12\uff17.0.0.1", C.HOST_ADDRESS),
    "digits in circles": ("\u2460\u2461\u2466.0.0.1", C.HOST_ADDRESS),
    "ideographic dots": ("127\u30020\uff0e0\uff611", C.HOST_ADDRESS),
    "brackets that are wide": ("\uff3b::1\uff3d", C.HOST_ADDRESS),
    "an empty label": (b"example..test", C.HOST_LABEL),
    "a dot in front": (b".example.test", C.HOST_LABEL),
    "two final dots": (b"example.test..", C.HOST_LABEL),
    "nothing but the root": (b".", C.HOST_LABEL),
    "a label of 64 characters": (b"a" * 64 + b".test", C.HOST_LABEL),
    "a hyphen in front, which a command takes for an option": (b"-oProxyCommand.test", C.HOST_LABEL),
    "a hyphen at the end": (b"example-.test", C.HOST_LABEL),
    "a name of 254 characters": (b"a." * 124 + b"tests1", C.HOST_TOO_LONG),
    "a name without an end": (b"a." * 100_000, C.HOST_TOO_LONG),
    "punycode that stands for plain letters": (b"xn--example-.test", C.HOST_LABEL),
    "punycode of nothing": (b"xn--.test", C.HOST_LABEL),
    "punycode that is none": (b"xn--99999999999.test", C.HOST_IDNA),
    "punycode of a full stop with a digit": (b"xn--a-ecp.test", C.HOST_IDNA),
    "punycode of a picture": (b"xn--ls8h.test", C.HOST_IDNA),
    "a joiner where nothing is joined": ("exam\u200dple.test", C.HOST_IDNA),
    "half a character": ("\ud800.test", C.HOST_IDNA),
    "localhost": (b"localhost", C.HOST_INSIDE),
    "localhost with a final dot": (b"localhost.", C.HOST_INSIDE),
    "localhost in large letters": (b"LocalHost", C.HOST_INSIDE),
    "a name below localhost": (b"api.example.localhost", C.HOST_INSIDE),
    "localhost as systems also call it": (b"localhost.localdomain", C.HOST_INSIDE),
    "localhost with a long s": ("localho\u017ft", C.HOST_INSIDE),
    "one label": (b"metadata", C.HOST_ONE_LABEL),
    "a name of the local network": (b"printer.local", C.HOST_SPECIAL),
    "a name of another network": (b"example.onion", C.HOST_SPECIAL),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_host_that_can_be_read_in_two_ways_is_refused(sentence: str) -> None:
    raw, code = REFUSED[sentence]
    error = refused_host(raw)
    assert error.code is code, error
    assert str(error).isprintable()
    assert str(error).isascii()
    assert len(str(error)) < 600


def test_a_letter_of_another_script_is_another_name() -> None:
    policy = NetworkPolicy(["apple.example"])
    lookalike = target("\u0430pple.example")
    assert lookalike.host == "xn--pple-43d.example"
    with pytest.raises(Refused) as caught:
        policy.allow(lookalike, None)
    assert caught.value.rule == "xn--pple-43d.example"
    assert policy.allow(target("apple.example"), None)
