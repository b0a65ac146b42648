"""What a hostile pod, a fork or an owner that goes can do to the process that has its pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from aiohttp import web

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB
from sandbox_kernel.engines.base import Container
from sandbox_kernel.engines.pipe import TAIL_BYTES
from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.scripted_api import ScriptedApi, echo
from tests.support import ROOT
from tests.support.engines import receive_all, receive_line
from tests.support.patience import within

from .test_ends import a_spec

PIECE = 32 << 10


async def test_a_flood_of_errors_leaves_a_short_tail(api: ScriptedApi) -> None:
    async def program(wire: web.WebSocketResponse) -> None:
        for _ in range(1000):
            await wire.send_bytes(b"\x02" + b"x" * PIECE)
        await wire.send_bytes(b"\x02the end")
        await wire.send_bytes(b"\x01")

    api.program = program
    container = await KubernetesEngine().start(a_spec())
    async with within(20):
        assert await receive_all(container) == b""
    pipe: Any = container
    tail = pipe._pipe.stderr  # noqa: SLF001 (a pod of which the cluster says nothing has no other place for it)
    assert tail.endswith("the end")
    assert len(tail) <= TAIL_BYTES
    await container.kill()


@pytest.mark.slow
async def test_a_flood_that_is_not_read_waits_in_the_pod(api: ScriptedApi) -> None:
    """What the host holds of it is what sockets hold, and a little of the client's."""
    sent, full = 0, asyncio.Event()

    async def program(wire: web.WebSocketResponse) -> None:
        nonlocal sent
        while True:
            await wire.send_bytes(b"\x01" + bytes(PIECE))
            sent += PIECE
            if sent >= 256 * MIB:
                full.set()

    api.program = program
    container = await KubernetesEngine().start(a_spec())
    last, flooding = -1, asyncio.create_task(full.wait())
    async with within(20):
        while last != sent:
            last = sent
            await asyncio.wait([flooding], timeout=0.3)
    flooding.cancel()
    assert 0 < sent < 32 * MIB
    for _ in range(64):
        assert await container.receive()
    async with within(4):
        await container.kill()


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"\x00in",
        b"\x04{}",
        b"\x07seven",
        b"\xfe",
        b"\xff\x01",
        b"\x03",
        b"\x03" + b"[" * 100_000,
        b"\x03[]",
        b"\x03\xff",
    ],
    ids=["nothing", "stdin", "resize", "no such", "high", "closed", "no status", "deep", "a list", "no text"],
)
async def test_messages_of_odd_channels_are_not_output(api: ScriptedApi, odd: bytes) -> None:
    async def program(wire: web.WebSocketResponse) -> None:
        await wire.send_bytes(odd)
        await echo(wire)

    api.program = program
    container = await KubernetesEngine().start(a_spec())
    await container.send(b"hello\n")
    assert await receive_line(container) == b"hello\n"
    await container.kill()


@pytest.mark.slow
async def test_a_text_or_too_long_message_ends_the_pod(api: ScriptedApi) -> None:
    for long in (False, True):

        async def program(wire: web.WebSocketResponse, long: bool = long) -> None:
            await (wire.send_bytes(b"\x01" + bytes(2 * MIB)) if long else wire.send_str("hello"))
            await wire.receive()

        api.program = program
        container = await KubernetesEngine().start(a_spec())
        async with within(8):
            assert await receive_all(container) == b""
            assert (await container.wait()).code is KubernetesCode.ATTACH_LOST
        await container.kill()


async def test_a_pod_that_reads_nothing_holds_up_its_own_sender_alone(api: ScriptedApi) -> None:
    hold = asyncio.Event()

    async def program(wire: web.WebSocketResponse) -> None:
        await hold.wait()

    api.program = program
    container = await KubernetesEngine().start(a_spec())
    sending = asyncio.create_task(container.send(bytes(64 * MIB)))
    await asyncio.wait([sending], timeout=0.5)
    assert not sending.done()
    async with within(8):
        await container.kill()
        with pytest.raises(EngineError):
            await sending
    hold.set()


# --- owners -----------------------------------------------------------------------------------------------------------

OWNER = """
import asyncio, os, sys, time
from dataclasses import replace
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from tests.plugins.kubernetes.unit.test_ends import a_spec

async def main():
    container = await KubernetesEngine().start(a_spec())
    if sys.argv[1] == "fork" and (child := os.fork()) == 0:
        if sys.argv[2] == "keep":
            os.set_blocking(0, True)
        os.write(1, b"forked %d\\n" % os.getpid())  # whole, whatever buffers the interpreter has
        time.sleep(600)
    os.write(1, b"started\\n")
    if sys.argv[1] != "exit":
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", *(pytest.param(how, marks=pytest.mark.long) for how in ("kill", "exit"))])
async def test_the_pipe_ends_with_its_owner(api: ScriptedApi, how: str) -> None:
    """Also where the owner has forked, and the child lives on; or its interpreter ends without a word."""
    ended = asyncio.Event()

    async def program(wire: web.WebSocketResponse) -> None:
        await echo(wire)
        ended.set()

    api.program = program
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-c", OWNER, how, "no"),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert owner.stdout is not None
    child = 0
    while (line := (await owner.stdout.readline()).split())[:1] != [b"started"]:
        assert line, "the owner failed"
        child = int(line[1])
    if how == "fork" and not child:
        child = int((await owner.stdout.readline()).split()[1])
    if how != "exit":
        owner.kill()
    async with within(10):
        await ended.wait()
    if child:
        os.kill(child, 0)
        os.kill(child, signal.SIGKILL)
    await owner.stdout.read()
    await owner.wait()
    api.pods.clear()


# --- many -------------------------------------------------------------------------------------------------------------


async def test_engines_of_one_cluster_share_a_client_and_others_have_their_own(api: ScriptedApi) -> None:
    others = KubernetesSettings(kubernetes_namespace="others")
    engines = [KubernetesEngine(), KubernetesEngine(), KubernetesEngine(others)]
    started = await asyncio.gather(*(one.start(a_spec()) for one in engines))
    assert sorted(one.users for one in Cluster.open_here()) == [1, 2]
    assert api.seen["list"] >= 2
    for number, container in enumerate(started):
        assert len(Cluster.open_here()) == (2 if number < 2 else 1)
        await container.kill()


async def test_two_loops_have_clients_of_their_own(api: ScriptedApi) -> None:
    def other() -> None:
        async def whole() -> None:
            container = await KubernetesEngine().start(a_spec())
            await container.send(b"there\n")
            assert await receive_line(container) == b"there\n"
            await container.kill()
            assert not Cluster.open_here()

        try:
            asyncio.run(whole())
        except BaseException as error:
            failed.append(error)

    failed: list[BaseException] = []
    here: Container = await KubernetesEngine().start(a_spec())
    for _ in range(3):
        thread = threading.Thread(target=other)
        thread.start()
        await asyncio.to_thread(thread.join)
    assert not failed
    await here.send(b"here\n")
    assert await receive_line(here) == b"here\n"
    await here.kill()


@pytest.mark.slow
async def test_thirty_at_once_leave_nothing(api: ScriptedApi) -> None:
    engine = KubernetesEngine()
    started = await asyncio.gather(*(engine.start(a_spec()) for _ in range(30)))
    assert [one.users for one in Cluster.open_here()] == [30]
    assert api.seen["watch"] == 1
    for container in started:
        await container.send(b"hello\n")
    assert {await receive_line(container) for container in started} == {b"hello\n"}
    await asyncio.gather(*(container.kill() for container in started))
