"""The output policy of one session: several messages of any type one after another, with the state that they leave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ProtocolError
from sandbox_kernel.core.model import Message
from sandbox_kernel.policy import protocol
from sandbox_kernel.policy.output_policy import OutputPolicy

from .. import judge
from ..judge import require
from ..trees import Reader, encode, option
from ..words import BUNDLES, HONEST, MIMES, SNIPPETS, TERMINAL, TYPES

MODES = ("safe", "strict")
MAX_MESSAGES = 5
CELL = "cell-1"

BUNDLE, MARKUP, MESSAGE, OBSERVED, RESTART = range(5)
NOTE = re.compile(r"[ -#%-\[\]-~]{1,160}")
"""A note stands in outputs of all kinds: there is nothing in it that a page typesets or a terminal obeys."""
KINDS_OF_DISPLAY = ("display_data", "execute_result", "update_display_data")


def run(data: bytes) -> None:
    reader = Reader(data)
    mode = reader.choice(MODES)
    policy = OutputPolicy(mode)
    models: dict[str, str] = {}
    foreign: set[str] = set()
    for _ in range(MAX_MESSAGES):
        if not reader.left:
            return
        what = reader.byte() % 5
        if what == RESTART:
            policy = policy.renewed()
            models.clear()
            foreign.clear()
            continue
        sent = _message(reader, what)
        if sent is None:
            continue
        if what == OBSERVED:
            policy.observe(sent)
            comm_id = str(sent.content.get("comm_id"))
            if sent.type == "comm_close":
                models.pop(comm_id, None)
                foreign.discard(comm_id)
            elif sent.type == "comm_open" and not str(sent.content.get("target_name")).startswith("jupyter.widget"):
                foreign.add(comm_id)
            elif sent.type == "comm_open":
                foreign.discard(comm_id)
            continue
        _apply(policy, sent, mode, models, foreign)


def _message(reader: Reader, what: int) -> Message | None:
    """Build a message as the wire would: through JSON and the table."""
    metadata: Any = {}
    if what == BUNDLE:
        kind = reader.choice(KINDS_OF_DISPLAY)
        content: Any = {"data": reader.tree(), "metadata": reader.tree(), "transient": {"display_id": reader.tree()}}
    elif what == MARKUP:
        kind = "display_data"
        content = {"data": {reader.choice(MIMES): reader.text()}, "metadata": {}}
    else:
        kind, content, metadata = reader.choice(TYPES), reader.object(), reader.object()
    if kind == "execute_result" and isinstance(content, dict):
        content.setdefault("execution_count", 1)
    channel = wire.SHELL if kind.endswith("_reply") else wire.STDIN if kind == "input_request" else wire.IOPUB
    parts = [{"msg_id": "m", "msg_type": kind}, {"msg_id": CELL}, metadata, content]
    try:
        return protocol.decode(channel, [*map(orjson.dumps, parts), b"buffer"])
    except ProtocolError:
        return None


def _apply(policy: OutputPolicy, sent: Message, mode: str, models: dict[str, str], foreign: set[str]) -> None:
    before = orjson.dumps([sent.content, sent.metadata])
    verdict = policy.apply(sent)
    require(orjson.dumps([sent.content, sent.metadata]) == before, "the filter changed what it was given")
    require(all(map(NOTE.fullmatch, verdict.reasons)), verdict.reasons)
    passed = verdict.message
    if passed is None:
        require(verdict.reasons, "dropped without a word")
        return
    require((passed.type, passed.header, passed.parent) == (sent.type, sent.header, sent.parent), passed)
    try:
        protocol.dumps(passed.content)
        protocol.dumps(passed.metadata)
    except ProtocolError:
        return  # nested deeper than is written: it is dropped at the door
    comm_id = passed.content.get("comm_id")
    if passed.type == "comm_open":
        require(comm_id not in models, "an id was used twice")
        models[comm_id] = str(sent.content["data"]["state"].get("_model_name"))
    judge.message(passed, mode=mode, models=models, foreign=foreign)
    if passed.type == "comm_close":
        models.pop(comm_id, None)
        foreign.discard(comm_id)
    if passed.type in ("display_data", "execute_result"):
        again = policy.apply(passed).message
        require(again is not None, passed.content)
        judge.message(again, mode=mode, models=models)
        shown = passed.content["data"].get("text/html", "")
        require(again.content == passed.content or not judge.settled(shown), (passed.content, again.content))


def bundle(data: Any, metadata: Any = None, display_id: Any = None, kind: str = "display_data") -> bytes:
    trees = encode(data) + encode(metadata or {}) + encode(display_id)
    return bytes([BUNDLE]) + option(KINDS_OF_DISPLAY, kind) + trees


def message(kind: str, content: Any, metadata: Any = None, what: int = MESSAGE) -> bytes:
    return bytes([what]) + option(TYPES, kind) + encode(content) + encode(metadata or {})


def widget(comm_id: str, name: str, **state: Any) -> bytes:
    module = "@jupyter-widgets/controls"
    names = {"_model_module": module, "_model_name": name, "_view_module": module, "_model_module_version": "2.0.0"}
    data = {"state": names | state, "buffer_paths": []}
    return message("comm_open", {"comm_id": comm_id, "target_name": "jupyter.widget", "data": data})


def change(comm_id: str, method: str = "update", **state: Any) -> bytes:
    return message("comm_msg", {"comm_id": comm_id, "data": {"method": method, "state": state, "buffer_paths": []}})


def seeds() -> Iterator[bytes]:
    evil = SNIPPETS[0]
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "a", "version_major": 2, "version_minor": 0}}
    for mode in (b"\0", b"\1"):
        for data in BUNDLES.values():
            yield mode + bundle(data)
        for name in MIMES:
            for text in (HONEST[0], HONEST[7], HONEST[10], evil, TERMINAL[0]):
                yield mode + bundle({"text/plain": "x", name: text}, {name: {"width": 10, "isolated": True}})
        yield mode + bundle({"text/plain": "x"}, {}, "a") + bundle({"text/html": evil}, {}, "a", "update_display_data")
        yield mode + bundle(dict.fromkeys(MIMES, "x"), {"text/html": {"isolated": True}, "width": 1, "trusted": True})
        yield (
            mode
            + message("stream", {"name": "stdout", "text": TERMINAL[0]})
            + message("stream", {"name": "x", "text": "y"})
        )
        yield mode + message("error", {"ename": evil, "evalue": TERMINAL[2], "traceback": [HONEST[8], TERMINAL[1]]})
        yield mode + message("input_request", {"prompt": TERMINAL[3], "password": True})
        yield mode + message("clear_output", {"wait": True}) + message("status", {"execution_state": "busy"})
        yield mode + message(
            "execute_reply",
            {
                "status": "ok", "execution_count": 1,
                "payload": [{"source": "page", "data": {"text/plain": TERMINAL[0], "text/html": evil}, "start": 1},
                            {"source": "set_next_input", "text": "x"}],
                "user_expressions": {"a": {"status": "ok", "data": {"text/html": evil}, "metadata": {}}, "b": {}},
            },
        )  # fmt: skip
        yield mode + message(
            "inspect_reply", {"status": "ok", "found": True, "data": {"text/html": evil}, "metadata": {}}
        )
        types = [{"text": "a", "start": 0, "end": 1, "type": "c", "signature": "\u202e"}]
        metadata = {"_jupyter_types_experimental": types}
        yield mode + message(
            "complete_reply", {"status": "ok", "matches": ["a", "b\n"], "cursor_start": 1, "metadata": metadata}
        )
        links = [{"text": "a", "url": "https://example.org"}, {"text": "b", "url": "javascript:x"}]
        yield mode + message("kernel_info_reply", {"status": "ok", "help_links": links, "b": TERMINAL[0]})
        yield mode + message("history_reply", {"status": "ok", "history": [[1, 2, TERMINAL[0]]]})
        yield mode + message("debug_reply", {"success": True, "body": {"data": {"text/html": evil}, "metadata": {}}})
        yield (
            mode
            + message("is_complete_reply", {"status": "incomplete", "indent": "  "})
            + message("comm_info_reply", {"status": "ok"})
        )
        yield mode + widget("a", "HTMLModel", value=evil) + change("a", value=evil) + bundle(view)
        yield mode + widget("a", "LabelModel", value="$x$", description="d", description_allow_html=True)
        yield mode + widget("a", "LayoutModel", width="1px", grid_area=";") + change("a", height="expression(1)")
        yield mode + widget("a", "ImageModel", format="url", value="x") + widget("a", "ImageModel")
        yield (
            mode
            + widget("a", "IntSliderModel", value=1)
            + widget("b", "LinkModel", source=["IPY_MODEL_a", "value"], target=["IPY_MODEL_a", "value"])
        )
        yield mode + widget(
            "a",
            "OutputModel",
            msg_id=CELL,
            outputs=[
                {"output_type": "display_data", "data": {"text/html": evil}, "metadata": {}},
                {"output_type": "stream", "name": "stdout", "text": TERMINAL[0]},
                {"output_type": "error"},
            ],
        )
        yield (
            mode
            + widget("a", "BoxModel", _dom_classes=["jp-Dialog", "widget-x"], icon="x")
            + message("comm_close", {"comm_id": "a"})
        )
        yield mode + change("a", value={"__proto__": {"a": 1}}) + widget("a", "anywidget", _esm="x")
        opened = message(
            "comm_open", {"comm_id": "c", "target_name": "jupyter.widget.control", "data": {}}, what=OBSERVED
        )
        states = {
            "a": {"model_name": "HTMLModel", "model_module": "@jupyter-widgets/controls", "state": {"value": evil}}
        }
        yield (
            mode
            + widget("a", "HTMLModel")
            + opened
            + message(
                "comm_msg",
                {
                    "comm_id": "c",
                    "data": {"method": "update_states", "states": states, "buffer_paths": [["a", "state", "value"]]},
                },
            )
        )
        opened = message("comm_open", {"comm_id": "c", "target_name": "custom", "data": {}}, what=OBSERVED)
        yield (
            mode
            + opened
            + message("comm_msg", {"comm_id": "c", "data": {"constructor": 1}})
            + message("comm_close", {"comm_id": "c"}, what=OBSERVED)
        )
        for tag in (r"p$\href{javascript:x}{y}$", r"script$l\\", "p\u202e"):
            yield mode + bundle({"text/html": f"<{tag} src=x:y>", tag: "x"})
            yield mode + widget("a", "HTMLModel", value=f"<{tag} src=x:y>", **{tag: "x"})
        for text in SNIPPETS[::4]:
            yield mode + b"".join(
                bytes([MARKUP]) + option(MIMES, name) + text.encode("utf-8", "replace") + b"\xff" for name in MIMES[1:3]
            )
