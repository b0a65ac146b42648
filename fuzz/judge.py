"""What must be true of all that leaves the output policy, said again: nothing here asks a filter whether it was right.

HTML is parsed by html5lib, as a browser would (tests/support/policy/check.py); the rest is tables of what may be there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from typing import Any

import nh3
from markdown_it import MarkdownIt

from sandbox_kernel.core.model import Message
from sandbox_kernel.policy import html
from tests.support.policy.check import TEX, faults

STATIC = frozenset(("text/plain", "text/latex", "text/html", "text/markdown", "application/json"))
IMAGES = {"image/png": "iVBORw0KGgo", "image/jpeg": "/9j/", "image/gif": "R0lGOD", "image/webp": "UklGR"}
VIEW = "application/vnd.jupyter.widget-view+json"
MODULES = ("@jupyter-widgets/base", "@jupyter-widgets/controls", "@jupyter-widgets/output")
NO_STYLE = ("description", "description_tooltip", "icon", "msg_id")
"""Traits of other models, of which a layout or a style makes nothing."""
TAGS = {*html.TAGS, "style"}
METADATA = frozenset(("width", "height", "needs_background", "unconfined", "root", "expanded"))
POISON = frozenset(("__proto__", "constructor", "prototype"))
COLOURS = re.compile(r"\x1b\[[0-9;:]{0,64}m|\x1b\[[0-2]?K")
UP = re.compile(r"\x1b\[([0-9]{0,3})A")
CONTROLS = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
FUNCTIONS = re.compile(r"([\w-]+)\s*\(")
HARMLESS = frozenset(
    """rgb rgba hsl hsla linear-gradient radial-gradient conic-gradient repeating-linear-gradient calc min max clamp
    repeat minmax fit-content""".split()  # noqa: SIM905
)


class Unsafe(AssertionError):
    """Something passed that must not."""


def require(condition: object, what: object) -> None:
    """Raise `Unsafe` unless `condition` holds."""
    if not condition:
        raise Unsafe(repr(what)[:2000])


@lru_cache(maxsize=2_000)
def html(source: str, frames: bool) -> None:
    """Require that HTML runs nothing, loads nothing and reaches nothing, outside of frames that are closed."""
    found = faults(source, frames=frames)
    require(not found, (found, source))


def settled(source: str) -> bool:
    """Return whether sanitised HTML is read as it is written: tables in a strange order turn into others each time."""
    if "<iframe" in source:
        return True
    bare = re.sub(r"<(/?\w+)[^>]*>", r"<\1>", source)
    return bool(nh3.clean(bare, tags=TAGS, attributes={}, link_rel=None, clean_content_tags=set()) == bare)


@lru_cache(maxsize=2_000)
def markdown(source: str) -> None:
    """Require the same of Markdown, as a parser reads it that lets raw HTML through."""
    rendered = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(source)
    found = [fault for fault in faults(rendered, frames=False) if "noopener" not in fault]
    require(not found, (found, source))


def terminal(text: str, *, up: bool = False) -> None:
    """Require that text holds colours, and else nothing that a terminal would obey."""
    rest = COLOURS.sub("", text)
    if up:
        rest = UP.sub("", rest)
    require(not CONTROLS.search(rest), text)


def rows(text: str, row: int = 0) -> int:
    """Return the row in which the cursor ends; require that it was never above the first one."""
    for piece in re.split(r"(\x1b\[[0-9]{0,3}A|\n)", text):
        if piece == "\n":
            row += 1
        elif match := UP.fullmatch(piece):
            row -= max(1, int(match[1] or 1))
            require(row >= 0, text)
    return row


def css_value(text: str) -> None:
    """Require that a value of CSS loads nothing and swallows nothing."""
    lowered = text.lower()
    require("\\" not in text and "/*" not in text and ";" not in text and "{" not in text and "<" not in text, text)
    require(set(FUNCTIONS.findall(lowered)) <= HARMLESS, text)


def bundle(data: Any, metadata: Any, *, frames: bool, models: set[str]) -> None:
    """Require that every representation of a MIME bundle is harmless."""
    require(isinstance(data, dict) and isinstance(metadata, dict), (data, metadata))
    for name, value in data.items():
        if name == "application/json":
            plain(value)
        elif name == VIEW:
            require(isinstance(value, dict) and value.get("model_id") in models, value)
            require(value.keys() == {"model_id", "version_major", "version_minor"}, value)
        else:
            require(name in STATIC or name in IMAGES, name)
            require(isinstance(value, str), value)
        if name == "text/html":
            html(value, frames)
        elif name == "text/markdown":
            markdown(value)
        elif name == "text/plain":
            terminal(value)
        elif name == "text/latex":
            require(not TEX.search(value), value)
        elif name in IMAGES:
            require(re.fullmatch(r"[A-Za-z0-9+/=\r\n]*", value), value)
            require(re.sub(r"\s", "", value).startswith(IMAGES[name]), value)
    for name, value in metadata.items():
        inner = value if isinstance(value, dict) else {name: value}
        require(name in METADATA or name in data, metadata)
        require(inner.keys() <= METADATA and all(small(item) for item in inner.values()), metadata)


def small(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 64)


def plain(value: Any, depth: int = 0) -> None:
    """Require a tree of bounded depth without keys that reach into a browser's objects."""
    require(depth <= 65, "deep")
    if isinstance(value, dict):
        require(not POISON & value.keys(), value)
        for item in value.values():
            plain(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            plain(item, depth + 1)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def shows_what_it_is(text: str) -> bool:
    """Return whether every character of a text is one that is seen, or a space."""
    return not any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in text) and not re.search(
        "[\u202a-\u202e\u2066-\u2069]", text
    )


def message(sent: Message, *, mode: str, models: Mapping[str, str], foreign: Container[object] = ()) -> None:
    """Require that a message which passed the policy is harmless.

    `models` are the widgets that passed before, `foreign` the comms that a front end opened for something else.
    """
    content, kind = sent.content, sent.type
    known = set(models)
    require(not sent.buffers or kind in ("comm_open", "comm_msg"), kind)
    require(sent.metadata.keys() <= {"version", "started", "dependencies_met", "engine", "status"}, sent.metadata)
    if kind == "stream":
        require(content.keys() == {"name", "text"} and content["name"] in ("stdout", "stderr"), content)
        terminal(content["text"], up=True)
    elif kind in ("display_data", "execute_result", "update_display_data"):
        require(content.keys() <= {"data", "metadata", "transient", "execution_count"}, content)
        bundle(content["data"], content["metadata"], frames=mode == "safe", models=known)
        require(content.get("transient", {}).keys() <= {"display_id"}, content)
    elif kind == "comm_msg" and content["comm_id"] in foreign:
        require(mode == "safe" and content.keys() == {"comm_id", "data"}, content)
        plain(content["data"])
    elif kind in ("comm_open", "comm_msg"):
        comm(content, mode=mode, models=models)
    elif kind == "inspect_reply" and "data" in content:
        bundle(content["data"], content["metadata"], frames=False, models=set())
    elif kind == "execute_reply":
        execute_reply(content)
    elif kind == "complete_reply":
        require(all(map(shows_what_it_is, content["matches"])), content)
        require(content["metadata"].keys() <= {"_jupyter_types_experimental"}, content)
    elif kind == "kernel_info_reply":
        for link in content["help_links"]:
            require(link.keys() == {"text", "url"} and link["url"].lower().startswith(("http://", "https://")), link)
    elif kind == "error":
        require(content.keys() == {"ename", "evalue", "traceback"}, content)
    elif kind == "debug_reply":
        plain(content)
        body = content.get("body")
        if isinstance(body, dict) and "data" in body:
            bundle(body["data"], body["metadata"], frames=False, models=set())
    elif kind == "input_request":
        require(content.keys() == {"prompt", "password"}, content)
    if kind in ("error", "input_request", "execute_reply", "history_reply", "comm_info_reply", "execute_input"):
        for text in texts({key: value for key, value in content.items() if key != "user_expressions"}):
            terminal(text)


def execute_reply(content: Mapping[str, Any]) -> None:
    allowed = {"status", "execution_count", "payload", "user_expressions", "ename", "evalue", "traceback"}
    require(content.keys() <= allowed, content)
    for payload in content.get("payload", []):
        require(payload.keys() == {"source", "data", "start"} and payload["source"] == "page", payload)
        require(payload["data"].keys() == {"text/plain"}, payload)
    for value in content.get("user_expressions", {}).values():
        if value["status"] == "ok":
            bundle(value["data"], value["metadata"], frames=False, models=set())
        else:
            for text in texts(value):
                terminal(text)


def comm(content: Mapping[str, Any], *, mode: str, models: Mapping[str, str]) -> None:
    """Require that a comm names only modules of ipywidgets, and feeds markup to no view."""
    require(mode == "safe", content)
    require(content.get("target_name", "jupyter.widget") == "jupyter.widget", content)
    require(not content.get("target_module"), content)
    data = content["data"]
    plain({key: value for key, value in data.items() if key != "buffer_paths"} if isinstance(data, dict) else data)
    if not isinstance(data, dict):
        return
    if isinstance(data.get("state"), dict):
        state_of(data["state"], models.get(str(content["comm_id"]), ""), models)
    states = data.get("states") if data.get("method") == "update_states" else None
    for name, entry in states.items() if isinstance(states, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("state"), dict) and name in models:
            state_of(entry["state"], models[name], models)
    for path in data.get("buffer_paths") or []:
        require(not POISON & {step for step in path if isinstance(step, str)}, path)


def state_of(state: Mapping[str, Any], model: str, models: Mapping[str, str]) -> None:
    for key in ("_model_module", "_view_module"):
        require(state.get(key) is None or state[key] in MODULES, state)
    require(not state.get("description_allow_html"), state)
    require(all(re.match(r"widget-|mod-", name) for name in state.get("_dom_classes") or []), state)
    for output in state.get("outputs") or []:
        if "data" in output:
            bundle(output["data"], output["metadata"], frames=True, models=set(models))
        else:
            for text in texts(output):
                terminal(text)
    value = state.get("value")
    if model in ("HTMLModel", "HTMLMathModel") and isinstance(value, str):
        html(value, False)
    for key, text in state.items():
        if isinstance(text, str):
            if key in ("description", "description_tooltip") or (key == "value" and model == "LabelModel"):
                require(not TEX.search(text), text)
            if model.endswith(("LayoutModel", "StyleModel")) and not key.startswith("_") and key not in NO_STYLE:
                css_value(text)
            if key == "format" and model in ("ImageModel", "VideoModel", "AudioModel"):
                require(re.fullmatch(r"[a-zA-Z0-9]+|svg\+xml", text) and text.lower() != "url", state)
