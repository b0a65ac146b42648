"""What an output needs and cannot load is put into it: files of scratch, itables' program, symbols of an animation.

Runs in the kernel, from source that the host ships: standard library only. The host looks at what comes as at any
output, and believes nothing of it.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from typing import Any

SCRATCH = "/mnt/data"
MAX_SOURCE = 1_000_000
"""Characters of a text in which pictures are looked for."""
MAX_PICTURES = 50
MAX_BYTES = 8 << 20
"""Of the pictures and pages of one output."""

# Strings, which `re` compiles and keeps when they are used: a kernel's start does not wait for it.
_WRITTEN = r"\s{0,9}=\s{0,9})(\"[^\"<>]{1,1000}\"|'[^'<>]{1,1000}'|[^\s\"'<>]{1,1000})"
_HTML = rf"(?i)(<img\b[^<>]{{0,2000}}?\ssrc{_WRITTEN}"
_MARKDOWN = r"(!\[[^\]\n]{0,1000}\]\(\s{0,9})(<[^<>\n]{1,1000}>|[^\s()<>]{1,1000})"
_DEFINITION = r"(?m)^( {0,3}\[[^\]\n]{1,1000}\]:[ \t]{0,9})(<[^<>\n]{1,1000}>|[^\s<>]{1,1000})"
_FRAME = rf"(?i)(<iframe\b[^<>]{{0,2000}}?)(\ssrc{_WRITTEN}([^<>]{{0,2000}}>)"
_SCRIPT = rf"(?i)(<script\b[^<>]{{0,500}}?)(\ssrc{_WRITTEN}([^<>]{{0,500}}>)(?=</script)"
_SHEET = rf"(?i)(<link\b[^<>]{{0,500}}?)(\shref{_WRITTEN}([^<>]{{0,500}}>)"
_HEIGHT = r"(?i)\sheight\s{0,9}=\s{0,9}[\"']?([0-9]{2,4})(?:px)?[\"'\s>]"
_PAGES = (".html", ".htm", ".xhtml")
_OBJECT = r"<[\w.]+ object>"
"""What stands for the text of what has none, as IPython has it."""
_ADDRESS = r"[A-Za-z][A-Za-z0-9+.-]*:|//|#"
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"RIFF", "webp"),
)


def install(shell: Any) -> None:
    """Have whatever a cell shows looked through for pictures."""
    formatter, publisher = shell.display_formatter, shell.display_pub
    plain_format, plain_publish = formatter.format, publisher.publish

    def format_(*arguments: Any, **named: Any) -> Any:
        data, metadata = plain_format(*arguments, **named)
        return completed(data), metadata

    def publish(data: Any, *arguments: Any, **named: Any) -> Any:
        if "text/html" in data and _is_itables_start(data["text/html"]):
            return None
        return plain_publish(completed(data), *arguments, **named)

    formatter.format, publisher.publish = format_, publish


def install_here() -> None:
    """Do it in the kernel that this runs in."""
    from IPython import get_ipython

    install(get_ipython())


def completed(data: Any) -> Any:
    """Return a bundle whose HTML and Markdown hold the files that they name, if those are here.

    Text that says no more than the kind of an object names them, as the source does that a cell wrote.
    """
    try:
        return _completed(data)
    except Exception:
        return data  # what is shown without it is better than nothing


def _completed(data: dict[str, Any]) -> dict[str, Any]:
    room = [MAX_PICTURES, MAX_BYTES]
    changed = {}
    for kind, patterns in (("text/html", (_HTML,)), ("text/markdown", (_MARKDOWN, _DEFINITION, _HTML))):
        source = data.get(kind)
        if not isinstance(source, str) or ("<" not in source and "![" not in source):
            continue
        for pattern in patterns if len(source) <= MAX_SOURCE else ():
            source = re.sub(pattern, lambda match: match[1] + _embedded(match[2], room), source)
        if kind == "text/html":
            if len(source) <= MAX_SOURCE:
                source = re.sub(_FRAME, lambda match: _with_page(match, room), source)
            source = _with_boxes(_with_symbols(_with_tables(source)))
        if source != data[kind]:
            changed[kind] = source
            if kind == "text/markdown" and re.fullmatch(_OBJECT, str(data.get("text/plain", ""))):
                changed["text/plain"] = data[kind]
    return {**data, **changed} if changed else data


def _embedded(written: str, room: list[int], folder: str = "") -> str:
    """Return the address of a picture as it is written, or one that holds the picture itself."""
    address = _address(*_named(written, room, folder), room)
    if address is None:
        return written
    return address if written[0] not in "\"'" else f"{written[0]}{address}{written[0]}"


def _address(name: str, data: bytes, room: list[int]) -> str | None:
    """Return an address that holds a picture; None for what is none."""
    kind = next((kind for magic, kind in _BEGINNINGS if data.startswith(magic)), None)
    if kind is None and b"<svg" in data[:1000] and not name.lower().endswith(_PAGES):
        kind = "svg+xml"
    if kind is None:
        return None
    room[1] -= len(data)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _named(written: str, room: list[int], folder: str) -> tuple[str, bytes]:
    """Return the name and the content of the file that an address means, nothing for one that means none of scratch."""
    path = written[1:-1] if written[0] in "\"'<" else written
    if re.match(_ADDRESS, path) or room[0] <= 0:
        return "", b""
    from html import unescape
    from urllib.parse import unquote  # a kernel's start need not wait for it

    room[0] -= 1
    for name in (path, unquote(path), unquote(re.split("[?#]", unescape(path))[0])):
        data = _read(os.path.join(folder, name), room[1])
        if data is not None:
            return name, data
    return "", b""


def _with_page(tag: re.Match[str], room: list[int]) -> str:
    """Return the tag of a frame that holds the page that it names; such a page is a document without an origin."""
    from html import escape

    name, data = _named(tag[3], room, "")
    picture, text = _address(name, data, room), data.decode("utf-8-sig", "replace")
    if picture is not None:
        page = f'<img src="{picture}">'
    elif not data or "\0" in text:
        return tag[0]
    elif not name.lower().endswith(_PAGES):
        page = f"<pre>{escape(text)}</pre>"
    else:
        folder = os.path.dirname(name)
        room[1] -= len(data)
        page = re.sub(_HTML, lambda match: match[1] + _embedded(match[2], room, folder), text)
        page = re.sub(_SCRIPT, lambda match: _with_part(match, "", "", room, folder), page)
        page = re.sub(_SHEET, lambda match: _with_part(match, "<style>", "</style>", room, folder), page)
    height = re.search(_HEIGHT, tag[0])
    said = f"<!-- height: {height[1]}px; -->" if height else ""  # the host looks for it in what the frame holds
    return f'{tag[1]} sandbox="allow-scripts" srcdoc="{escape(said + page)}"{tag[4]}'


def _with_part(tag: re.Match[str], start: str, end: str, room: list[int], folder: str) -> str:
    """Return a script or a style sheet of a page as one that holds what it names."""
    if start and "stylesheet" not in tag[0].lower():
        return tag[0]
    text = _named(tag[3], room, folder)[1].decode("utf-8-sig", "replace")
    if not text or "</s" in text.lower():
        return tag[0]
    room[1] -= len(text)
    return f"{start or tag[1] + tag[4]}{text}{end}"


def _read(path: str, most: int) -> bytes | None:
    """Return a regular file of scratch of `most` bytes, None for anything else."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.realpath(SCRATCH) + "/"):
        return None
    try:
        file = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with open(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        return opened.read(most) if stat.S_ISREG(status.st_mode) and status.st_size <= most else None


# --- itables: its program is in the output of another cell, and each output is a page of its own ---

_ITABLES = r"window\._itables_([0-9_]{1,40})\b"
_EXPORTS = r"(?s)\bexport\s*\{([\w$\s,]{1,2000})\};?\s*(/\*.*\*/\s*)?\Z"


def _is_itables_start(source: object) -> bool:
    """Return whether this output only brings itables' program into a page, where no other output will look for it."""
    return isinstance(source, str) and "new ITable(" not in source and re.search(_ITABLES, source[:3000]) is not None


def _with_tables(source: str) -> str:
    """Return the HTML of a table with itables' program before it, as a plain script."""
    found = re.search(_ITABLES, source) if "_itables_" in source else None
    if found is None or "new ITable(" not in source or f"window.{found[0][7:]}=(async" in source:
        return source
    import sys
    from pathlib import Path

    itables: Any = sys.modules["itables"]
    bundle = Path(itables.options.dt_bundle)
    program, count = re.subn(_EXPORTS, _returned, bundle.read_text(encoding="utf-8"))
    if count != 1 or "</script" in program.lower():
        return source
    sheet = bundle.with_suffix(".css").read_text(encoding="utf-8")
    name = f"_itables_{found[1]}"
    return f"<style>{sheet}</style><script>window.{name}=(async()=>{{'use strict';{program}}})()</script>{source}"


def _returned(exports: re.Match[str]) -> str:
    """Return what a module exports as the value of a function."""
    pairs = [one.split() for one in exports[1].split(",")]
    return "return{" + ",".join(f"{pair[-1]}:{pair[0]}" for pair in pairs) + "}"


# --- matplotlib: the buttons of an animation are letters of a font from a network ---

_FONT = r"(?i)<link\s[^<>]{0,200}font-awesome[^<>]{0,200}>"
_SYMBOLS = {
    "minus": "2212",
    "plus": "2b",
    "fast-backward": "|25c2 25c2",
    "step-backward": "25c2|",
    "play": "25b6",
    "pause": "||",
    "step-forward": "|25b8",
    "fast-forward": "25b8 25b8|",
}


def _with_symbols(source: str) -> str:
    if "anim-controls" not in source or not re.search(_FONT, source):
        return source
    rules = "".join(f".fa-{name}::before{{content:'{_symbol(code)}'}}" for name, code in _SYMBOLS.items())
    turned = ".fa{font-style:normal;display:inline-block}.fa-flip-horizontal{transform:scaleX(-1)}"
    return re.sub(_FONT, f"<style>{turned}{rules}</style>", source)


def _symbol(code: str) -> str:
    """Return a character, without the picture of it that some systems have."""
    return "".join(one if one == "|" else chr(int(one, 16)) + "\ufe0e" for one in re.findall(r"\||[0-9a-f]+", code))


# --- scikit-learn: its boxes are opened by a style sheet for forms; an element of HTML does the same anywhere ---

_BOX = "border:1px solid gray;border-radius:4px;padding:4px 8px;margin:4px"
_STYLES = {
    "sk-container": "display:inline-block",
    "sk-serial": "display:flex;flex-direction:column;align-items:center",
    "sk-parallel": "display:flex;align-items:flex-start;justify-content:center",
    "sk-parallel-item": "display:flex;flex-direction:column",
    "sk-dashed-wrapped": "border:1px dashed gray;padding:4px;margin:4px;display:inline-block",
    "sk-toggleable": "font-family:monospace",
}
_ESTIMATOR, _FITTED = "background-color:rgba(255,165,60,0.15)", "background-color:rgba(60,140,255,0.15)"
_VOID = frozenset(("br", "hr", "img", "input", "wbr", "col"))
_GONE = frozenset(("style", "script", "button", "input"))
_KEPT = frozenset(("b", "br", "code", "details", "i", "pre", "summary", "table", "tbody", "td", "th", "thead", "tr"))


def _with_boxes(source: str) -> str:
    """Return the HTML of an estimator without a program, if it is made as it is known here."""
    if "sk-top-container" not in source or "sk-toggleable__label" not in source:
        return source
    from html import escape
    from html.parser import HTMLParser

    class Boxes(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.written: list[str] = []
            self.open: list[tuple[str, str]] = []
            """Each element that is open, and what closes it here; what begins with ! leaves its content out."""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            classes = (dict(attrs).get("class") or "").split()
            left_out = bool(self.open) and self.open[-1][1].startswith("!")
            write, end = self._of(tag, classes, dict(attrs).get("href") or "") if not left_out else ("", "!")
            self.written.append(write)
            if tag not in _VOID:
                self.open.append((tag, end))

        def handle_endtag(self, tag: str) -> None:
            while any(one == tag for one, _ in self.open):
                found, end = self.open.pop()
                self.written.append("" if end.startswith("!") else end)
                if found == tag:
                    return

        def handle_data(self, data: str) -> None:
            if not (self.open and self.open[-1][1].startswith("!")):
                self.written.append(escape(data, quote=False))

        def _of(self, tag: str, classes: list[str], address: str) -> tuple[str, str]:
            if tag in _GONE or {"sk-text-repr-fallback", "param-doc-description"} & {*classes}:
                return "", "!"
            if tag == "div" and "sk-toggleable" in classes:
                colour = _FITTED if "fitted" in classes else _ESTIMATOR
                box = f"{_BOX};{colour}" if "sk-estimator" in classes else ""
                return f'<details style="{_STYLES["sk-toggleable"]};{box}">', "</details>"
            if tag == "label":
                return "<summary><b>", "</b></summary>"
            if tag == "a" and "sk-estimator-doc-link" in classes:
                return f' <a href="{escape(address)}">?</a>', "!"
            if tag == "span" and "sk-estimator-doc-link" in classes:
                return "", "!"
            if tag == "a" and address.startswith("https://scikit-learn.org/"):
                return f'<a href="{escape(address)}">', "</a>"
            if tag == "body":
                return "", ""
            if tag == "tr" and "user-set" in classes:
                return '<tr style="font-weight:bold">', "</tr>"
            if tag in _KEPT:
                return f"<{tag}>", f"</{tag}>"
            style = next((_STYLES[one] for one in classes if one in _STYLES), "")
            inline = tag == "div" and self.open and self.open[-1][0] in ("label", "div") and "label" in dict(self.open)
            if tag != "div" or inline:
                return "<span>", "</span>"
            return (f'<div style="{style}">' if style else "<div>"), "</div>"

    boxes = Boxes()
    boxes.feed(source)
    boxes.close()
    made = "".join(boxes.written)
    whole = made.count("<summary><b>") == len(re.findall(r"<label\b", source)) and not boxes.open
    return made if whole else source
