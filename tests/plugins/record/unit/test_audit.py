"""The audit is one line of ASCII JSON an event, whatever the event holds, and never an exception."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.codes import OutputCode
from sandbox_kernel.core.events import ConnectionEnded, OutputRemoved, SessionEvent
from sandbox_kernel.plugins.api import SessionHandle
from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.connection_reporter import SessionReporter
from sandbox_kernel.plugins.record.audit import (
    CELL_LINES,
    MAX_FIRSTS,
    MAX_PENDING,
    SESSION_LINES,
    Audit,
)
from sandbox_kernel.plugins.record.hash_chain import MAX_LINE, OWN_EVENTS, Head, parse, seal
from tests.support.events import an
from tests.support.examples import examples


def lines(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    assert not raw or raw.endswith(b"\n")
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in raw)
    return [json.loads(line) for line in raw.splitlines()]


def said(path: Path) -> list[dict[str, Any]]:
    """Return the lines without what the record says of itself, and without their seals."""
    found = [line for line in lines(path) if line["event"] not in OWN_EVENTS]
    return [{key: value for key, value in line.items() if key not in {"n", "chain", "mac"}} for line in found]


def test_a_line_has_time_session_event_and_fields(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit = Audit(str(path), session="s1", clock=lambda: 0.0)
    audit("cell", status="ok", seconds=1.5, notes=["a"])
    audit.close()
    assert said(path) == [
        {
            "time": "1970-01-01T00:00:00.000+00:00",
            "session": "s1",
            "event": "cell",
            "status": "ok",
            "seconds": 1.5,
            "notes": ["a"],
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text", ["a\nb", "\x1b]0;t\x07", "\u2028", "\ud800", "é", '"}\n{"event":"forged"', "\x9b31m", "\x7f"]
)
def test_text_cannot_forge_a_line_or_reach_a_terminal(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit"
    audit = Audit(str(path), session=text)
    audit(text, **{"x": text, text[:3]: {text: [text]}})
    audit.close()
    (line,) = said(path)
    assert line["x"] == text
    assert set(line) >= {"time", "session", "event"}


def test_a_field_cannot_replace_the_head_of_a_line(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"), session="s1")
    audit("cell", time="never", session="another")
    assert said(tmp_path / "audit")[0]["session"] == "s1"
    audit.close()


@pytest.mark.slow
@examples(50)
@given(
    st.text(),
    st.dictionaries(
        st.text(max_size=60),
        st.recursive(
            st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.binary()),
            lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
            max_leaves=300,
        ),
    ),
)
def test_any_event_is_one_bounded_line(event: str, fields: dict[str, Any]) -> None:
    line = Audit(None, session="s" * 5000)._line(event, fields)
    assert isinstance(json.loads(line), dict)
    sealed, _ = seal(Head(10**18 - 2, bytes(32)), line, b"key")
    assert len(sealed) <= MAX_LINE
    assert sealed.count(b"\n") == 1
    assert parse(sealed[:-1]) is not None


def test_a_long_line_is_cut_and_says_where(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"), session="s1")
    audit("cell", long=["\u2028" * 500] * 16, short="x")
    audit.close()
    (line,) = said(tmp_path / "audit")
    assert line["cut"] == "long"
    assert line["short"] == "x"


def test_a_link_is_not_followed_and_the_failure_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    reports: list[str] = []
    audit = Audit(str(tmp_path / "link"), session="s1", report=reports.append)
    audit("cell")
    audit("cell")
    assert len(reports) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_is_reported_once_and_lines_wait_for_room(tmp_path: Path) -> None:
    reports: list[str] = []
    audit = Audit(str(tmp_path / "audit"), session="s1", report=reports.append)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for _ in range(3):
            audit("cell")
        assert said(tmp_path / "audit") == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    audit.close()
    assert len(reports) == 1
    assert audit.lost == 0
    assert len(said(tmp_path / "audit")) == 3


@pytest.mark.slow
def test_what_a_full_disk_makes_wait_is_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"), session="s1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        for _ in range(MAX_PENDING + 7):
            audit("cell")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    audit("cell")
    audit.close()
    found = lines(tmp_path / "audit")
    assert sum(line["event"] == "cell" for line in found) == MAX_PENDING
    assert [line["lines"] for line in found if line.get("kind") == "lost"] == [8]
    assert found[-1]["lost"] == audit.lost == 8


def test_lines_of_two_sessions_stand_side_by_side(tmp_path: Path) -> None:
    path = str(tmp_path / "audit")
    one, two = Audit(path, session="1"), Audit(path, session="2")
    for _ in range(3):
        one("cell")
        two("cell")
    one.close()
    two.close()
    one("cell")
    assert [line["session"] for line in said(tmp_path / "audit")] == ["1", "2"] * 3
    assert one.lost == 0


def test_the_file_is_not_handed_to_child_processes(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"), session="s1")
    assert audit._file is not None
    assert not any(os.get_inheritable(fd) for fd in (audit._file._fd, audit._file._remembered.fd))
    audit.close()


def test_without_a_path_nothing_is_written() -> None:
    audit = Audit(None, session="1")
    audit("cell", x=object())
    assert audit.lost == 0


@pytest.mark.slow
def test_events_without_number_are_a_bounded_file_that_says_how_many_there_were(tmp_path: Path) -> None:
    """What a cell sends makes such lines; one of each is nobody's request."""
    path = tmp_path / "audit"
    audit = Audit(str(path), session="s1")
    for cell in range(60):
        for number in range(1000):
            audit("policy", type="display_data", reason=f"removed {number}" + "x" * 5000)
        audit("dropped", reason="unknown parent")
        audit("cell", status="ok", number=cell)
    audit("policy", type="display_data", reason="after the last cell")
    audit.close()
    found = said(path)
    assert sum(line["event"] == "policy" for line in found) == SESSION_LINES
    assert [line["number"] for line in found if line["event"] == "cell"] == list(range(60)), "no cell is left out"
    assert sum(line["event"] == "dropped" for line in found) == 60, "no event takes the room of another"
    first = next(index for index, line in enumerate(found) if line["event"] == "cell")
    assert found[first - 1]["lines"] == {"policy": 1000 - CELL_LINES}
    assert sum(line["lines"]["policy"] for line in found if line["event"] == "left_out") == 60_001 - SESSION_LINES
    assert path.stat().st_size < 8 << 20


def test_events_of_invented_names_are_bounded_too(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"), session="s1")
    for number in range(20_000):
        audit(f"event {number}")
    audit.close()
    assert len(said(tmp_path / "audit")) <= 2 * CELL_LINES + 1


@pytest.mark.slow
def test_every_file_that_is_copied_is_a_line(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"), session="s1")
    for number in range(3000):
        audit("file", op="download", path=f"{number}.txt")
    audit.close()
    assert len(said(tmp_path / "audit")) == 3000


MUCH = CELL_LINES + 5
CONNECTED, DENIED = NetworkCode.CONNECTED, NetworkCode.HOST_NOT_ALLOWED


class Noted:
    """What a session notes of its network in an audit."""

    def __init__(self, path: Path) -> None:
        self.audit = Audit(str(path), session="s1")
        self._reporter = SessionReporter(cast(SessionHandle, SimpleNamespace(emit=self._emit, tell=None)))

    def _emit(self, event: SessionEvent) -> None:
        self.audit(event.name, event.room, event.first, **event.line())

    def connected(self, host: str, rule: str, code: NetworkCode = CONNECTED) -> None:
        self._reporter.note(an(ConnectionEnded, code=code, host=host, port=443, address="192.0.2.1", rule=rule))

    def denied(self, host: str, code: NetworkCode = DENIED) -> None:
        self._reporter.note(an(ConnectionEnded, code=code, host=host, port=443))


@pytest.fixture
def noted(tmp_path: Path) -> Iterator[Noted]:
    found = Noted(tmp_path / "audit")
    yield found
    found.audit.close()


def network_lines(path: Path) -> list[tuple[str, str]]:
    return [(line["host"], line["code"]) for line in lines(path) if line["event"] == "network"]


def left_out(path: Path) -> dict[str, int]:
    (line,) = [line for line in lines(path) if line["event"] == "left_out"]
    return cast(dict[str, int], line["lines"])


def test_a_cell_cannot_hide_a_connection_behind_denied_ones(noted: Noted, tmp_path: Path) -> None:
    """Nor behind requests that are denied over a connection that was let out."""
    for number in range(MUCH):
        noted.denied(f"{number}.test")
        noted.connected("api.example.test", "api.example.test", NetworkCode.HOST_BROKE)
    noted.connected("api.example.test", "api.example.test")
    noted.audit("cell", status="ok")
    found = network_lines(tmp_path / "audit")
    assert found.count(("api.example.test", CONNECTED.code)) == 1
    assert len(found) == 2 * (CELL_LINES + 1) + 1
    assert left_out(tmp_path / "audit") == {"network, names": 4, "network, broken off": 4}


@pytest.mark.parametrize("code", [CONNECTED, NetworkCode.HOST_BROKE])
def test_a_cell_cannot_hide_a_host_behind_another_one(
    noted: Noted, tmp_path: Path, code: NetworkCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was reached or broke off, in whichever cell, and though a wildcard allows any number of names."""
    most, cells = 2 * CELL_LINES, 4
    monkeypatch.setattr("sandbox_kernel.plugins.record.audit.SESSION_LINES", most)
    for cell in range(cells):
        for number in range(MUCH):
            noted.connected("api.example.test", "api.example.test", code)
            noted.connected(f"{cell}-{number}.example.org", "*.example.org", code)
        noted.connected("data.example.test", "data.example.test", code)
        noted.audit("cell", status="ok")
    found = network_lines(tmp_path / "audit")
    assert found.count(("data.example.test", code.code)) == cells
    assert sum(host.endswith(".example.org") for host, _ in found) == most + cells, "as many names, no more"


def test_a_cell_cannot_hide_a_name_below_a_wildcard_behind_another_one(noted: Noted, tmp_path: Path) -> None:
    for _ in range(MUCH):
        noted.connected("a.example.org", "*.example.org")
    noted.connected("b.example.org", "*.example.org")
    assert ("b.example.org", CONNECTED.code) in network_lines(tmp_path / "audit")


def test_a_cell_cannot_hide_one_kind_of_denial_behind_another_one(noted: Noted, tmp_path: Path) -> None:
    for number in range(MUCH):
        noted.denied(f"{number}.test")
        noted.denied("a.test")
    noted.denied("api.example.test", NetworkCode.SERVER_NAME_OTHER)
    assert ("api.example.test", NetworkCode.SERVER_NAME_OTHER.code) in network_lines(tmp_path / "audit")


def test_first_lines_are_bounded_too(tmp_path: Path) -> None:
    """Whoever calls the audit with words that a cell invents gets no more for it."""
    audit = Audit(str(tmp_path / "audit"), session="s1")
    for number in range(3 * MAX_FIRSTS):
        audit("network", "network", (f"{number}", f"{number}"))
    audit.close()
    assert len(said(tmp_path / "audit")) <= MAX_FIRSTS + CELL_LINES + 1


def test_the_line_of_a_cell_that_comes_late_gives_the_next_cell_no_more_room(tmp_path: Path) -> None:
    """Its figures are asked of the sandbox, which may take its time to answer."""
    audit = Audit(str(tmp_path / "audit"), session="s1")
    removed = an(OutputRemoved, code=OutputCode.JAVASCRIPT)
    for _ in range(2):
        for number in range(MUCH):
            audit("policy", reason=str(number))
            audit.tally.hear(removed, removed.line())
        counted = audit.cell_ended()["codes"]
        assert counted == {"javascript": MUCH}
    for number in range(MUCH):
        audit("policy", reason=str(number))
    audit("cell", number=1)
    audit("cell", number=2)
    audit("policy", reason="the third cell has had its room")
    audit.close()
    assert sum(line["event"] == "policy" for line in said(tmp_path / "audit")) == 3 * CELL_LINES
