"""No coding over another one hides a value: all ordered pairs at all alignments, triples by sample, honest bodies."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import itertools
import json
import random
import struct
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

import pytest

from sandbox_kernel.plugins.network.codes import SecretCode
from sandbox_kernel.plugins.network.policy import RefusedConnection
from sandbox_kernel.plugins.network.secret_finder import SecretReader, Unreadable
from sandbox_kernel.plugins.network.secret_scrubber import Scrubber, Scrubbing
from sandbox_kernel.plugins.network.secret_value import SecretValue
from tests.support import ROOT
from tests.support.cases import each, some
from tests.support.codings import CODINGS, UNREADABLE, Example, Text, is_read, written
from tests.support.examples import SHARE

VALUES = {
    "letters and digits": b"Xk7mQ2vLp9Rt4WzB8nHs",
    "with signs": b'p/q+r=s&t%u"v<w>x y',
    "a UUID": b"1f0e8a52-77c1-4e0e-9d5b-3c2a1b0f9e8d",
    "like a JWT": b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0MiJ9.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "hexadecimal": b"deadbeef00c0ffee19837465",
    "of 200 bytes": bytes(
        random.Random(7).choices(b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789-_/+=", k=200)
    ),
    "the shortest": b"q7/Zx+9w",
}
NEIGHBOURS = (
    ("", ""),
    ("u", "s"),
    ("id", " x"),
    ("me:", "@h"),
    ("key=", ";b=2"),
    ("%", "%"),
    ("\\u00", "&"),
    ("&#x", "="),
    ('"a":"', '"}'),
)
"""What a cell, or the page, says beside a value: of each length for the alignments, and halves of escapes."""

WORDS = [(before.encode(), after.encode()) for before, after in NEIGHBOURS]


@functools.cache
def scrubber(value: bytes) -> Scrubber:
    return Scrubber([(SecretValue(value), b"P" * len(value))])


def leaking(examples: Iterable[Example], scrub: Callable[[bytes], Text]) -> list[Example]:
    """Return of which of them a cell reads the value after all. `scrub` is what takes a value out."""
    found = []
    for one in examples:
        names, value, before, after = one
        text = written(names, value, before, after)
        assert is_read(names, text, value, before, after), f"the control: a cell reads {one} as it is written"
        if is_read(names, scrub(value)(text), value, before, after):
            found.append(one)
    return found


def every(depth: int) -> Iterator[Example]:
    for names in itertools.product(CODINGS, repeat=depth):
        for value, (before, after) in itertools.product(VALUES.values(), NEIGHBOURS):
            yield names, value, before.encode(), after.encode()


def drawn(depth: int, count: int) -> list[Example]:
    return [
        (tuple(random.choices(list(CODINGS), k=depth)), random.choice(list(VALUES.values())), *random.choice(WORDS))
        for _ in range(count)
    ]


def in_pieces(value: bytes, text: bytes, size: Callable[[], int]) -> bytes:
    stream, at, found = Scrubbing(scrubber(value)), 0, b""
    while at < len(text):
        step = size()
        found += b"".join(stream.feed(text[at : at + step]))
        at += step
    return found + stream.finish()


def is_too_dense(error: RefusedConnection) -> bool:
    return error.code is SecretCode.SECRET_ANSWER_DENSE


def whole(value: bytes) -> Text:
    return scrubber(value).clean


# --- what is written in codings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_pair_of_codings_hides_a_value(depth: int) -> None:
    """All ordered pairs, for each value and each neighbour.

    No sibling is left, as nothing is listed of a pair: each coding is undone wherever it stands, and what comes of it
    is read as any text is. `make test` takes a quarter of them.
    """
    assert leaking(itertools.islice(every(depth), random.randrange(SHARE), None, SHARE), whole) == []


@pytest.mark.slow
def test_no_three_codings_hide_a_value() -> None:
    assert leaking(drawn(3, 4000 // SHARE), whole) == []


def test_control_one_reading_alone_leaves_most_pairs() -> None:
    """What a reader does that reads once and does not read again what it read."""

    def once(value: bytes) -> Text:
        def scrub(text: bytes) -> bytes:
            read = (coding.read for coding in CODINGS.values())
            return b"*" * len(text) if any(holds(one, text, value) for one in read) else text

        return scrub

    assert leaking(every(1), once) == []
    assert len(leaking(drawn(2, 200), once)) > 50


def holds(read: Text, text: bytes, value: bytes) -> bool:
    with contextlib.suppress(*UNREADABLE):
        return value in read(text)
    return False


def test_nothing_of_a_value_is_left_beside_what_was_taken_out() -> None:
    """Neither half of it, in any reading."""
    for names, value, before, after in drawn(2, 800 // SHARE):
        halves = [half for half in (value[: len(value) // 2], value[len(value) // 2 :]) if len(half) >= 8]
        text = scrubber(value).clean(written(names, value, before, after))
        assert SecretReader(halves).spans(text) == [], (names, value, before, after)


@each("between", ["&eacute;", "&#128512;", "\\u00e9", "%C3%A9", "&nbsp;", "é", "\u200b", "<wbr>", ", ", "\\n"])
def test_no_letters_between_those_of_a_value_hide_it(between: str) -> None:
    value = VALUES["letters and digits"]
    text = between.join(value.decode()).encode()
    assert scrubber(value).clean(b"<p>" + text + b"</p>") != b"<p>" + text + b"</p>"
    assert scrubber(VALUES["a UUID"]).clean(text) == text


NO_DIGITS = 2 * 256
"""Bytes beside a text that a reading of digits leaves out: with these the text fills a window."""


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param("one byte", marks=pytest.mark.long), "the edges of the window", "any"])
def test_a_value_is_found_wherever_a_stream_is_cut(size: str) -> None:
    """Where a value may be longer than what is held back, the answer ends with a code: it is passed on by no means."""
    refused = []
    for names, value, before, after in drawn(2, 240 // SHARE):
        window = scrubber(value).window
        edges = [window // 2 - 1, window // 2, window // 2 + 1, window]
        steps = {"one byte": [1], "the edges of the window": edges, "any": range(1, 1 << 17)}[size]
        text = written(names, value, before, after)
        around = random.choice([b"some words. ", b'{"a": [1, 2]},\n', bytes(range(256))]) * random.randrange(300)
        try:
            found = in_pieces(value, around + text + around, functools.partial(random.choice, steps))
        except RefusedConnection as error:
            refused.append((error.code, len(text) > window - NO_DIGITS))
            continue
        assert len(found) == len(around + text + around)
        left = found[len(around) : len(around) + len(text)]
        assert not is_read(names, left, value, before, after), (names, value, before, after, len(around))
    assert set(refused) <= {(SecretCode.SECRET_ANSWER_DENSE, True)}
    assert len(refused) <= 240 // SHARE // 4


def test_a_value_within_a_run_that_is_longer_than_the_window_is_found() -> None:
    value = VALUES["letters and digits"]
    body = random.randbytes(40_000) + value + random.randbytes(40_001)
    text = b'{"image":"data:image/png;base64,' + base64.b64encode(body) + b'"}'
    for size in (700, 1 << 16):
        found = in_pieces(value, text, functools.partial(int, size))
        assert value not in base64.b64decode(found[32:-2].replace(b"*", b"A"))
        assert len(found) == len(text)
        assert found[-20_000:] == text[-20_000:]


def test_a_stream_that_is_too_dense_is_refused_and_not_passed_on() -> None:
    value = VALUES["letters and digits"]
    text = written(("\\u", "\\u", "\\u"), value, b"", b"")
    assert len(text) > 4 * scrubber(value).window
    assert not is_read(("\\u",) * 3, scrubber(value).clean(text), value, b"", b""), "complete, it is read"
    with pytest.raises(RefusedConnection) as raised:
        in_pieces(value, b"." * 5000 + text + b"." * 5000, lambda: 700)
    assert raised.value.code is SecretCode.SECRET_ANSWER_DENSE


# --- what is honest -----------------------------------------------------------------------------------------------


def honest() -> dict[str, bytes]:
    files = [path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md"))]
    sources = [path.read_bytes() for path in sorted((ROOT / "tests/plugins/network/unit").glob("*.py"))]
    rows = [{"id": at, "name": f"Zoë {at}", "at": f"https://example.org/?a=%20{at}&b=\u2028\n"} for at in range(900)]
    noise = random.randbytes(60_000)
    return {
        "prose": b"".join(files)[:200_000],
        "source code": b"".join(sources)[:200_000],
        "JSON": json.dumps(rows, indent=1).encode(),
        "JSON in JSON": json.dumps([json.dumps(row) for row in rows]).encode(),
        "HTML": "".join(f"<tr><td>{html.escape(str(row))}</td><td></td></tr>\n" for row in rows).encode(),
        "empty HTML": b"<tr><td></td><td></td></tr>" * 4000,
        "an image in JSON": b'{"image": "data:image/png;base64,' + base64.b64encode(noise) + b'"}',
        "an image in a mail": base64.encodebytes(noise),
        "an empty image": base64.b64encode(bytes(60_000)),
        "noise": noise,
        "columns": b"PAR1" + b"".join(struct.pack("<qd", at, at / 7) for at in range(6000)) + bytes(5000) + b"PAR1",
        "numbers": json.dumps([at % 256 for at in range(30_000)]).encode(),
        "a table": b"+-----+-----+\n|     |     |\n" * 4000,
        "spaces": b" " * 60_000,
        "a dump": b"".join(b"%08x: %s  ...\n" % (at, noise[at : at + 16].hex(" ", 2).encode()) for at in range(16_000)),
        "tokens": b" ".join(CODINGS["a JWT"].write(b"user %d" % at) for at in range(900)),
        "addresses": urllib.parse.quote(json.dumps(rows)[:60_000]).encode(),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("value", some(VALUES.values(), of=3), ids=VALUES)
def test_honest_bodies_pass_as_they_are(value: bytes) -> None:
    value = value[::2] + value[1::2]  # the sources of this test hold the value itself
    for name, body in honest().items():
        assert in_pieces(value, body, lambda: 1 << 16) == body, name


# --- what is hostile ----------------------------------------------------------------------------------------------

TOKENS = (
    b"%", b"25", b"\\", b"&", b"amp;", b"#x", b"u00", b"41", b"=", b"3D", b"x", b"5C", b"26", b"<b>", b"\0", b"\n0",
    b"%25", b"\\u0025", b"&#x25;", b"=25",
)  # fmt: skip


@functools.cache
def hostile() -> dict[str, bytes]:
    noise = random.randbytes(30_000)
    nested = functools.reduce(lambda text, _: base64.b64encode(text), range(4), b"%25\\u0041&amp;=41 " * 800)
    return {
        "base64 in base64": nested,
        "one digit of base64": b"V" * 100_000,
        "percent signs": b"%25" * 35_000,
        "backslashes": b"\\" * 100_000,
        "ampersands": b"&amp;" * 20_000,
        "hexadecimal": noise.hex().encode(),
        "turns": (b"%5Cx26" + b"\\x26#61;" + b"&#61;25" + b"=255C") * 4000,
        "a soup": b"".join(random.choices(TOKENS, k=45_000)),
        "halves": b"%Xk7m" * 20_000,
        "soft ends of lines": b"=\n" * 50_000,
    }


@pytest.mark.slow
@each("name", hostile())
def test_what_a_hostile_body_takes_is_bounded(name: str) -> None:
    """A few microseconds for a byte, and some memory for a piece; what would take more is refused with a code."""
    body = hostile()[name]
    refused = None
    began = time.process_time()
    try:
        assert in_pieces(VALUES["letters and digits"], body, lambda: 1 << 16) == body
    except RefusedConnection as error:
        refused = is_too_dense(error)
    assert refused in {None, True}
    assert time.process_time() - began < 80e-6 * len(body)


@pytest.mark.long
@pytest.mark.slow
def test_control_a_body_may_take_much() -> None:
    """The bound is met: without it, a text of nothing but parts of escapes is read on and on."""
    with pytest.raises(Unreadable):
        SecretReader([VALUES["the shortest"]]).spans(b"".join(random.choices(TOKENS, k=20_000)))
