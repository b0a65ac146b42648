"""Sandboxes that are paused in place of ending when their time is up. They are stand-ins: nothing here starts one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError, QuotaExceeded, SandboxError, SandboxPaused
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.abilities import PAUSE, Ability, demand
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.serve import tenants as of_tenants
from sandbox_kernel.plugins.serve.lease_files import LeaseFiles
from sandbox_kernel.plugins.serve.tenants import Lease
from sandbox_kernel.sdk.values import SandboxInfo
from tests.plugins.serve.stand_ins import MINE, Served, StandIn
from tests.support.patience import until

LIMIT = 1000.0
"""Seconds that a sandbox may last."""


class Pausing(StandIn):
    """A stand-in that can be paused, and fails as it is told."""

    is_detached = True

    def __init__(self, identity: str, can: frozenset[Any] = PAUSE) -> None:
        super().__init__(identity)
        self.metadata: dict[str, str] = {}
        self.can = can
        self.lasts: list[float] = []
        self.most = LIMIT
        self.fails: list[SandboxError] = []
        self.pauses = self.resumes = 0
        self.go = asyncio.Event()
        self.go.set()

    @property
    def _instance(self) -> Any:
        found = super()._instance
        container = SimpleNamespace(abilities=self.can)
        found.session.demand_pause = lambda: demand(Ability.PAUSE, container)
        return found

    @property
    def info(self) -> SandboxInfo:
        return replace(super().info, end_at=self.end_at)

    async def start(self) -> None:
        self.end_at: datetime | None = datetime.now(UTC) + timedelta(seconds=self.lasts[0])

    async def set_timeout(self, seconds: float) -> None:
        if seconds > self.most:
            raise QuotaExceeded(BrokerCode.LIFETIME_TOO_LONG)
        self.lasts.append(seconds)
        self.end_at = datetime.now(UTC) + timedelta(seconds=seconds)

    async def pause(self) -> bool:
        self.pauses += 1
        await self.go.wait()
        if self.fails:
            raise self.fails.pop(0)
        self.is_paused = True
        return True

    async def resume(self) -> bool:
        self.resumes += 1
        self.is_paused = False
        return True

    async def kill(self) -> bool:
        self.state = "ended"
        return True


class Place(Served):
    """A server that makes such sandboxes, and writes them down."""

    def __init__(self, folder: Path) -> None:
        self.files = LeaseFiles(folder)
        self.can = PAUSE
        self.boxes: list[Pausing] = []
        super().__init__(files=self.files, is_empty=True, sandboxes_per_tenant=1, lifetime=LIMIT)

    def new(self, _: Settings, *, lifetime: float, **given: Any) -> Pausing:
        box = Pausing("0" * 32, self.can)
        box.lasts.append(lifetime)
        self.boxes.append(box)
        return box

    async def made(self, **asked: Any) -> tuple[httpx2.Response, Pausing]:
        body = {"templateID": "base", "timeout": 60, "autoPause": True, **asked}
        answer = await self.call("POST", "/v2/sandboxes", **body)
        return answer, self.boxes[-1]

    async def call(self, method: str, path: str, **body: Any) -> httpx2.Response:
        content: dict[str, Any] = {"json": body} if body else {}
        return await self.ask(method, path, headers={"X-API-Key": MINE}, **content)

    @property
    def lease(self) -> Lease:
        return self.tenants.tenant("mine").leases["0" * 32]

    async def left(self) -> float:
        """Return how much time the server says that it has."""
        said = (await self.call("GET", f"/sandboxes/{'0' * 32}")).json()["endAt"]
        return (datetime.fromisoformat(said) - datetime.now(UTC)).total_seconds()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path / "sandboxes")
    monkeypatch.setattr(of_tenants, "AsyncSandbox", found.new)
    return found


async def test_it_is_paused_at_its_time_and_goes_on_with_new_time(place: Place) -> None:
    answer, box = await place.made()
    assert (answer.status_code, box.lasts) == (201, [LIMIT])
    path = f"/sandboxes/{box.id}"
    said = (await place.call("GET", path)).json()
    assert (said["state"], said["lifecycle"]) == ("running", {"autoResume": False, "onTimeout": "pause"})
    assert 55 < await place.left() <= 60
    assert (await place.call("POST", f"{path}/timeout", timeout=0)).status_code == 204
    await until(lambda: box.lasts == [LIMIT] * 3)  # from its pause on
    assert (box.is_paused, box.state) == (True, "running")
    assert (await place.call("GET", path)).json()["state"] == "paused"
    assert (await place.made())[0].status_code == 429  # it counts on
    assert (await place.call("POST", f"{path}/connect", timeout=200)).status_code == 201
    assert not box.is_paused
    assert 195 < await place.left() <= 200
    assert (box.lasts[-1], place.lease.pausing is not None) == (LIMIT, True)
    written = place.files.all()[box.id]
    assert written.pauses_at == place.lease.pauses_at
    assert (await place.call("POST", f"{path}/resume", timeout=300)).status_code == 409
    assert (await place.call("DELETE", path)).status_code == 204
    assert box.state == "ended"
    assert place.files.all() == {}


async def test_without_it_the_time_ends_a_sandbox(place: Place) -> None:
    _, box = await place.made(autoPause=False)
    assert box.lasts == [60]
    path = f"/sandboxes/{box.id}"
    assert (await place.call("GET", path)).json()["lifecycle"]["onTimeout"] == "kill"
    assert (await place.call("POST", f"{path}/timeout", timeout=90)).status_code == 204
    assert (box.lasts, place.lease.pausing, place.lease.pauses_at) == ([60, 90], None, None)
    answer = await place.call("POST", f"{path}/connect", autoPause=True)
    assert (answer.status_code, "autoPause" in answer.text) == (400, True)
    await place.call("POST", f"{path}/timeout", timeout=0)
    assert box.state == "ended"


async def test_time_that_comes_while_it_is_being_paused_is_not_lost(place: Place) -> None:
    _, box = await place.made()
    box.go.clear()
    await place.tenants.last(place.lease, 0)
    await until(lambda: box.pauses == 1)
    await place.tenants.stay(place.lease, 100)
    box.go.set()
    await until(lambda: box.resumes == 1)
    assert not box.is_paused
    assert place.lease.pausing is not None


async def test_what_cannot_be_paused_now_is_tried_again_and_what_fails_is_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_tenants, "PAUSE_AGAIN_SECONDS", 0.0)
    _, box = await place.made()
    box.fails.append(SandboxPaused(EndCode.NOT_PAUSED.note(why="a cell is being ended")))
    await place.tenants.last(place.lease, 0)
    await until(lambda: box.is_paused)
    assert box.pauses == 2
    await place.tenants.resume(place.lease)  # by another wire
    assert 295 < await place.left() <= 300
    box.fails.append(EngineError(EndCode.ENGINE_CANNOT_PAUSE))
    await place.tenants.last(place.lease, 0)
    await until(lambda: box.state == "ended")
    await until(lambda: not place.files.all())


async def test_the_end_that_a_broker_has_for_it_bounds_its_time(place: Place) -> None:
    """A broker counts from the start: later, less than the operator's limit is left."""
    _, box = await place.made(timeout=LIMIT)
    assert LIMIT - 10 < await place.left() < LIMIT - 4  # so that the pause comes before the end
    box.most = LIMIT - 1
    path = f"/sandboxes/{box.id}/timeout"
    assert (await place.call("POST", path, timeout=900)).status_code == 204
    assert 895 < await place.left() <= 900
    assert (await place.call("POST", path, timeout=LIMIT)).status_code == 429
    assert 895 < await place.left() <= 900
    await place.tenants.last(place.lease, 0)
    await until(lambda: box.is_paused)


async def test_an_engine_that_cannot_is_refused_by_name(place: Place) -> None:
    place.can = frozenset()
    answer, box = await place.made()
    assert (answer.status_code, answer.json()["error"]) == (400, "not-offered")
    assert "autoPause" in answer.json()["message"]
    assert box.state == "ended"
    for other in ("yes", 1, ["yes"]):
        assert (await place.made(autoPause=other))[0].status_code == 400
    assert len(place.boxes) == 1


async def test_no_timer_outlives_its_sandbox_or_its_server(place: Place) -> None:
    await place.made()
    ended = place.lease
    await place.tenants.end(ended)
    await place.made()
    left = place.lease
    left.sandbox.detach = left.sandbox.resume  # type: ignore[method-assign, assignment]
    await place.tenants.close()
    for lease in (ended, left):
        assert lease.pausing is not None
        assert lease.pausing.cancelled()
