"""What a server writes of a value is taken out, however it is spelled and cut; all else stays as it is."""

from __future__ import annotations

import base64
import functools
import html
import json
import random
import time
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sandbox_kernel.plugins.network.secret_finder import SecretReader
from sandbox_kernel.plugins.network.secret_scrubber import Scrubber, Scrubbing
from sandbox_kernel.plugins.network.secret_value import MIN_BITS, SecretValue, bits
from tests.support.cases import each, some
from tests.support.examples import SHARE, examples
from tests.support.spellings import SPELLINGS

VALUES = {
    "a key": b"sk-test-8Jd02kQm3vXz71LpRt5W",
    "of digits": b"90417263548172635",
    "with signs": b'p/q+r&s<t>"u"%25\\v\'w;x=y',
    "with a backslash that reads as an escape": b"ab\\ncd\\u0041ef\\\\gh12",
    "with percent signs": b"%41%2542abcdef%zz9",
    "with an entity": b"abc&amp;d&#65;efgh&lt9",
    "with a space": b"correct horse battery",
    "hexadecimal": b"deadbeef00c0ffee",
    "a UUID": b"1f0e8a52-77c1-4e0e-9d5b-3c2a1b0f9e8d",
    "short": b"Zx9/Qw7+",
}


@functools.cache
def scrubber(*values: bytes) -> Scrubber:
    return Scrubber([(SecretValue(value), b"P" * len(value)) for value in values])


def in_pieces(scrub: Scrubber, text: bytes, sizes: list[int]) -> bytes:
    """Return what comes out if `text` comes in pieces of these sizes, over and over."""
    stream = Scrubbing(scrub)
    found, at, turn = b"", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        found += b"".join(stream.feed(text[at : at + size]))
        at, turn = at + size, turn + 1
    return found + stream.finish()


@pytest.mark.slow
@pytest.mark.parametrize("value", some(VALUES.values(), of=2), ids=VALUES)
@each("spelling", SPELLINGS)
def test_a_value_is_taken_out_in_this_spelling(value: bytes, spelling: str) -> None:
    """At every place where the pieces of a stream may be cut within it; `make test` takes some of them."""
    written = SPELLINGS[spelling].write(value)
    scrub = scrubber(value)
    many = b"." * (scrub.window + scrub.window // 2)  # more than is held back
    before, after = many + b"<b>before</b> " * 4, b" <i>after</i>" * 4 + many
    text = before + written + after
    whole = scrub.clean(text)
    assert whole.startswith(before)
    assert whole.endswith(after)
    assert len(whole) == len(text)
    assert written not in whole
    assert not SecretReader([value]).spans(whole)
    cuts = range(0, len(written), max(1, len(written) // 8))
    ways = [*([len(before) + cut, len(text)] for cut in cuts), [7]]
    for sizes in random.sample(ways, -(-len(ways) // SHARE)):
        assert in_pieces(scrub, text, sizes) == whole


@each("form, end", [("%d", "."), ("%d", ".5"), ("%d", "5"), ("0x%02x", "."), ("0x%02x", "0")])
def test_a_list_of_numbers_is_taken_out_whatever_follows(form: str, end: str) -> None:
    value = VALUES["a key"]
    written = ", ".join(form % char for char in value)
    found = scrubber(value).clean(f"It is {written}{end}".encode())
    assert found == f"It is {'*' * len(written)}{end}".encode()


HALVES = {
    "a percent sign": (b"%", b"", lambda text: quote(text, safe="").encode()),
    "a percent sign and a digit": (b"%4", b"", lambda text: quote(text, safe="").encode()),
    "a percent sign as it is": (b"%", b"", lambda text: quote(text, safe="%").encode()),
    "JSON, in four digits": (b"\\u000", b"", lambda text: dumped(text).encode()),
    "JSON, in two digits": (b"\\x", b"", lambda text: dumped(text).encode()),
    "JSON, as it is": (b"\\u000", b"", lambda text: dumped(text).replace("\\\\", "\\").encode()),
    "HTML": (b"&#x", b"", lambda text: escaped(text).encode()),
    "HTML, escaped once only": (b"&#x", b"", lambda text: escaped(text).replace("&amp;#x", "&#x").encode()),
    "percent signs of JSON": (b"%", b"", lambda text: quote(dumped(text)).encode()),
    "HTML of JSON": (b"&#x", b"", lambda text: escaped(dumped(text).encode()).encode()),
    "a percent sign at the end": (b"", b"41", lambda text: quote(text, safe="").encode()),
    "JSON, at the end": (b"", b"u0041", lambda text: dumped(text).encode()),
    "HTML, at the end": (b"", b"lt;", lambda text: escaped(text).encode()),
}


def dumped(text: bytes) -> str:
    return json.dumps(text.decode())[1:-1].replace("+", "\\u002B").replace("/", "\\/")


def escaped(text: bytes) -> str:
    return html.escape(text.decode()).replace("+", "&#43;")


@each("half", HALVES)
@each("value", [b"ab3+cdEFghij/klMNopqr==", b"9f'xkw+lmnqr\\stuv%", b"be/kw+ lmn qrstuv\\", b"c0d3/f+xyzxyz99&"])
def test_half_an_escape_beside_a_value_takes_nothing_of_it(value: bytes, half: str) -> None:
    """What a cell says before and behind a placeholder must not turn the value into something else."""
    before, behind, write = HALVES[half]
    written, alone = write(before + value + behind), write(value)
    assert alone in written, "it can be read"
    scrub = scrubber(value)
    whole = scrub.clean(b"Not found: " + written + b" (404)")
    assert alone not in whole
    assert len(whole) == len(written) + len(b"Not found:  (404)")
    assert in_pieces(scrub, b"." * 1000 + written + b"." * 1000, [7]).strip(b".") == scrub.clean(written)


def test_control_what_only_looks_like_half_an_escape_stays() -> None:
    value = b"ab3+cdEFghij/klMNopqr=="
    text = b'/%ab3%2BcdEFghij%2FklMNopqr%3D "\\u000ab3\\u002BcdEFghij\\/klMNopqr=" &#xab3&#43;cdEFghij/klMNopqr ='
    assert scrubber(value).clean(text) == text


@pytest.mark.slow
def test_a_run_of_signs_takes_no_time_that_grows_with_its_square() -> None:
    value = b"ab" + b"\\" * 9 + b"cd%%%%%%%%ef&&&&&&&&gh=="
    scrub = scrubber(value)
    for text in (b"%ab" + b"\\" * 60, b"%ab" + b"\\" * 9 + b"cd" + b"%25" * 20, b"\\", b"%25", b"&amp;", b"=", b"%ab"):
        body = text * ((1 << 18) // len(text))
        began = time.process_time()
        assert scrub.clean(body) == body
        assert time.process_time() - began < 5


@each("spelling", SPELLINGS)
def test_control_the_spelling_can_be_read_back(spelling: str) -> None:
    """A cell would have the value of it; a scrubber that does not know it lets it pass."""
    value = VALUES["a key"]
    written = SPELLINGS[spelling].write(value)
    assert scrubber(VALUES["of digits"]).clean(written) == written
    assert SPELLINGS[spelling].read(written).lower() == value.lower()


values = (
    st.text("abcdefgXYZ0123456789+/-_%&\\\"'<> ", min_size=16, max_size=40)
    .map(lambda text: text.strip().encode())
    .filter(lambda value: bits(bytes(char for char in value.lower() if chr(char).isalnum())) >= MIN_BITS)
)
texts = st.lists(
    st.one_of(
        st.sampled_from([b"{", b'"', b"\\", b"%", b"&", b";", b"\\u00", b"%25", b"&#", b"&amp;", b"\n", b"\0", b"abc"]),
        st.binary(max_size=12),
    ),
    max_size=30,
).map(b"".join)
written = st.lists(st.sampled_from(sorted(SPELLINGS)), max_size=4)
WITHOUT_END = "numbers of HTML without a semicolon"
sizes = st.lists(st.integers(1, 300), min_size=1, max_size=5)


@examples()
@given(
    value=values, pieces=sizes, spellings=st.lists(st.sampled_from(sorted(SPELLINGS)), max_size=4), filling=st.data()
)
def test_no_reading_of_what_comes_out_holds_the_value(
    value: bytes, pieces: list[int], spellings: list[str], filling: st.DataObject
) -> None:
    """However it is spelled and cut: what a stream lets out is looked through as a whole."""
    assume(len(value.translate(None, b" -:,")) >= 8 and bits(value) >= MIN_BITS)
    text = b""
    for name in spellings:
        text += b" " * 20 + SPELLINGS[name].write(value)
        after = filling.draw(texts)
        # Without a semicolon, a digit behind it makes it another number, to a browser too.
        text += b" " + after if name == WITHOUT_END and after[:1].isdigit() else after
    text += b"{}" * 300
    found = in_pieces(scrubber(value), text, pieces)
    assert len(found) == len(text)
    for name in spellings:
        assert SPELLINGS[name].write(value) not in found
    assert value not in found


@examples()
@given(text=texts, pieces=sizes)
def test_a_text_without_the_value_passes_as_it_is(text: bytes, pieces: list[int]) -> None:
    value = b"Qq7-not-in-there-77"
    assert in_pieces(scrubber(value), text * 20, pieces) == text * 20


@examples()
@given(text=texts, value=values, pieces=sizes)
def test_what_passes_is_what_the_whole_text_gives(text: bytes, value: bytes, pieces: list[int]) -> None:
    """The reference: the same text, looked at once and as a whole, where nothing ambiguous stands beside the value."""
    assume(len(value.translate(None, b" -:,")) >= 8)
    assume(not set(text) & set(b"\\%&"))
    whole = (text + b"\n--\n" + value + b"\n--\n") * 8
    assert in_pieces(scrubber(value), whole, pieces) == scrubber(value).clean(whole)


def test_a_value_reads_as_its_placeholder_where_it_stands_plainly() -> None:
    value = VALUES["a key"]
    scrub = Scrubber([(SecretValue(value), b"sk-test-" + b"a" * (len(value) - 8))])
    assert scrub.clean(b"x" + value + b"y") == b"xsk-test-" + b"a" * (len(value) - 8) + b"y"


def test_a_placeholder_of_another_length_changes_no_length() -> None:
    value = VALUES["a key"]
    assert Scrubber([(SecretValue(value), b"short")]).clean(value) == b"*" * len(value)


def test_a_mark_is_none_of_the_value_s_characters() -> None:
    value = b"*#secret*of*marks#*"
    assert Scrubber([(SecretValue(value), b"")]).clean(value) == b"^" * len(value)


def test_all_values_are_taken_out_of_each_answer() -> None:
    first, second = VALUES["a key"], VALUES["of digits"]
    found = scrubber(first, second).clean(first + second.hex().encode() + first)
    assert found == b"P" * len(first) + b"*" * 2 * len(second) + b"P" * len(first)


def test_what_is_held_back_does_not_depend_on_what_it_is() -> None:
    """Otherwise a cell that has its guesses echoed would see how much of each is right, by when it comes."""
    value = VALUES["a key"]
    came = []
    for tail in (b"nothing of the kind", value[:-1], value[:4], base64.b64encode(value)[:-3]):
        stream = Scrubbing(scrubber(value))
        came.append([len(b"".join(stream.feed(data))) for data in (b"." * 2000, tail.rjust(100, b"."), b"." * 600)])
    assert came == [[2000 - scrubber(value).window, 0, 700]] * 4


def test_memory_stays_within_the_window() -> None:
    scrub = scrubber(VALUES["a key"])
    stream = Scrubbing(scrub)
    sent = came = 0
    for _ in range(1000):
        came += sum(map(len, stream.feed(b"x" * 100)))
        sent += 100
        assert sent - came <= scrub.window * 3 // 2


def test_a_reader_shows_nothing_of_its_values() -> None:
    assert VALUES["a key"].decode() not in repr(SecretReader([VALUES["a key"]]))
