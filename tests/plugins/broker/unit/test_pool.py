"""Sandboxes that are made ahead: one that meets a defect of ours, or says what nobody thought of, ends itself alone."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError, SandboxError
from sandbox_kernel.plugins.broker import create_request, pool
from sandbox_kernel.plugins.broker.pool import Pool
from tests.plugins.broker.brokers import a_request
from tests.support.patience import within

DEFECTS = [RuntimeError("x"), RecursionError(), AttributeError("x"), MemoryError(), OSError(28, "No space left")]
ODD = [{"op": "hello"}, {"op": "kernel_exited"}, {"op": "kernel_ready"}, [], 3, None, {"op": {}}]


class Odd:
    """A container that says one thing, and in whose attestation there is a defect."""

    id = "odd"

    def __init__(self, said: object, defect: BaseException | None) -> None:
        self.is_there = True
        self._defect = defect
        self._data = [b"".join(wire.encode(wire.AGENT, [json.dumps(said).encode()]))]

    async def receive(self, minimum: int = 1) -> bytes:
        return self._data.pop() if self._data else b""

    async def attest(self, report: object, spec: object) -> None:
        if self._defect is not None:
            raise self._defect

    async def kill(self) -> None:
        self.is_there = False


class Engine:
    """It makes such containers, or fails itself."""

    def __init__(self, *said: tuple[object, BaseException | None]) -> None:
        self._said = list(said)
        self.made: list[Odd] = []
        self.asked = 0

    async def image(self, name: str) -> Any:
        return SimpleNamespace(identity="1")

    async def start(self, spec: object) -> Odd:
        self.asked += 1
        await asyncio.sleep(0)
        said, defect = self._said[(self.asked - 1) % len(self._said)]
        if isinstance(said, BaseException):
            raise said
        self.made.append(Odd(said, defect))
        return self.made[-1]


@pytest.mark.parametrize(
    "case",
    [
        *(({"op": "hello"}, defect) for defect in DEFECTS),
        *((said, None) for said in ODD),
        *((defect, None) for defect in DEFECTS),
        (EngineError(EndCode.ENGINE_SILENT), None),
    ],
    ids=repr,
)
async def test_a_pool_goes_on_after_whatever_one_sandbox_meets(
    case: tuple[object, BaseException | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "AFTER_FAILURE_SECONDS", 0.0)
    engine = Engine(case)
    reported: list[str] = []
    one = Pool(cast("Any", engine), size=1, busy=lambda: False, report=reported.append, rest_seconds=0.001)
    one.begin()
    wanted = create_request.read(a_request())

    async def nobody(warm: object) -> None:
        raise AssertionError("there is none to claim")

    try:
        async with within(20):
            while engine.asked < 3:
                assert await one.claim(wanted, nobody) is None
                await asyncio.sleep(0.001)
    finally:
        await one.close()
    assert one.lost >= 2
    assert len(reported) >= 2
    assert all("could not be made ahead" in line for line in reported)
    assert not any(made.is_there for made in engine.made)


async def test_a_pool_whose_engine_is_away_for_weeks_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause doubles, and two to the thousandth is no number of seconds any more."""
    monkeypatch.setattr(pool, "AFTER_FAILURE_SECONDS", 0.0)
    engine = Engine((EngineError(EndCode.ENGINE_SILENT), None))
    one = Pool(cast("Any", engine), size=1, busy=lambda: False, rest_seconds=0.0)
    one.begin()
    assert await one.claim(create_request.read(a_request()), lambda warm: asyncio.sleep(0)) is None
    try:
        async with within(60):
            while engine.asked < 1200:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0)
    finally:
        await one.close()


async def test_a_pool_that_fails_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would do nothing but fail, beside those who start their own meanwhile."""
    monkeypatch.setattr(pool, "AFTER_FAILURE_SECONDS", 1000.0)
    engine = Engine((SandboxError(EndCode.ENGINE_SILENT), None))
    one = Pool(cast("Any", engine), size=1, busy=lambda: False, rest_seconds=0.001)
    one.begin()
    try:
        async with within(20):
            while not one.lost:
                assert await one.claim(create_request.read(a_request()), lambda warm: asyncio.sleep(0)) is None
                await asyncio.sleep(0.001)
        for _ in range(20):
            assert await one.claim(create_request.read(a_request()), lambda warm: asyncio.sleep(0)) is None
            await asyncio.sleep(0.001)
    finally:
        await one.close()
    assert engine.asked == 1
