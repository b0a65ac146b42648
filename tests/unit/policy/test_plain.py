"""HTML that is read without a sanitiser becomes what the sanitiser would make of it, to the last character."""

# ruff: noqa: E501 (documents as they are written)

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.policy import html, html_cost, html_sanitiser
from sandbox_kernel.policy.marks import lighter
from sandbox_kernel.policy.verdict import Notes
from tests.support.examples import examples
from tests.support.policy.check import faults
from tests.support.policy.plain import FRAME, PIECES, PLAIN, damaged

Made = tuple[str, tuple[Any, ...], int]


@contextmanager
def the_long_way() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "unparsed", lambda *_, **__: None)
        yield


def long(source: str, *, frames: bool) -> Made:
    with the_long_way():
        notes = Notes()
        return html.render(source, notes, frames=frames), tuple(notes), notes.work


def short(source: str, *, frames: bool) -> Made | None:
    """Return what is made of a source without the sanitiser, None if it goes the long way."""
    notes = Notes()
    made = html.unparsed(lighter(html_sanitiser.cleared(source)), notes, frames=frames)
    return None if made is None else (made, tuple(notes), notes.work)


def same(source: str) -> None:
    for frames in (True, False):
        made = short(source, frames=frames)
        assert made is None or made == long(source, frames=frames)


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("name", PLAIN)
def test_tables_as_libraries_write_them_need_no_sanitiser(name: str, frames: bool) -> None:
    made = short(PLAIN[name], frames=frames)
    assert made is not None
    assert made == long(PLAIN[name], frames=frames)
    assert faults(made[0]) == []


@pytest.mark.parametrize("place", range(0, len(FRAME), 7))
def test_each_piece_in_each_place_is_read_as_the_sanitiser_reads_it(place: int) -> None:
    for piece in PIECES:
        same(FRAME[:place] + piece + FRAME[place:])


@pytest.mark.slow
@examples(4000)
@given(st.integers(0, 1 << 60), st.integers(1, 4))
def test_damaged_tables_are_read_as_the_sanitiser_reads_them(seed: int, times: int) -> None:
    same(damaged(random.Random(seed), times))


CELL = "<table><tr><td>a</td></tr></table>"
STYLED = '<table><tr><td style="{}">a</td></tr></table>'
LINKED = '<p><a href="{}">a</a></p>'


@pytest.mark.parametrize(
    "source",
    [
        # What a text begins does not go on in a tag, so no style is overlooked.
        '<p> style="</p><p style="position:fixed">x</p>',
        '<p> class="a</p><div class="jp-Dialog">x</div>',
        '<p> style="color: red</p><p style="position:fixed;top:0">" x</p>',
        # An entity in a value is no quote, and a style sheet in one is none.
        "<div class=\"data&quot; style=&quot;color: red\">x</div>",
        '<div class="<style>a{}</style>data">x</div>',
        "<p>&am<style>a{color:red}</style>p;</p>",
        "<p title='x\" >y'>x</p>",
        # A parser moves, closes or opens something of its own.
        "<table>x<tr><td>a</td></tr></table>",
        "<table><td>a</td></table>",
        "<table><tr><td><table><tr><td>a</td></tr></table></td></tr></table>",
        "<table><thead><tr><td>a</td></tr></tbody></table>",
        "<table><thead><tr><td>a</td></tr></thead><tr><td>a</td></tr></table>",
        "<table><tr><td>a</td></tr><tbody><tr><td>a</td></tr></tbody></table>",
        "<p><p>a</p></p>",
        "<p><div>a</div></p>",
        f"<p>{CELL}</p>",
        "<b><p>a</b></p>",
        "<b><i>a</b></i>",
        "</div><div>",
        '<a href="http://a.de/">a<a href="http://a.de/">b</a></a>',
        '<a href="http://a.de/"><b><a href="http://a.de/">b</a></b></a>',
        '<td class="data" class="row0">a</td>',
        '<table><tr><td class="data" class="row0">a</td></tr></table>',
        '<table><tr><td id="T_1" id="T_2">a</td></tr></table>',
        "<pre>\na</pre>",
        "\ufeff<b>a</b>",
        "<b>a\xa0b</b>",
        "<b>a > b</b>",
        "<b>a\x01b</b>",
        "<b>&amp;lt;script&amp;gt; &copy &notit; &#0; &#x80; &#60;</b>",
        # Values that the sanitiser reads itself.
        *map(
            STYLED.format,
            ["", " ", ";", "color: red;;", "position: fixed", "margin: -1px", "background: url(x)", "behavior: x", "top:1e9px"],
        ),
        *map(STYLED.format, ["color: r&quot;ed", "color:\nred", "COLOR: RED", "content: x", "color: \\72 ed", "/**/color: red"]),
        *map(
            LINKED.format,
            [
                "javascript:alert(1)", "http://a.de:99999/", "http://1.2.3.4.5/", "http://0x7f.1/", "http://a..de/", "http://xn--a.de/",
                "http://-a.de/", "http://a_b.de/", "http://a.de\\x", "http://u@a.de/", "//a.de/", " http://a.de/", "http://a.de/%zz",
                "http://a.de/?copy=1&copy_x=2", "http://a.de/?a&copy=2", "http://a.de/?a&copy", "http://a.de/?a&amp=2",
                "http://a.de/?a&amp;lt;=2", "http://a.de/?a&lt;=2", "HTTP://A.de/", "http://a.DE/", "http://a.de/ä", "http://a.de/#x",
            ],
        ),
        '<p><a href="http://a.de/" target="_top">a</a></p>',
        '<p><a target="_blank" href="http://a.de/">a</a></p>',
        '<p><a href="http://a.de/" rel="opener">a</a></p>',
        "<style>td{position:fixed}</style>" + CELL,
        "<style>@import url(x)</style>" + CELL,
        "<style>.jp-Dialog{color:red}</style>" + CELL,
        "<style>td{color:red}" + CELL,
        "<table><style>td{color:red}</style><tr><td>a</td></tr></table>",
        "<style>td{color:red}</style ><p>a</p>",
    ],
)  # fmt: skip
def test_what_a_parser_reads_in_its_own_way_is_left_to_it(source: str) -> None:
    same(source)
    same(f"<div>{source}</div>")
    same(f"{FRAME}{source}")


@pytest.mark.parametrize(
    "source",
    [
        CELL * (html_cost.MAX_TAGS // 4 + 1),
        "<div>" * (html_cost.MAX_NESTING + 1) + "</div>" * (html_cost.MAX_NESTING + 1),
        "<table>" + '<tr><td rowspan="99999">a</td></tr>' * 3 + "</table>",
        f"<table><tr><td>{'a' * (html_cost.MAX_SHOWN + 1)}</td></tr></table>",
        "<table><tr>" + "<td>aא</td>" * 21_000 + "</tr></table>",
        f"<table><tr><td>{'aא' * 21_000}</td></tr></table>",
        f"<table><tr><td>{'ก' * 5_000}</td></tr></table>",
        f"<table><tr><td>a{chr(0x301) * 500}</td></tr></table>",
        f"<p>{'&amp;' * 200_000}</p>",
        "<p>" + "<b>a</b>" * 20_000 + "</p>",
    ],
)
def test_all_bounds_hold_on_the_short_way(source: str) -> None:
    same(source)


@pytest.mark.parametrize(
    "end", ["<", "<td>", "&x;", '<td class="hll', "</table>", "<b>", '<a href="http://a.de/">', "</tr>", " "]
)
@pytest.mark.parametrize("name", PLAIN)
def test_what_comes_to_nothing_is_seen_in_time(name: str, end: str) -> None:
    once = 'class="' + "hll " * 30 + 'hll"'
    source = PLAIN[name].replace('class="data"', once) * (200_000 // len(PLAIN[name])) + end
    begun = time.process_time()
    html.grammar().read(source)
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize(
    "piece", ["<table ", "<table", "</tr> ", "</tr>" + " " * 50, "<style>", "<b>", "<b>a<br>", ' style="', '<p style="a', '" >', "&#39;", "<a href=\"http://a.b/", "<span"]
)  # fmt: skip
def test_a_piece_without_end_is_seen_in_time(piece: str) -> None:
    source = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    html.grammar().read(source)
    html.grammar().read(source[: 20 * html_cost.MAX_TAGS])
    assert time.process_time() - begun < 3.0
