"""Hostile outputs come out inert, in both modes that filter."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from sandbox_kernel.core.model import OutputMode
from sandbox_kernel.policy import markdown
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.cases import each
from tests.support.policy.check import faults
from tests.support.policy.hostile import EVIL, HTML, MARKDOWN, RUN
from tests.support.policy.messages import display, filtered, message, model, update

MODES: list[OutputMode] = ["safe", "strict"]


def shown(data: dict[str, Any]) -> list[str]:
    """Return what is wrong with each representation of a bundle."""
    found = []
    for name, value in data.items():
        assert name in {"text/plain", "text/html", "text/markdown", "text/latex"}, name
        if name == "text/html":
            found += faults(value)
        elif name == "text/markdown":
            found += faults(str(markdown._parser().render(value)).replace("<a ", "<a rel=noopener "))
            found += ["mermaid"] if "mermaid" in value.lower() else []
    return found


@each("name", HTML)
@each("mode", MODES)
def test_hostile_html_is_inert(name: str, mode: OutputMode) -> None:
    """Nothing runs, loads or acts in the page; in strict mode there is no frame either."""
    data, _ = filtered({"text/plain": "x", "text/html": HTML[name]}, OutputPolicy(mode))
    assert shown(data) == []
    if mode == "strict":
        assert "<iframe" not in data["text/html"]


@each("name", HTML)
def test_the_judge_finds_the_same_html_hostile(name: str) -> None:
    """The positive control: what the filter made harmless is harmful to the judge as it was."""
    harmless_to_a_parser = {
        "script split by a script",
        "script behind a NUL",
        "mutation: noscript",  # scripting is on in a page, off in the judge: another parse
        "mutation: plaintext",
        "mutation: xmp",
        "mutation: textarea",
        "processing instruction",
        "onload of svg, slashes",  # never closed, so a fragment of it is nothing
        "body onload",
        "frameset",
        "namespaces",
        "lowsrc and dynsrc",  # of old browsers
        "overlay, margin",
        "overlay, transform",
        "TeX split by itself",  # harmful only to a filter that removes what it finds
    }
    if name not in harmless_to_a_parser:
        assert faults(HTML[name], frames=False) != []


@each("name", HTML)
@each("mode", MODES)
def test_filtering_twice_is_filtering_once(name: str, mode: OutputMode) -> None:
    once, _ = filtered({"text/html": HTML[name]}, OutputPolicy(mode))
    again, _ = filtered(once, OutputPolicy(mode))
    assert again == once


@each("name", HTML)
def test_the_value_of_an_html_widget_is_inert(name: str) -> None:
    """A widget's markup never becomes a frame: it is set again and again."""
    policy = OutputPolicy("safe")
    for verdict in (
        policy.apply(model("c", "HTMLModel", value=HTML[name])),
        policy.apply(update("c", value=HTML[name])),
    ):
        assert verdict.message is not None
        value = verdict.message.content["data"]["state"]["value"]
        assert faults(value, frames=False) == []


@each("name", MARKDOWN)
@each("mode", MODES)
def test_hostile_markdown_is_inert(name: str, mode: OutputMode) -> None:
    data, _ = filtered({"text/plain": "x", "text/markdown": MARKDOWN[name]}, OutputPolicy(mode))
    assert shown(data) == []


@each("name", list(HTML)[:40])
def test_an_svg_is_an_image(name: str) -> None:
    """Whatever an SVG holds, it is shown by `<img>`, in which nothing runs or loads, and only if it is well-formed."""
    data, verdict = filtered({"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg'>{HTML[name]}</svg>"})
    assert set(data) <= {"text/html", "text/plain"}
    assert faults(data.get("text/html", ""), frames=False) == []
    assert ("text/plain" in data) == (verdict.reasons == ("removed image/svg+xml: it is not well-formed",))
    if image := re.match(r'<img src="data:image/svg\+xml;base64,([^"]*)">', data.get("text/html", "")):
        inside = base64.b64decode(image[1]).decode()
        assert not re.search(r"script|pwned|evil|<(?!/?(?:svg|a|g|text|use|image)\b)", inside)


@each(
    "mime",
    [
        "application/javascript",
        "text/javascript",
        "application/vnd.jupyter.stdout",
        "application/vnd.vegalite.v5+json",
        "application/vnd.vega.v5+json",
        "application/vnd.plotly.v1+json",
        "application/geo+json",
        "application/pdf",
        "application/vnd.bokehjs_exec.v0+json",
        "text/vnd.mermaid",
        "TEXT/HTML",
        "text/html; charset=utf-8",
        " text/html",
        "image/bmp",
        "image/png ",
        "application/xhtml+xml",
        "text/xml",
        "__proto__",
    ],
)
@each("mode", MODES)
def test_a_type_without_a_rule_does_not_pass(mime: str, mode: OutputMode) -> None:
    """It is gone, and one line in its place says so."""
    data, verdict = filtered({mime: f"{RUN} {EVIL}"}, OutputPolicy(mode))
    assert set(data) == {"text/plain"}
    assert data["text/plain"].startswith("[sandbox_kernel: removed ")
    assert "\n" not in data["text/plain"]
    assert verdict.reasons


@each(
    "value",
    [
        '"><script>x</script>',
        "iVBORw0KGgo=' onerror='x",
        base64.b64encode(b"<svg onload=x>").decode(),
        "",
        "é",
        ["a", 1],
        {"a": 1},
        None,
    ],
)
@each("mime", ["image/png", "image/jpeg", "image/gif", "image/webp"])
def test_an_image_that_is_none_does_not_pass(mime: str, value: Any) -> None:
    data, verdict = filtered({mime: value})
    assert mime not in data
    assert verdict.reasons


@pytest.mark.parametrize(
    "macro", ["href{javascript:x}{y}", "style{x}{y}", "require{html}", "htmlData{a=b}{y}", "mmlToken{mi}[href=x]{y}"]
)
def test_latex_has_no_links_and_styles(macro: str) -> None:
    data, verdict = filtered({"text/latex": rf"$\{macro}$"})
    assert set(data) == {"text/plain"}
    assert verdict.reasons == ("showed LaTeX as text: only ordinary macros are typeset",)


def test_metadata_cannot_ask_for_another_way_of_showing() -> None:
    content = {
        "data": {"text/html": "<b>x</b>", "image/png": "iVBORw0KGgoAAAA="},
        "metadata": {
            "isolated": True,
            "trusted": True,
            "text/html": {"isolated": True},
            "image/png": {"width": 3, "x": "y"},
        },
    }
    verdict = OutputPolicy("safe").apply(message("display_data", content))
    assert verdict.message is not None
    assert verdict.message.content["metadata"] == {"text/html": {}, "image/png": {"width": 3}}


def test_only_displays_of_this_session_are_updated() -> None:
    policy = OutputPolicy("safe")
    guess = display({"text/plain": "x"}, "update_display_data", transient={"display_id": "a"})
    assert policy.apply(guess).message is None
    policy.apply(display({"text/plain": "x"}, transient={"display_id": "a"}))
    assert policy.apply(guess).message is guess


def test_trusted_changes_nothing() -> None:
    """The control of all others: with `trusted` the same messages pass as they are."""
    policy = OutputPolicy("trusted")
    for source in HTML.values():
        sent = display({"text/html": source})
        assert policy.apply(sent).message is sent


@pytest.mark.parametrize("field", ["ename", "evalue", "traceback", "status"])
def test_an_expression_that_fails_with_a_tree_for_a_text_has_none(field: str) -> None:
    """A thousand levels parse, and do not end when they are written out as text."""
    deep: Any = []
    for _ in range(1_100):
        deep = [deep]
    content = {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {"a": {field: deep}}}
    sent = OutputPolicy("safe").apply(message("execute_reply", content, channel="shell")).message
    assert sent is not None
    failure = {"status": "error", "ename": "", "evalue": "", "traceback": []}
    assert sent.content["user_expressions"]["a"] == failure
