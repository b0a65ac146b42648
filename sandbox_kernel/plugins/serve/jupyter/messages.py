"""Messages of Jupyter as a WebSocket carries them: as text in JSON, or in pieces behind a table of offsets.

Pure. What comes is hostile: it is checked before it is parsed, and what is none ends the connection with a reason.
"""

from __future__ import annotations

import secrets
from functools import cached_property
from itertools import pairwise
from typing import Any

import orjson

from ....core import json_memory
from ....core.errors import ProtocolError
from ....core.model import Message
from ....policy import protocol

V1 = "v1.kernel.websocket.jupyter.org"
"""The subprotocol whose messages are in pieces; without one, they are JSON."""
MAX_MESSAGE = 10 << 20
"""Bytes of one that a client sends, as a Jupyter Server has it."""
MAX_MEMORY = 96 << 20
"""Bytes that one may cost once it is parsed."""
MAX_PARTS = 1000
HEADER = ("msg_id", "msg_type", "username", "session", "date", "version", "subshell_id")
"""What is kept of a header: each answer repeats it, and it is remembered long after the request."""
CHANNELS = frozenset({"shell", "control", "stdin"})
"""On which clients may send."""

IMPROPER, REFUSED, TOO_LARGE, ENDED = 1007, 1008, 1009, 1001
"""What a connection is closed with (RFC 6455)."""


class Closed(Exception):
    """The connection ends, with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def decode(data: str | bytes, *, v1: bool) -> Message:
    """Return what a client sent. Raises `Closed` for what is no message."""
    if len(data) > MAX_MESSAGE:
        raise Closed(TOO_LARGE, f"a message may have {MAX_MESSAGE:,} bytes")
    try:
        if v1:
            return _of_parts(data)
        return _of_json(data)
    except (ProtocolError, ValueError, RecursionError) as error:
        raise Closed(IMPROPER, f"not a message of Jupyter: {error}"[:120]) from None


def _of_parts(data: str | bytes) -> Message:
    pieces = data.encode() if isinstance(data, str) else data
    channel, *parts = _pieces(pieces, width=8, order="little", least=5)
    header, _, metadata, content = (_parsed(part) for part in parts[:4])
    return _message(channel.decode(), header, metadata, content, tuple(parts[4:]))


def _of_json(data: str | bytes) -> Message:
    buffers: tuple[bytes, ...] = ()
    if isinstance(data, bytes):
        data, *rest = _pieces(data, width=4, order="big", least=1, ends=False)
        buffers = tuple(rest)
    fields = _parsed(data if isinstance(data, bytes) else data.encode())
    channel = fields.get("channel") or "shell"
    return _message(channel, fields.get("header"), fields.get("metadata"), fields.get("content"), buffers)


def _pieces(data: bytes, *, width: int, order: Any, least: int, ends: bool = True) -> list[bytes]:
    """Return the pieces behind a table: how many offsets there are, and each; the last is an end if it `ends`."""
    count = int.from_bytes(data[:width], order)
    if not least + ends <= count <= MAX_PARTS or len(data) < width * (count + 1):
        raise ValueError("its table of offsets is wrong")
    offsets = [int.from_bytes(data[width * place : width * (place + 1)], order) for place in range(1, count + 1)]
    if not ends:
        offsets.append(len(data))
    if offsets[0] != width * (count + 1) or offsets != sorted(offsets) or offsets[-1] != len(data):
        raise ValueError("its offsets are wrong")
    return [data[begin:end] for begin, end in pairwise(offsets)]


def _parsed(data: bytes) -> dict[str, Any]:
    if (reason := json_memory.heavy(data, MAX_MEMORY)) is not None:
        raise Closed(TOO_LARGE, f"a message is too large: {reason}")
    return protocol.parse_object(data)


def _message(channel: object, header: Any, metadata: Any, content: Any, buffers: tuple[bytes, ...]) -> Message:
    if not isinstance(channel, str) or channel not in CHANNELS:
        raise Closed(REFUSED, f"no channel for clients: {str(channel)[:40]}")
    if not all(isinstance(part, dict) for part in (header, metadata or {}, content or {})):
        raise ValueError("header, metadata and content are objects")
    protocol.check_identifiers(header)
    kept = {name: header[name] for name in HEADER if isinstance(header.get(name), str)}
    return Message(
        channel=channel,  # type: ignore[arg-type] # it is one of them
        header={name: value for name, value in kept.items() if len(value) <= protocol.MAX_ID},
        metadata=metadata or {},
        content=content or {},
        buffers=buffers,
    )


class Outgoing:
    """A message for some sockets, written once in each of the forms that they have."""

    def __init__(self, message: Message) -> None:
        """`message` has its whole header. Raises `ProtocolError` for what JSON cannot say."""
        self.channel, self.type = message.channel, message.type
        self._names = [protocol.dumps(message.header[name]) for name in ("msg_id", "msg_type")]
        parts = (message.header, message.parent, message.metadata, message.content)
        self._parts = [protocol.dumps(part) for part in parts]
        self.buffers = message.buffers
        self.size = sum(map(len, (*self._parts, *self.buffers)))

    @property
    def content(self) -> bytes:
        return self._parts[3]

    def having(self, content: dict[str, Any], kind: str | None = None) -> Outgoing:
        """Return a message with another content, and of another type if that is given, to the same request."""
        header, parent, metadata = map(orjson.loads, self._parts[:3])
        header |= {"msg_id": f"{header['msg_id']}_{secrets.token_hex(4)}", "msg_type": kind or self.type}
        return Outgoing(Message(channel=self.channel, header=header, parent=parent, metadata=metadata, content=content))

    @cached_property
    def in_parts(self) -> bytes:
        """It as the subprotocol has it."""
        parts = [self.channel.encode(), *self._parts, *self.buffers]
        offsets = [8 * (len(parts) + 2)]
        for part in parts:
            offsets.append(offsets[-1] + len(part))
        return b"".join([number.to_bytes(8, "little") for number in (len(offsets), *offsets)] + parts)

    @cached_property
    def in_json(self) -> str | bytes:
        """It as text; with buffers, as bytes."""
        header, parent, metadata, content = self._parts
        text = (
            b'{"header":%b,"msg_id":%b,"msg_type":%b,"parent_header":%b,"metadata":%b,"content":%b,"buffers":[],"channel":%b}'
            % (header, *self._names, parent, metadata, content, orjson.dumps(self.channel))
        )
        if not self.buffers:
            return text.decode()
        parts = [text, *self.buffers]
        offsets = [4 * (len(parts) + 1)]
        for part in parts[:-1]:
            offsets.append(offsets[-1] + len(part))
        return b"".join([number.to_bytes(4, "big") for number in (len(parts), *offsets)] + parts)
