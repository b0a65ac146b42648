"""The budget of an output: what multiplies is counted as often as it says, or it is not there.

No sibling is left by construction. An element counts at least once. Three attributes say how often something is there,
and each is read as the plain number that is counted; tables count as rows times columns. Properties, values, elements
and attributes that repeat anything else are on no list of what passes. Marks are bounded by a ratio over the whole text,
so nothing that is put between two of them matters.
"""

# ruff: noqa: E501, RUF001 (an attack reads best on one line; words of many languages)

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.codes import OutputCode
from sandbox_kernel.policy import css, html, slow_text
from sandbox_kernel.policy.allowance import MAX_ELEMENTS, of_markup
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.cases import each, paired
from tests.support.examples import examples
from tests.support.policy.extent import OVER, frame
from tests.support.policy.messages import display, filtered, message, model, update

MODES: list[Any] = ["safe", "strict"]
MARKUP = of_markup()


@pytest.mark.parametrize(("name", "mode"), paired(OVER, MODES))
def test_what_multiplies_is_counted_as_often_as_it_says(name: str, mode: Any) -> None:
    """The same documents keep a real browser busy without the policy: tests/browser/test_drawing.py."""
    data, verdict = filtered({"text/html": OVER[name]}, OutputPolicy(mode))
    assert [note.code for note in verdict.notes] == [OutputCode.HTML_AS_TEXT]
    assert re.search(r"showed HTML as text: it has more than [0-9,]+ [a-z ]+$", verdict.reasons[0])
    assert "<pre>&lt;" in data["text/html"]
    assert len(re.findall("<[a-z]", data["text/html"])) < 10


EDGES = {
    "elements": "<table>" + "<tr><td>a</td></tr>" * (MAX_ELEMENTS // 2 - 1) + "</table>",
    "columns": "<table>" + "<col span=1000>" * 99 + "</table>",
    "cells": "<table>" + "<tr><td colspan=100>a</td></tr>" * 990 + "</table>",
    "a grid": "<table><tr>" + "<td>a</td>" * 1_400 + "</tr>" + "<tr><td>b</td></tr>" * 1_400 + "</table>",
    "depth": "<i>" * MARKUP.depth + "a" + "</i>" * MARKUP.depth,
    "letters": "<p>" + "lorem ipsum " * (MARKUP.characters // 12),
}


@pytest.mark.parametrize("name", EDGES)
def test_control_what_is_within_the_budget_passes(name: str) -> None:
    data, verdict = filtered({"text/html": EDGES[name]})
    assert verdict.reasons == ()
    assert "<iframe" not in data["text/html"]
    assert data["text/html"].count("<") >= EDGES[name].count("<")


@pytest.mark.parametrize(("rows", "columns"), [(60, 20), (2_000, 20), (9_000, 3)])
def test_control_data_frames_pass(rows: int, columns: int) -> None:
    """As pandas writes them, each cell on a line of its own: what indents it is not text."""
    data, verdict = filtered({"text/html": frame(rows, columns)})
    assert verdict.reasons == ()
    assert data["text/html"].count("<td>") == rows * columns
    assert verdict.work // 5 < 10_000, "a page takes one"


def test_spans_of_several_levels_count_as_the_table_they_make() -> None:
    """The index of a data frame: its cells go over rows that have fewer cells of their own."""
    group = "<tr><th rowspan=10>a</th><td>b</td></tr>" + "<tr><td>b</td></tr>" * 9
    assert html.extent("<table><tbody>" + group.replace("=10", '="10"') * 100 + "</tbody></table>").grid == 2_000
    wide = '<tr><td rowspan="3" colspan="5">a</td><td>b</td></tr>' + "<tr><td>c</td></tr>" * 2 + "<tr><td>d</td></tr>"
    size = html.extent(f"<table><tbody>{wide}</tbody></table>")
    assert (size.grid, size.cells, size.depth) == (4 * 6, 15 + 1 + 2 + 1, 4)


@pytest.mark.parametrize("inside", ["", "<table><tbody><tr><td>b</td></tr></tbody></table>", "<i>b</i>", "<br>"])
def test_rows_that_are_counted_at_once_count_as_their_cells(inside: str) -> None:
    """Cells with attributes are counted one by one, and rows of others at once, among cells that go over them."""
    row = "<tr>" + f"<td>a{inside}</td><th>b</th>" * 3 + "</tr>"
    for first in ("", '<tr><td rowspan="3" colspan="2">a</td></tr>', "<tr></tr>"):
        table = f"<ruby><table><thead><tr><td>a</td></tr></thead><tbody>{first}{row}{row}</tbody></table></ruby> c"
        one_by_one = re.sub("<(td|th)(?= |>)", r'<\1 align="left"', table)
        assert html.extent(table) == html.extent(one_by_one)


GONE = {
    "the number of an item": ("<ol><li value=3999>a</li></ol>", "value"),
    "a list that counts down": ("<ol reversed><li>a</li></ol>", "reversed"),
    "a grid": ("<div style='display:grid'>a</div>", "grid"),
    "an inline grid": ("<div style='display : INLINE-GRID'>a</div>", "GRID"),
    "tracks": ("<div style='grid-template-columns:repeat(9999,1px)'>a</div>", "repeat"),
    "dense": ("<div style='grid-auto-flow:dense'>a</div>", "dense"),
    "places": ("<div style='grid-column:1/span 9999'>a</div>", "span 9999"),
    "columns": ("<div style='columns:9999;column-count:9999'>a</div>", "9999"),
    "rows of a table that is none": ("<div style='display:table-row'>a</div>", "table-row"),
    "cells of a table that is none": ("<div style='display:table-cell'>a</div>", "table-cell"),
    "rows without a row": ("<table><tr style='display:contents'><td>a</td></tr></table>", "contents"),
    "tiles of a border": ("<div style='border-image:linear-gradient(red,blue) 1 round'>a</div>", "border-image"),
    "masks": ("<div style='mask:linear-gradient(red,blue);mask-border:none'>a</div>", "mask"),
    "filters": ("<div style='filter:blur(9px);backdrop-filter:blur(9px)'>a</div>", "filter"),
    "counters": ("<div style='counter-increment:a;counter-reset:a'>a</div>", "counter"),
    "shapes": ("<div style='float:left;shape-outside:circle()'>a</div>", "shape"),
    "zoom": ("<div style='zoom:99;scale:99'>a</div>", "99"),
    "shadows": ("<div style='box-shadow:0 0 9px;text-shadow:0 0 9px'>a</div>", "shadow"),
    "reflections": ("<div style='-webkit-box-reflect:below'>a</div>", "reflect"),
    "lines": ("<div style='-webkit-line-clamp:2;hyphens:auto;text-wrap:balance'>a</div>", "-clamp"),
    "a span of letters": ("<table><tr><td colspan=1e9>a</td></tr></table>", "colspan"),
    "a span of no rows": ("<table><tr><td rowspan=0>a</td></tr></table>", "rowspan"),
}  # fmt: skip


@pytest.mark.parametrize("name", GONE)
def test_what_multiplies_without_a_count_is_not_there(name: str) -> None:
    source, word = GONE[name]
    for mode in MODES:
        assert word not in filtered({"text/html": source}, OutputPolicy(mode))[0]["text/html"]


@pytest.mark.parametrize("rule", ["p::first-letter {float:left}", "p::first-line {color:red}", "p {display:grid}"])
def test_no_sheet_brings_it_back(rule: str) -> None:
    """50,000 first letters keep a tab busy for more than half a minute."""
    assert css.stylesheet(rule, "x") is None
    assert (
        "<style>"
        not in filtered({"text/html": f"<style>{rule}</style><p>a</p>"}, OutputPolicy("strict"))[0]["text/html"]
    )


IR = """.list-inline {list-style: none; margin:0; padding: 0}
.list-inline>li {display: inline-block}
.list-inline>li:not(:last-child)::after {content: "\\00b7"; padding: 0 .5ex}
.dl-inline>dt::after {content: ":\\0020"; padding-right: .5ex}
"""
"""IRkernel's, of every vector that it shows."""


def test_dots_between_the_parts_of_a_vector_are_no_reason_for_a_frame() -> None:
    """An escape of a letter or a sign is that letter. What has a meaning in a sheet, or shows nowhere, stays an escape."""
    sheet = css.stylesheet(IR, "x")
    assert sheet is not None
    assert 'content: "·"' in sheet
    assert 'content: ": "' in sheet or 'content: ":"' in sheet
    for escape in ("3c", "22", "27", "7d", "3b", "5c", "a", "0", "202e", "200b", "2028", "ad", "d800", "110000", "41"):
        assert css.stylesheet(IR.replace("00b7", escape), "x") is None, escape


def test_few_elements_are_placed_over_each_other() -> None:
    """24,000 cells of a table, each as large as a window, all in one place: 24 s of the processor, and 1,400 take three."""
    sheet = "<style>td {position: absolute; width: 900px; height: 1500px; opacity: .5}</style>"
    for rows, kept in ((1_400, True), (1_600, False)):
        shown = filtered({"text/html": f"{sheet}<table>{'<tr><td>a</td></tr>' * rows}</table>"})[0]["text/html"]
        assert ("absolute" in shown) is kept
        assert shown.count("<td>") == rows


GRIDS = {
    "GridspecLayout": {"display": "grid", "grid_template_columns": "repeat(4, 1fr)", "grid_template_areas": '"widget001 ."\n". widget002"'},
    "AppLayout": {"grid_template_columns": "1fr 2fr 1fr", "grid_template_rows": "minmax(100px, 3fr) auto 60px", "grid_gap": "5px 10px"},
    "GridBox": {"grid_template_columns": "repeat(3, 100px)", "grid_row": "1 / 3", "grid_column": "span 2", "grid_area": "header"},
    "many tracks": {"grid_template_columns": "repeat(9999, 1px)"},
    "tracks of tracks": {"grid_template_columns": "repeat(99, 1px) repeat(99, 1px)"},
    "a span": {"grid_column": "span 9999", "grid_row": "1 / 5000"},
    "dense": {"grid_auto_flow": "row dense"},
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_grids_of_widgets_have_few_tracks(name: str) -> None:
    """Layouts of ipywidgets are grids, as no other output is: what they are made of stays, what multiplies does not."""
    sent = OutputPolicy("safe").apply(model("l", "LayoutModel", **GRIDS[name])).message
    assert sent is not None
    kept = {key: value for key, value in sent.content["data"]["state"].items() if key in GRIDS[name] and value}
    assert kept == (GRIDS[name] if name[0].isupper() else {})


BETWEEN = {
    "nothing": "", "a joiner of graphemes": "\u034f", "a joiner": "\u200d", "a word joiner": "\u2060", "a soft hyphen": "\xad", "a space without width": "\u200b",
    "a filler": "\u3164", "a filler of Hangul": "\u115f\u1160", "half a filler": "\uffa0", "a variation": "\ufe0f", "a vowel of Khmer": "\u17b4", "Mongolian": "\u180b\u180e",
    "a tag": "\U000e0061", "nothing assigned": "\u2065\ufff0\U000e0fff", "a direction": "\u202e\u2066\u2069\u061c", "a musical sign": "\U0001d173", "shorthand": "\U0001bca0",
}  # fmt: skip


MARKS = ["\u0301", "\u0301\u0323", "\u05b0", "\U0001f3fb", "\u20dd"]


@pytest.mark.slow
@each("between", BETWEEN)
def test_nothing_between_marks_makes_more_of_them(between: str) -> None:
    """160 kB of marks with invisible letters between them kept a tab for half a minute; so do colours of skin."""
    number = [*BETWEEN].index(between)
    for mark in {MARKS[0], MARKS[number % len(MARKS)]}:
        _makes_no_more(between, mark)


def _makes_no_more(between: str, mark: str) -> None:
    text = "a" + (mark * (60 // len(mark)) + BETWEEN[between]) * 200
    policy = OutputPolicy("safe")
    shown = [filtered({mime: text})[0][mime] for mime in ("text/plain", "text/html")]
    shown.append(filtered({"text/html": f"<p>{text}</p>"})[0]["text/html"])
    for pieces in ([text], re.findall(r"(?s).{1,50}", text)):
        sent = [policy.apply(message("stream", {"name": "stdout", "text": piece})).message for piece in pieces]
        shown.append("".join(one.content["text"] for one in sent if one))
    tree = policy.apply(display({"application/json": [text]})).message
    assert tree is not None
    shown.append(tree.content["data"]["application/json"][0])
    for one in shown:
        assert sum(one.count(letter) for letter in set(mark)) <= slow_text.MAX_MARKS + slow_text.MARKS_OF_A_LETTER


PARTING = {
    "formats": "<b></b>", "letters that are hidden": "<i style='display:none'>abcdefghijklmnop</i>", "a place to break": "<wbr>", "a comment": "<!---->",
    "formats around them": "<b>abcdefgh</b>", "entities": "&zwj;&shy;",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("between", PARTING)
def test_no_markup_between_marks_makes_more_of_them(between: str) -> None:
    """An element may be hidden, and what it holds parts no marks: none lends its letters to another."""
    source = "<p>a" + ("&#x301;" * 60 + PARTING[between]) * 500
    for mode in MODES:
        data, _ = filtered({"text/html": source}, OutputPolicy(mode))
        assert data["text/html"].count("\u0301") <= slow_text.MAX_MARKS + slow_text.MARKS_OF_A_LETTER
        assert filtered({"text/html": data["text/html"]}, OutputPolicy(mode))[0] == data


def test_changes_of_script_count_in_widgets_and_fill_a_page() -> None:
    text = "a\u4e00" * 100_000
    policy = OutputPolicy("safe")
    policy.apply(model("w", "LabelModel"))
    sent = policy.apply(update("w", value=text))
    assert sent.message is not None
    assert slow_text.scripts(str(sent.message.content)) <= slow_text.MAX_SCRIPTS
    half = filtered({"text/html": "<p>" + "a\u4e00" * 25_000})[1]
    assert half.reasons == ()
    assert half.work >= 25_000, "half a page"


def test_elements_of_a_drawing_share_the_marks_of_its_text() -> None:
    from sandbox_kernel.policy import svg

    source = "<svg><text>a" + f"<tspan>{chr(0x301) * 60}</tspan>" * 100 + "</text></svg>"
    assert svg.clean(source)[0].count("\u0301") <= slow_text.MAX_MARKS


def test_a_line_that_is_overwritten_joins_no_rows_of_marks() -> None:
    """What is left of a line after a carriage return is the end of what was there: of marks, if it ended with them."""
    policy = OutputPolicy("safe")
    for length in range(4_000, 0, -64):
        text = "x" * (length - 64) + "\u0301" * 64 + "\r"
        sent = policy.apply(message("stream", {"name": "stdout", "text": text})).message
        assert sent is not None
        if length < 4_000:
            assert sent.content["text"].count("\u0301") <= slow_text.MAX_OVERWRITTEN


HONEST = {
    "Hindi": "नमस्ते दुनिया", "Hebrew with points": "בְּרֵאשִׁ֖ית בָּרָ֣א אֱלֹהִ֑ים", "Arabic": "ٱلْحَمْدُ لِلَّهِ", "Thai": "สวัสดีชาวโลก ที่นี่", "Tibetan": "བསྒྲུབས་", "Vietnamese": unicodedata.normalize("NFD", "Tiếng Việt"),
    "emoji": "👩🏽‍💻👍🏿❤️🏳️‍🌈", "Hangul": unicodedata.normalize("NFD", "안녕하세요"), "IPA": "t̪ʰɐ̃ː", "a struck word": "".join(one + "\u0336" for one in "struck"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_control_marks_of_all_scripts_stay(name: str) -> None:
    text = f"{HONEST[name]} " * 2_000
    policy = OutputPolicy("safe")
    sent = message("stream", {"name": "stdout", "text": text})
    assert policy.apply(sent).message == sent
    table = "<table>" + f"<tr><td>{HONEST[name]}</td><td><b>{HONEST[name]}</b></td></tr>" * 500 + "</table>"
    assert filtered({"text/html": table})[0]["text/html"].count(HONEST[name]) == 1_000


@given(st.lists(st.text("a\u0301\u2060\u200b\u3164\u05d0 \n\r\b\U0001f3fb=", max_size=40), max_size=8))
@examples(300)
def test_a_text_without_marks_is_let_through_as_the_look_at_each_letter_does(texts: list[str]) -> None:
    quick, slow = slow_text.Marks(), slow_text.Marks()
    for text in texts:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slow_text, "_MOVES", re.compile(""))
            patch.setattr(slow_text, "has_marks", lambda text: True)
            kept = slow.feed(text)
        assert quick.feed(text) == kept
        assert vars(quick) == vars(slow)
