"""A sandbox that a broker is asked for before there is a loop: asked for once, and given up where nobody takes it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import SandboxSpec, Settings
from sandbox_kernel.engines import select
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.kernel import head_start
from sandbox_kernel.plugins.broker.ceilings import OWN, Policy
from sandbox_kernel.plugins.broker.client.ahead import PendingCreate, ask_ahead
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from sandbox_kernel.plugins.broker.daemon import Broker, bound
from tests.support.patience import until

FULL = "the engine of this test is full"


class Full:
    """An engine that has no room, and counts who asked."""

    address = "an engine"

    def __init__(self) -> None:
        self.asked: list[SandboxSpec] = []

    async def start(self, spec: SandboxSpec) -> NoReturn:
        self.asked.append(spec)
        raise EngineError(EndCode.ENGINE_FAILED, FULL)


@pytest.fixture
async def there() -> AsyncIterator[tuple[Broker, Full, str]]:
    """A broker, its engine, and where it listens."""
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        engine, path = Full(), f"{folder}/broker.sock"
        one = Broker(cast("Any", engine), Policy(everybody=OWN))
        sock, lock = bound(path)
        one.listen(sock)
        try:
            yield one, engine, path
        finally:
            await one.close()
            os.close(lock)


async def until_left(broker: Broker) -> None:
    await until(lambda: not broker.connections, 10)


async def test_a_request_that_was_made_ahead_is_not_made_again(there: tuple[Broker, Full, str]) -> None:
    """The broker works while the rest is loaded; its answer waits for whoever takes it up, also a refusal."""
    broker, engine, path = there
    spec = new_spec(Settings())
    ahead = await asyncio.to_thread(ask_ahead, path, spec)
    await until(lambda: engine.asked, 10)
    made = select.make_engine(Settings(engine="docker"), ahead)  # which was asked says who is to go on
    assert made.address == f"broker://{path}"
    with pytest.raises(EngineError, match=FULL):
        await made.start(spec)
    assert len(engine.asked) == 1
    with pytest.raises(EngineError, match=FULL):
        await made.start(spec)
    assert len(engine.asked) == 2  # control: the next one is asked for again
    await until_left(broker)


async def test_one_that_nobody_wants_any_more_is_given_up(there: tuple[Broker, Full, str]) -> None:
    broker, engine, path = there
    spec = new_spec(Settings())
    ahead = await asyncio.to_thread(ask_ahead, path, spec)
    with pytest.raises(EngineError, match=FULL):
        await BrokerEngine(f"broker://{path}", ahead).start(new_spec(Settings(image="other:tag")))
    assert ahead.socket.fileno() < 0
    await until(lambda: len(engine.asked) >= 2, 10)
    assert {one.image for one in engine.asked} == {spec.image, "other:tag"}
    await until_left(broker)


async def test_a_kernel_asks_the_broker_before_it_loads_the_rest(
    there: tuple[Broker, Full, str], tmp_path: Path
) -> None:
    """And none where nobody listens: the session starts the user's own then, and meets what is wrong."""
    file = tmp_path / "connection.json"
    file.write_text(json.dumps({"key": "k"}), encoding="utf-8")
    begun = await asyncio.to_thread(head_start.head_start, str(file), Settings(engine=f"broker://{there[2]}"))
    assert isinstance(begun.ahead, PendingCreate)
    begun.ahead.give_up()
    nobody = Settings(engine=f"broker://{tmp_path}/nobody.sock")
    assert await asyncio.to_thread(head_start.head_start, str(file), nobody) == head_start.NOTHING_BEGUN
    await until_left(there[0])


async def test_a_place_that_others_may_write_in_is_not_asked(there: tuple[Broker, Full, str]) -> None:
    path = Path(there[2])
    path.parent.chmod(0o777)
    try:
        with pytest.raises(EngineError, match="others may write"):
            await asyncio.to_thread(ask_ahead, str(path), new_spec(Settings()))
    finally:
        path.parent.chmod(0o700)
    await until_left(there[0])
    assert there[1].asked == []
