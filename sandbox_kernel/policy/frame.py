"""Active HTML in a frame that has no origin, no network and no way out. Imports nothing of this package.

Two frames, one in the other. The inner one runs the scripts, without `allow-same-origin`: it cannot reach the page, its
cookies or the Jupyter server. Its Content-Security-Policy allows inline scripts and nothing from a network. A policy
does not stop a document from navigating *itself* to an address with a secret in it, but the policy of the frame around
it does: that one is ours, has no script, and says `frame-src 'none'`.
"""

from __future__ import annotations

import re

MIN_HEIGHT, DEFAULT_HEIGHT, MAX_HEIGHT = 80, 420, 1200
"""CSS pixels. A frame without an origin cannot tell its height to the page, so it is guessed and can be dragged."""

_CSP = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; media-src data: blob:; connect-src 'none'; worker-src 'none'; frame-src 'none'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; webrtc 'block'"
)
_OUTER_CSP = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; media-src data: blob:; frame-src 'none'; base-uri 'none'; form-action 'none'; webrtc 'block'"
)
_META = (
    '<meta http-equiv="Content-Security-Policy" content="{}"><meta http-equiv="x-dns-prefetch-control" content="off">'
)
_GUARD = """<script>(() => {
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCDataChannel", "WebTransport"])
  try { delete window[name]; Object.defineProperty(window, name, {value: undefined}); } catch (error) {}
})();</script>"""
_STYLE = "<style>html{background:#fff;color:#000;font:13px system-ui,sans-serif}body{margin:0}</style>"

_INNER_START = "<!DOCTYPE html><html><head>" + _META.format(_CSP) + _GUARD + _STYLE + "</head><body>"
_OUTER_START = (
    "<!DOCTYPE html><html><head>"
    + _META.format(_OUTER_CSP)
    + "<style>html,body,iframe{margin:0;border:0;width:100%;height:100%;display:block;overflow:hidden}</style>"
    '</head><body><iframe sandbox="allow-scripts" referrerpolicy="no-referrer" srcdoc="'
)
_OUTER_END = '"></iframe></body></html>'
_PAGE_START = (
    '<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" '
    'style="border:0;width:100%;height:{}px;resize:vertical;overflow:auto" srcdoc="'
)
_PAGE_END = '"></iframe>'
_WRAPPED = re.compile(r'<iframe sandbox="allow-scripts" [^<>]*? srcdoc="([^"]*)"></iframe>')
_HEIGHT = re.compile(r"height[\"']?\s*[:=]\s*[\"']?(\d{2,4})(?:px|[\"',;}\s])", re.IGNORECASE)


def wrap(source: str) -> str:
    """Return HTML that shows `source`, a document or a piece of one, inside the frames. It's ASCII-safe to embed."""
    inner = _INNER_START + source
    outer = _OUTER_START + _quote(inner) + _OUTER_END
    return _PAGE_START.format(_height(source)) + _quote(outer) + _PAGE_END


def _quote(text: str) -> str:
    """Escape for an attribute in double quotes; only what must be, as some libraries are megabytes of quotes."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unquote(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


def is_wrapped(source: str) -> bool:
    """Return whether `source` is exactly what `wrap` makes of something."""
    match = _WRAPPED.fullmatch(source)
    if not match:
        return False
    outer = _unquote(match[1])
    if not (outer.startswith(_OUTER_START) and outer.endswith(_OUTER_END)):
        return False
    inner = _unquote(outer[len(_OUTER_START) : -len(_OUTER_END)])
    return inner.startswith(_INNER_START) and wrap(inner[len(_INNER_START) :]) == source


def _height(source: str) -> int:
    """Guess from the largest height that the markup itself names; libraries write their plot's height in it."""
    found = [int(height) for height in _HEIGHT.findall(source)]
    plausible = [height + 20 for height in found if MIN_HEIGHT <= height <= MAX_HEIGHT]
    return max(plausible, default=DEFAULT_HEIGHT)
