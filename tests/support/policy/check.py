"""An independent judge of what leaves the policy: parses HTML as a browser does, and knows nothing of the filters."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import html5lib

ELEMENTS = frozenset(
    """script iframe frame frameset object embed applet form input button select textarea link meta base math svg
    template noscript title portal fencedframe marquee dialog map area isindex keygen xml xmp plaintext
    """.split()  # noqa: SIM905
)
URLS = frozenset(("href", "src", "srcset", "poster", "action", "formaction", "background", "data", "cite", "ping"))
SAFE_DATA = re.compile(r"data:(image/(png|jpe?g|gif|webp|svg\+xml)|audio/[\w.+-]+|video/[\w.+-]+)[;,]")
LOADS_CSS = re.compile(
    r"url\s*\(|image-set|@import|expression\s*\(|behavior\s*:|-moz-binding\s*:|javascript\s*:|\\|/\*", re.IGNORECASE
)
FRAME = {"sandbox": "allow-scripts", "referrerpolicy": "no-referrer"}
WATCH = "c646646713e5a4fad908bd843412508593f68393130b43a2c99d4785744004bd"
"""The only script of an outer frame. Whoever changes it looks at it here once more: it runs next to hostile code."""
TEX = re.compile(r"(?<!\\)(?:\\\\)*\\(href|url|require|style|class|cssId|html\w*|data|bbox|mmlToken)(?![A-Za-z])")
"""After two backslashes stand the letters of a name: TeX reads those as the end of a line."""


def faults(html: str, *, frames: bool = True) -> list[str]:
    """Return every way in which `html` could run, load or act, outside of a frame that is closed as it should be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = html5lib.parseFragment(html, treebuilder="etree", namespaceHTMLElements=False)
    return list(_faults(tree, frames))


def _faults(tree: Any, frames: bool) -> Iterator[str]:
    for text in _typeset(tree):
        if TEX.search(text):
            yield f"TeX {text!r}"
    for element in tree.iter():
        if not isinstance(element.tag, str):
            yield "a comment, which other parsers read in other ways"
            continue
        tag = element.tag.lower().rpartition("}")[2]
        attributes = {str(name).lower(): value for name, value in element.attrib.items()}
        if tag == "iframe" and frames:
            yield from _frame_faults(attributes)
            continue
        if tag in ELEMENTS:
            yield f"<{tag}>"
        if tag == "style":
            yield from _sheet_faults(element.text or "")
        for name, value in attributes.items():
            if name.startswith(("on", "data-")) or name in {"srcdoc", "is", "slot", "name", "xmlns", "http-equiv"}:
                yield f"{name}= on <{tag}>"
            elif name == "style" and (
                LOADS_CSS.search(value) or re.search(r"(?<![\w-])position\s*:\s*(fixed|absolute)", value)
            ):
                yield f"style={value!r}"
            elif name == "class" and re.search(r"(^|\s)(jp|lm|p|bp\d|jupyter|Toastify)[-_]", value):
                yield f"class={value!r}"
            elif name == "id" and not value.startswith("T_"):
                yield f"id={value!r}"
            elif name in URLS:
                yield from _url_faults(tag, name, value)
        if tag == "a" and "href" in attributes and "noopener" not in attributes.get("rel", ""):
            yield "a link without rel=noopener"


def _typeset(tree: Any) -> Iterator[str]:
    """Yield the texts in which a page looks for formulas: not those of code, which MathJax and KaTeX leave alone."""
    waiting = [tree]
    while waiting:
        element = waiting.pop()
        tag = element.tag.lower().rpartition("}")[2] if isinstance(element.tag, str) else "style"
        if tag not in {"style", "pre", "code"}:
            yield element.text or ""
            yield from (child.tail or "" for child in element)
            waiting.extend(element)


def _url_faults(tag: str, name: str, value: str) -> Iterator[str]:
    address = re.sub(r"[\x00-\x20]", "", value).lower()
    if tag == "a" and name == "href" and address.startswith(("http://", "https://", "mailto:")):
        return
    if tag in {"img", "audio", "video", "source"} and name == "src" and SAFE_DATA.match(address):
        return
    yield f"{name}={value[:60]!r} on <{tag}>"


_ALIGNS = re.compile(
    r"(?:\s*\.dataframe[\w >:-]+(?:,\s*\.dataframe[\w >:-]+)*"
    r"\{\s*(?:(?:text-align|vertical-align|white-space): ?[a-z-]+;\s*)+\})+\s*"
)
"""Of tables of pandas and polars: it reaches no other element, and aligns cells alone."""


def _sheet_faults(sheet: str) -> Iterator[str]:
    if LOADS_CSS.search(sheet):
        yield "a style sheet that may load"
    for rule in re.findall(r"([^{}]+)\{", sheet):
        for part in rule.split(","):
            if not part.strip().startswith(".sandbox-output-") and not _ALIGNS.fullmatch(sheet):
                yield f"a style rule for the whole page: {part.strip()!r}"


def _frame_faults(attributes: dict[str, str]) -> Iterator[str]:
    """Check that a frame is ours: no origin, and a policy that is first in the document and lets nothing load."""
    if {name: attributes.get(name) for name in FRAME} != FRAME or "src" in attributes:
        yield f"a frame with {sorted(attributes)}"
        return
    outer = attributes.get("srcdoc", "")
    start = '<!DOCTYPE html><html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="'
    policy = re.match(re.escape(start) + '([^"]*)">', outer)
    if policy is None:
        yield "a frame whose policy does not come first"
        return
    for directive in ("default-src 'none'", "connect-src 'none'", "frame-src 'none'", "form-action 'none'"):
        if directive not in policy[1]:
            yield f"a frame without {directive}"
    if re.search(r"https?:|'unsafe-inline'[^;]*;\s*style|\*", policy[1].replace("style-src 'unsafe-inline'", "")):
        yield "a frame whose policy allows a network or unnamed scripts"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        document = html5lib.parse(outer, namespaceHTMLElements=False)
    body = document.find("body")
    inside = list(body) if body is not None else []
    scripts = [hashlib.sha256((one.text or "").encode()).hexdigest() for one in document.findall(".//script")]
    if [one.tag for one in inside] != ["b", "iframe", "b", "script"] or scripts != [WATCH]:
        yield "an outer frame with more in it than the inner one and what watches over the keyboard"
    elif inside[1].get("sandbox") != "allow-scripts" or inside[1].get("src"):
        yield "an inner frame that is open"
