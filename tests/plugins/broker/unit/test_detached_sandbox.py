"""What a broker keeps for the next owner: frames cut without reading them, a bounded transcript, metadata, ceilings."""

from __future__ import annotations

import io
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.config.sources import SETTINGS, resolve
from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ConfigurationError, EngineError
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.broker.detached import (
    check_prepared,
    check_settings,
    moment,
    row,
    settings_from_text,
    settings_to_text,
)
from sandbox_kernel.plugins.broker.detached_sandbox import (
    OF_A_FRAME,
    SMALL_BYTES,
    Frames,
    Transcript,
    is_note,
    noted,
    op_of,
    parts,
)
from tests.support.cases import each


def frame(kind: int, *parts: bytes) -> bytes:
    return b"".join(wire.encode(kind, parts))


@given(st.lists(st.tuples(st.sampled_from(sorted(wire.KINDS)), st.binary(max_size=300)), max_size=8), st.data())
def test_frames_are_cut_where_they_end_however_the_bytes_come(
    sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    """Small ones in one piece, larger ones in order; and nothing is lost or added."""
    stream = b"".join(frame(kind, part) for kind, part in sent)
    frames, pieces = Frames(1 << 20, 100), []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        pieces += frames.feed(stream[:count])
        stream = stream[count:]
    assert not frames.cut
    whole = b""
    found = []
    for piece in pieces:
        assert piece.first == (not whole)
        whole += piece.data
        assert piece.whole or piece.size > 100
        if piece.last:
            assert len(whole) == piece.size
            found.append((piece.kind, wire.Decoder(1 << 20).feed(whole)[0][1][0]))
            whole = b""
    assert found == sent


@each("data", [struct.pack("!IB", 2, 1), struct.pack("!IB", 1 << 30, 1), struct.pack("!IB", 10, 99), b"garbage"])
def test_what_begins_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(wire.FrameError):
        Frames(1 << 20, 100).feed(data)


def test_a_large_frame_that_is_not_complete_is_known_to_be_cut() -> None:
    frames = Frames(1 << 20, 100)
    data = frame(wire.SHELL, b"x" * 500)
    first, more = frames.feed(data[:200])
    assert (first.first, first.last, more.first, more.last, frames.cut) == (True, False, False, False, True)
    [rest] = frames.feed(data[200:])
    assert (rest.last, frames.cut) == (True, False)


@each("head", [b"[]", b"{}", b"[" * 5000, b"\xff", b'{"op"'])
def test_what_an_agent_says_improperly_is_no_event(head: bytes) -> None:
    [piece] = Frames(1 << 20, 1 << 16).feed(frame(wire.AGENT, head))
    assert op_of(piece) is None
    [control] = Frames(1 << 20, 1 << 16).feed(frame(wire.AGENT, b'{"op": "kernel_exited"}'))
    assert op_of(control) == "kernel_exited"


def test_a_transcript_keeps_the_first_of_a_cell_and_how_it_ended_and_counts_the_rest() -> None:
    transcript = Transcript(most=1000, reserved=500)
    assert transcript.reserve(1000 - OF_A_FRAME)
    assert not transcript.reserve(10)
    assert transcript.reserve(100, essential=True)
    assert not transcript.reserve(1000, essential=True)
    assert (transcript.dropped_messages, transcript.dropped_bytes) == (2, 1010)
    transcript.add(b"kept")
    assert transcript.pieces == [b"kept"]
    transcript.forget()
    assert (transcript.cost, transcript.dropped_bytes, transcript.pieces) == (0, 0, [])


def test_what_all_transcripts_keep_is_bounded_and_each_keeps_a_little() -> None:
    kept: list[Transcript] = []

    def has_room(size: int) -> bool:
        return sum(one.cost for one in kept) + size <= 1 << 20

    for _ in range(20):
        one = Transcript()
        one.has_room = has_room
        kept.append(one)
        while one.reserve(60_000):
            pass
        assert one.reserve(1000, essential=True)
        assert one.dropped_messages == 1
    assert kept[0].cost > 900_000
    assert all(200_000 < one.cost <= SMALL_BYTES + 2000 for one in kept[4:])


def test_many_small_frames_cost_more_than_their_bytes() -> None:
    transcript = Transcript(most=10_000)
    assert sum(transcript.reserve(1) for _ in range(1000)) < 10_000 / OF_A_FRAME


@each(
    "said",
    [
        [],
        {"a": 1},
        {1: "a"},
        {"": "a"},
        {"a" * 65: ""},
        {"a": "b" * 257},
        {"a": "\n"},
        {"a": "\u202e"},
        {str(number): "" for number in range(33)},
    ],
)
def test_metadata_are_a_few_plain_texts(said: Any) -> None:
    with pytest.raises(ValueError, match="metadata"):
        packets.metadata(said)
    assert packets.metadata({"user": "42", "größe": "ä"}) == {"user": "42", "größe": "ä"}


@each("change", [{"name": "../x"}, {"age": "x"}, {"left": float("nan")}, {"metadata": {"a": "\x1b"}}, {"left": True}])
def test_what_a_broker_lists_is_read_value_by_value(change: dict[str, Any]) -> None:
    proper = {"name": "0" * 32, "metadata": {}, "age": 1.0, "left": 2, "owned": True, "busy": False, "paused": False}
    assert row(proper)["left"] == 2.0
    with pytest.raises((ValueError, EngineError)):
        row({**proper, **change})


def test_no_calendar_has_every_moment() -> None:
    with pytest.raises(EngineError):
        moment(1e300)


def test_a_note_that_is_too_long_is_left_out() -> None:
    note = packets.note({"cell": None})
    assert note is not None
    assert json.loads(note) == {"op": "keep", "cell": None}
    assert packets.KEEP in note[:64]
    assert packets.note({"cell": "x" * packets.MAX_NOTE}) is None
    [piece] = Frames(1 << 20, 1 << 16).feed(frame(wire.AGENT, note))
    assert is_note(piece)
    assert parts(piece) == (note,)


@each(
    "sent",
    [
        (wire.AGENT, b'{"op":1}', b'{"op": "keep", "cell": null}'),
        (wire.AGENT, b'{"path": "{\\"op\\": \\"keep\\"", "op": "file.write"}'),
        (wire.AGENT, b' {"op": "keep"}'),
        (wire.SHELL, b'{"op": "keep"}'),
    ],
)
def test_what_a_file_or_a_cell_says_is_no_note(sent: tuple[int, bytes]) -> None:
    """An owner sends what others wrote: it must never be taken for a word of its own."""
    [piece] = Frames(1 << 20, 1 << 16).feed(frame(sent[0], *sent[1:]))
    assert not is_note(piece)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_next_owner_has_the_settings_of_the_first_and_places_of_its_own() -> None:
    made = Settings(outputs="strict", limits=Limits(cell_timeout=7), display_lines=300, charts=True)
    found = settings_from_text(settings_to_text(made), "broker:///x", own=True)
    assert (found.outputs, found.limits.cell_timeout, found.display_lines) == ("strict", 7, 300)
    assert (found.engine, found.charts, found.of_plugins) == ("broker:///x", True, ())


def test_another_user_s_settings_loosen_nothing() -> None:
    """What leaves the sandbox is decided by whoever takes it over; the control is the same user."""
    made = Settings(outputs="trusted", limits=Limits(cell_timeout=7))
    assert settings_from_text(settings_to_text(made), "broker", own=False).outputs == "safe"
    assert settings_from_text(settings_to_text(made), "broker", own=False).limits.cell_timeout == 7
    assert settings_from_text(settings_to_text(made), "broker", own=True).outputs == "trusted"


def test_what_counts_for_nothing_of_another_user_s_settings_is_not_read() -> None:
    """Rules of a screen are a text for a parser: 24 KiB of it can take seconds. The control is the same user."""
    said = json.loads(settings_to_text(Settings()))
    wrong = {"screen_rules": "a" + ".a" * 200 + " = 1", "monitor": {"level": "loud"}}
    for name in said.keys() & wrong.keys():
        text = json.dumps({**said, name: wrong[name]})
        settings_from_text(text, "broker", own=False)
        with pytest.raises(EngineError):
            settings_from_text(text, "broker", own=True)


RULES = """
[weights]
file-delete = "critical"
"""


def test_a_value_of_each_plugin_is_read_again_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    chosen: dict[str, Any] = {"outputs": "strict", "memory": "3G", "time_zone": None, "limits": "best-effort"}
    chosen |= {"screen": "block", "screen_rules": str(tmp_path / "rules.toml")}
    chosen |= {"monitor": {"level": "kill", "rules": {"many-denials": {"count": 3}, "unfit-files": {"level": "off"}}}}
    made = resolve({name: value for name, value in chosen.items() if name in SETTINGS})
    (tmp_path / "rules.toml").unlink()
    assert settings_from_text(settings_to_text(made), made.engine, own=True) == made


IMPROPER: dict[str, dict[str, Any]] = {
    "a choice that there is not": {"outputs": "all"},
    "a limit that is no size": {"memory": "x"},
    "a limit that is a list": {"memory": []},
    "no limit at all": {"cell_timeout": float("inf")},
    "limits that do not fit": {"memory": "64M", "scratch_size": "1G"},
    "a number below the least": {"display_lines": -1},
    "an image that is a flag": {"image": "--privileged"},
    "a name that nobody knows": {"no_such": 1},
    "a host that cells may reach": {"network": ["a.example"]},
    "a folder of the host": {"uploads": "/etc"},
    "a program of the host": {"monitor_command": ["/bin/true"]},
    "a screen that is no word": {"screen": 3},
    "rules in a file of the host": {"screen_rules": "/etc/hostname"},
    "a monitor's rules in a file of the host": {"monitor": "/etc/hostname"},
    "a monitor's rules that are none": {"monitor": {"level": "loud"}},
    "half a character": {"screen_rules": "\ud800"},
}


@each("case", IMPROPER)
def test_settings_that_are_not_proper_are_refused(case: str) -> None:
    """A broker that lies opens no file here, and gives cells nothing; the control is what it was told."""
    told = settings_to_text(Settings())
    assert settings_from_text(told, "broker", own=True) == Settings(engine="broker")
    opened: list[object] = []
    text = json.dumps({**json.loads(told), **IMPROPER[case]})
    with pytest.MonkeyPatch.context() as patch:
        for module in (io, os):
            patch.setattr(module, "open", lambda *asked, **_: opened.append(asked))
        with pytest.raises(EngineError) as caught:
            settings_from_text(text, "broker", own=True)
    assert caught.value.code is BrokerCode.BROKER_IMPROPER
    assert opened == []


def test_settings_that_are_too_long_to_be_kept_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_to_text(Settings(image="x" * packets.MAX_SETTINGS))
    assert caught.value.setting == "image"


def test_what_plugins_need_to_serve_it_again_is_bounded() -> None:
    state: dict[str, Any] = {"network": {"placeholders": {"KEY": "sk-1"}}, "tools": {}}
    check_prepared(state)
    assert packets.prepared(json.loads(json.dumps(state))) == state
    state["tools"] = {"line": "x" * packets.MAX_PREPARED}
    with pytest.raises(ConfigurationError) as caught:
        check_prepared(state)
    assert caught.value.setting == "tools"
    wrong: list[Any] = [state, [], {"tools": "x"}]
    for improper in wrong:
        with pytest.raises(ValueError, match="prepared"):
            packets.prepared(improper)


def test_the_next_owner_s_settings_say_what_it_serves(tmp_path: Path) -> None:
    """All of them given as one value, what it was not made for counts for nothing."""
    told = settings_to_text(Settings())
    own = settings_from_text(told, "broker", own=True, given={"network": ["example.org"], "cell_timeout": 5})
    assert (own.get("network", ()), own.limits) == (("example.org",), Settings().limits)
    assert settings_from_text(told, "broker", own=True).get("network", ()) == ()
    whole = resolve({"network": ["example.org"], "packages": ["idna"], "uploads": str(tmp_path)})
    taken = settings_from_text(told, "broker", own=True, given={"settings": whole}, prepared={"network": {}})
    assert (taken.get("network", ()), taken.get("packages", ()), taken.uploads) == (("example.org",), (), None)


def test_what_ends_with_its_caller_is_no_setting_of_one_that_outlives_it(tmp_path: Path) -> None:
    check_settings(Settings(outputs="strict"))
    check_settings(resolve({"network": ["example.org"], "packages": ["idna"]}))  # each owner serves them
    with pytest.raises(ConfigurationError) as caught:
        check_settings(Settings(uploads=str(tmp_path)))
    assert (caught.value.code, caught.value.setting) == (BrokerCode.OF_THE_CALLER, "uploads")


def test_a_note_that_could_not_be_said_to_the_next_owner_is_refused() -> None:
    def note(levels: int) -> bytes:
        return b'{%b, "session": {"a": %b%b}}' % (packets.KEEP, b"[" * levels, b"]" * levels)

    told = {"kept": {"session": noted(note(254))["session"], "cell": None}, "n": 1}
    assert packets.unpacked(packets.packed(told)) == told
    for levels in (300, 900, 990):
        with pytest.raises(ValueError, match="nested too deeply"):
            noted(note(levels))
    many = json.dumps({"rows": [[] for _ in range(5000)]}).encode()
    assert len(packets.unpacked(many)["rows"]) == 5000, "many lists are not deep"
