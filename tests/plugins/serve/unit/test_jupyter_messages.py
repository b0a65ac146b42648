"""The forms that Jupyter's messages have on a WebSocket: those of Jupyter's own server, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
    serialize_binary_message,
    serialize_msg_to_ws_v1,
)

from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.serve.jupyter.messages import MAX_MESSAGE, Closed, Outgoing, decode

HEADER = {"msg_id": "m", "msg_type": "kernel_info_request", "date": "2026-01-01T00:00:00Z"}
WHOLE = {"header": HEADER, "parent_header": {}, "metadata": {"a": 1}, "content": {"b": "\u00e9"}, "channel": "control"}


def offsets(width: int, order: Any, *numbers: int) -> bytes:
    return b"".join(number.to_bytes(width, order) for number in numbers)


@pytest.mark.parametrize("buffers", [(), (b"one", b"", b"three")])
def test_what_jupyter_s_own_server_and_clients_write_is_read(buffers: tuple[bytes, ...]) -> None:
    names = ("header", "parent_header", "metadata", "content")
    parts = [*(json.dumps(WHOLE[name]).encode() for name in names), *buffers]
    binary = serialize_binary_message({**WHOLE, "buffers": list(buffers)})
    forms = [(serialize_msg_to_ws_v1(parts, "control"), True), (binary, False)]
    if not buffers:
        forms.append((json.dumps(WHOLE), False))
    for data, v1 in forms:
        found = decode(data, v1=v1)
        assert (found.channel, found.header, found.metadata) == ("control", HEADER, {"a": 1})
        assert (found.content, found.buffers) == ({"b": "\u00e9"}, buffers)


@pytest.mark.parametrize("buffers", [(), (b"one", b"", b"three")])
def test_what_is_written_is_read_by_jupyter_s_own_server_and_clients(buffers: tuple[bytes, ...]) -> None:
    message = Message(channel="iopub", header=HEADER, content={"b": "\u00e9"}, buffers=buffers)
    outgoing = Outgoing(message)
    channel, parts = deserialize_msg_from_ws_v1(outgoing.in_parts)
    assert (channel, json.loads(parts[0]), json.loads(parts[3])) == ("iopub", HEADER, {"b": "\u00e9"})
    assert tuple(parts[4:]) == buffers
    data = outgoing.in_json
    found = deserialize_binary_message(data) if isinstance(data, bytes) else json.loads(data)
    assert isinstance(data, bytes) == bool(buffers)
    assert (found["channel"], found["msg_id"], found["content"]) == ("iopub", "m", {"b": "\u00e9"})
    assert tuple(found["buffers"]) == buffers


def test_of_a_header_is_kept_what_is_known_and_short() -> None:
    """It is remembered long after its request, of which there may be many."""
    header = {**HEADER, "more": "x", "session": "s" * 300, "username": ["x"], "version": "5.4"}
    assert decode(json.dumps({"header": header}), v1=False).header == {**HEADER, "version": "5.4"}


def test_a_message_without_a_channel_is_for_the_shell() -> None:
    assert decode(json.dumps({"header": HEADER}), v1=False).channel == "shell"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("", 1007),
        ("x", 1007),
        ("[]", 1007),
        ("{}", 1007),
        (json.dumps({"header": {"msg_id": "m"}, "channel": "shell"}), 1007),
        (json.dumps({"header": {"msg_id": "m" * 300, "msg_type": "x"}, "channel": "shell"}), 1007),
        (json.dumps({"header": HEADER, "content": [], "metadata": 1, "channel": "shell"}), 1007),
        ('{"header":' * 100_000, 1007),
        (json.dumps({"header": HEADER, "channel": "iopub"}), 1008),
        (json.dumps({"header": HEADER, "channel": "hb"}), 1008),
        (json.dumps({"header": HEADER, "channel": ["shell"]}), 1008),
        ("x" * (MAX_MESSAGE + 1), 1009),
        (json.dumps({"header": HEADER, "content": {"x": [[]] * (3 << 20)}}), 1009),
        (b"", 1007),
        (b"\0\0\0\1", 1007),
        (offsets(4, "big", 1, 8) + b"{}", 1007),
        (offsets(4, "big", 1, 4) + b"{}", 1007),
        (offsets(4, "big", 2, 12, 2**31) + b"{}", 1007),
        (offsets(4, "big", 2**31), 1007),
        (offsets(4, "big", 2**31 - 1, 8) + b"x" * 100, 1007),
    ],
)
def test_what_is_no_message_is_refused_with_a_code(data: str | bytes, code: int) -> None:
    with pytest.raises(Closed) as closed:
        decode(data, v1=False)
    assert (closed.value.code, 0 < len(str(closed.value)) < 124) == (code, True)


@pytest.mark.parametrize(
    "data",
    [
        "text",
        b"",
        offsets(8, "little", 6, 56, 61, 63, 65, 67) + b"shell{}{}{}{}",
        offsets(8, "little", 6, 56, 61, 63, 65, 67, 2**63) + b"shell{}{}{}{}",
        offsets(8, "little", 6, 56, 61, 63, 60, 67, 69) + b"shell{}{}{}{}",
        offsets(8, "little", 6, 56, 61, 63, 65, 67, 69) + b"shell{}{}{}{}",
        offsets(8, "little", 2**62),
        offsets(8, "little", 0),
    ],
)
def test_so_is_one_in_the_other_form(data: str | bytes) -> None:
    with pytest.raises(Closed) as closed:
        decode(data, v1=True)
    assert closed.value.code == 1007
