"""Engines that let a sandbox stand still: it uses no processor, goes on where it was, and ends as any other."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.core.errors import AbilityMissing, EngineError
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.abilities import Ability, Pausable, abilities_of, demand
from sandbox_kernel.engines.base import Container
from tests.support.engines import EngineUnderTest, receive_line
from tests.support.patience import within
from tests.support.processes import python

COUNTS = """
import os, threading
n = 0
def count():
    global n
    while True:
        n += 1
threading.Thread(target=count, daemon=True).start()
while data := os.read(0, 65536):
    os.write(1, b"%d\\n" % n)
"""
CAN = dict.fromkeys(("docker", "docker-gvisor", "podman", "bubblewrap", "qemu"), True)
CAN |= dict.fromkeys(("broker-of-docker", "broker-of-bubblewrap"), True)
"""Engines whose sandboxes can be paused; of the others it is said at once."""
LOOK_SECONDS = 0.4
OWNER = """
import asyncio, sys
from sandbox_kernel.core.model import SandboxSpec
from tests.support.engines import SMALL
{source}
async def main():
    session, image, runtime, kept, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session, image=image, runtime=runtime or None, limits=SMALL, command=tuple(command),
                       uid=300_000_001, limits_kept=kept)
    container = await Engine().start(spec)
    await container.pause()
    print("paused", flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""

Launch = Callable[[], Awaitable[Container]]


@pytest.fixture
async def launch(under_test: EngineUnderTest) -> AsyncIterator[Launch]:
    """Start counting programs that do not outlive the test."""
    engine, started = under_test.make(), []

    async def launch() -> Container:
        container = await engine.start(under_test.spec(COUNTS))
        started.append(container)
        return container

    yield launch
    for container in started:
        await container.kill()


def used(container: Container) -> float:
    """Return the processor seconds of what runs in a container, as the machine counts them."""
    total = 0.0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if container.id in Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8"):
                times = process.cpu_times()
                total += times.user + times.system
    return total


async def used_meanwhile(container: Container) -> float:
    """Return what it uses in a while."""
    before, ended = used(container), asyncio.Event()
    asyncio.get_running_loop().call_later(LOOK_SECONDS, ended.set)
    await ended.wait()
    return used(container) - before


async def works(container: Container) -> None:
    """Return once it has used the processor, for which it may have to wait on a busy machine."""
    async with within(10):
        while await used_meanwhile(container) <= 0.05:
            pass


async def settled(container: Container) -> None:
    """Return once nothing of it is used any more: what switches it off may need a moment itself, as gVisor does."""
    async with within(5):
        while await used_meanwhile(container) > 0:
            pass


def pausable(container: Container) -> Pausable:
    assert isinstance(container, Pausable)
    return container


def only_if_it_can(under_test: EngineUnderTest) -> None:
    if under_test.name not in CAN:
        pytest.skip("it says that it cannot")


async def number(container: Container) -> int:
    await container.send(b"?")
    return int(await receive_line(container))


async def test_what_can_be_paused_is_a_value(launch: Launch, under_test: EngineUnderTest) -> None:
    container = await launch()
    assert (Ability.PAUSE in abilities_of(container)) is CAN.get(under_test.name, False)
    if under_test.name in CAN:
        demand(Ability.PAUSE, under_test.make(), container)
    else:
        with pytest.raises(AbilityMissing, match="cannot pause") as caught:
            demand(Ability.PAUSE, under_test.make(), container)
        assert caught.value.setting == "engine"
    if under_test.name == "qemu":
        demand(Ability.SNAPSHOT, under_test.make(), container)
        return
    why = "not available through a broker" if under_test.name.startswith("broker") else "only qemu and wasm can"
    with pytest.raises(AbilityMissing, match=why):
        demand(Ability.SNAPSHOT, under_test.make(), container)


async def test_a_paused_one_uses_no_processor_and_goes_on(launch: Launch, under_test: EngineUnderTest) -> None:
    only_if_it_can(under_test)
    container = await launch()
    first = await number(container)
    await works(container)  # the control
    await pausable(container).pause()
    await pausable(container).pause()
    assert pausable(container).paused
    await settled(container)
    # gVisor's kernel is a program, which may look at a clock of its own; the system counts in hundredths.
    most = 0.02 if under_test.name == "docker-gvisor" else 0
    assert sum([await used_meanwhile(container) for _ in range(3)]) <= most
    await container.send(b"?")  # it waits in the pipe
    await pausable(container).resume()
    await pausable(container).resume()
    assert int(await receive_line(container)) > first
    await works(container)


async def test_a_paused_one_is_killed_as_any_other(launch: Launch, under_test: EngineUnderTest) -> None:
    only_if_it_can(under_test)
    container = await launch()
    await number(container)
    await pausable(container).pause()
    await container.kill()
    assert (await container.wait()).kind == "killed"
    assert used(container) == 0


async def test_one_that_was_killed_cannot_be_paused(launch: Launch, under_test: EngineUnderTest) -> None:
    only_if_it_can(under_test)
    container = await launch()
    await container.kill()
    with pytest.raises(EngineError):
        await pausable(container).pause()
    assert not pausable(container).paused


async def test_a_paused_one_ends_with_its_owner(under_test: EngineUnderTest) -> None:
    """SIGKILL of the owner: nothing in there can hear that the pipe is closed, so something outside ends it."""
    only_if_it_can(under_test)
    spec: SandboxSpec = under_test.spec(COUNTS)
    words = [spec.session_id, spec.image, spec.runtime or "", spec.limits_kept]
    try:
        with python(OWNER.format(source=under_test.source), *words, *spec.command) as (owner, line):
            assert line == "paused"
            assert await under_test.left(spec.session_id)
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            begun = time.monotonic()
            async with within(10):
                while await under_test.left(spec.session_id):  # noqa: ASYNC110 (it happens in another process)
                    await asyncio.sleep(0.02)
            print(f"gone after {time.monotonic() - begun:.2f} s")
    finally:
        await under_test.sweep(spec.session_id)
