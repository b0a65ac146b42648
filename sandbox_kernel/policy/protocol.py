"""The Jupyter tables: which message may pass on which channel in which direction, and how one is decoded.

Pure. Nothing of the other side's bytes is passed on: a message is parsed, checked and written again, so that a parser
in a front end never sees a duplicate key, a NaN or a stray byte that ours did not. What stock kernels send and stock
front ends read although it is no JSON is mended: bytes that are not UTF-8, half characters, numbers that are none.

Public: plugins may import it.
"""

from __future__ import annotations

import codecs
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from ..container import wire
from ..core import json_memory
from ..core.codes import MessageCode, Note
from ..core.errors import ProtocolError
from ..core.model import Channel, Message

PIECE, LOOK = 1 << 18, 1 << 12
"""Bytes of a long text that are parsed at a time, and bytes of a string that is not one."""
MAX_STRINGS = 1000
"""Strings among which long texts are looked for."""


MAX_MENDED = 1 << 18
"""Bytes of JSON in which half characters and numbers that are none are replaced: 30 ms at most."""

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_NO_NUMBER = re.compile(rb"-?\b(?:NaN|Infinity)\b")


def parse(data: bytes) -> Any:
    """Parse JSON as stock front ends do. Raises `ProtocolError` for what they could not read."""
    try:
        return _strictly(data)
    except ProtocolError:
        if (mended := _mended(data)) is None:
            raise
        return mended[0]


def _strictly(data: bytes | bytearray) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        why = str(error)
    # Not there: the error of orjson holds the whole text.
    raise ProtocolError(MessageCode.NOT_JSON.note(why=why))


def _mended(data: bytes, most: int | None = None) -> tuple[Any, bytes] | None:
    """Return what stock front ends read in `data` although it is no JSON, and the JSON that says it; None for all else.

    ipykernel packs the names of files as they are, with bytes that are not UTF-8. Other kernels escape half of a
    character, or write NaN. Raises `ProtocolError` for what would cost more than `most` bytes of memory.
    """
    for mend in (_in_utf8, _in_json):
        fixed = mend(data)
        if fixed is None:
            continue
        data = fixed
        if most is not None and (reason := json_memory.heavy(data, most)) is not None:
            raise ProtocolError(MessageCode.NOT_TAKEN_IN.note(why=reason))
        with suppress(ProtocolError):
            return _strictly(data), data
    return None


def _in_utf8(data: bytes) -> bytes | None:
    """Return text with U+FFFD for each byte that is not UTF-8; None if that changes nothing."""
    if data.isascii():
        return None
    decoder, fixed = codecs.getincrementaldecoder("utf-8")("replace"), bytearray()
    for start in range(0, len(data), PIECE):
        fixed += decoder.decode(data[start : start + PIECE], start + PIECE >= len(data)).encode()
    return None if fixed == data else bytes(fixed)


def _in_json(data: bytes) -> bytes | None:
    """Return JSON with U+FFFD for each escaped half of a character, and null for NaN and infinity."""
    if len(data) > MAX_MENDED or b"\0" in data:
        return None
    # What escapes a backslash or a quotation mark is hidden: then each quotation mark begins or ends a text.
    hidden = _HALF.sub(rb"\\ufffd", data.replace(rb"\\", b"\0\0")).replace(rb"\"", b"\0\1")
    pieces = hidden.split(b'"')
    pieces[::2] = _NO_NUMBER.sub(b"null", b'"'.join(pieces[::2])).split(b'"')
    return b'"'.join(pieces).replace(b"\0\1", rb"\"").replace(b"\0\0", rb"\\")


def take(parts: list[bytes], place: int, max_bytes: int, factor: int) -> Any:
    """Parse one of `parts` within `factor` times `max_bytes` of memory; what is mostly long texts is taken out of them.

    A copy is spared where it would not leave one of those times free. Long texts of ASCII are then parsed piece by
    piece, and replaced by a name that cannot be guessed. Raises `ProtocolError` for what is no JSON, and
    for a long text that is a key, or the first of two values of one key.
    """
    data = parts[place]
    if factor * len(data) <= (factor - 1) * max_bytes or not data.isascii() or (b"\\" in data and b"\\u" in data):
        return _strictly(data)
    rest, found = _without_texts(data)
    if not found:
        return _strictly(data)
    parts[place] = data = b""
    result = [_strictly(rest)]
    waiting: list[Any] = [result]
    while waiting:
        inside = waiting.pop()
        for where, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            if isinstance(value, (dict, list)):
                waiting.append(value)
            elif isinstance(value, str) and value in found:
                inside[where] = "".join(found.pop(value))
    if found:
        raise ProtocolError(MessageCode.KEY_IMPROPER)
    return result[0]


def _without_texts(data: bytes) -> tuple[bytes, dict[str, list[str]]]:
    """Return JSON with names in place of its long texts, and the pieces of those by name.

    Nothing, if a quarter or more is anything else: all the rest is copied.
    """
    rest, found = bytearray(), dict[str, list[str]]()
    copied = end = 0
    for _ in range(MAX_STRINGS):
        if (begin := data.find(b'"', end)) < 0:
            break
        end, pieces = _text(data, begin + 1)
        if pieces:
            name = secrets.token_hex(16)
            found[name] = pieces
            rest += data[copied:begin] + f'"{name}"'.encode()
            copied = end
    if not found or 4 * (len(rest) + len(data) - copied) > len(data):
        return b"", {}
    return bytes(rest + data[copied:]), found


def _text(data: bytes, start: int) -> tuple[int, list[str]]:
    """Return where a string whose inside begins at `start` ends, and its pieces; none of a short one."""
    pieces: list[str] = []
    size = LOOK
    while start < len(data):
        piece = data[start : start + size]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece += data[start + size : start + size + 1]  # the character that is escaped
        end = piece.find(b'"')
        if end >= 0 and b"\\" in piece:
            end = piece.replace(b"\\\\", b"..").replace(b'\\"', b"..").find(b'"')
        if end >= 0 and not pieces:
            return start + end + 1, []
        pieces.append(_strictly(b'"%b"' % (piece if end < 0 else piece[:end])))
        if end >= 0:
            return start + end + 1, pieces
        start += len(piece)
        size = PIECE
    raise ProtocolError(MessageCode.NOT_JSON.note(why="a text has no end"))


PROTOCOL_VERSION = "5.4"
"""With subshells (JEP 91) and iopub_welcome (JEP 65)."""

MAX_ID = 256
"""Characters of an id, a name or a type; jupyter_client's are 36 to 80 long."""
MAX_HEADER = 1 << 16
"""Bytes of a header, a parent header or metadata: looked at before they are parsed."""
MEMORY_FACTOR = 3
"""What a message may cost the host, in times the largest one that is allowed: as it came, parsed, and written again."""

_CHANNEL_OF_KIND: dict[int, Channel] = {
    wire.SHELL: "shell",
    wire.CONTROL: "control",
    wire.STDIN: "stdin",
    wire.IOPUB: "iopub",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What is known of a request type: who answers, and with what."""

    channels: frozenset[str]
    reply: str | None
    """Type of the reply; None if there is none."""
    answered_by: Literal["kernel", "proxy"]


_SHELL, _CONTROL, _BOTH = frozenset({"shell"}), frozenset({"control"}), frozenset({"shell", "control"})

REQUESTS: dict[str, Request] = {
    "execute_request": Request(_SHELL, "execute_reply", "kernel"),
    "complete_request": Request(_BOTH, "complete_reply", "kernel"),
    "inspect_request": Request(_BOTH, "inspect_reply", "kernel"),
    "history_request": Request(_BOTH, "history_reply", "kernel"),
    "is_complete_request": Request(_BOTH, "is_complete_reply", "kernel"),
    "comm_info_request": Request(_BOTH, "comm_info_reply", "kernel"),
    "comm_open": Request(_SHELL, None, "kernel"),
    "comm_msg": Request(_SHELL, None, "kernel"),
    "comm_close": Request(_SHELL, None, "kernel"),
    "debug_request": Request(_CONTROL, "debug_reply", "kernel"),
    "create_subshell_request": Request(_CONTROL, "create_subshell_reply", "kernel"),
    "delete_subshell_request": Request(_CONTROL, "delete_subshell_reply", "kernel"),
    "list_subshell_request": Request(_CONTROL, "list_subshell_reply", "kernel"),
    "kernel_info_request": Request(_BOTH, "kernel_info_reply", "proxy"),
    "connect_request": Request(_BOTH, "connect_reply", "proxy"),
    "usage_request": Request(_CONTROL, "usage_reply", "proxy"),
    "interrupt_request": Request(_BOTH, "interrupt_reply", "proxy"),
    "shutdown_request": Request(_BOTH, "shutdown_reply", "proxy"),
    # How the sandbox stands, for those who show it: see kernel_info.py.
    "sandbox_state_request": Request(_CONTROL, "sandbox_state_reply", "proxy"),
    # What speaks against a text that somebody would paste, where the screen is on.
    "sandbox_screen_request": Request(_CONTROL, "sandbox_screen_reply", "proxy"),
    # Our own, on the control channel so that they are answered while a cell runs; see the plugin `file_messages`.
    "sandbox_file_write_request": Request(_CONTROL, "sandbox_file_write_reply", "proxy"),
    "sandbox_file_read_request": Request(_CONTROL, "sandbox_file_read_reply", "proxy"),
    "sandbox_file_list_request": Request(_CONTROL, "sandbox_file_list_reply", "proxy"),
    "sandbox_file_mkdir_request": Request(_CONTROL, "sandbox_file_mkdir_reply", "proxy"),
    "sandbox_file_remove_request": Request(_CONTROL, "sandbox_file_remove_reply", "proxy"),
}

COMMS = frozenset({"comm_open", "comm_msg", "comm_close"})

PUBLISHED = frozenset(
    {
        "clear_output",
        "comm_close",
        "comm_msg",
        "comm_open",
        "debug_event",
        "display_data",
        "error",
        "execute_input",
        "execute_result",
        "status",
        "stream",
        "update_display_data",
    }
)
"""What a kernel may publish on iopub. Its iopub_welcome and its shutdown_reply are not for the front end."""

_FAILURE = frozenset({"status", "ename", "evalue", "traceback"})

CONTENT: dict[str, frozenset[str]] = {
    "clear_output": frozenset({"wait"}),
    "comm_close": frozenset({"comm_id", "data"}),
    "comm_msg": frozenset({"comm_id", "data"}),
    "comm_open": frozenset({"comm_id", "target_name", "target_module", "data"}),
    "debug_event": frozenset({"type", "seq", "event", "body"}),
    "display_data": frozenset({"data", "metadata", "transient"}),
    "error": frozenset({"ename", "evalue", "traceback"}),
    "execute_input": frozenset({"code", "execution_count"}),
    "execute_result": frozenset({"data", "metadata", "transient", "execution_count"}),
    "input_request": frozenset({"prompt", "password"}),
    "status": frozenset({"execution_state"}),
    "stream": frozenset({"name", "text"}),
    "update_display_data": frozenset({"data", "metadata", "transient"}),
    "execute_reply": _FAILURE | {"execution_count", "payload", "user_expressions"},
    "complete_reply": _FAILURE | {"matches", "cursor_start", "cursor_end", "metadata"},
    "inspect_reply": _FAILURE | {"found", "data", "metadata"},
    "history_reply": _FAILURE | {"history"},
    "is_complete_reply": _FAILURE | {"indent"},
    "comm_info_reply": _FAILURE | {"comms"},
    "debug_reply": _FAILURE | {"type", "seq", "request_seq", "success", "command", "message", "body"},
    "create_subshell_reply": _FAILURE | {"subshell_id"},
    "delete_subshell_reply": _FAILURE,
    "list_subshell_reply": _FAILURE | {"subshell_id"},
    "kernel_info_reply": frozenset({"status", "implementation_version", "language_info", "supported_features"}),
}
"""The keys of each type's content that mean something; all others are dropped as they arrive.

A reply to a request that is not in the table above keeps what it has: its meaning is between a front end and a kernel.
"""

_REQUIRED: dict[str, tuple[tuple[str, type | tuple[type, ...]], ...]] = {
    "stream": (("name", str), ("text", str)),
    "display_data": (("data", dict), ("metadata", dict)),
    "execute_result": (("data", dict), ("metadata", dict)),
    "update_display_data": (("data", dict), ("metadata", dict), ("transient", dict)),
    "error": (("ename", str), ("evalue", str), ("traceback", list)),
    "execute_input": (("code", str), ("execution_count", int)),
    "status": (("execution_state", str),),
    "comm_open": (("comm_id", str), ("target_name", str), ("data", dict)),
    "comm_msg": (("comm_id", str), ("data", dict)),
    "comm_close": (("comm_id", str),),
    "input_request": (("prompt", str), ("password", bool)),
    "execute_reply": (("status", str),),
    "complete_reply": (("status", str),),
    "inspect_reply": (("status", str),),
    "history_reply": (("status", str),),
    "is_complete_reply": (("status", str),),
    "comm_info_reply": (("status", str),),
}
"""Fields whose absence or type would break a front end."""

USUAL: dict[str, dict[str, Any]] = {
    "stream": {"name": "stdout"},
    "display_data": {"metadata": {}},
    "execute_result": {"metadata": {}, "execution_count": None},
    "update_display_data": {"metadata": {}},
    "error": {"ename": "", "evalue": "", "traceback": []},
    "execute_input": {"code": "", "execution_count": 0},
    "comm_open": {"data": {}},
    "comm_msg": {"data": {}},
    "input_request": {"prompt": "", "password": False},
    "complete_reply": {"status": "ok"},
    "inspect_reply": {"status": "ok"},
    "history_reply": {"status": "ok"},
    "comm_info_reply": {"status": "ok"},
}
"""What a field is that a kernel leaves out, as null or, in languages that know one empty value, as an empty list."""

TEXTS = {"stream": ("text",), "error": ("ename", "evalue")}
"""Fields that are one text; front ends also take a list of lines, as notebooks have it."""


def reply_type(request_type: str) -> str | None:
    """Return the reply's type for a request's; a type we do not know follows the naming rule."""
    known = REQUESTS.get(request_type)
    if known is not None:
        return known.reply
    return request_type.removesuffix("_request") + "_reply" if request_type.endswith("_request") else None


def way(request: Message) -> Literal["refused", "answered", "passed on"]:
    """Return what becomes of a request: its channel is not for it, the host itself answers it, or the kernel does."""
    known = REQUESTS.get(request.type)
    if known is None or request.channel == "stdin":
        return "passed on"
    if request.channel not in known.channels:
        return "refused"
    return "answered" if known.answered_by == "proxy" else "passed on"


class UnreadableError(ProtocolError):
    """A message that may not pass by its form: one of the type `kind`, if it says so, on a channel, with a parent."""

    def __init__(self, why: Note, channel: Channel, kind: str, parent: Mapping[str, Any]) -> None:
        super().__init__(why)
        self.channel = channel
        self.kind = kind
        self.parent = parent


class TooHeavyError(UnreadableError):
    """A message that is in order but was not parsed."""


def decode(kind: int, parts: list[bytes], max_message: int = 96 << 20) -> Message:
    """Decode a channel frame from the container. Raises `ProtocolError` with the reason it may not pass.

    A long content is taken out of `parts`, so that it is not held beside what is made of it.
    Nothing is parsed that would cost more than `MEMORY_FACTOR` times `max_message` bytes: that is a `TooHeavyError`.
    Replies and comms, which a filter may have to take apart and write again, may cost a third of that.
    """
    channel = _CHANNEL_OF_KIND.get(kind)
    if channel is None:
        raise ProtocolError(MessageCode.NOT_A_CHANNEL.note(kind=kind))
    if len(parts) < 4:
        raise ProtocolError(MessageCode.FEW_PARTS.note(count=len(parts)))
    try:
        return _decoded(channel, parts, max_message)
    except UnreadableError:
        raise
    except ProtocolError as error:
        name = _small(parts[0]).get("msg_type")
        kind_of = name[:MAX_ID] if isinstance(name, str) else ""
        why = Note(error.code, error.message)
        raise UnreadableError(why, channel, kind_of, _small(parts[1])) from None


def _small(part: bytes) -> Mapping[str, Any]:
    """Return a header as far as it can be read."""
    try:
        return parse_object(part) if len(part) <= MAX_HEADER else {}
    except ProtocolError:
        return {}


def _decoded(channel: Channel, parts: list[bytes], max_message: int) -> Message:
    if max(map(len, parts[:3])) > MAX_HEADER:
        raise ProtocolError(MessageCode.HEADER_TOO_LARGE.note(most=MAX_HEADER))
    header, parent, metadata = (parse_object(part) for part in parts[:3])
    check_identifiers(header)
    if parent:
        _identifier(parent, "msg_id")
    kind = header["msg_type"]
    _check_type(channel, kind)
    most = max_message if channel != "iopub" or kind in COMMS else MEMORY_FACTOR * max_message
    is_kept = channel == "iopub" and kind != "stream"
    reason, memory = None, 0
    if (begun := len(parts[3])) > json_memory.SMALL:
        reason, memory = json_memory.weigh(parts[3], most)
    elif is_kept:
        memory = json_memory.kept(parts[3])
    if reason is not None:
        raise TooHeavyError(Note(MessageCode.NOT_TAKEN_IN, reason), channel, kind, parent)
    plain = _is_plain(parts[3])  # of a long text, nothing is left there in a moment
    try:
        value, mended = take(parts, 3, max_message, MEMORY_FACTOR), False
    except ProtocolError:
        # What was taken apart already is no text any more.
        if len(parts[3]) < begun or (found := _mended(parts[3], most)) is None:
            raise
        value, parts[3] = found
        mended, plain, memory = True, _is_plain(parts[3]), json_memory.kept(parts[3])
    message = Message(
        channel=channel,
        header=header,
        parent=parent,
        metadata=metadata,
        memory=memory if is_kept else 0,
        plain=plain,
        content=_formed(kind, _known(kind, _object(value))),
        buffers=tuple(parts[4:]),
        mended=mended,
    )
    for name, kinds in _REQUIRED.get(kind, ()):
        if not isinstance(message.content.get(name), kinds):
            raise ProtocolError(MessageCode.FIELD_IMPROPER.note(type=kind, field=name))
    return message


def _formed(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Give a content the form that front ends know, where a kernel may have another one."""
    for name, usual in USUAL.get(kind, {}).items():
        value = content.get(name)
        if value is None or (value == [] and usual == {}) or (value == {} and usual == []):
            content[name] = type(usual)() if isinstance(usual, (dict, list)) else usual
        elif usual == [] and isinstance(value, str):
            content[name] = [value]
    for name in TEXTS.get(kind, ()):
        value = content.get(name)
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            content[name] = "".join(value)
        elif isinstance(value, (int, float)):
            content[name] = str(value)
    return content


def _is_plain(body: bytes) -> bool:
    # JSON escapes control characters with a backslash, except DEL.
    return body.isascii() and b"\\" not in body and b"\x7f" not in body


def _known(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Drop the keys of a content that its type does not have; it is the very same object if there are none."""
    known = CONTENT.get(kind)
    if known is None or content.keys() <= known:
        return content
    return {key: value for key, value in content.items() if key in known}


def encode(message: Message) -> list[bytes]:
    """Return the parts of a channel frame for the container. Raises `ProtocolError` for what JSON cannot say."""
    return [
        dumps(message.header),
        dumps(message.parent),
        dumps(message.metadata),
        dumps(message.content),
        *message.buffers,
    ]


def dumps(value: object) -> bytes:
    """Serialise JSON for the other side. Raises `ProtocolError` for what JSON cannot say.

    orjson refuses NaN's makers, lone surrogates, and nesting deeper than 254, over which front ends would recurse.
    """
    try:
        return orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        raise ProtocolError(MessageCode.NOT_JSON.note(why=error)) from None


def _check_type(channel: Channel, kind: str) -> None:
    if channel == "iopub":
        if kind == "iopub_welcome":
            raise ProtocolError(MessageCode.WELCOME)
        if kind not in PUBLISHED:
            raise ProtocolError(MessageCode.NOT_PUBLISHED.note(type=kind))
    elif channel == "stdin":
        if kind != "input_request":
            raise ProtocolError(MessageCode.NOT_ON_STDIN.note(type=kind))
    elif not kind.endswith("_reply"):
        raise ProtocolError(MessageCode.NOT_A_REPLY.note(type=kind, channel=channel))


def parse_object(part: bytes) -> dict[str, Any]:
    """Parse a JSON object; null and an empty list are an empty one. Raises `ProtocolError` for anything else."""
    return _object(parse(part))


def _object(value: Any) -> dict[str, Any]:
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(MessageCode.NO_OBJECT)
    return value


def check_identifiers(header: Mapping[str, Any]) -> None:
    """Raise `ProtocolError` unless a header names its message and its type."""
    _identifier(header, "msg_id")
    _identifier(header, "msg_type")


def _identifier(header: Mapping[str, Any], field: str) -> None:
    value = header.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID:
        raise ProtocolError(MessageCode.NO_ID.note(field=field, most=MAX_ID))
