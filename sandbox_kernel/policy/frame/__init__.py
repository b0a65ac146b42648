"""Active HTML in a frame that has no origin and no network.

Two frames, one in the other. The inner one runs the scripts, without `allow-same-origin`: it cannot reach the page, its
cookies or the Jupyter server. The Content-Security-Policy of both lets nothing load from a network. Three gaps that a
policy leaves are closed besides:

- It does not stop a document from navigating *itself* to an address with a secret in it, but the policy of the frame
  around it does: that one is ours, has no script but ours, and says `frame-src 'none'`.
- It does not cover WebRTC, nor what acts on the tab as a whole: its history, the clipboard, windows. So a guard goes
  before all scripts and leaves of the browser's names only those on a list. Only scripts that look for it run, being
  named by their hash: a frame made by a script cannot run one without it.
- It does not cover looking up names ahead; for links that is switched off.

Nor does any policy that browsers have today keep a frame from taking the keyboard (`focus-without-user-activation` is
set for those that will). So the guard makes all that moves the focus wait for a person's act in the frame: a click or a
key there in the last five seconds. What gets to the focus past the guard, by the address or by a window of another
frame, is stopped by the script of the outer frame, which a program cannot reach. Measured in Chromium.

The outer frame also stops a program whose styles keep the browser from drawing.

What is left: `location`, which no script can take away. By its fragment it adds entries to the tab's history. A script
that navigates its frame, or adds a link for it, makes some browsers look up a name and connect before anything is
refused: nothing is sent, but the name is seen. `strict` runs no script at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from .. import line_ends
from ..frame_libraries import LIBRARY, MAX_CODE, Packer
from ..html_blocks import Block, blocks

MIN_HEIGHT, DEFAULT_HEIGHT, MAX_HEIGHT = 80, 420, 1200
"""CSS pixels. What JupyterLab shows without our extension, and every other front end: a guess, which can be dragged."""

_CSP = (
    "default-src 'none'; script-src 'unsafe-eval' {}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "media-src data: blob:; connect-src 'none'; worker-src 'none'; frame-src 'none'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
_META = (
    '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{}">'
    '<meta http-equiv="x-dns-prefetch-control" content="off">'
)


_COMMENT = re.compile(r"/\*\*.*?\*/|^\s*//[^\n]*$", re.DOTALL | re.MULTILINE)


def _script(name: str) -> str:
    """Return the script in a file beside this one, without what only its readers need: each frame has it."""
    text = _COMMENT.sub("", Path(__file__).with_name(name).read_text("utf-8"))
    return "".join(f"{row.strip()}\n" for row in text.splitlines() if row.strip())


_GUARD = _script("guard.js")
"""Goes before all scripts of a frame, as the first of them."""
_GUARDED = "if(!Symbol.sandboxKernel)throw 0;"
"""Goes before each: in a frame that a program makes, the first may be missing. No markup gives `Symbol` a property."""
_CHECK = _GUARDED + "window.sandboxKernelRan=1;\n"
"""... and says to the runner that scripts run by themselves."""
_WATCH = _script("outer.js")
"""The script of the outer frame: stops the program if it takes the keyboard, and stands between it and the page."""
_RUNNER = _GUARDED + "\n" + _script("runner.js")
"""Runs the scripts of a frame that did not run by themselves, unpacks libraries, and says what height would fit."""


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


HASHES = GUARD_HASH, RUNNER_HASH, WATCH_HASH = _hash(_GUARD), _hash(_RUNNER), _hash(_WATCH)
"""What a page's own policy has to allow, for frames have it, too."""
_FIRST, _ENDING = f"<script>{_GUARD}</script>", f"<script>{_RUNNER}</script>"
_STYLE = "<style>html{background:#fff;color:#000;font:13px system-ui,sans-serif}body{margin:4px}</style>"
_FILL = (
    "<style>html,body,iframe{margin:0;border:0;width:100%;height:100%;display:block;overflow:hidden}"
    "b{position:absolute;width:1px;height:1px}p{font:13px system-ui,sans-serif;margin:8px}</style>"
)

_START = "<!DOCTYPE html><html><head>" + _META + "{}</head><body>"
_TAB = "<b tabindex=0></b>"
"""Where Tab stops in the outer frame, before and after the program."""
_BEFORE = (
    _TAB + '<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" '
    "allow=\"focus-without-user-activation 'none'; gamepad 'none'; picture-in-picture 'none'\" srcdoc=\""
)
_AFTER = '"></iframe>' + _TAB + "<script>" + _WATCH + "</script></body></html>"
_PAGE = (
    '<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" '
    'style="border:0;width:100%;height:{}px;resize:vertical;overflow:auto" srcdoc="{}"></iframe>'
)

_TYPE = re.compile(r"\btype\s*=\s*[\"']?\s*([^\s\"'>]*)", re.IGNORECASE)
_LATE = "text/later"
_NAMED = re.compile(rf' type="{_LATE}" data-packed="([0-9a-f]{{64}}:[0-9]{{1,8}}:[0-9]{{1,8}})"')
MAX_ATTRIBUTES = 150
"""Characters that the tag of a script may have besides what is written into it here."""
_CODE = re.compile(rf"|module|{_LATE}|(?:text|application)/(?:x-)?(?:java|ecma)script", re.IGNORECASE)
_SRC = re.compile(r"(?:^|[\s\"'/])src\s*=", re.IGNORECASE)
_WRAPPED = re.compile(r'<iframe sandbox="allow-scripts" [^<>]*? srcdoc="([^"]*)"></iframe>')
_SRCDOC = re.compile(r' srcdoc="([^"]*)"')
_HEIGHT = re.compile(r"height[\"']?\s*[:=]\s*[\"']?(\d{2,4})(?:px|[\"',;}\s])", re.IGNORECASE)


def wrap(source: str, leaves_out: Callable[[str], bool] | None = None, packer: Packer | None = None) -> str:
    """Return HTML that shows `source`, a document or a piece of one, inside the frames.

    Libraries are packed. `leaves_out` says of each, by name, whether this page has it already.
    """
    # What the parser of the browser would change before it hashes a script is changed here.
    source = re.sub(r"\r\n?", "\n", source).replace("\0", "").encode("utf-8", "replace").decode()
    found = [block for block in blocks(source, "script") if _is_code(block)]
    if any(_is_late(block) or _is_library(block) for block in found):
        return _framed(_packed(source, found, leaves_out, packer or Packer()), [], source)
    hashes: dict[str, None] = {}
    pieces = []
    position = 0
    for block in found:
        code = _CHECK + source[block.start : block.end]
        hashes[_hash(code)] = None
        pieces += [source[position : block.start], code]
        position = block.end
    return _framed("".join(pieces) + source[position:], list(hashes), source)


def _framed(body: str, hashes: list[str], source: str) -> str:
    allowed = " ".join([GUARD_HASH, *hashes, RUNNER_HASH])
    inner = _START.format(_CSP.format(allowed), _FIRST + _STYLE) + body + _ENDING
    outer = _START.format(_CSP.format(f"{WATCH_HASH} {allowed}"), _FILL) + _BEFORE + _quote(inner) + _AFTER
    return _PAGE.format(_height(source), line_ends.joined(_quote(outer)))


def _packed(source: str, found: list[Block], leaves_out: Callable[[str], bool] | None, packer: Packer) -> str:
    """Return `source` with its scripts marked as those that run late, and libraries packed."""
    pieces = []
    position, room = 0, MAX_CODE
    for block in found:
        if _is_late(block):
            # An image packs its libraries itself. Only what has its own hash as its name is shared.
            if leaves_out is not None and (name := _name(source, block)) and leaves_out(name):
                pieces.append(source[position : block.start])
                position = block.end
            continue
        code, size = source[block.start : block.end], block.end - block.start
        attributes = block.attributes if len(block.attributes) <= MAX_ATTRIBUTES else ""
        packed = None
        if _is_library(block) and size <= room:
            room -= size
            packed = packer.pack(code)
        if packed is not None:
            attributes = f' data-packed="{packed.name}"{attributes}'
            code = "" if leaves_out is not None and leaves_out(packed.name) else packed.text
        tag = block.start - len(block.attributes) - len("<script>")
        pieces += [source[position:tag], f'<script type="{_LATE}"{attributes}>', code]
        position = block.end
    return "".join(pieces) + source[position:]


def _is_code(block: Block) -> bool:
    kind = _TYPE.search(block.attributes)
    return not _SRC.search(block.attributes) and not (kind and not _CODE.fullmatch(kind[1]))


def _is_late(block: Block) -> bool:
    return block.attributes.startswith(f' type="{_LATE}"')


def _name(source: str, block: Block) -> str | None:
    """Return the name of a script that came packed; None if its hash is another, or if it was left out before."""
    found = _NAMED.fullmatch(block.attributes)
    if not found or block.start == block.end:
        return None
    text = source[block.start : block.end]
    return found[1] if hashlib.sha256(text.encode()).hexdigest() == found[1].partition(":")[0] else None


def _is_library(block: Block) -> bool:
    kind = _TYPE.search(block.attributes)
    return block.end - block.start > LIBRARY and not (kind and kind[1].lower() == "module")


def size(source: str) -> int:
    """Return about how many characters `wrap` makes of `source`: what is escaped twice grows to nine or ten."""
    return len(source) + 9 * source.count('"') + 8 * source.count("&")


def unwrapped(source: str) -> str | None:
    """Return what `source` is made of, if it is exactly what `wrap` makes of something, else None."""
    match = _WRAPPED.fullmatch(source)
    inner = _SRCDOC.search(_unquote(match[1].replace("&#10;", "\n"))) if match else None
    if not inner:
        return None
    document = _unquote(inner[1])
    _, start, body = document.partition("</head><body>")
    body = body.removesuffix(_ENDING).replace(_CHECK, "")
    return body if start and wrap(body) == source else None


def loads_scripts(source: str) -> bool:
    """Return whether some script would come from a network; it does not."""
    return any(_SRC.search(block.attributes) for block in blocks(source, "script"))


def _quote(text: str) -> str:
    """Escape for an attribute in double quotes; only what must be, as some libraries are megabytes of quotes."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unquote(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _height(source: str) -> int:
    """Guess from the largest height that the markup itself names; libraries write their plot's height in it."""
    own = source
    for block in reversed([block for block in blocks(source, "script") if block.end - block.start > LIBRARY]):
        own = own[: block.start] + own[block.end :]
    found = [int(height) for height in _HEIGHT.findall(own)]
    plausible = [height + 20 for height in found if MIN_HEIGHT <= height <= MAX_HEIGHT]
    return max(plausible, default=DEFAULT_HEIGHT)
