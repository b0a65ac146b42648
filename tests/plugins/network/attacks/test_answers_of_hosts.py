"""Answers made to bring a value into a cell by our own words, or to busy and fill who looks through them."""

from __future__ import annotations

import gzip
import re
import time
import tracemalloc

import pytest

from sandbox_kernel.plugins.network.interfaces import RequestHead, ResponseHead
from sandbox_kernel.plugins.network.policy import RefusedConnection
from sandbox_kernel.plugins.network.secret_finder import SecretReader
from sandbox_kernel.plugins.network.secret_scrubber import Scrubber, Scrubbing, Unpacking
from sandbox_kernel.plugins.network.secret_value import SecretValue
from sandbox_kernel.plugins.network.secrets import HeldSecret, Substitution

HOST = "api.example.test"
VALUE = b"9f8e7d6c5b4a39281706f5e4d3c2b1a0"
"""In small letters: what is said in small letters is all of it."""
PLACEHOLDER = b"0a1b2c3d4e5f60718293a4b5c6d7e8f9"


def scrubber() -> Scrubber:
    return Scrubber([(SecretValue(VALUE), PLACEHOLDER)])


@pytest.mark.parametrize("before", [b"", b"br, ", b"gzip, "])
def test_a_refusal_does_not_repeat_what_the_host_says(before: bytes) -> None:
    """A host that lets the address of a request choose a header of its answer is sent `?Content-Encoding=<value>`."""
    held = HeldSecret("API_KEY", SecretValue(VALUE), PLACEHOLDER, frozenset({(HOST, 443)}))
    exchange = Substitution(HOST, [held], scrubber())
    sent = exchange.request(RequestHead("GET", "https", HOST, 443, b"/?Content-Encoding=" + PLACEHOLDER, ()))
    assert sent.path.endswith(VALUE)  # the control: the host has it
    echoed = before + sent.path.partition(b"=")[2]
    with pytest.raises(RefusedConnection) as raised:
        exchange.response(ResponseHead(200, b"OK", ((b"Content-Encoding", echoed),)))
    assert not SecretReader([VALUE]).spans(raised.value.note.text.encode())
    assert HOST in raised.value.note.text


# --- the processor -------------------------------------------------------------------------------------------------

TOKENS = (b"\\", b"%", b"25", b"&", b"amp;", b"#", b"x", b"u", b"0041", b"n", b" ", VALUE[:-1], VALUE, b"%25", b"&#")


def seconds(text: bytes) -> float:
    begun = time.process_time()
    scrubber().clean(text)
    return time.process_time() - begun


@pytest.mark.parametrize("end", [b"", b"u", b"n", b"x", b"%"])
@pytest.mark.parametrize("token", TOKENS)
def test_a_text_of_one_word_over_and_over_is_looked_through_in_linear_time(token: bytes, end: bytes) -> None:
    """100 KiB take a hundredth of a second, or a few; where each byte of a run is a beginning, they take minutes."""
    assert seconds(token * (100_000 // len(token)) + end) < 5


def test_control_a_run_that_is_looked_at_from_each_byte_takes_the_square_of_its_length() -> None:
    naive = re.compile(rb"\\+(?![\\uxUnrtfbv])")
    taken = []
    for length in (2000, 8000):
        begun = time.process_time()
        naive.sub(b"", b"\\" * length + b"u")
        taken.append(time.process_time() - begun)
    assert taken[1] > 6 * taken[0]


# --- memory --------------------------------------------------------------------------------------------------------


def bomb() -> list[bytes]:
    """Return pieces of a body of which the first say much and grow little, so that the last one may grow a lot."""
    noise = b"".join(b"%d," % number for number in range(100_000))
    stored = gzip.compress(noise, compresslevel=0)
    return [stored, gzip.compress(bytes(16 << 20))]


def most_held(*, lazily: bool) -> int:
    """Return the most bytes that looking through the bomb takes, if each piece is gone before the next is asked for."""
    stream = Unpacking("gzip", Scrubbing(scrubber()), HOST)
    pieces = bomb()
    assert len(pieces[1]) < 1 << 17
    tracemalloc.start()
    try:
        given = 0
        for data in pieces:
            tracemalloc.reset_peak()
            found = stream.feed(data) if lazily else list(stream.feed(data))
            given += sum(map(len, found))
        assert given > 16 << 20
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_one_piece_unpacks_to_is_never_held_at_once() -> None:
    assert most_held(lazily=True) < 4 << 20


def test_control_all_of_it_would_be_much() -> None:
    assert most_held(lazily=False) > 15 << 20
