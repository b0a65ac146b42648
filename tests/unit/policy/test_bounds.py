"""What a browser would be busy with for long is not shown, or without what makes it slow."""

# ruff: noqa: E501 (an attack reads best on one line)

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from sandbox_kernel.core.codes import OutputCode
from sandbox_kernel.policy import OutputPolicy, css, html, markdown
from sandbox_kernel.policy.verdict import Notes
from tests.support.policy.messages import filtered

MODES: list[Any] = ["safe", "strict"]


@pytest.mark.parametrize("mode", MODES)
def test_a_table_of_a_quarter_of_a_million_cells_is_shown_as_text(mode: Any) -> None:
    """Unbounded, it keeps a page busy for ten seconds."""
    row = "<tr>" + "<td>1</td>" * 20 + "</tr>"
    for source in (f"<table>{row * 11_800}</table>", f"<script>1</script><table>{row * 11_800}</table>"):
        data, verdict = filtered({"text/html": source}, OutputPolicy(mode))
        assert data["text/html"].startswith("<pre>&lt;")
        assert data["text/html"].count("<") < 10
        assert verdict.reasons == ("showed HTML as text: too much markup to check",)
    honest, verdict = filtered({"text/html": f"<table>{row * 2_000}</table>"}, OutputPolicy(mode))
    assert honest["text/html"].count("<td>") == 40_000
    assert verdict.reasons == ()


def test_elements_that_a_parser_adds_are_counted_too() -> None:
    data, _ = filtered({"text/html": "<b>x</b>" + "</p>" * 150_000})
    assert data["text/html"].count("<") < 10


def test_a_frame_of_ours_that_a_cell_wrote_itself_is_counted_as_any() -> None:
    from sandbox_kernel.policy import frame

    wrapped = frame.wrap("<script>1</script>" + "<i>x</i>" * 60_000)
    assert frame.unwrapped(wrapped) is not None
    data, _ = filtered({"text/html": wrapped})
    assert "<iframe" not in data["text/html"]


SLOW = {
    "siblings": "p ~ p ~ p ~ b{} {{color:red}}",
    "next ones": "p + p + p + b{} {{color:red}}",
    "has": "div:has(b{}) {{color:red}}",
    "is": ":is(p, b) :is(i, u){} {{color:red}}",
    "deep": "a b i u s b i u s a b i u s b{} {{color:red}}",
    "of": "p:nth-child(2n of p){} {{color:red}}",
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("mode", MODES)
def test_rules_that_look_at_every_other_element_are_left_out(name: str, mode: Any) -> None:
    """Forty of them and 200,000 elements kept a page busy for 45 s. A frame would not help: it may share the process."""
    styles = "".join(SLOW[name].format(number if name in ("siblings", "next ones") else "") for number in range(40))
    data, verdict = filtered({"text/html": f"<style>{styles}</style>" + "<p>x</p>" * 2000}, OutputPolicy(mode))
    assert "<style>" not in data["text/html"]
    assert "<iframe" not in data["text/html"]
    assert verdict.reasons == ("removed <style>: it cannot be confined to this output",)


def test_rules_times_elements_are_bounded() -> None:
    """By what a browser tries: a rule for one cell, as pandas writes them, costs nothing for the others."""
    plain = "".join(f"td {{color:#{number:06x}}}" for number in range(500))
    cells = "<table>" + "<td>x</td>" * 10_000 + "</table>"
    data, _ = filtered({"text/html": f"<style>{plain}</style>{cells}"})
    assert "<style>" not in data["text/html"]
    styler = "".join(f"#T_a_row{number}_col0 {{color:red}}" for number in range(10_000))
    table = "<table id='T_a'>" + "".join(
        f"<tr><td id='T_a_row{n}_col0' class='data row{n} col0'>x</td></tr>" for n in range(10_000)
    )
    data, verdict = filtered(
        {"text/html": f"<style>{styler}#T_a tbody tr:nth-child(even) td.col0 {{color:blue}}</style>{table}</table>"}
    )
    assert data["text/html"].count("{color:red}") == 10_000
    assert ":nth-child(even)" in data["text/html"]
    assert verdict.reasons == ()


@pytest.mark.parametrize(
    "selector",
    [
        "#T_1 td", ".dataframe tbody tr th:only-of-type", "#T_a th.col_heading.level0:hover", "td > span", "tr:nth-child(2n+1)",
        "#T_a .row0:not(:first-child)", "table.dataframe thead tr:last-child th", "*", "a[class='data']", "#T_a tr:nth-of-type(odd)",
    ],
)  # fmt: skip
def test_the_selectors_that_tables_are_styled_with_stay(selector: str) -> None:
    assert css.stylesheet(f"{selector} {{color:red}}", "x") == f".x {selector} {{color:red}}"
    assert not css.is_costly(f"{selector} {{color:red}}", 40_000)


@pytest.mark.parametrize(
    "source",
    [
        "*a_" * 60_000, "*a_" * 30_000, "[a](" * 20_000, "![" * 30_000, "> " * 40_000, "- " * 40_000, "`a" * 30_000, "**a" * 30_000,
        "[a]: b\n" * 10_000, "~~a" * 20_000, "|a" * 20_000 + "\n" + "|-" * 20_000, "1. a\n" * 20_000, "<b>" * 10_000, "$a" * 20_000,
        "\\begin{align}{}" * 6_000, "a  \n" * 20_000, "&amp;" * 15_000, "\\*" * 10_000, "[a" * 10_000 + "]" * 10_000,
    ],
)  # fmt: skip
def test_markdown_is_read_in_bounded_time(source: str) -> None:
    """A browser's parser took 45 s for the first; ours never sees it, and is quick with the rest."""
    started = time.process_time()
    data, _ = filtered({"text/markdown": source})
    assert time.process_time() - started < 5
    assert "text/markdown" not in data
    # What goes out is not nested deeper than a browser lays out at once.
    depth = deepest = 0
    for end, empty in re.findall(
        r"<(/?)[a-z][^>]*?(/?)>", re.sub(r"<(?:br|hr|img|wbr)\b[^>]*>", "", data["text/html"])
    ):
        depth += -1 if end else 0 if empty else 1
        deepest = max(deepest, depth)
    assert deepest < 1000


def test_words_without_end_are_not_passed_as_markdown() -> None:
    assert markdown.is_text("word " * 1000 + "word")
    assert not markdown.is_text("word " * 10_000 + "word")
    notes = Notes()
    assert markdown.render("*a_" * 60_000, notes).startswith("<pre>*a_")
    assert [note.code for note in notes] == [OutputCode.MARKDOWN_AS_TEXT]
    assert html.MAX_TAGS <= 50_000


@pytest.mark.parametrize("source", [">" * 40 + "\x1b]0;title\x07", "+" * 40 + "<p style='--a:url(http://a.test)'>x"])
def test_what_is_shown_as_text_is_settled_and_has_no_control(source: str) -> None:
    shown = markdown.render(source, Notes())
    assert shown.count("<pre>") == 1
    assert "\x1b" not in shown
    assert html.sanitise(shown, Notes()) == shown
