"""Sandboxes of callers of the network: real TLS on loopback, a real engine, and how each end shows itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError, QuotaExceeded, SandboxError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.broker.client import packets, tls_relay
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.broker.detached import KeptEngine
from tests.plugins.broker.brokers import a_broker
from tests.plugins.broker.network import HOST, NetworkDaemon, a_network_daemon, files_in, place_in
from tests.support import ROOT
from tests.support.engines import IMAGE
from tests.support.kernels import Kernel
from tests.support.patience import within

CEILINGS = """
[all]
denied = true

[certificate.alice]
denied = false
sessions = 2

[certificate.bob]
denied = false
"""
OWNER = """
import json, sys
from sandbox_kernel import Sandbox
sandbox = Sandbox(**json.loads(sys.argv[1]))
sandbox.run_code("1")
print(sandbox.id, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkDaemon]:
    with a_network_daemon(tmp_path_factory.mktemp("network"), "--pool", "0", ceilings=CEILINGS) as daemon:
        yield daemon


def sandbox(daemon: NetworkDaemon, name: str = "alice", **settings: Any) -> AsyncSandbox:
    return AsyncSandbox(image=IMAGE, **daemon.settings(name), **settings)


async def containers(daemon: NetworkDaemon, name: str) -> list[str]:
    place = daemon.place
    return [row.container for row in await place.engine(place.certified(name)).list()]


async def until_gone(container: str) -> None:
    docker = DockerEngine()
    async with within(20):
        while container[:12] in {row.container for row in await docker.list()}:  # noqa: ASYNC110 (the engine knows it)
            await asyncio.sleep(0.02)


async def listed(caller: dict[str, Any]) -> list[str]:
    return [info.id for info in await AsyncSandbox.list(**caller)]


async def ending(one: AsyncSandbox) -> str | None:
    """Return the code of a sandbox's end, as its caller is told: by the cell that ran, or the next one."""
    async with within(20):
        try:
            result = await one.run_code("import time; time.sleep(60)")
        except SandboxError as error:
            return error.code.code
    return result.error.code if result.error is not None else None


async def test_a_sandbox_runs_cells_and_gives_large_outputs(daemon: NetworkDaemon) -> None:
    async with within(60), sandbox(daemon) as one:
        assert (await one.run_code("6 * 7")).text == "42"
        large = await one.run_code("print('x' * 3_000_000)")
        assert len("".join(large.logs.stdout)) > 1_000_000
        await one.files.write("large", b"y" * 5_000_000)
        assert await one.files.read("large", format="bytes") == b"y" * 5_000_000


async def test_one_that_waits_is_claimed(tmp_path: Path) -> None:
    authority = files_in(tmp_path)
    with a_broker("--pool", "1", "--network", str(tmp_path)):
        place = place_in(tmp_path, authority)
        engine = place.engine(place.certified("alice"))
        async with within(90):
            async with AsyncSandbox(image=IMAGE, **place.keywords("alice")) as first:
                await first.run_code("1")
            while not (await engine.status())["ready"]:  # noqa: ASYNC110 (another process makes it)
                await asyncio.sleep(0.1)
            waiting = {row.container for row in await DockerEngine().list()}
            async with AsyncSandbox(image=IMAGE, **place.keywords("alice")) as second:
                assert (await second.run_code("6 * 7")).text == "42"
                [container] = [row.container for row in await engine.list() if row.state == "running"]
                assert container[:12] in waiting


async def test_a_caller_has_as_many_as_the_file_says(daemon: NetworkDaemon) -> None:
    async with within(60), sandbox(daemon) as one, sandbox(daemon) as two:
        await asyncio.gather(one.run_code("1"), two.run_code("1"))
        with pytest.raises(QuotaExceeded, match="2 sandboxes at once"):
            await AsyncSandbox.create(image=IMAGE, **daemon.settings("alice"))
        async with sandbox(daemon, "bob") as other:
            assert (await other.run_code("1")).text == "1"


async def test_what_one_caller_has_is_not_there_for_another(daemon: NetworkDaemon) -> None:
    """Listing, use, taking over and ending, of one that lives on; its owner may do each."""
    alice, place = daemon.settings("alice"), daemon.place
    bob = KeptEngine(daemon.address, seconds=60, metadata={}, process=place.certified("bob"))
    async with within(90):
        one = await AsyncSandbox.create(image=IMAGE, detached=True, **alice)
        try:
            await one.run_code("kept = 41")
            [container] = await containers(daemon, "alice")
            assert await containers(daemon, "bob") == []
            assert await bob.kept() == []
            for ask in (
                lambda: bob.connect(one.id, take=False),
                lambda: bob.connect(one.id, take=True),
                lambda: bob.described(one.id),
                lambda: bob.extend(one.id, 1),
                lambda: bob.end(one.id),
            ):
                with pytest.raises(EngineError) as caught:
                    await ask()
                assert caught.value.code is EndCode.DETACHED_NOT_THERE
            shown = await place.engine(place.certified("bob")).shown(container)
            assert shown == type(shown)()
            assert (await one.run_code("kept + 1")).text == "42"
            await one.detach()
            assert await listed(alice) == [one.id]
            again = await AsyncSandbox.connect(one.id, **alice)
            assert (await again.run_code("kept + 2")).text == "43"
        finally:
            assert await AsyncSandbox.kill_by_id(one.id, **alice)
        await until_gone(container)


def test_a_kernel_has_one_and_another_one_after_its_restart(
    daemon: NetworkDaemon, start_kernel: Callable[..., Kernel]
) -> None:
    """The process before relayed its pipe, so the next one cannot have it."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in daemon.settings("alice", image=IMAGE).items()]
    kernel = start_kernel(*words)
    assert kernel.run("x = 6 * 7; x").value == "42"
    kernel.manager.restart_kernel()
    assert kernel.run("'x' in dir(), 6 * 7").value == "(False, 42)"
    kernel.close()
    assert asyncio.run(rest(daemon, "alice")) == []


async def rest(daemon: NetworkDaemon, name: str) -> list[str]:
    """Return the sandboxes that a caller has, once it has none, or after a while."""
    async with within(20):
        while await containers(daemon, name):  # noqa: ASYNC110 (another process ends them)
            await asyncio.sleep(0.05)
    return await containers(daemon, name)


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_broker_that_is_killed_ends_its_callers_sandboxes_with_a_reason(tmp_path: Path) -> None:
    with a_network_daemon(tmp_path, "--pool", "0", ceilings=CEILINGS) as daemon:
        async with within(60), sandbox(daemon) as one:
            await one.run_code("1")
            [container] = await containers(daemon, "alice")
            running = asyncio.ensure_future(ending(one))
            await asyncio.sleep(0)
            daemon.kill()
            assert await running == BrokerCode.BROKER_CONNECTION_LOST.code
            await until_gone(container)


async def test_a_broker_that_is_told_to_end_says_so_to_its_callers(tmp_path: Path) -> None:
    with a_network_daemon(tmp_path, "--pool", "0", ceilings=CEILINGS) as daemon:
        async with within(60), sandbox(daemon) as one:
            await one.run_code("1")
            [container] = await containers(daemon, "alice")
            running = asyncio.ensure_future(ending(one))
            await asyncio.sleep(0)
            await asyncio.to_thread(daemon.end)
            assert await running == EndCode.BROKER_ENDED.code
            await until_gone(container)


async def test_the_sandbox_of_a_caller_that_is_killed_ends(daemon: NetworkDaemon) -> None:
    settings = json.dumps({**daemon.settings("bob"), "image": IMAGE})
    pipe = asyncio.subprocess.PIPE
    caller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, settings, cwd=ROOT, stdin=pipe, stdout=pipe
    )
    assert caller.stdout is not None
    async with within(60):
        assert await caller.stdout.readline()
        [container] = await containers(daemon, "bob")
        caller.kill()
        await caller.communicate()
    await until_gone(container)


# --- a pipe's connection, byte by byte --------------------------------------------------------------------------------


class Wire:
    """A caller that speaks as ours does, and keeps what it should not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hello(self, pipe: bytes | None = None) -> None:
        said = {"token": "", "pipe": None if pipe is None else pipe.hex()}
        await tls_relay.send(self.writer, tls_relay.HELLO, json.dumps(said).encode())

    async def heard(self, kind: int) -> bytes:
        """Return the next frame of a kind."""
        while True:
            found, data = await tls_relay.receive(self.reader, tls_relay.MAX_FRAME, 60)
            if found == kind:
                return data

    async def started(self) -> bytes:
        """Ask for a sandbox; return the pass of its pipe."""
        spec = new_spec(Settings(image=IMAGE, time_zone=None))
        said = {"op": "start", "n": 1, **packets.request(spec), "spec": packets.asked(spec)}
        await tls_relay.send(self.writer, tls_relay.PACKET, packets.packed(said))
        return (await self.heard(tls_relay.PACKET_WITH_PIPE))[: tls_relay.PASS_BYTES]


@contextlib.asynccontextmanager
async def wire(daemon: NetworkDaemon, name: str) -> AsyncIterator[Wire]:
    tls = daemon.place.tls(daemon.authority.client(name))
    port = daemon.place.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=HOST)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_pipe_is_its_caller_s_and_is_had_once(daemon: NetworkDaemon) -> None:
    async with within(60), wire(daemon, "alice") as words:
        await words.hello()
        name = await words.started()
        async with wire(daemon, "bob") as other:
            await other.hello(name)
            assert await other.reader.read() == b""
        async with wire(daemon, "alice") as pipe:
            await pipe.hello(name)
            assert await pipe.reader.read(1)  # the agent's first word
            async with wire(daemon, "alice") as again:
                await again.hello(name)
                assert await again.reader.read() == b""


async def test_a_sandbox_ends_with_the_connection_of_its_pipe(daemon: NetworkDaemon) -> None:
    async with within(60), wire(daemon, "alice") as words:
        await words.hello()
        name = await words.started()
        [container] = await containers(daemon, "alice")
        async with wire(daemon, "alice") as pipe:
            await pipe.hello(name)
            assert await pipe.reader.read(1)
        said = json.loads(await words.heard(tls_relay.PACKET))
        assert (said["op"], said["code"]) == ("ended", BrokerCode.BROKER_CONNECTION_LOST.code)
        await until_gone(container)


async def test_a_caller_without_the_right_to_ask_has_no_sandbox(daemon: NetworkDaemon) -> None:
    with pytest.raises(EngineError) as caught:
        await AsyncSandbox.create(image=IMAGE, **daemon.settings("mallory"))
    assert caught.value.code is BrokerCode.BROKER_DENIED
