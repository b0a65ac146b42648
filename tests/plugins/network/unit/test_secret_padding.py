"""What stands between the characters of a value, in whatever coding, makes no spelling longer than what is held."""

from __future__ import annotations

import base64
import functools
import json
import random
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.plugins.network.codes import SecretCode
from sandbox_kernel.plugins.network.policy import RefusedConnection
from sandbox_kernel.plugins.network.secret_finder import MAX_GAP, MOST_BLANKS, Folding, SecretReader
from sandbox_kernel.plugins.network.secret_scrubber import WINDOW_TIMES, Scrubber, Scrubbing
from sandbox_kernel.plugins.network.secret_value import SecretValue
from tests.support.cases import each
from tests.support.examples import examples

VALUES = (b"q7/Zx+9w", b"Xk7mQ2vLp9Rt4WzB8nHs", b"sk-test-8Jd02kQm3vXz71LpRt5WabcDEF0918")


@functools.cache
def scrubber(value: bytes) -> Scrubber:
    return Scrubber([(SecretValue(value), b"P" * len(value))])


def in_pieces(value: bytes, text: bytes, sizes: list[int]) -> bytes:
    """Return what comes out if `text` comes in pieces of these sizes, over and over. Raises `RefusedConnection`."""
    stream, found, at, turn = Scrubbing(scrubber(value)), b"", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        found += b"".join(stream.feed(text[at : at + size]))
        at, turn = at + size, turn + 1
    return found + stream.finish()


def each_as(write: Callable[[int], bytes], comma: bytes = b"") -> Callable[[bytes, bytes], bytes]:
    return lambda value, gap: (comma + gap).join(write(char) for char in value)


def digits(encode: Callable[[bytes], bytes]) -> Callable[[bytes, bytes], bytes]:
    return lambda value, gap: gap.join(bytes((digit,)) for digit in encode(value))


SPELLINGS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "as it is": each_as(lambda char: b"%c" % char),
    "a list of numbers": each_as(lambda char: b"%d" % char, b","),
    "a list of numbers in quotes": each_as(lambda char: b'"%d"' % char, b","),
    "a list of hexadecimal numbers": each_as(lambda char: b"0x%02x" % char, b","),
    "pairs of digits": each_as(lambda char: b"%02x" % char),
    "hexadecimal digits": digits(lambda value: value.hex().encode()),
    "digits of base64": digits(base64.b64encode),
    "digits of base32": digits(base64.b32encode),
    "escapes of JSON": each_as(lambda char: b"\\u%04x" % char),
    "escapes of C": each_as(lambda char: b"\\x%02x" % char),
    "percent signs": each_as(lambda char: b"%%%02X" % char),
    "entities": each_as(lambda char: b"&#%d;" % char),
    "long entities": each_as(lambda char: b"&#x%08x;" % char),
}
WITHIN: dict[str, Callable[[bytes], bytes]] = {
    "nothing": bytes,
    "base64": base64.b64encode,
    "lines of base64": base64.encodebytes,
    "base32": base64.b32encode,
    "hexadecimal": lambda text: text.hex().encode(),
    "a dump": lambda text: text.hex(" ").encode(),
    "JSON": lambda text: json.dumps(text.decode()).encode(),
    "an address": lambda text: urllib.parse.quote(text).encode(),
    "percent signs": lambda text: b"".join(b"%%%02x" % char for char in text),
    "escapes": lambda text: b"".join(b"\\u%04x" % char for char in text),
    "entities": lambda text: b"".join(b"&#%d;" % char for char in text),
    "a list": lambda text: json.dumps(list(text)).encode(),
    "an indented list": lambda text: json.dumps(list(text), indent=4).encode(),
    "a list far in": lambda text: json.dumps(list(text), indent=48).encode(),
}
blanks = st.one_of(
    st.integers(0, MOST_BLANKS).map(lambda many: b" " * many),
    st.integers(0, 200).map(lambda many: b"\n" + b" " * many),
    st.integers(0, 50).map(lambda many: b"\r\n" + b"\t" * many),
)
gaps = st.one_of(blanks, st.sampled_from([b", ", b",,,,,,,,,,", b'", "', b"> <", b" | " * 5, b"<b>", b"</b>\n<b>"]))
sizes = st.lists(st.integers(1, 3000), min_size=1, max_size=4).filter(lambda found: sum(found) > 500)
spellings = st.sampled_from(sorted(SPELLINGS))
codings = st.lists(st.sampled_from(sorted(WITHIN)), max_size=2)


def written(value: bytes, spelling: str, gap: bytes, within: list[str]) -> bytes:
    text = SPELLINGS[spelling](value, gap)
    return functools.reduce(lambda found, name: WITHIN[name](found), within, text)


def left_of(value: bytes, text: bytes, pieces: list[int], before: int) -> bytes | None:
    """Return what a stream lets out of a text between others, None where it is refused for its density."""
    around = b"some words. " * before
    try:
        found = in_pieces(value, around + text + around, pieces)
    except RefusedConnection as error:
        if error.code is not SecretCode.SECRET_ANSWER_DENSE:
            raise
        return None
    assert len(found) == len(text) + 2 * len(around)
    return found[len(around) : len(around) + len(text)]


@pytest.mark.slow
@examples(400)
@given(st.sampled_from(VALUES), st.tuples(spellings, gaps, codings), sizes, st.integers(0, 300))
def test_no_padding_brings_a_value_through(
    value: bytes, spelled: tuple[str, bytes, list[str]], pieces: list[int], before: int
) -> None:
    """Spelling, what stands between, codings over it and pieces: it is taken out, or the answer ends with a code."""
    text = written(value, *spelled)
    if len(text) > 40_000 or not SecretReader([value]).spans(Folding(text).text):
        return  # a tag within quotes of JSON, and the like: nobody finds it
    left = left_of(value, text, pieces, before)
    assert left is None or (left != text and not SecretReader([value]).spans(Folding(left).text))


@each("size", [1, 2, 3, 5])
@each("encode", [base64.b32encode, base64.b64encode, lambda value: value.hex().encode()])
def test_digits_that_look_like_names_of_tags_are_digits(size: int, encode: Callable[[bytes], bytes]) -> None:
    for value in VALUES:
        spelled = encode(value)
        tags = b"".join(b"<%b> " % spelled[at : at + size] for at in range(0, len(spelled), size))
        for within in WITHIN.values():
            text = within(tags)
            left = left_of(value, text, [501], 0)
            assert left is None or not SecretReader([value]).spans(Folding(left).text)


@examples(200)
@given(st.sampled_from(VALUES), spellings, blanks, sizes, st.integers(0, 300))
def test_blanks_make_no_spelling_longer_than_what_is_held(
    value: bytes, spelling: str, gap: bytes, pieces: list[int], before: int
) -> None:
    """Such a spelling is found and never refused: the bound is met, and not by refusing."""
    text = written(value, spelling, gap, [])
    assert len(Folding(text).text) <= scrubber(value).window
    left = left_of(value, text, pieces, before)
    assert left is not None
    assert not SecretReader([value]).spans(Folding(left).text)


@each("gap", [b"." * MAX_GAP, b" ,;" * 10, "é".encode() * 8, b" " * MOST_BLANKS, b"," * (MAX_GAP // 2) + b" " * 900])
def test_the_longest_gap_that_is_accepted_fits(gap: bytes) -> None:
    assert 1 + MAX_GAP <= WINDOW_TIMES
    for value in VALUES:
        text = SPELLINGS["as it is"](value, gap)
        assert len(Folding(text).text) <= scrubber(value).window
        left = left_of(value, text, [random.randint(1, 3000), 1460], 300)
        assert left is not None
        assert not SecretReader([value]).spans(Folding(left).text)


def test_control_a_scrubber_of_another_value_lets_it_pass() -> None:
    text = written(VALUES[1], "a list of numbers", b"\n" + b" " * 60, ["an indented list"])
    assert left_of(VALUES[0], text[:3000], [700], 3) in {None, text[:3000]}
    plain = written(VALUES[1], "a list of numbers", b"\n" + b" " * 60, [])
    assert left_of(VALUES[0], plain, [700], 300) == plain


def honest() -> dict[str, bytes]:
    chance = random.Random(3)
    points = [[round(chance.uniform(-180, 180), 6), round(chance.uniform(-90, 90), 6)] for _ in range(900)]
    chinese = "".join(chr(chance.randrange(0x4E00, 0x9FA5)) for _ in range(5000))
    lines = "\n".join(f"{at % 10} {chinese[at * 14 : at * 14 + 14]}" for at in range(300))
    words = (b"It is a text that a host returns as a list of its bytes, such as a Buffer of Node.js has. " * 40)[:2500]
    cells = [[chance.choice(["x", "", "", ""]).ljust(14) for _ in range(8)] for _ in range(200)]
    found: dict[str, object] = {
        "points": points,
        "digits": [[chance.randrange(10) for _ in range(9)] for _ in range(300)],
        "far in": [[[[[[[chance.randrange(10) for _ in range(9)]]]]]] for _ in range(60)],
        "small numbers": {"a": {"b": [chance.randrange(300) for _ in range(2500)]}},
        "letters as numbers": {"a": {"b": [chance.randrange(32, 127) for _ in range(2500)]}},
        "zeros": [0] * 3000,
        "pixels": [chance.choice([0, 0, 0, 255, chance.randrange(256)]) for _ in range(2500)],
        "a buffer": {"type": "Buffer", "data": list(words)},
        "Chinese": {"text": chinese},
        "Chinese lines": {"text": lines},
        "a table of tabs": "\n".join(
            "\t".join(chance.choice(["", "", "", "5"]) for _ in range(40)) for _ in range(100)
        ),
    }
    bodies = {
        f"{name}, indent {by}": json.dumps(one, indent=by).encode() for name, one in found.items() for by in (2, 8)
    }
    return bodies | {
        "CSV": "\n".join(f"{at},{at / 7:.3f},name {at},2024-01-{at % 28 + 1:02}" for at in range(600)).encode(),
        "sparse CSV": "\n".join(f"{at}{',' * 40}{at % 100}{',' * 40}" for at in range(300)).encode(),
        "a table": "\n".join(f"| {' | '.join(row)} |" for row in cells).encode(),
        "empty cells": b"".join(b"<tr>%s<td>%d</td></tr>\n" % (b"<td></td>" * 6, at % 10) for at in range(400)),
        "Chinese as it is": lines.encode(),
        "base64": base64.b64encode(chance.randbytes(20_000)),
        "base64 of zeros": base64.b64encode(bytes(20_000)),
        "base64 of numbers": base64.b64encode(b"".join(b"%c\0\0\0" % chance.choice([0, 0, 65]) for _ in range(5000))),
        "base64 of JSON": base64.b64encode(json.dumps(points, indent=4).encode()),
        "a dump of zeros": b"".join(b"%08x: %s  %s\n" % (at, b"0000 " * 8, b"." * 16) for at in range(400)),
        "blanks": b" " * 20_000,
        "a page of a template": b"".join(b"\n" * 30 + b" " * (at % 300) + b"<div>%d</div>" % at for at in range(100)),
        "events": b'data: {"choices":[{"delta":{"content":" "}}]}\n\n' * 400,
        "signs of life": b": \n\n" * 4000,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
def test_honest_answers_pass_as_they_are(value: bytes) -> None:
    for name, body in honest().items():
        assert in_pieces(value, body, [1 << 16, 1460, 9000]) == body, name


def test_many_blanks_are_held_within_a_bound_and_pass() -> None:
    """More blanks than stand between characters pass; what is held is never more than the window unfolded."""
    scrub = scrubber(VALUES[2])
    stream, sent, came = Scrubbing(scrub), 0, 0
    for piece in [b"{" + b" " * 700, b" " * 1400, b"\n" * 300 + b"x"] * 700:
        came += sum(map(len, stream.feed(piece)))
        sent += len(piece)
        assert sent - came <= 2 * scrub.window * MOST_BLANKS // 16
    assert came > sent // 2
