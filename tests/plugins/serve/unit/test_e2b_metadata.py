"""What clients note of files, and what lists and figures are asked for by time; the sandboxes are stand-ins."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from sandbox_kernel.plugins.serve.e2b import metadata as e2b_metadata
from sandbox_kernel.sdk.values import SandboxInfo
from tests.plugins.serve.stand_ins import MINE, Served, StandIn, files_of


async def test_metadata_goes_with_a_folder_and_ends_with_it() -> None:
    lease = Served().mine
    for path in ("d/a", "d/e/b", "da", "x/a"):
        e2b_metadata.written(lease, path, {"of": path})
    e2b_metadata.moved(lease, "d", "x")
    noted = {path: one["of"] for path, one in lease.metadata.items()}
    assert noted == {"/home/user/da": "da", "/home/user/x/a": "d/a", "/home/user/x/e/b": "d/e/b"}
    e2b_metadata.removed(lease, "x")
    assert list(lease.metadata) == ["/home/user/da"]
    e2b_metadata.written(lease, "/home/user/da", {})
    assert lease.metadata == {}


async def test_metadata_is_bounded_and_what_is_refused_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    stand_in: Any = served.mine.sandbox

    async def send(path: str, **noted: str) -> int:
        headers = files_of(served.mine, **{f"X-Metadata-{name}": value for name, value in noted.items()})
        form = {"file": (path, b"content")}
        return (await served.ask("POST", "/files", headers=headers, files=form)).status_code

    assert await send("a", author="x" * 4090) == 200
    assert await send("b", author="x" * 4091) == 400
    monkeypatch.setattr(e2b_metadata, "MAX_FILES", 1)
    assert await send("c", author="x") == 400
    assert await send("d") == 200
    assert len(stand_in.written) == 2
    assert list(served.mine.metadata) == ["/home/user/a"]


async def test_lists_and_figures_are_asked_for_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    served, key = Served(), {"X-API-Key": MINE}
    started = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

    def info(self: StandIn) -> SandboxInfo:
        found: SandboxInfo = real(self)
        object.__setattr__(found, "started_at", started)
        return found

    looked: list[str] = []

    async def figures(self: StandIn) -> list[Any]:
        looked.append(self.id)
        return []

    real: Any = StandIn.info.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(StandIn, "info", property(info))
    monkeypatch.setattr(StandIn, "get_metrics", figures, raising=False)
    for after, count in ((started, 1), (started + timedelta(microseconds=1), 0), (started - timedelta(days=1), 1)):
        answer = await served.ask("GET", f"/v2/sandboxes?startedAfter={quote(after.isoformat())}", headers=key)
        assert len(answer.json()) == count
    for first in ("0001-01-01", "0001-01-01T00:00:00+14:00"):  # before which there is no moment
        assert (await served.ask("GET", f"/v2/sandboxes?startedAfter={quote(first)}", headers=key)).status_code == 400
    now = int(time.time())
    for asked, status in ((f"start={now - 9}&end={now}", 200), ("start=x", 400), (f"end={now - 99}", 200)):
        assert (await served.ask("GET", f"/sandboxes/s1/metrics?{asked}", headers=key)).status_code == status
    assert looked == ["s1"]
