"""The message table on scripted frames: what may pass is parsed and written again, all else is a `ProtocolError`."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.session import json_packer, json_unpacker

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ProtocolError
from sandbox_kernel.core.model import Message
from sandbox_kernel.policy import protocol
from sandbox_kernel.policy import protocol as texts
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
    given = {name: SAMPLES[kinds if isinstance(kinds, type) else kinds[0]] for name, kinds in fields}
    return protocol.USUAL.get(kind, {}) | given


def frame(header: Any, parent: Any, metadata: Any, content: Any, *buffers: bytes) -> list[bytes]:
    return [*(orjson.dumps(part) for part in (header, parent, metadata, content)), *buffers]


@pytest.mark.slow
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
        kept = {key: body[key] for key in body if known is None or key in known}
        given = {key for key, value in kept.items() if message.content[key] == value}
        usual = protocol.USUAL.get(name, {}).keys() | set(protocol.TEXTS.get(name, ()))
        assert message.content.keys() - usual <= given
        assert given | usual >= kept.keys()
        assert message.buffers == tuple(buffers)
        assert (name in protocol.PUBLISHED) == (kind == wire.IOPUB)
        assert (name == "input_request") == (kind == wire.STDIN)
        assert name.endswith("_reply") == (kind in (wire.SHELL, wire.CONTROL))
        assert all(isinstance(message.content.get(field), kinds) for field, kinds in protocol._REQUIRED.get(name, ()))


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


@pytest.mark.slow
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


ODD = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["a\udcb2b", "\udce6\udcb5", "\\ud800", '"NaN"', "]NaN,", "\\"]
)
ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats() | ODD,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD, inner, max_size=4),
    max_leaves=12,
)


def as_front_ends_have_it(value: Any) -> Any:
    """Return a tree as it can be written again: without halves of characters, and numbers that are none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, list):
        return [as_front_ends_have_it(one) for one in value]
    if isinstance(value, dict):
        return {as_front_ends_have_it(key): as_front_ends_have_it(one) for key, one in value.items()}
    return value


@pytest.mark.filterwarnings("ignore:Message serialization failed")  # of numbers that are none, by ipykernel's packer
@examples()
@given(ODD_JSON, st.sampled_from(["ipykernel", "escapes", "numbers"]))
def test_what_kernels_pack_is_read_as_jupyter_client_reads_it(value: Any, packer: str) -> None:
    """The author is what ipykernel packs with, or what writes JSON as other kernels do; the reader is the stock one."""
    try:
        if packer == "ipykernel":
            packed = json_packer({"a": value})
        else:
            packed = json.dumps({"a": value}, ensure_ascii=packer == "escapes").encode("utf-8", "surrogateescape")
    except ValueError:
        return  # no kernel can send it
    assert protocol.parse(packed) == as_front_ends_have_it(json_unpacker(packed))
    protocol.dumps(protocol.parse(packed))


PLACES = {
    "stream": {"name": "stdout", "text": "~"},
    "error": {"ename": "~", "evalue": "~", "traceback": ["~", "x"]},
    "display_data": {"data": {"text/plain": "~"}, "metadata": {"~": "~"}, "transient": {"display_id": "~"}},
    "update_display_data": {"data": {"text/html": "~"}, "metadata": {}, "transient": {"display_id": "~"}},
    "execute_result": {"data": {"text/plain": "~"}, "metadata": {}, "execution_count": 1},
    "execute_input": {"code": "~", "execution_count": 1},
    "comm_open": {"comm_id": "~", "target_name": "~", "data": {"~": "~"}},
    "comm_msg": {"comm_id": "c", "data": {"~": ["~"]}},
    "comm_close": {"comm_id": "c", "data": {"~": "~"}},
    "debug_event": {"type": "event", "event": "output", "body": {"output": "~"}},
    "input_request": {"prompt": "~", "password": False},
    "execute_reply": {"status": "ok", "payload": [{"source": "page", "data": {"text/plain": "~"}, "start": 0}]},
    "complete_reply": {"status": "ok", "matches": ["~"], "metadata": {"_jupyter_types_experimental": [{"text": "~"}]}},
    "inspect_reply": {"status": "ok", "found": True, "data": {"text/plain": "~"}, "metadata": {}},
    "history_reply": {"status": "ok", "history": [[1, 1, "~"]]},
    "is_complete_reply": {"status": "incomplete", "indent": "~"},
    "comm_info_reply": {"status": "ok", "comms": {"~": {"target_name": "~"}}},
    "debug_reply": {"type": "response", "message": "~", "body": {"~": "~"}},
    "custom_reply": {"~": "~"},
}


@each("kind", PLACES)
@each("half", ["\udcb2\udce2", "\ud83d", "\ude00\ud83d"])
def test_half_a_character_is_a_replacement_character_in_every_type(kind: str, half: str) -> None:
    channel = wire.STDIN if kind == "input_request" else wire.SHELL if kind.endswith("_reply") else wire.IOPUB
    escaped = json.dumps(PLACES[kind]).replace("~", json.dumps(half)[1:-1]).encode()
    packed = [escaped]
    if half.startswith("\udcb2"):
        packed.append(json_packer(json.loads(escaped)))
    for content in packed:
        parts = [orjson.dumps({"msg_id": "m", "msg_type": kind}), b'{"msg_id":"r"}', b"{}", content]
        message = protocol.decode(channel, parts)
        assert message.content == as_front_ends_have_it(json_unpacker(content))
        assert message.mended
        assert b"\xef\xbf\xbd" in protocol.dumps(message.content)
    assert not protocol.decode(channel, [*parts[:3], orjson.dumps(PLACES[kind])]).mended


@each(
    ("kind", "content", "read"),
    [
        ("stream", b'{"name":"stdout","text":["a\\n","b"]}', {"name": "stdout", "text": "a\nb"}),
        ("stream", b'{"text":"a"}', {"name": "stdout", "text": "a"}),
        ("stream", b'{"name":"stderr","text":5}', {"name": "stderr", "text": "5"}),
        ("display_data", b'{"data":{}}', {"data": {}, "metadata": {}}),
        ("display_data", b'{"data":{},"metadata":null}', {"data": {}, "metadata": {}}),
        ("display_data", b'{"data":{"a":NaN},"metadata":[]}', {"data": {"a": None}, "metadata": {}}),
        ("execute_result", b'{"data":{}}', {"data": {}, "metadata": {}, "execution_count": None}),
        ("error", b'{"traceback":null,"evalue":["a","b"]}', {"ename": "", "evalue": "ab", "traceback": []}),
        ("error", b'{"ename":"E","evalue":"","traceback":"t"}', {"ename": "E", "evalue": "", "traceback": ["t"]}),
        ("error", b'{"ename":"E","evalue":null,"traceback":{}}', {"ename": "E", "evalue": "", "traceback": []}),
        ("comm_msg", b'{"comm_id":"c","data":[]}', {"comm_id": "c", "data": {}}),
        ("comm_open", b'{"comm_id":"c","target_name":"t"}', {"comm_id": "c", "target_name": "t", "data": {}}),
    ],
)
def test_what_kernels_of_other_languages_leave_out_is_as_usual(kind: str, content: bytes, read: Any) -> None:
    header = orjson.dumps({"msg_id": "m", "msg_type": kind})
    for empty in (b"{}", b"[]", b"null"):
        assert protocol.decode(wire.IOPUB, [header, empty, empty, content]).content == read


def test_bytes_that_are_not_utf8_cost_no_more_than_what_is_shown_for_them() -> None:
    """Each may become three bytes: that is looked at before it is parsed."""
    header = [orjson.dumps({"msg_id": "m", "msg_type": "stream"}), b"{}", b"{}"]

    def content(text: bytes) -> list[bytes]:
        return [*header, b'{"name":"stdout","text":"%b"}' % text]

    assert protocol.decode(wire.IOPUB, content(b"\xb2" * 200_000), 1 << 20).content["text"] == "\ufffd" * 200_000
    with pytest.raises(protocol.UnreadableError, match="not taken in"):
        protocol.decode(wire.IOPUB, content(b"\xb2" * 400_000), 1 << 20)
    with pytest.raises(protocol.TooHeavyError):
        protocol.decode(wire.IOPUB, content("\ufffd".encode() * 400_000), 1 << 20)


@each("piece", [rb"\ud800", rb"\n", b"\\\\", b'","', b"NaN,", b"\xb2"])
def test_what_is_mended_is_read_in_bounded_time(piece: bytes) -> None:
    data = b'["' + piece * (protocol.MAX_MENDED // len(piece) - 9) + b'",NaN,"\\ud800"]'
    begun = time.thread_time()
    with contextlib.suppress(ProtocolError):
        protocol.parse(data)
    assert time.thread_time() - begun < 0.5


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
NO_LONGTEXTS = {
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


@pytest.mark.parametrize("name", NO_LONGTEXTS)
def test_long_texts_that_are_no_json_are_refused(name: str) -> None:
    body = NO_LONGTEXTS[name].replace(b"%b", LONG_TEXT)
    with pytest.raises(ProtocolError):
        texts.take([body], 0, len(body), 3)


@pytest.mark.parametrize("ending", ["", "\b", "\r", "\x7f", "\f"])
def test_what_is_said_of_a_long_text_is_said_before_it_is_taken_apart(ending: str) -> None:
    content = {"data": {"text/plain": "x" * 100_000 + ending}, "metadata": {}, "transient": {}}
    header = {"msg_id": "m", "msg_type": "display_data"}
    short, long = (
        (parts, protocol.decode(wire.IOPUB, parts, most))
        for parts, most in ((frame(header, {}, {}, content), most) for most in (10**6, 130_000))
    )
    assert short[0][3]
    assert long[0][3] == b""  # so it was taken apart
    assert long[1] == short[1]
    assert long[1].plain is not bool(ending)
    assert long[1].memory >= 100_000


@pytest.mark.slow
def test_a_long_text_is_never_there_three_times() -> None:
    """Control: the parser by itself needs all three."""
    program = """
import sys
from pathlib import Path
from sandbox_kernel.policy import protocol as texts
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
