"""A broker whose sandboxes are pods: ready ones, detached ones, ceilings, and ends of callers and of the broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.errors import QuotaExceeded, SandboxError
from sandbox_kernel.plugins.kubernetes.pod import LABEL
from tests.plugins.broker.brokers import Daemon, a_broker
from tests.plugins.kubernetes.engine import CPUS, kubectl
from tests.support import ROOT
from tests.support.engines import IMAGE
from tests.support.patience import within

SMALL: dict[str, Any] = {"image": IMAGE, "cpus": CPUS, "memory": "256M"}
OWNER = """
import sys, time
from sandbox_kernel import Sandbox
sandbox = Sandbox(engine=sys.argv[1], image=sys.argv[2], cpus=float(sys.argv[3]), memory="256M")
sandbox.run_code("1")
print(sandbox.id, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with a_broker("--engine", "kubernetes", "--sessions", "2") as daemon:
        yield daemon


def pods(of: Daemon) -> list[str]:
    """Return the pods that a broker's process has, and that have not ended."""
    found = kubectl(
        "--namespace=sandboxes",
        "get",
        "pods",
        "--output=jsonpath={range .items[*]}{.metadata.labels."
        f'{LABEL}/owner}} {{.metadata.name}} {{.status.phase}}{{"\\n"}}{{end}}',
    )
    rows = [line.split() for line in found.splitlines()]
    return [name for owner, name, phase in rows if owner.startswith(f"{of.process.pid}-") and phase == "Running"]


async def until_pods(of: Daemon, count: int, seconds: float = 20) -> None:
    async with within(seconds):
        while len(pods(of)) != count:  # noqa: ASYNC110 (it happens on a node)
            await asyncio.sleep(0.2)


async def used_up(sandbox: AsyncSandbox) -> None:
    """Run cells until there is no sandbox for them: one may still be told how it ended."""
    async with within(20):
        while True:
            await sandbox.run_code("1")


async def test_one_that_was_made_ahead_is_claimed_and_runs_cells() -> None:
    with a_broker("--engine", "kubernetes", "--pool", "1") as daemon:
        async with AsyncSandbox(engine=daemon.address, **SMALL) as first:
            assert (await first.run_code("1 + 1")).text == "2"
        async with within(60):
            while not (ready := [row for row in await daemon.engine().list() if row.state == "ready"]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        async with AsyncSandbox(engine=daemon.address, **SMALL) as second:
            assert (await second.run_code("6 * 7")).text == "42"
            assert ready[0].container in [
                row.container for row in await daemon.engine().list() if row.state == "running"
            ]


async def test_a_detached_one_goes_on_with_its_next_owner(daemon: Daemon) -> None:
    first = await AsyncSandbox.create(engine=daemon.address, detached=True, **SMALL)
    name = first.id
    await first.run_code("kept = 41; open('file', 'w').write('x')")
    await first.detach()
    second = await AsyncSandbox.connect(name, engine=daemon.address)
    try:
        assert (await second.run_code("kept + 1, open('file').read()")).text == "(42, 'x')"
    finally:
        await second.kill()
    await until_pods(daemon, 0)


async def test_a_user_has_as_many_as_the_operator_says(daemon: Daemon) -> None:
    async with AsyncSandbox(engine=daemon.address, **SMALL) as one, AsyncSandbox(engine=daemon.address, **SMALL):
        with pytest.raises(QuotaExceeded, match="2 sandboxes at once"):
            await AsyncSandbox.create(engine=daemon.address, **SMALL)
        assert (await one.run_code("1")).text == "1"
    await until_pods(daemon, 0)


async def test_the_pod_of_a_caller_that_is_killed_ends(daemon: Daemon) -> None:
    command = [sys.executable, "-c", OWNER, daemon.address, IMAGE, str(CPUS)]
    pipe = asyncio.subprocess.PIPE
    caller = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert caller.stdout is not None
    assert await caller.stdout.readline()
    assert len(pods(daemon)) == 1
    caller.kill()
    await caller.communicate()
    await until_pods(daemon, 0)


async def test_what_callers_have_ends_with_the_broker_that_moves_its_pipe() -> None:
    with a_broker("--engine", "kubernetes") as daemon:
        sandbox = await AsyncSandbox.create(engine=daemon.address, **SMALL)
        assert (await sandbox.run_code("1")).text == "1"
        daemon.kill()
        await until_pods(daemon, 0)
        with pytest.raises(SandboxError):
            await used_up(sandbox)
        await sandbox.kill()
