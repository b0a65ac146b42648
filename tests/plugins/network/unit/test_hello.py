"""The first word of TLS: the server that it names is found, however it is cut, and nothing hides it."""

from __future__ import annotations

import ssl
import struct

import pytest

from sandbox_kernel.plugins.network.client_hello import HelloReader, asks_again
from sandbox_kernel.plugins.network.policy import RefusedConnection
from tests.support.cases import each
from tests.support.tls_words import client_hello, extension, hello_of, record, server_name


def hello_from_openssl(name: str | None) -> bytes:
    """Return what this Python's own TLS says first."""
    context = ssl.create_default_context()
    if name is None:
        context.check_hostname = False
    out = ssl.MemoryBIO()
    link = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        link.do_handshake()
    return out.read()


def read(*pieces: bytes) -> tuple[str | None, bool]:
    reader = HelloReader()
    for piece in pieces:
        if (hello := reader.feed(piece)) is not None:
            assert reader.taken + reader.rest == b"".join(pieces)
            return hello.server_name, hello.hides
    raise AssertionError("the hello is not complete")


def code_of(*pieces: bytes) -> str:
    with pytest.raises(RefusedConnection) as caught:
        read(*pieces)
    return caught.value.code.code


def test_the_name_that_openssl_says_is_found_in_any_pieces() -> None:
    hello = hello_from_openssl("api.example.test")
    assert read(hello) == ("api.example.test", False)
    for cut in range(1, len(hello)):
        assert read(hello[:cut], hello[cut:]) == ("api.example.test", False)
    assert read(*(hello[at : at + 1] for at in range(len(hello)))) == ("api.example.test", False)


def test_a_hello_for_an_address_names_nobody() -> None:
    assert read(hello_from_openssl(None)) == (None, False)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 17, 100])
def test_a_hello_over_several_records_is_read_whole(size: int) -> None:
    message = hello_from_openssl("api.example.test")[5:]
    pieces = [record(message[at : at + size]) for at in range(0, len(message), size)]
    if len(pieces) > 64:
        assert code_of(*pieces) == "hello-improper"
    else:
        assert read(*pieces) == ("api.example.test", False)
        assert read(b"".join(pieces)) == ("api.example.test", False)


def test_what_comes_behind_a_hello_is_kept_apart() -> None:
    reader = HelloReader()
    hello = hello_from_openssl("api.example.test")
    assert reader.feed(hello + b"early data") is not None
    assert (reader.taken, reader.rest) == (hello, b"early data")


@pytest.mark.parametrize("kind", [0xFE0D, 0xFE0A, 0xFFCE])
def test_a_hello_within_the_hello_is_seen(kind: int) -> None:
    assert read(client_hello(server_name("api.example.test"), extension(kind, b"\0" * 20))) == (
        "api.example.test",
        True,
    )


NAME = server_name("api.example.test")


@each(
    "hello",
    [
        client_hello(NAME, NAME),
        client_hello(extension(0, b"")),
        client_hello(extension(0, struct.pack("!H", 0))),
        client_hello(server_name("")),
        client_hello(extension(0, struct.pack("!HBH", 8, 0, 1) + b"a" + struct.pack("!BH", 0, 1) + b"b")),
        client_hello(extension(0, struct.pack("!HBH", 4, 1, 1) + b"a")),
        client_hello(extension(0, struct.pack("!HBH", 4, 0, 1) + b"a" + b"behind")),
        client_hello(extension(0, struct.pack("!HBH", 4, 0, 2) + b"a")),
        client_hello(NAME, tail=b"x"),
        record(hello_of(NAME) + b"\x01"),
        record(hello_of(NAME) + hello_of(server_name("other.example.test"))),
        record(b"\x01\xff\xff\xff"),
        record(b""),
        record(b"\x01\0\0\x03abc"),
        client_hello(NAME, session=b"s" * 33),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(hello: bytes) -> None:
    assert code_of(hello) == "hello-improper"


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x",
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x02\x00\x00\x05abcde",
        record(b"\x02\0\0\0"),
        record(b"\0\0", kind=21),
        record(b"x", kind=20),
        record(b"x", kind=23),
        record(hello_of(NAME)[:9]) + record(b"x", kind=20),
        b"\0",
    ],
)
def test_what_is_no_hello_is_no_tls(first: bytes) -> None:
    assert code_of(first) == "not-tls"


def test_a_hello_without_extensions_names_nobody() -> None:
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\xc0\x2b" + b"\x01\0"
    assert read(record(b"\x01" + len(body).to_bytes(3, "big") + body)) == (None, False)


def test_a_hello_is_bounded() -> None:
    large = b"\x01" + (60_000).to_bytes(3, "big")
    assert code_of(record(large + bytes(1000))) == "hello-improper"


# --- the second hello ----------------------------------------------------------------------------------------------


def second(*pieces: bytes) -> str | None:
    reader = HelloReader(second=True)
    for piece in pieces:
        if (hello := reader.feed(piece)) is not None:
            return hello.server_name
    raise AssertionError("the hello is not complete")


def test_a_second_hello_is_found_behind_early_data() -> None:
    hello = client_hello(server_name("other.example.test"))
    before = record(b"\x01", kind=20) + record(bytes(16_000 + 300), kind=23)
    assert second(before + hello) == "other.example.test"
    assert second(*((before + hello)[at : at + 1000] for at in range(0, 20_000, 1000))) == "other.example.test"


def test_early_data_is_bounded() -> None:
    with pytest.raises(RefusedConnection, match="comes too late"):
        second(*[record(bytes(16_000), kind=23)] * 70)


def server_hello(random: bytes) -> bytes:
    body = b"\x03\x03" + random + b"\0" + b"\x13\x01" + b"\0"
    return record(b"\x02" + len(body).to_bytes(3, "big") + body)


RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def test_a_server_that_asks_for_another_hello_is_understood() -> None:
    again, done = server_hello(RETRY), server_hello(bytes(32))
    for cut in range(43):
        assert asks_again(again[:cut]) is None
    assert asks_again(again[:43]) is True
    assert asks_again(again) is True
    assert asks_again(done) is False
    assert asks_again(record(b"\x02\x28", kind=21)) is False
    assert asks_again(b"HTTP/1.1 400 Bad Request") is False
    assert asks_again(record(again[5:20])) is True


def test_a_warning_before_the_server_s_hello_hides_nothing() -> None:
    again, done = server_hello(RETRY), server_hello(bytes(32))
    warning = record(b"\x01\x70", kind=21)  # a name that is not known
    for cut in range(len(warning)):
        assert asks_again((warning + again)[:cut]) is None
    assert asks_again(warning) is None
    assert asks_again(warning + again) is True
    assert asks_again(warning + warning + again) is True
    assert asks_again(warning + done) is False
    assert asks_again(warning + record(b"\x02\x28", kind=21)) is False
    assert asks_again(record(b"\x01\x00", kind=21)) is False
    assert asks_again(record(b"\x01", kind=21) + again) is True
    assert asks_again(warning * 3000) is True
