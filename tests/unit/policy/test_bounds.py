"""What a browser would be busy with for long is not shown, or without what makes it slow."""

# ruff: noqa: E501 (an attack reads best on one line)

from __future__ import annotations

import json
import re
import time
from html import unescape
from typing import Any

import pytest

from sandbox_kernel.core.codes import OutputCode
from sandbox_kernel.policy import css, html, markdown, slow_text, svg, tex
from sandbox_kernel.policy.allowance import MAX_ELEMENTS, ExcessError, of_formulas
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.verdict import Notes
from tests.support.cases import each, paired, some
from tests.support.policy.messages import display, filtered, message, model, update

MODES: list[Any] = ["safe", "strict"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_table_of_a_quarter_of_a_million_cells_is_shown_as_text(mode: Any) -> None:
    """Unbounded, it keeps a page busy for ten seconds."""
    row = "<tr>" + "<td>1</td>" * 20 + "</tr>"
    for source in (f"<table>{row * 11_800}</table>", f"<script>1</script><table>{row * 11_800}</table>"):
        data, verdict = filtered({"text/html": source}, OutputPolicy(mode))
        assert data["text/html"].startswith("<pre>&lt;")
        assert data["text/html"].count("<") < 10
        assert [note.code for note in verdict.notes] == [OutputCode.HTML_AS_TEXT]
    honest, verdict = filtered({"text/html": f"<table>{row * 2_000}</table>"}, OutputPolicy(mode))
    assert honest["text/html"].count("<td>") == 40_000
    assert verdict.reasons == ()


@pytest.mark.parametrize("letter", "\x80\xad\xb0\xb7\xbf")
def test_signs_that_the_sanitiser_takes_long_with_are_counted(letter: str) -> None:
    """Of all letters whose bytes begin like a hard space's: 400,000 soft hyphens kept the host for 40 s."""
    source = "<p>" + ("a" + letter) * 400_000
    assert html.is_costly(source) is html.is_costly(source.replace(letter, "\xa0")) is True
    assert not html.is_costly(source.replace(letter, "\xe9"))
    assert not html.is_costly("<table>" + f"<td>20 {letter}C</td>" * 40_000 + "</table>")


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


@each("name", SLOW)
@each("mode", MODES)
def test_rules_that_look_at_every_other_element_are_left_out(name: str, mode: Any) -> None:
    """Forty of them and 200,000 elements kept a page busy for 45 s. A frame would not help: it may share the process."""
    styles = "".join(SLOW[name].format(number if name in ("siblings", "next ones") else "") for number in range(40))
    data, verdict = filtered({"text/html": f"<style>{styles}</style>" + "<p>x</p>" * 2000}, OutputPolicy(mode))
    assert "<style>" not in data["text/html"]
    assert "<iframe" not in data["text/html"]
    assert verdict.reasons == ("removed <style>: it cannot be confined to this output",)


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert MAX_ELEMENTS <= 50_000


@pytest.mark.parametrize("source", [">" * 40 + "\x1b]0;title\x07", "+" * 40 + "<p style='--a:url(http://a.test)'>x"])
def test_what_is_shown_as_text_is_settled_and_has_no_control(source: str) -> None:
    shown = markdown.render(source, Notes())
    assert shown.count("<pre>") == 1
    assert "\x1b" not in shown
    assert html.sanitise(shown, Notes()) == shown


ROWS = {
    "Latin": "a" + "\u0301" * 100_000,
    "Hebrew": "\u05d0" + "\u05b0" * 100_000,
    "Thai": "\u0e01" + "\u0e49" * 100_000,
    "mixed": "a" + "\u0301\u0323" * 50_000,
    "with colours between": "a" + "\u0301\x1b[1m" * 20_000,
}


def longest(text: str) -> int:
    """Return how many marks stand in a row, as a front end puts texts together: without colours and steps back."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    while (fewer := re.sub(r"[^\n]\x08", "", text)) != text:
        text = fewer
    return max(map(len, re.findall("[\u0301\u0323\u05b0\u0e49]+", text)), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(ROWS, of=2))
def test_no_letter_has_thousands_of_marks(name: str) -> None:
    """80,000 on one keep a tab for half a minute, and twice as many for four times as long."""
    text = ROWS[name]
    assert longest(text) == (20_000 if "colours" in name else 100_000)
    policy = OutputPolicy("safe")
    policy.apply(model("w", "LabelModel"))
    started = time.process_time()
    for mime in ("text/plain", "text/html", "text/markdown", "text/latex", "application/json"):
        data, _ = filtered({mime: [text] if mime == "application/json" else text})
        assert longest(str(data)) <= slow_text.MAX_MARKS
    for kind, content in (
        ("stream", {"name": "stdout", "text": text}),
        ("error", {"ename": text, "evalue": text, "traceback": [text]}),
    ):
        sent = policy.apply(message(kind, content)).message
        assert sent is not None
        assert longest("".join(map(str, sent.content.values()))) <= slow_text.MAX_MARKS
    said = policy.apply(update("w", value=text, description=text)).message
    assert said is not None
    assert longest(str(said.content)) <= slow_text.MAX_MARKS
    assert time.process_time() - started < 5


@pytest.mark.parametrize("between", ["", "x\b" * 300, "xy\b\b", "\x1b[1m", "\x1b[38;5;12m" * 40])
def test_marks_that_come_in_pieces_are_counted_as_they_are_joined(between: str) -> None:
    policy = OutputPolicy("safe")
    shown = []
    for text in ("a", *["\u0301" * 40, between] * 50):
        sent = policy.apply(message("stream", {"name": "stdout", "text": text})).message
        assert sent is not None
        shown.append(sent.content["text"])
    assert 40 <= longest("".join(shown)) <= slow_text.MAX_MARKS


@pytest.mark.parametrize(
    "between", [[("a", "x" * 16), ("a", "\b" * 16)], [("b", "x")], [("b", "\u0301"), ("a", "\x1b[1m")]]
)
def test_messages_between_marks_make_no_more_of_them(between: list[tuple[str, str]]) -> None:
    """Letters that steps back take away again, and another cell's output: an old cell's thread prints on."""
    policy = OutputPolicy("safe")
    shown = []
    for cell, text in [("a", "a"), *[("a", "\u0301" * 64), *between] * 50]:
        sent = policy.apply(message("stream", {"name": "stdout", "text": text}, parent=cell)).message
        assert sent is not None
        shown += [sent.content["text"]] if cell == "a" else []
    assert longest("".join(shown)) <= slow_text.MAX_MARKS


def test_a_word_that_another_cell_prints_into_is_parted_all_the_same() -> None:
    policy = OutputPolicy("safe")
    shown = []
    for number in range(20):
        sent = policy.apply(message("stream", {"name": "stdout", "text": "\u0e01" * 900}, parent="a")).message
        policy.apply(message("stream", {"name": "stdout", "text": f"{number}\n"}, parent="b"))
        assert sent is not None
        shown.append(sent.content["text"])
    assert max(map(len, "".join(shown).split(slow_text.BREAK))) <= slow_text.MAX_WORD


@pytest.mark.parametrize(
    "text",
    [
        "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\n" * 1000, "\U0001f600" * 5000, "\u2500" * 5000, "\U0001f469\u200d\U0001f469\u200d\U0001f467" * 500,
        "Z" + "\u0301\u0323" * 20 + "algo\n", "\u280b\b\u2819\b" * 100, "\u2764\ufe0f \u280b\b" * 100, "\u0634\u064e\u0631\u0652\u0642\n" * 500, "\u5c71\u3001\u5ddd\u3002" * 2000,
    ],
)  # fmt: skip
def test_text_of_all_scripts_stays_as_it_is(text: str) -> None:
    policy = OutputPolicy("safe")
    sent = message("stream", {"name": "stdout", "text": text})
    assert policy.apply(sent).message == sent
    assert filtered({"text/plain": text})[0] == {"text/plain": text}


@pytest.mark.parametrize("mode", MODES)
def test_cells_over_more_rows_than_there_are_are_shown_as_text(mode: Any) -> None:
    """40,000 cells over a thousand rows each keep a page for 18 seconds."""
    for rows in ("1000", "&#49;000", "+1000", "' 01000 '"):
        source = "<table>" + f"<tr><td rowspan={rows}>x</td></tr>" * 2000 + "</table>"
        data, verdict = filtered({"text/html": source}, OutputPolicy(mode))
        assert data["text/html"].startswith("<pre>&lt;table")
        assert verdict.reasons == ("showed HTML as text: it has more than 50,000 elements with their repeats",)
    honest = "<table>" + "<tr><th rowspan=10>a</th><td>b</td></tr>" * 5000 + "</table>"
    assert filtered({"text/html": honest}, OutputPolicy(mode))[0]["text/html"].count("rowspan") == 5000


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_html_that_changes_its_direction_without_end_is_cut(mode: Any) -> None:
    for source in (
        "<p>" + "1\u05d0" * 200_000,
        "1\u05d0" * 200_000,
        "<style>p{display:inline}</style>" + "<p>1\u05d0</p>" * 30_000,
        "1\u05d0<br>" * 30_000,
    ):
        data, _ = filtered({"text/html": source}, OutputPolicy(mode))
        assert slow_text.turns(data["text/html"]) <= slow_text.MAX_TURNS
    honest = "<table>" + "<tr><td>\u05e9\u05dc\u05d5\u05dd 1</td></tr>" * 15_000 + "</table>"
    assert filtered({"text/html": honest}, OutputPolicy(mode))[0]["text/html"].count("<td>") == 15_000


ENTITIES: dict[str, str] = {
    "decimal": "&#{};", "hexadecimal": "&#x{:x};", "padded": "&#x{:08x};", "without an end": "&#{}<!---->",
}  # fmt: skip


@pytest.mark.slow
@each("how", ENTITIES)
@each("mode", MODES)
def test_what_is_slow_is_found_however_it_is_written(how: str, mode: Any) -> None:
    """As entities, 80,000 accents and as many changes of direction were no letters before the page was read."""
    accent, hebrew, thai = (ENTITIES[how].format(ord(letter)) for letter in "\u0301\u05d0\u0e01")
    policy = OutputPolicy(mode)
    for mime, around in (("text/html", "<p>{}</p>"), ("text/html", "{}"), ("text/markdown", "*a* {}")):
        data, _ = filtered({mime: around.format("a" + accent * 5000)}, policy)
        assert longest(str(data)) <= slow_text.MAX_MARKS
        data, _ = filtered({mime: around.format(("1" + hebrew) * 25_000)}, policy)
        assert slow_text.turns(str(data)) <= slow_text.MAX_TURNS
        data, _ = filtered({mime: around.format(thai * 5000)}, policy)
        assert unbroken(spelled(data)) <= slow_text.MAX_WORD


def test_entities_in_an_svg_are_read_first() -> None:
    for accent in ("&#769;", "&#x301;", "<!---->\u0301", "<![CDATA[\u0301]]>", "<?a?>\u0301", "<b/>\u0301"):
        kept = svg.clean(f"<svg xmlns='{svg.SVG}'><text>a{accent * 5000}</text></svg>")[0]
        assert 40 <= longest(kept) <= slow_text.MAX_MARKS
    with pytest.raises(ExcessError, match="direction"):
        svg.clean(f"<svg xmlns='{svg.SVG}'><text>{'1&#x5d0;' * 25_000}</text></svg>")
    honest = f"<svg xmlns='{svg.SVG}'><text>\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u05e9\u05dc\u05d5\u05dd</text></svg>"
    assert svg.clean(honest)[0].count("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u05e9\u05dc\u05d5\u05dd") == 1


def spelled(content: Any) -> str:
    """Return a message's content as one text, with its letters as they are."""
    return json.dumps(content, ensure_ascii=False)


def unbroken(text: str, *, hidden: bool = False) -> int:
    """Return how many letters of scripts without spaces go without a place to break; `hidden`: what <i> has counts not."""
    if hidden:
        text = re.sub("<i[^>]*>[^<]*</i>", "", text)
    words = re.split("[ \\n\u200b]", re.sub("<[^>]*>", "", text))
    return max(len(re.findall("[\u0e01-\u0ebd\u1000-\u109f\u1780-\u17d3]", word)) for word in words)


LETTERS = {"Thai": "\u0e01", "Lao": "\u0e81\u0eb0", "Khmer": "\u1780", "Burmese": "\u1000\u102b", "with Chinese": "\u0e01\u6f22", "with Latin": "\u0e01a"}  # fmt: skip
WORDS: dict[str, str] = {
    "one word": "<p>{0}</p>",
    "no markup": "{0}",
    "cells": "<table><tr><td>{0}</td></tr></table>",
    "in many tags": "<p><b>{1}</b></p>",
    "hard spaces": "<p>{2}</p>",
}


@pytest.mark.slow
@each("letters", LETTERS)
@each("how", WORDS)
@each("mode", MODES)
def test_an_endless_word_of_a_script_without_spaces_is_parted(letters: str, how: str, mode: Any) -> None:
    """Their words are found in a dictionary: 500,000 letters without a space kept a tab for minutes."""
    word = LETTERS[letters] * 20_000
    source = WORDS[how].format(
        word, "</b><b>".join([LETTERS[letters] * 500] * 40), "\xa0".join([LETTERS[letters] * 500] * 40)
    )
    policy = OutputPolicy(mode)
    data, verdict = filtered({"text/html": source}, policy)
    assert unbroken(source) >= 20_000
    assert 900 <= unbroken(data["text/html"]) <= slow_text.MAX_WORD
    assert data["text/html"].replace("\u200b", "").count(LETTERS[letters]) == source.count(LETTERS[letters])
    assert verdict.reasons == ()
    assert filtered({"text/html": data["text/html"]}, policy)[0] == data


@pytest.mark.parametrize(
    "hiding",
    ["<i style='display:none'> </i>", "<i class='jp-mod-hidden'> </i>", "<i hidden> </i>", "<i class=a>\u0e01</i>"],
)  # fmt: skip
def test_a_space_that_a_style_hides_parts_nothing(hiding: str) -> None:
    source = "<style>.a {display:none}</style><p>" + ("\u0e01" * 900 + hiding) * 100 + "</p>"
    data, _ = filtered({"text/html": source})
    assert unbroken(data["text/html"], hidden=True) <= slow_text.MAX_WORD
    assert filtered({"text/html": data["text/html"]})[0] == data
    # Fewer cost what they may come to.
    few = "<style>.a {display:none}</style><p>" + ("\u0e01" * 900 + hiding) * 20 + "</p>"
    assert filtered({"text/html": few})[1].work > 18_000


def test_such_a_word_in_texts_is_parted_too() -> None:
    word = "\u0e01" * 5000
    policy = OutputPolicy("safe")
    policy.apply(model("w", "LabelModel"))
    for mime in ("text/plain", "text/markdown", "application/json"):
        data, _ = filtered({mime: [word] if mime == "application/json" else word}, policy)
        assert unbroken(spelled(data)) <= slow_text.MAX_WORD
    shown = ""
    for _ in range(50):
        sent = policy.apply(message("stream", {"name": "stdout", "text": "\u0e01" * 300 + "a"})).message
        assert sent is not None
        shown += sent.content["text"]
    assert 900 <= unbroken(shown) <= slow_text.MAX_WORD
    said = policy.apply(update("w", value=word, description=word)).message
    assert said is not None
    assert unbroken(spelled(said.content)) <= slow_text.MAX_WORD


def test_control_a_text_with_spaces_stays_as_it_is() -> None:
    thai = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01" * 10 + " "
    table = "<table class='dataframe'>\n" + f"<tr>\n<td>{thai.strip()}</td>\n</tr>\n" * 100 + "</table>"
    for mime, text in (("text/plain", thai * 500), ("text/html", f"<p>{thai * 500}</p>"), ("text/html", table)):
        assert "\u200b" not in spelled(filtered({mime: text})[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "letters",
    some(["\u0e01", "\u0e01\u6f22", "\U0001f300", "a\u0e01\uac05\u6f22\u1f00\u0416\u263a", "\u2801"], of=2),
    ids=ascii,
)
def test_text_that_takes_several_times_as_long_is_bounded_earlier(letters: str) -> None:
    """500,000 of these take 5 to 15 s, where as many Latin or Chinese ones take half a second."""
    for source in (letters * (400_000 // len(letters)), "<p>" + letters * (400_000 // len(letters))):
        data, verdict = filtered({"text/html": source})
        assert [note.code for note in verdict.notes] == [OutputCode.HTML_AS_TEXT]
        assert len(data["text/html"]) < 110_000
    for honest in (
        "\u6f22\u5b57\u3001 ",
        "\u0440\u0443\u0441 ",
        "\uc548\ub155 ",
        "\u0928\u092e\u0938 ",
    ):
        assert filtered({"text/html": "<p>" + honest * 80_000})[1].reasons == ()


def test_japanese_is_broken_between_letters() -> None:
    """Between phrases, which a model of the language finds, 100,000 letters keep a tab for 22 s."""
    for style in ("word-break:auto-phrase", "word-break: AUTO-PHRASE !important"):
        data, _ = filtered({"text/html": f"<p lang=ja style='{style}'>\u3042</p>"})
        assert "phrase" not in str(data).lower()
    assert "keep-all" in str(filtered({"text/html": "<p style='word-break:keep-all'>x</p>"})[0])


def test_only_a_small_json_is_unfolded() -> None:
    """40,000 values that are all shown at once keep a page for ten seconds."""
    large = {f"a{a}": {f"b{b}": list(range(40)) for b in range(40)} for a in range(25)}
    for tree, kept in ((large, False), ({"a": [1, 2, {"b": 3}]}, True), (list(range(999)), True), ([[]] * 1000, False)):
        sent = display({"application/json": tree}, metadata={"application/json": {"expanded": True, "root": "x"}})
        result = OutputPolicy("safe").apply(sent).message
        assert result is not None
        assert result.content["data"] == {"application/json": tree}
        assert result.content["metadata"] == {"application/json": {"root": "x"} | ({"expanded": True} if kept else {})}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_text_that_takes_long_to_lay_out_is_cut(mode: Any) -> None:
    """Justified, three million letters keep a page for 22 s; one in each line, as long."""
    words = "lorem ipsum " * 50_000
    for source in (
        f"<div style='text-align:justify;width:100px'>{words}</div>",
        f"<p align=justify>{words}</p>",
        f"<div style='width:1px;word-break:break-all'>{words}</div>",
        f"<ul>{'<ul>' * 30}<li>{words}",
        "<p>a</p>" * 2_000 + words,
        words,
    ):
        data, verdict = filtered({"text/html": source}, OutputPolicy(mode))
        assert len(data["text/html"]) < 3 * html.MAX_TEXT
        assert [note.code for note in verdict.notes] == [OutputCode.HTML_AS_TEXT]
        again, _ = filtered(data, OutputPolicy(mode))
        assert again == data
    settled = html.sanitise(f"<p style='width:10em'>{words[:1000]}</p>", Notes())
    assert html.sanitise(settled.replace(words[:900], words), Notes()).startswith("<div")
    # A picture is no text, and neither is what stands in tags.
    table = "<table>" + "<tr>" + "<td title='twelve words' style='color:red'>0.123456</td>" * 20 + "</tr>"
    honest, verdict = filtered({"text/html": table * 1000 + "</table>"}, OutputPolicy(mode))
    assert honest["text/html"].count("<td") == 20_000
    article = "<p style='text-align:justify'>" + "lorem ipsum " * 8_000 + "</p>"
    assert filtered({"text/html": article * 5}, OutputPolicy(mode))[0]["text/html"].count("justify") == 5
    assert verdict.reasons == ()


SMALL_CAPITALS = [
    "font-variant:small-caps", "font-variant : SMALL-CAPS", "font-variant-caps:all-small-caps", "font:small-caps 12px serif",
    "font-variant:ordinal petite-caps", "font-variant-caps:titling-caps", "font-variant:unicase", "font-variant-caps: all-petite-caps",
]  # fmt: skip


@pytest.mark.parametrize("style", SMALL_CAPITALS)
def test_no_text_is_set_in_small_capitals(style: str) -> None:
    """400,000 letters take 48 s: a browser looks at each piece of a text for each other."""
    value = style.partition(":")[2]
    for source in (f"<p style='{style}'>x</p>", f"<style>p{{{style}}}</style><p>x</p>"):
        assert "ca" not in filtered({"text/html": source}, OutputPolicy("strict"))[0]["text/html"].split("<small>")[0]
    for source in (
        f"<svg><text style='{style}'>x</text></svg>",
        f"<svg><style>text{{{style}}}</style><text>x</text></svg>",
    ):
        assert "ca" not in svg.clean(source)[0]
    assert "caps" not in svg.clean(f"<svg><text font-variant='{value}' font='{value}'>x</text></svg>")[0]
    policy = OutputPolicy("safe")
    sent = policy.apply(model("w", "LabelStyleModel", font_variant=value, font_style="italic")).message
    assert sent is not None
    state = sent.content["data"]["state"]
    assert (state.get("font_variant"), state["font_style"]) == (None, "italic")
    assert css.allowed("font-variant", "tabular-nums")


def nested(macros: str, depth: int = 36) -> str:
    names = macros.split()
    text = "x"
    for level in range(depth):
        text = f"\\{names[level % len(names)]}{{{text}}}"
    return f"${text}$"


FORMULAS = {
    "nested": nested("overline underbrace sqrt"),
    "accents": nested("hat widehat vec"),
    "boxes": nested("boxed sqrt cancel"),
    "fences": "$" + "\\left(" * 38 + "x" + "\\right)" * 38 + "$",
    "indices": "$" + "x_{y}^{" * 38 + "x" + "}" * 38 + "$",
    "letters": "$" + "x+" * 2_000 + "$",
    "rows": "$\\begin{align}" + "a&=b\\\\" * 400 + "\\end{align}$",
    "cells": "$\\begin{matrix}" + "&" * 2_000 + "\\end{matrix}$",
    "all of them": nested("overline underbrace sqrt hat boxed vec") + " $x_{y}^{z}$",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), paired(FORMULAS, MODES))
def test_formulas_come_to_no_more_boxes_than_a_page_makes_at_once(name: str, mode: Any) -> None:
    """Those of one output kept a page for 30 s, took 1.7 GB and crashed its tab."""
    one = FORMULAS[name]
    often = 38_000 // len(one)
    for mime, source in (
        ("text/markdown", "\n\n".join([one] * often)),
        ("text/html", "<p>" + "<b>,</b>".join([one.replace("&", "&amp;")] * often)),
    ):
        shown = filtered({mime: source}, OutputPolicy(mode))[0]["text/html"]
        typeset = [] if "<pre>" in shown else re.findall(r">(\$[^$<]+\$)<", shown)
        assert sum(weight(unescape(formula)) for formula in typeset) <= MAX_ELEMENTS / 2 / tex.BOX
        few = filtered({mime: source[: len("<p>") * (mime == "text/html") + len(one)]}, OutputPolicy(mode))[0]
        assert re.search(r">\$[^$<]+\$<", few["text/html"].replace("&", "")) or "&" in one


def weight(formula: str) -> int:
    """Count by another way than the policy: what is seen, and what is built around it, without names and braces."""
    named = re.findall(r"\\([a-z]+)", formula)
    return len(re.sub(r"\\[a-z]+|[{}\s\\]", "", formula)) + 4 * sum(name not in ("end", "right") for name in named) // 2


def test_formulas_of_mathematics_stay() -> None:
    entry = r"\cos{(\theta_{1})}"
    rows = r"\\".join(" & ".join([entry] * 20) for _ in range(20))
    matrix = rf"$\displaystyle \left[\begin{{matrix}}{rows}\end{{matrix}}\right]$"
    assert tex.is_latex(matrix, of_formulas())
    lecture = [
        r"$\frac{\partial u}{\partial t} = \alpha \nabla^2 u$",
        r"$$\int_0^\infty e^{-x^2} dx = \frac{\sqrt{\pi}}{2}$$",
    ]
    data, _ = filtered({"text/markdown": "\n\n".join(f"Number {n}: {lecture[n % 2]}" for n in range(300))})
    assert data["text/html"].count("<span>$") == 300


@pytest.mark.parametrize(
    "rule",
    [
        "p {position: fixed}",
        "p {position: absolute; top: -50px}",
        "p {position: absolute; top: 1000px}",
        "p {transform: scale(900)}",
        "p {transform: translate(-9999px, 0px)}",
        "p {transform: translate(10vw, 0px)}",
        "p::after {content: url(https://evil.test/x)}",
        "p::after {content: attr(title)}",
        "p::after {content: 'a' 'b'}",
        "p::after {content: 'a\\62 c'}",
        f"p::after {{content: '{'x' * 201}'}}",
        "p::after {content: counter(x)}",
    ],
)
def test_a_sheet_places_and_says_within_bounds(rule: str) -> None:
    data, _ = filtered({"text/html": f"<style>{rule}</style><p>x</p>"}, OutputPolicy("strict"))
    assert "<style>" not in data["text/html"]
    inline = rule.partition("{")[2].rstrip("}").replace("'", "")
    data, _ = filtered({"text/html": f"<p style='{inline}; color: red'>x</p>"})
    assert "position" not in data["text/html"]
    assert "transform" not in data["text/html"]
    assert "content:" not in data["text/html"]


def test_control_what_a_tooltip_of_a_styler_needs_is_kept() -> None:
    sheet = (
        "#T_a .pd-t { visibility: hidden; position: absolute; z-index: 1; transform: translate(-20px, -20px); }\n"
        '#T_a #T_a_row0_col0 .pd-t::after { content: "größer: 5 %"; }'
    )
    page = f'<style>{sheet}</style><table id="T_a"><tr><td id="T_a_row0_col0">x<span class="pd-t"></span></td></tr></table>'
    data, verdict = filtered({"text/html": page}, OutputPolicy("strict"))
    assert verdict.reasons == ()
    assert data["text/html"].count("{") == 2
    assert "größer: 5 %" in data["text/html"]


def test_words_of_a_sheet_come_to_no_more_than_a_page_lays_out() -> None:
    rule = f"td::after {{ content: '{'x' * 190}' }}"
    few, many = ("<table>" + "<tr><td>1</td></tr>" * count + "</table>" for count in (100, 2_000))
    for rows, kept in ((few, True), (many, False)):
        data, _ = filtered({"text/html": f"<style>{rule}</style>{rows}"}, OutputPolicy("strict"))
        assert ("<style>" in data["text/html"]) is kept
    for letter in ("\u0e01", "1\u05d0"):
        slow = f"i::after {{ content: '{letter * 90}' }}"
        data, _ = filtered({"text/html": f"<style>{slow}</style><p>" + "<i></i>" * 500}, OutputPolicy("strict"))
        assert "<style>" not in data["text/html"]
