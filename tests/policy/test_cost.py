"""No output costs much more time or memory than its size: hostile shapes that make parsers slow are seen before."""

from __future__ import annotations

import time

import pytest

from sandbox_kernel.policy import OutputPolicy

from .messages import display, message, model, update

N = 200_000

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


@pytest.mark.parametrize("name", SHAPES)
def test_a_hostile_shape_is_filtered_in_bounded_time(name: str) -> None:
    """Bounds are generous, for slow machines: without the checks these take minutes."""
    text = SHAPES[name]
    policy = OutputPolicy("safe")
    policy.apply(model("c", "HTMLModel"))
    started = time.process_time()
    for mode in ("safe", "strict"):
        for mime in ("text/html", "text/plain", "text/latex", "image/svg+xml", "image/png"):
            OutputPolicy(mode).apply(display({mime: text}))  # type: ignore[arg-type]
        for markdown in (text, "<" + text[:90_000]):
            OutputPolicy(mode).apply(display({"text/markdown": markdown}))  # type: ignore[arg-type]
    policy.apply(update("c", value=text))
    policy.apply(message("stream", {"name": "stdout", "text": text}))
    assert time.process_time() - started < 20


def test_little_markup_does_not_become_much() -> None:
    source = SHAPES["formats opened again"]
    for mode in ("safe", "strict"):
        result = OutputPolicy(mode).apply(display({"text/html": source})).message  # type: ignore[arg-type]
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
    assert result.notes == ("showed HTML as text: too much markup to check",)
