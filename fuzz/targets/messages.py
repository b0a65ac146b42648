"""The message table: frames of a channel, half of them trees and half of them raw bytes; stock code is the author."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import orjson
from jupyter_client.session import json_packer, json_unpacker

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ProtocolError
from sandbox_kernel.policy import protocol, terminal

from ..judge import require, texts
from ..trees import Reader, encode, option
from ..words import REQUESTS, SNIPPETS, TYPES

KINDS = (wire.IOPUB, wire.SHELL, wire.CONTROL, wire.STDIN, wire.AGENT, 0, 77)
TREE, DUPLICATE, RAW, BUFFER, STOP = range(5)


def run(data: bytes) -> None:
    reader = Reader(data)
    kind = reader.choice(KINDS)
    parts: list[bytes] = []
    while reader.left and len(parts) < 12:
        what = reader.byte() % 5
        if what == TREE:
            parts.append(orjson.dumps(reader.tree()))
        elif what == DUPLICATE:
            first, second = orjson.dumps(reader.object()), orjson.dumps(reader.object())
            parts.append((first[:-1] + b"," + second[1:]).replace(b"{,", b"{").replace(b",}", b"}"))
        elif what == STOP:
            break
        else:
            parts.append(reader.block() if what == RAW else reader.raw(reader.byte()))
    try:
        message = protocol.decode(kind, parts)
    except ProtocolError as error:
        require(error.message and len(str(error)) < 600, error)
        return
    header, parent, metadata, content = (as_front_ends_have_it(json_unpacker(part)) or {} for part in parts[:4])
    known = protocol.CONTENT.get(message.type)
    content = {key: content[key] for key in content if known is None or key in known}
    others = protocol.USUAL.get(message.type, {}).keys() | set(protocol.TEXTS.get(message.type, ()))
    read = {key: value for key, value in message.content.items() if key not in others}
    require(len(parts) >= 4 and message.buffers == tuple(parts[4:]), parts)
    require((message.header, message.parent, message.metadata) == (header, parent, metadata), message)
    require(read == {key: value for key, value in content.items() if key not in others}, message)
    require(isinstance(message.type, str) and 0 < len(message.type) <= 256 and 0 < len(message.id) <= 256, message)
    if message.channel == "iopub":
        require(message.type in protocol.PUBLISHED, message.type)
    elif message.channel == "stdin":
        require(message.type == "input_request", message.type)
    else:
        require(message.type.endswith("_reply"), message.type)
    if message.plain:
        require(
            all(re.fullmatch(r"[\x20-\x7e]*", text) and terminal.is_plain(text) for text in texts(content)), content
        )
    try:
        protocol.dumps(message.content)
    except ProtocolError:
        return  # nested deeper than is written
    require(protocol.decode(kind, protocol.encode(message)).content == message.content, "decode(encode(x)) is not x")


def as_front_ends_have_it(value: Any) -> Any:
    """Return a tree as it can be written again: without halves of characters, and numbers that are none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        return float(value)
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, list):
        return [as_front_ends_have_it(one) for one in value]
    if isinstance(value, dict):
        return {as_front_ends_have_it(key): as_front_ends_have_it(one) for key, one in value.items()}
    return value


def message(channel: int, header: Any, parent: Any, content: Any, metadata: Any = None, buffers: bytes = b"") -> bytes:
    """Return the bytes for a message of four trees and a buffer."""
    trees = b"".join(bytes([TREE]) + encode(tree) for tree in (header, parent, metadata or {}, content))
    return option(KINDS, channel) + trees + (bytes([BUFFER, len(buffers)]) + buffers if buffers else b"")


CONTENTS: dict[str, dict[str, Any]] = {
    "stream": {"name": "stdout", "text": "x" * 80},
    "display_data": {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": "a"}},
    "execute_result": {"data": {"text/html": SNIPPETS[0]}, "metadata": {}, "execution_count": 1},
    "update_display_data": {"data": {}, "metadata": {}, "transient": {"display_id": "a"}},
    "error": {"ename": "a", "evalue": "b", "traceback": ["c"]},
    "execute_input": {"code": "a", "execution_count": 1},
    "status": {"execution_state": "busy"},
    "comm_open": {"comm_id": "c", "target_name": "jupyter.widget", "data": {"state": {}}},
    "comm_msg": {"comm_id": "c", "data": {"method": "update", "state": {"value": "x"}}},
    "comm_close": {"comm_id": "c", "data": {}},
    "input_request": {"prompt": "name", "password": False},
    "complete_reply": {"status": "ok", "matches": ["a"], "cursor_start": 0, "cursor_end": 1, "metadata": {}},
    "execute_reply": {"status": "ok", "payload": [], "user_expressions": {}, "execution_count": 1},
    "debug_event": {"event": "stopped", "body": {}},
    "clear_output": {"wait": True},
}


def seeds() -> Iterator[bytes]:
    for kind in TYPES:
        channel = wire.SHELL if kind.endswith("_reply") else wire.STDIN if kind == "input_request" else wire.IOPUB
        content = CONTENTS.get(kind, {"status": "ok"})
        yield message(channel, {"msg_id": "m", "msg_type": kind}, {"msg_id": "r1"}, content, buffers=b"xy")
        yield message(wire.CONTROL, {"msg_id": "m", "msg_type": kind}, {}, content)
        yield message(channel, {"msg_id": "m", "msg_type": kind}, {"msg_id": 7}, {})
    yield message(wire.SHELL, {"msg_id": "x" * 257, "msg_type": REQUESTS[0]}, [], None)
    raw = (b'{"msg_id":"m","msg_type":"status"}', b"{}", b"{}", b'{"execution_state":NaN}')
    yield bytes([0]) + b"".join(bytes([RAW]) + part + b"\xff" for part in raw)
    yield bytes([0]) + b"".join(bytes([RAW]) + part + b"\xff" for part in (*raw[:3], b"[" * 200))
    stream = b'{"msg_id":"m","msg_type":"stream"}'
    for text in ("a\udcb2b", "\\ud800", "NaN"):
        packed = json_packer({"name": "stdout", "text": text})
        yield bytes([0]) + b"".join(bytes([BUFFER, len(part)]) + part for part in (stream, b"{}", b"{}", packed))
    header = encode({"msg_id": "m", "msg_type": "status"})
    yield bytes([0, DUPLICATE]) + header + encode({"msg_type": "display_data"}) + (bytes([TREE]) + encode({})) * 3
