"""Hostile outputs, and what of them reached the host's side: cells that show them, and a judge of the messages.

Pure. The judge reads messages as a front end would get them, so nothing here rests on the sandbox's word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import Any

from ...core.model import Message
from .verdicts import Finding, decided, failed, not_applicable

NOWHERE = "192.0.2.1"
FORGED = "forged-by-a-cell"
_HTML = (
    '<img src=x onerror="alert(1)"><a href="javascript:alert(1)">x</a><script>alert(1)</script>'
    '<svg onload="alert(1)"></svg><iframe src="javascript:alert(1)"></iframe>'
)
_LOADS = (
    f'<img src="http://{NOWHERE}/a"><link rel="stylesheet" href="http://{NOWHERE}/b">'
    f'<style>@import url("http://{NOWHERE}/c");</style><div style="background:url(http://{NOWHERE}/d)">x</div>'
    f'<iframe src="http://{NOWHERE}/e"></iframe><video poster="http://{NOWHERE}/f"></video>'
)
_BUNDLES: tuple[dict[str, str], ...] = (
    {"application/javascript": "alert(1)"},
    {"text/html": _HTML},
    {"text/markdown": "[x](javascript:alert(1)) <svg onload=alert(1)></svg> <script>alert(1)</script>"},
    {"image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'},
    {"text/html": _LOADS},
    {"text/markdown": f"![x](http://{NOWHERE}/g)"},
)
CELL = f"""
from IPython.display import publish_display_data
for _bundle in {_BUNDLES!r}:
    publish_display_data({{"text/plain": "shown", **_bundle}})
print("\\x1b]0;owned\\x07\\x1b]52;c;b3duZWQ=\\x07\\x1b[6n\\x1b[2J\\x9b2J shown")
_shell = get_ipython()
_shell.payload_manager.write_payload({{"source": "set_next_input", "text": "owned()", "replace": False}})
_kernel = _shell.kernel
for _type in ("stream", "execute_reply", "shutdown_reply", "kernel_info_reply", "{FORGED}"):
    for _parent in (_kernel.get_parent(), {{"header": {{**_kernel.get_parent()["header"], "msg_id": "{FORGED}"}}}}):
        _text = "{FORGED}" if _parent["header"]["msg_id"] == "{FORGED}" else ""
        _content = {{"name": "stdout", "text": _text, "status": "ok"}}
        _kernel.session.send(_kernel.iopub_socket, _kernel.session.msg(_type, _content, parent=_parent))
print("shown")
"""
"""Shows all of it."""

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_OF_PUBLISHING = {
    *("status", "stream", "display_data", "update_display_data", "execute_result", "execute_input", "error"),
    *("clear_output", "comm_open", "comm_msg", "comm_close"),
}
"""What a kernel publishes while a cell runs."""
_LOADING = {"src", "srcset", "poster", "data", "background", "style", "xlink:href"}
OUTPUTS = "outputs is trusted: whatever a cell shows is passed on as it came"


def judge(messages: Sequence[Message], outputs: str) -> Iterator[Finding]:
    """Judge the messages of `CELL`; `outputs` is the mode of the output policy."""
    codes = ("output-script", "output-load", "output-terminal", "output-payload")
    shown = [message for message in messages if message.type in {"stream", "display_data"}]
    if not any("shown" in json.dumps(message.content, default=str) for message in shown):
        for code in (*codes, "output-forged"):
            yield failed(code, "the cell showed nothing")
        return
    yield _forged(messages)
    if outputs == "trusted":
        for code in codes:
            yield not_applicable(code, OUTPUTS)
        return
    scripts, loads = [], []
    for data in [message.content["data"] for message in messages if message.type == "display_data"]:
        if "application/javascript" in data:
            scripts.append("application/javascript")
        for kind, value in data.items():
            if isinstance(value, str) and kind.startswith(("text/html", "text/markdown", "image/svg")):
                page = _Page(value)
                scripts += [f"{what} in {kind}" for what in page.scripts]
                loads += [f"{what} in {kind}" for what in page.loads]
    yield _none("output-script", scripts, "none is left outside of a frame without an origin")
    yield _none("output-load", loads, "none is left, and frames may load nothing")
    texts = [str(message.content["text"]) for message in messages if message.type == "stream"]
    found = sorted({f"{ord(one):#04x}" for text in texts for one in _CONTROLS.findall(_COLOURS.sub("", text))})
    yield _none("output-terminal", found, "none is left")
    payloads = [
        str(payload.get("source", "?")) if isinstance(payload, dict) else "?"
        for message in messages
        for payload in message.content.get("payload", ())
    ]
    yield _none("output-payload", payloads, "the reply has none")


def _none(code: str, found: Sequence[str], otherwise: str) -> Finding:
    return decided(code, not found, f"passed: {', '.join(dict.fromkeys(found))}"[:400] if found else otherwise)


def _forged(messages: Sequence[Message]) -> Finding:
    passed = [message for message in messages if message.channel == "iopub" and message.type not in _OF_PUBLISHING]
    spoken = [message for message in messages if message.type == "stream" and FORGED in str(message.content["text"])]
    if passed or spoken:
        kinds = ", ".join(dict.fromkeys(message.type for message in [*passed, *spoken]))
        return decided("output-forged", False, f"passed: {kinds}")
    return decided("output-forged", True, "each message that passed has a type of the table, and belongs to its cell")


class _Page(HTMLParser):
    """What acts or loads in a piece of HTML, frames with a document of their own looked at as frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.loads: list[str] = []
        self._style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values: dict[str, str] = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        if tag == "script":
            self.scripts.append("a script")
        self.scripts += [name for name in values if name.startswith("on")]
        self.scripts += [name for name, value in values.items() if _acts(value)]
        if tag == "iframe":
            self._frame(values)
        self.loads += [f"{tag} {name}" for name, value in values.items() if name in _LOADING and NOWHERE in value]
        if tag == "link" and NOWHERE in values.get("href", ""):
            self.loads.append("link href")

    def _frame(self, values: dict[str, Any]) -> None:
        inner, sandbox = values.get("srcdoc", ""), values.get("sandbox")
        if sandbox is None or "allow-same-origin" in sandbox:
            self.scripts.append("a frame with an origin")
        if inner and "default-src 'none'" not in inner:
            self.loads.append("a frame without a policy")

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style and NOWHERE in data:
            self.loads.append("a style")


def _acts(value: str) -> bool:
    return re.sub(r"[\x00-\x20]", "", value).lower().startswith(("javascript:", "vbscript:", "data:text/html"))
