"""The message table on scripted frames: what may pass is parsed and written again, all else is a `ProtocolError`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ProtocolError
from sandbox_kernel.core.model import Message
from sandbox_kernel.session import protocol
from sandbox_kernel.session import protocol as texts
from tests.support.cases import each
from tests.support.examples import examples

CHANNELS = {wire.SHELL: "shell", wire.CONTROL: "control", wire.STDIN: "stdin", wire.IOPUB: "iopub"}
REPLIES = sorted(request.reply for request in protocol.REQUESTS.values() if request.reply)
TYPES = [*sorted(protocol.PUBLISHED), *REPLIES, "input_request", "iopub_welcome", "unknown", "custom_reply", ""]
FIELDS = sorted({name for fields in protocol._REQUIRED.values() for name, _ in fields})
SAMPLES = {str: "x", dict: {}, list: [], int: 1, bool: True}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 53), 1 << 53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | TEXT, inner, max_size=5),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.sampled_from([*FIELDS, "msg_id", "msg_type"]), JSON, max_size=6)


def honest(kind: str) -> dict[str, Any]:
    """Return content that has what a front end needs of a type."""
    fields = protocol._REQUIRED.get(kind, ())
    return {name: SAMPLES[kinds if isinstance(kinds, type) else kinds[0]] for name, kinds in fields}


def frame(header: Any, parent: Any, metadata: Any, content: Any, *buffers: bytes) -> list[bytes]:
    return [*(orjson.dumps(part) for part in (header, parent, metadata, content)), *buffers]


@examples()
@given(st.sampled_from([*CHANNELS, wire.AGENT, 0, 99]), st.sampled_from(TYPES), OBJECTS, OBJECTS, st.lists(st.binary()))
def test_a_message_is_one_of_the_table_or_an_error(
    kind: int, name: str, content: dict[str, Any], parent: dict[str, Any], buffers: list[bytes]
) -> None:
    for body in (content, {**honest(name), **content}, honest(name)):
        try:
            message = protocol.decode(kind, frame({"msg_id": "m", "msg_type": name}, parent, {}, body, *buffers))
        except ProtocolError:
            continue
        assert message.channel == CHANNELS[kind]
        known = protocol.CONTENT.get(name)
        assert message.content == {key: body[key] for key in body if known is None or key in known}
        assert message.buffers == tuple(buffers)
        assert (name in protocol.PUBLISHED) == (kind == wire.IOPUB)
        assert (name == "input_request") == (kind == wire.STDIN)
        assert name.endswith("_reply") == (kind in (wire.SHELL, wire.CONTROL))
        assert all(isinstance(body.get(field), kinds) for field, kinds in protocol._REQUIRED.get(name, ()))


@examples()
@given(st.sampled_from(sorted(protocol.PUBLISHED)), OBJECTS, OBJECTS, st.lists(st.binary(max_size=50), max_size=3))
def test_what_is_written_anew_is_what_came(
    kind: str, metadata: dict[str, Any], extra: dict[str, Any], buffers: list[bytes]
) -> None:
    message = Message(
        channel="iopub",
        header={"msg_id": "m", "msg_type": kind},
        parent={"msg_id": "p"},
        metadata=metadata,
        content={key: value for key, value in extra.items() if key in protocol.CONTENT[kind]} | honest(kind),
        buffers=tuple(buffers),
    )
    assert protocol.decode(wire.IOPUB, protocol.encode(message)) == message
    more = replace(message, content={**extra, "unknown": [{}] * 9, **honest(kind)})
    assert protocol.decode(wire.IOPUB, protocol.encode(more)).content.keys() <= protocol.CONTENT[kind]


@examples()
@given(st.lists(st.binary(max_size=60) | JSON.map(orjson.dumps), max_size=6), st.sampled_from([*CHANNELS, 0]))
def test_any_bytes_are_a_message_or_an_error(parts: list[bytes], kind: int) -> None:
    try:
        message = protocol.decode(kind, parts)
    except ProtocolError:
        return
    assert message.channel == CHANNELS[kind]


@each("kind", sorted(protocol.PUBLISHED))
def test_a_published_message_passes_on_iopub_and_nowhere_else(kind: str) -> None:
    parts = frame({"msg_id": "m", "msg_type": kind}, {}, {}, honest(kind))
    assert protocol.decode(wire.IOPUB, parts).type == kind
    for other in (wire.SHELL, wire.CONTROL, wire.STDIN, wire.AGENT):
        with pytest.raises(ProtocolError):
            protocol.decode(other, parts)


NO_STATUS = {
    "NaN": b'{"execution_state":NaN}',
    "Infinity": b'{"execution_state":Infinity}',
    "not UTF-8": b'{"execution_state":"\xff"}',
    "half a character": b'{"execution_state":"\\ud800"}',
    "deep": b'{"execution_state":' + b"[" * 2000 + b"]" * 2000 + b"}",
    "more than one": b'{"execution_state":"busy"}x',
    "a list": b"[]",
    "null": b"null",
    "nothing": b"",
    "cut off": b"{",
    "empty": b"{}",
}


@each("content", NO_STATUS.values(), ids=NO_STATUS)
def test_what_is_no_json_object_or_lacks_a_field_is_refused(content: bytes) -> None:
    parts = [orjson.dumps({"msg_id": "m", "msg_type": "status"}), b"{}", b"{}", content]
    with pytest.raises(ProtocolError):
        protocol.decode(wire.IOPUB, parts)


def test_the_last_of_two_equal_keys_counts_for_the_check_and_for_the_front_end() -> None:
    parts = [b'{"msg_id":"m","msg_type":"status","msg_type":"stream"}', b"{}", b"{}", b'{"name":"a","text":"b"}']
    message = protocol.decode(wire.IOPUB, parts)
    assert message.type == "stream"
    assert protocol.encode(message)[0] == b'{"msg_id":"m","msg_type":"stream"}'


LONG = st.lists(
    st.sampled_from(["\\\\", '\\"', "\\n", "\\/", "a", "bc", "x" * 9, "{", "]", ",", ":", "'"]), min_size=8, max_size=30
)
AROUND = ['{"t":"%s"}', '{"a":["%s",1,"%s"],"b":{"c":"%s"}}', ' { "a" : "x\\"" , "t" : "%s" } ', '["%s"]', '"%s"']


@examples()
@given(LONG, st.sampled_from(AROUND), st.integers(1, 7))
def test_long_texts_are_parsed_as_short_ones_are(words: list[str], around: str, size: int) -> None:
    body = around.replace("%s", "".join(words)).encode()
    parts = [body]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "LOOK", size)
        patch.setattr(texts, "PIECE", size + 1)
        assert texts.take(parts, 0, len(body), 3) == orjson.loads(body)
    if len("".join(words)) > 200:
        assert parts == [b""]


LONG_TEXT = b"x" * 100_000
NO_LONG_TEXTS = {
    "control character": b'{"a":"%b\n"}',
    "no end": b'{"a":"%b',
    "no end of an escape": b'{"a":"%b\\',
    "escape of nothing": b'{"a":"%b\\x%b"}',
    "no end of the object": b'{"a":"%b"',
    "two values": b'{"a":"%b"}1',
    "no comma": b'{"a":"%b""%b"}',
    "long key": b'{"%b":1}',
    "key twice": b'{"a":"%b","a":1}',
}


@pytest.mark.parametrize("name", NO_LONG_TEXTS)
def test_long_texts_that_are_no_json_are_refused(name: str) -> None:
    body = NO_LONG_TEXTS[name].replace(b"%b", LONG_TEXT)
    with pytest.raises(ProtocolError):
        texts.take([body], 0, len(body), 3)


def test_a_long_text_is_never_there_three_times() -> None:
    """Control: the parser by itself needs all three."""
    program = """
import sys
from pathlib import Path
from sandbox_kernel.session import protocol as texts
def size(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))
parts = [b'{"data":{"text/plain":"' + b"x" * 49 * 10**6 + b"\\\\n" * 10 + b'"}}']
before = size("VmRSS") - len(parts[0])
Path("/proc/self/clear_refs").write_text("5")
result = texts.take(parts, 0, 50 * 10**6, 3) if sys.argv[1] == "take" else texts.parse(parts[0])
assert len(result["data"]["text/plain"]) == 49 * 10**6 + 10
print((size("VmHWM") - before) / 49e6)
"""
    times = {
        name: float(subprocess.run([sys.executable, "-c", program, name], check=True, capture_output=True).stdout)
        for name in ("take", "parse")
    }
    assert times["take"] < 2.4
    assert times["parse"] > 2.8


@pytest.mark.parametrize("field", ["msg_id", "msg_type"])
@pytest.mark.parametrize("value", [None, 1, "", "x" * 257, ["m"]], ids=["none", "a number", "empty", "long", "a list"])
def test_a_header_without_proper_names_is_refused(field: str, value: Any) -> None:
    header = {"msg_id": "m", "msg_type": "status", field: value}
    with pytest.raises(ProtocolError, match=field):
        protocol.decode(wire.IOPUB, frame(header, {}, {}, {"execution_state": "busy"}))
