"""HTML, Markdown, SVG, TeX and CSS as bare text: what comes out is parsed by another parser and judged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox_kernel.policy import css, svg, tex
from sandbox_kernel.policy.html import render, sanitise
from sandbox_kernel.policy.markdown import is_text
from sandbox_kernel.policy.markdown import render as render_markdown
from sandbox_kernel.policy.verdict import Notes
from tests.support.policy.check import TEX

from .. import judge
from ..judge import require
from ..words import CSS, SNIPPETS

_FIXED = len(render("<script>1</script>", Notes(), frames=True)) + 1000
"""What the frame of any program has in it, in characters."""
KINDS = ("safe", "strict", "markdown", "css", "sheet", "svg", "tex")


def run(data: bytes) -> None:
    """The first byte says what the rest is."""
    kind, text = KINDS[(data[0] if data else 0) % len(KINDS)], data[1:].decode("utf-8", "replace")
    if kind == "safe":
        _html(text, frames=True)
    elif kind == "strict":
        _html(text, frames=False)
    elif kind == "markdown":
        _markdown(text)
    elif kind == "svg":
        _svg(text)
    elif kind == "tex":
        cleaned = tex.clean(text)
        require(not TEX.search(cleaned), text)
        require(tex.clean(cleaned) == cleaned, text)
    elif kind == "css":
        _css(text)
    else:
        _sheet(text)


def _svg(text: str) -> None:
    """An SVG that passes is drawn again as it is, and holds nothing that acts."""
    try:
        once, _ = svg.clean(text)
    except svg.ImproperSVG:
        return
    require(svg.clean(once)[0] == once, once)
    require(
        not re.search(
            r"<(?:script|foreignObject|animate|set|iframe)|\son\w+=|https?:(?!//www\.w3\.org/2000/svg)", once
        ),
        once,
    )
    judge.html(f'<img src="{svg.address(once)}">', False)


def _html(text: str, *, frames: bool) -> None:
    notes = Notes()
    once = render(text, notes, frames=frames)
    judge.html(once, frames)
    again = render(once, Notes(), frames=frames)
    judge.html(again, frames)
    require(again == once or not judge.settled(once), (once, again))
    require(len(once) < 100 * len(text) + _FIXED, f"{len(text)} characters became {len(once)}")
    require(all(len(note.text) <= 160 for note in notes), list(notes))


def _markdown(text: str) -> None:
    if is_text(text):
        judge.markdown(text)
    else:
        once = render_markdown(text, Notes())
        judge.html(once, False)
        require(sanitise(once, Notes()) == once or not judge.settled(once), once)


def _css(text: str) -> None:
    kept, whole = css.declarations(text)
    require(whole == (kept == text) or not whole, text)
    for declaration in filter(str.strip, kept.split(";")):
        judge.css_value(declaration.partition(":")[2])
        require(not re.search(r"(?<![\w-])position\s*:\s*(fixed|absolute)", declaration, re.IGNORECASE), declaration)
    require(css.declarations(kept) == (kept, True), kept)


def _sheet(text: str) -> None:
    sheet = css.stylesheet(text, "sandbox-output-0")
    if sheet:
        judge.html(f"<style>{sheet}</style>", False)
        css.classes(text)


def seeds() -> Iterator[bytes]:
    for text in SNIPPETS:
        raw = text.encode("utf-8", "replace")
        yield b"\0" + raw
        yield b"\1" + raw
        yield b"\2" + raw
    for text in (*CSS, "p:hover, td > a[x='1'] {color:red} .data.row0:nth-child(2n+1) {width:1px}", "/* x */ p{a:b}"):
        for kind in range(2, len(KINDS)):
            yield bytes([kind]) + text.encode()
    from ..words import TEX as FORMULAS

    for text in FORMULAS:
        yield b"\6" + text.encode()
