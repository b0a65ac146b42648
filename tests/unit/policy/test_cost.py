"""No output costs much more time or memory than its size: hostile shapes that make parsers slow are seen before."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from sandbox_kernel.core.model import OutputMode
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.cases import some
from tests.support.policy.messages import display, message, model, update

pytestmark = pytest.mark.slow

N = 200_000
MODES: tuple[OutputMode, ...] = ("safe", "strict")
VIEW = "application/vnd.jupyter.widget-view+json"

SHAPES = {
    "nested elements": "<div>" * N,
    "nested and closed": "<div>" * N + "</div>" * N,
    "nested tables": "<table><td>" * N,
    "formats opened again": "<p>" + "".join(f"<b title={i}>" for i in range(1000)) + "</p>" + "<p>x</p>" * 1000,
    "angle brackets": "<" * N,
    "tags never closed": "<a " * N,
    "scripts never closed": "<script>" * N,
    "little scripts": "<script>1</script>" * N,
    "little style sheets": "<style>p{}</style>" * N,
    "scripts without an end": "<script " * N,
    "styles never closed": "<style>" * N,
    "a style sheet without rules": "<style>" + "a" * N + "</style>",
    "comments in a style sheet": "<style>" + "/*" * N + "</style>",
    "braces": "<style>" + "{" * N + "}" * N + "</style>",
    "frames never closed": "<iframe " * N,
    "frames in frames": "<iframe srcdoc='" * N,
    "comments": "<!--" * N,
    "entities": "&" * N,
    "notes of ours": "<div><small>[sandbox_kernel: " * N,
    "quotes": "\"'" * N,
    "escapes": "\x1b]" * N,
    "long escapes": ("\x1b]" + "a" * 4000) * 100,
    "numbers of escapes": "\x1b[" + "1" * N,
    "backslashes": "\\" * N,
    "formulas": "$" * N,
    "fences": "```\n" * N,
    "environments": "\\begin{a}" * N,
    "emphasis": "*a_" * N,
    "brackets": "[" * N,
    "images": "![" * N,
    "links": "[a](" * N,
    "quotes of quotes": ">" * N,
    "ticks": "`a" * N,
    "NULs": "\x00" * N,
    "lone surrogates": "\ud800" * N,
}


@pytest.mark.parametrize("name", some(SHAPES, of=3))
def test_a_hostile_shape_is_filtered_in_bounded_time(name: str) -> None:
    """Bounds are generous, for slow machines: without the checks these take minutes."""
    text = SHAPES[name]
    policy = OutputPolicy("safe")
    policy.apply(model("c", "HTMLModel"))
    started = time.process_time()
    for mode in ("safe", "strict"):
        for mime in ("text/html", "text/plain", "text/latex", "image/svg+xml", "image/png"):
            OutputPolicy(mode).apply(display({mime: text}))
        for markdown in (text, "<" + text[:90_000]):
            OutputPolicy(mode).apply(display({"text/markdown": markdown}))
    policy.apply(update("c", value=text))
    policy.apply(message("stream", {"name": "stdout", "text": text}))
    assert time.process_time() - started < 20


SLOW = {
    "ampersands": "&" * 1_000_000,
    "ampersands in what looks like ours": '<div class="sandbox-output-0123456789abcdef" style="contain:paint">'
    + "&" * 1_000_000 + "</div>",
    "ampersands in an attribute": "<p title='" + "&" * 1_000_000 + "'>",
    "hard spaces": "\xa0" * 1_000_000,
    "dollars": "$" * 10_000_000,
    "backslashes": "\\" * 10_000_000,
    "starts of formulas": "\\(" * 5_000_000,
    "addresses of images": "<style>" + "data:image/svg+xml," * 500_000 + "</style>",
}  # fmt: skip


@pytest.mark.parametrize("name", some(SLOW, of=4))
def test_what_the_parser_of_html_is_slow_with_is_seen_before(name: str) -> None:
    """A million ampersands keep the sanitiser busy for nine seconds, ten million for a quarter of an hour."""
    started = time.process_time()
    for mode in ("safe", "strict"):
        OutputPolicy(mode).apply(display({"text/html": SLOW[name]}))
    assert time.process_time() - started < 5


RULES = "".join(f".a{n}{{{'color:red;' * 20}}}" for n in range(9_000))
MANY_PARTS = {
    "declarations": ("html-as-text", "text/html", f"<style>{RULES}</style><p>x"),
    "selectors": ("html-style", "text/html", f"<style>{'.a,' * 600_000}b{{color:red}}</style><p>x"),
    "both": ("html-style", "text/html", f"<style>{RULES[:700_000]}</style><p>x"),
    "styles": ("html-as-text", "text/html", f"<p style='{'margin:1px;' * 40}'>x" * 9_000),
    "items": ("markdown-as-text", "text/markdown", "- a\n" * 20_000),
    "quotes": ("markdown-as-text", "text/markdown", ">- a\n" * 9_000),
}


@pytest.mark.parametrize("name", MANY_PARTS)
def test_what_has_too_many_parts_is_not_read(name: str) -> None:
    """Each part is judged by itself, in 5 microseconds: so many would take one to four seconds."""
    code, mime, text = MANY_PARTS[name]
    started = time.process_time()
    safe, strict = (OutputPolicy(mode).apply(display({mime: text})) for mode in MODES)
    assert time.process_time() - started < 2
    assert code in [note.code.code for note in strict.notes]
    assert safe.message is not None
    in_frame = str(safe.message.content["data"].get("text/html")).startswith("<iframe ")
    assert in_frame or code in [note.code.code for note in safe.notes]


def test_control_a_table_with_ten_thousand_coloured_cells_keeps_its_colours() -> None:
    bar = "width: 10em; background: linear-gradient(90deg, #{:06x} 3%, transparent 3%);"
    rules = "".join(f"#T_a_row{n}_col0{{{bar.format(n)}}}" for n in range(10_000))
    table = f"<style>{rules}</style><table id='T_a'><td id='T_a_row0_col0'>x</table>"
    verdict = OutputPolicy("safe").apply(display({"text/html": table}))
    assert verdict.reasons == ()
    assert verdict.message is not None
    assert verdict.message.content["data"]["text/html"].count("linear-gradient") == 10_000


def test_json_full_of_controls_is_cleaned_in_one_go() -> None:
    tree = {f"k\x1b[31m{n}\x07\x1b]0;t\x07" * 10: [f"\x00{n}\n\x1b[2Jx"] for n in range(20_000)}
    started = time.process_time()
    verdict = OutputPolicy("safe").apply(display({"application/json": tree}))
    assert time.process_time() - started < 3
    assert verdict.message is not None
    cleaned = verdict.message.content["data"]["application/json"]
    assert len(cleaned) == 20_000
    assert [texts[0].split("\n")[0] for texts in cleaned.values()] == [str(n) for n in range(20_000)]
    whole = "".join((*cleaned, *(texts[0] for texts in cleaned.values())))
    assert not re.search(r"[\x00-\x09\x0b-\x1a\x7f-\x9f]|\x1b(?!\[31m)", whole)


@pytest.mark.parametrize(
    "piece", ["Cell", "CellIn", "CellIn[1]", "File ", "File a", "File a:", "Input ", "Input In ", "<\x1b[m", "<", "'"]
)
def test_a_hostile_traceback_is_filtered_in_bounded_time(piece: str) -> None:
    sent = message("error", {"ename": "E", "evalue": "x", "traceback": ["'" + piece * 200_000]})
    started = time.process_time()
    OutputPolicy("safe").apply(sent)
    assert time.process_time() - started < 3


PLACES = {
    "a selector": ("text/html", "<style>{}b{{color:red}}</style><p>x"),
    "a selector with an end": ("text/html", "<style>{} b{{color:red}}</style><p>x"),
    "a selector with a parenthesis": ("text/html", "<style>b{}){{color:red}}</style><p>x"),
    "arguments of a selector": ("text/html", "<style>b:nth-child({} of){{color:red}}</style><p>x"),
    "an attribute of a selector": ("text/html", "<style>b[a{}]{{color:red}}</style><p>x"),
    "a property": ("text/html", "<style>b{{{}:red}}</style><p>x"),
    "a value": ("text/html", "<style>b{{color:{}!}}</style><p>x"),
    "style": ("text/html", "<p style='color:{}'>x"),
    "class": ("text/html", "<p class='{}!'>x"),
    "a link": ("text/html", "<a href='https://a.test/{} '>x"),
    "an image": ("text/html", "<img src='data:image/png;base64,{}!'>"),
    "a film": ("text/html", "<video src='data:video/mp4;codecs={};base64,'>"),
    "a tag": ("text/html", "<p {}>$x$"),
    "text": ("text/html", "<p>{}<br>$"),
    "a frame": ("text/html", "<script {}>1</script>{}"),
    "a drawing in a frame": ("text/html", "<svg><use href='#a' fill='url(#a{}' x='{}'/>{}"),
    "a formula": ("text/latex", "$x{}$"),
    "what follows a formula": ("text/latex", "$x$ {}<"),
    "a paragraph": ("text/markdown", "a{}"),
    "a definition": ("text/markdown", "[a]: <b> '{}"),
    "text of a drawing": ("image/svg+xml", "<svg><text>{}</text></svg>"),
    "styles of a drawing": ("image/svg+xml", "<svg><style>{}</style></svg>"),
    "rules of a drawing": ("image/svg+xml", "<svg><style>a{{{}}}</style></svg>"),
    "style of a drawing": ("image/svg+xml", "<svg><path style='{}!'/></svg>"),
    "a length": ("image/svg+xml", "<svg width='1{}!'><rect/></svg>"),
    "a reference": ("image/svg+xml", "<svg><rect fill='url(#a){}!'/></svg>"),
    "a reference that does not end": ("image/svg+xml", "<svg><rect fill='url( #a{}!'/></svg>"),
    "a path": ("image/svg+xml", "<svg><path d='{}!' stroke-dasharray='{}!'/></svg>"),
    "a use": ("image/svg+xml", "<svg><use href=' #a{}!'/></svg>"),
    "a picture in a drawing": ("image/svg+xml", "<svg><image href='data:image/png;base64,{}!'/></svg>"),
    "an escape": ("text/plain", "\x1b[{}"),
}
OFTEN = 20_000
"""Times that a character is repeated: what looks at it again from each place takes seconds, all else milliseconds."""
ITS_LENGTH_SECONDS = 0.6


@pytest.mark.parametrize("place", some(PLACES, of=4))
@pytest.mark.parametrize("mode", ["safe", "strict"])
def test_a_character_repeated_in_any_place_costs_what_it_is_long(place: str, mode: Any) -> None:
    """A selector of two million letters kept the host busy for hours, and nothing could interrupt that."""
    mime, text = PLACES[place]
    for piece in (*'a1 -+~>.#:;,/()[]{}"!*=\\$\n', "-1", "a ", ":a", "\x1b["):
        if mime == "image/svg+xml" and piece == "'":
            continue
        repeated = piece * (OFTEN // len(piece))
        document = text.replace("{{", "\0").replace("}}", "\1").replace("{}", repeated)
        document = document.replace("\0", "{").replace("\1", "}")
        for _ in range(3):  # what else comes in between, such as the collector, does not come in between each time
            started = time.thread_time()
            OutputPolicy(mode).apply(display({mime: document}))
            if (seconds := time.thread_time() - started) < ITS_LENGTH_SECONDS:
                break
        assert seconds < ITS_LENGTH_SECONDS, (place, piece)


def test_a_sheet_of_long_words_is_read_in_bounded_time() -> None:
    """Each value is short, and they are many: what a letter costs counts as well."""
    for text in (
        "<style>a{" + ("color:" + "-" * 1990 + ";") * 900 + "}</style>",
        f"<p style='color:{'-' * 1990}'>" * 900,
    ):
        started = time.process_time()
        OutputPolicy("strict").apply(display({"text/html": text}))
        assert time.process_time() - started < 3


def test_little_markup_does_not_become_much() -> None:
    source = SHAPES["formats opened again"]
    for mode in ("safe", "strict"):
        result = OutputPolicy(mode).apply(display({"text/html": source})).message
        assert result is not None
        assert len(result.content["data"]["text/html"]) < 20 * len(source)


def test_little_scripts_do_not_become_much() -> None:
    """Each script that may run gets a guard; there are only so many of them, and those behind do not run."""
    source = SHAPES["little scripts"]
    result = OutputPolicy("safe").apply(display({"text/html": source})).message
    assert result is not None
    shown = result.content["data"]["text/html"]
    assert len(shown) < 3 * len(source)
    assert shown.count("RTCPeerConnection") < 20_000


def test_markup_too_costly_to_check_is_shown_as_text_where_there_is_no_frame() -> None:
    result = OutputPolicy("strict").apply(display({"text/html": "<div>" * N}))
    assert result.message is not None
    assert result.message.content["data"]["text/html"].startswith("<pre>&lt;div&gt;")
    assert result.reasons == ("showed HTML as text: too much markup to check",)


GROWING = {
    "quotes in a frame": "<script></script>" + '"' * 13_000_000,
    "ampersands in a frame": "<script></script>" + "&" * 13_000_000,
    "ampersands": "<b>" + "&" * 13_000_000,
    "angle brackets": "<b>" + "<" * 13_000_000,
    "closing brackets": "<b>" + ">" * 16_000_000,
    "quotes in an attribute": "<b title='" + '"' * 13_000_000 + "'>",
    "hard spaces": "<b>" + "\xa0" * 13_000_000,
}


@pytest.mark.parametrize("name", some(GROWING, of=2))
@pytest.mark.parametrize("mode", ["safe", "strict"])
def test_what_would_grow_several_times_is_shown_as_text(name: str, mode: Any) -> None:
    """Each becomes an entity of up to six characters, in a frame of ten; 90 MB of them would fill the host's memory."""
    started = time.process_time()
    result = OutputPolicy(mode).apply(display({"text/html": GROWING[name]}))
    assert result.message is not None
    assert len(result.message.content["data"]["text/html"]) < 20_000_000
    assert time.process_time() - started < 10


@pytest.mark.parametrize("control", some(["\x07", "\x1b]", "\x1b[A", "\x00\x9b"], of=2))
def test_text_made_of_controls_loses_them_in_one_go(control: str) -> None:
    text = "before " + control * 2_000_000 + "\nafter"
    policy = OutputPolicy("safe")
    started = time.process_time()
    for sent in (display({"text/plain": text}), message("stream", {"name": "stdout", "text": text})):
        result = policy.apply(sent).message
        assert result is not None
        shown = result.content.get("text") or result.content["data"]["text/plain"]
        assert shown.startswith("before ")
        assert shown.endswith("\nafter")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert time.process_time() - started < 10


def test_a_display_that_a_thousand_widgets_take_over_is_counted_once() -> None:
    """Each Output widget of a cell takes over each of its displays; counted one by one, that was a second a display."""
    policy = OutputPolicy("safe")
    policy.apply(model("label", "LabelModel"))
    for number in range(900):
        assert policy.apply(model(f"output-{number}", "OutputModel", msg_id="cell-1")).message is not None
    view = {"version_major": 2, "version_minor": 0, "model_id": "label"}
    begun = time.process_time()
    for _ in range(20):
        assert VIEW in policy.apply(display({VIEW: view})).message.content["data"]  # type: ignore[union-attr]
    assert time.process_time() - begun < 2
    policy.apply(model("box", "BoxModel", children=["IPY_MODEL_label"] * 600))
    shown = []
    for _ in range(30):
        message = policy.apply(display({VIEW: {**view, "model_id": "box"}})).message
        assert message is not None
        shown.append(VIEW in message.content["data"])
    assert shown[0]
    assert not shown[-1], "more than a page can bear, in each of them"
