"""A volume that takes long to be opened holds up its user, and nobody else at the broker."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_kernel.core.errors import QuotaExceeded
from sandbox_kernel.core.model import MIB, Attached, Limits, SandboxSpec
from sandbox_kernel.core.tasks import made_in_thread
from sandbox_kernel.engines.attachment import Attachment, hold
from sandbox_kernel.plugins.broker import create_request, daemon, user_volumes
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.client.listener_trust import Peer
from sandbox_kernel.plugins.broker.create_request import CreateRequest
from sandbox_kernel.plugins.broker.daemon import Broker
from sandbox_kernel.plugins.broker.user_volumes import UserVolumes
from sandbox_kernel.plugins.data import disk_images
from tests.support.patience import cancelled, until, within

pytestmark = pytest.mark.skipif(disk_images.available() is not None, reason=str(disk_images.available()))

SLOW = Peer(1, 1001, 1001)
OTHER = Peer(1, 1002, 1002)


class StartedError(Exception):
    """As far as this engine comes."""


class Engine:
    """Opens what a sandbox is to have, as engines do, and starts none."""

    address = "an engine"

    async def start(self, spec: SandboxSpec) -> None:
        (await made_in_thread(lambda: hold(spec), Attachment.close)).close()
        raise StartedError


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(daemon, "STARTS", 2)
    return Broker(cast("Any", Engine()), Policy(everybody=Ceiling()), state=str(tmp_path))


def order_of(broker: Broker, whose: Peer, *volumes: str) -> CreateRequest:
    attached = tuple(Attached(kind="volume", name=name) for name in volumes)
    spec = SandboxSpec(session_id="s", image="i", limits=Limits(), command=(), uid=1, attached=attached)
    order = create_request.read(packets.asked(spec))
    return broker.policy.of(whose.uid).grant(order, whose.uid, broker.volumes.source(whose.uid))


@contextmanager
def made_slow(broker: Broker, whose: Peer) -> Iterator[None]:
    """Have another process be at the volumes of a user, as one is that repairs one."""
    fd = os.open(broker.volumes.of(whose.uid).folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


async def start(broker: Broker, whose: Peer, *volumes: str) -> None:
    with pytest.raises(StartedError):
        await broker._cold(order_of(broker, whose, *volumes), whose, None)  # noqa: SLF001 (the part that waits)


async def test_a_slow_volume_leaves_starts_to_others(broker: Broker) -> None:
    broker.volumes.of(SLOW.uid).create("models", 32 * MIB)
    with made_slow(broker, SLOW):
        waiting = [asyncio.create_task(start(broker, SLOW, "models")) for _ in range(4)]
        await until(lambda: broker.volumes._starting[SLOW.uid] == 4)  # noqa: SLF001 (as above)
        async with within(10):
            await start(broker, OTHER)
        assert not any(one.done() for one in waiting)
    await asyncio.gather(*waiting)


async def test_control_without_turns_it_takes_all_that_there_are(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.asynccontextmanager
    async def no_turn(self: UserVolumes, uid: int, order: CreateRequest) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(UserVolumes, "turn", no_turn)
    broker.volumes.of(SLOW.uid).create("models", 32 * MIB)
    with made_slow(broker, SLOW):
        waiting = [asyncio.create_task(start(broker, SLOW, "models")) for _ in range(4)]
        other = asyncio.create_task(start(broker, OTHER))
        await until(lambda: len(broker._slots) == 3)  # noqa: SLF001 (two of the first, and this one)
        assert not any(one.done() for one in (*waiting, other))
    await asyncio.gather(*waiting, other)


async def test_who_gives_up_does_not_begin_the_same_work_again(broker: Broker) -> None:
    """The thread goes on; one for each of many requests would take all that the process has."""
    began = threading.Semaphore(0)
    over = threading.Event()

    def work() -> None:
        began.release()
        over.wait(30)

    first = asyncio.create_task(broker.volumes._done(SLOW.uid, work))  # noqa: SLF001 (as above)
    await asyncio.to_thread(began.acquire)
    await cancelled(first)
    more = [
        asyncio.create_task(broker.volumes._done(SLOW.uid, work))  # noqa: SLF001 (as above)
        for _ in range(user_volumes.WAITING)
    ]
    done, _ = await asyncio.wait(more, return_when=asyncio.FIRST_COMPLETED)
    assert [type(one.exception()) for one in done] == [QuotaExceeded]
    assert not began.acquire(blocking=False)
    over.set()
    await asyncio.gather(*set(more) - done)
