"""How pods end on a real cluster: each end has a name, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.codes import Code
from sandbox_kernel.core.model import ExitReason, SandboxSpec
from sandbox_kernel.engines.base import Container
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.engine import UNDER_TEST, kubectl
from tests.support import ROOT
from tests.support.engines import ECHO, SMALL, receive_line
from tests.support.patience import within

IN = "--namespace=sandboxes"
CPUS = 0.05
MEMORY_EATER = (
    "import sys; print('up', flush=True); sys.stdin.readline(); x = [bytearray(1 << 20) for _ in range(4096)]"
)
OWNER = """
import asyncio
from dataclasses import replace
from tests.plugins.kubernetes.engine import UNDER_TEST
from tests.support.engines import SMALL

async def main():
    container = await UNDER_TEST.make().start(UNDER_TEST.spec(limits=replace(SMALL, cpus=0.05)))
    print(container.id, flush=True)
    await container.wait()

asyncio.run(main())
"""


def a_spec(code: str = ECHO, cpus: float = CPUS) -> SandboxSpec:
    return UNDER_TEST.spec(code, limits=replace(SMALL, cpus=cpus))


@pytest.fixture
async def started() -> AsyncIterator[list[Container]]:
    found: list[Container] = []
    yield found
    for one in found:
        await one.kill()


async def answering(
    started: list[Container], settings: KubernetesSettings | None = None, code: str = ECHO
) -> Container:
    container = await KubernetesEngine(settings).start(a_spec(code))
    started.append(container)
    if code == ECHO:
        await container.send(b"hello\n")
        assert await receive_line(container) == b"hello\n"
    return container


async def ended(container: Container, seconds: float) -> ExitReason:
    async with within(seconds):
        while await container.receive():
            pass
        return await container.wait()


async def run(*words: str, given: str | None = None) -> str:
    return await asyncio.to_thread(kubectl, *words, given=given)


async def deleted(container: Container) -> None:
    await run(IN, "delete", "pod", container.id, "--wait=false")


async def evicted(container: Container) -> None:
    metadata = {"name": container.id, "namespace": "sandboxes"}
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/sandboxes/pods/{container.id}/eviction"
    await run("create", "--raw", path, "-f", "-", given=body)


async def forced(container: Container) -> None:
    await run(IN, "delete", "pod", container.id, "--grace-period=0", "--force")


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (deleted, KubernetesCode.POD_DELETED),
        (forced, KubernetesCode.POD_DELETED),
        (evicted, KubernetesCode.POD_EVICTED),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
async def test_whoever_deletes_a_pod_is_named(started: list[Container], how: Any, code: Code) -> None:
    container = await answering(started)
    await how(container)
    assert (await ended(container, 10)).code is code


async def test_a_lifetime_that_is_over_is_named(started: list[Container]) -> None:
    container = await answering(started, KubernetesSettings(kubernetes_lifetime=4.0))
    assert (await ended(container, 20)).code is KubernetesCode.POD_DEADLINE


async def test_too_much_memory_is_named(started: list[Container]) -> None:
    container = await answering(started, code=MEMORY_EATER)
    assert await receive_line(container) == b"up\n"
    await container.send(b"go\n")
    assert (await ended(container, 30)).kind == "out_of_memory"


def test_what_a_killed_owner_leaves_is_deleted_within_two_seconds() -> None:
    """With a follower: without one, the pod stays in the API as one that is completed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [str(Path(sys.executable).with_name("sandbox-kernel")), "reap", "--follow", "--engine", "kubernetes"]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as follower,
        subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment) as owner,
    ):
        assert owner.stdout is not None
        assert follower.stdout is not None
        name = owner.stdout.readline().strip()
        assert f"pod/{name}" in kubectl(IN, "get", "pods", "--output=name")
        owner.kill()
        begin = time.monotonic()
        while f"removed {name}" != follower.stdout.readline().strip():
            pass
        took = time.monotonic() - begin
        follower.send_signal(signal.SIGTERM)
        assert follower.wait() == 0
    assert f"pod/{name}" not in kubectl(IN, "get", "pods", "--output=name")
    assert took <= 2 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def test_control_without_a_follower_the_pod_stays_until_it_is_reaped() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=subprocess.PIPE, env=environment)
    assert owner.stdout is not None
    name = (await owner.stdout.readline()).decode().strip()
    owner.kill()
    await owner.stdout.read()
    await owner.wait()
    async with within(20):
        while "Succeeded" not in await run(IN, "get", "pod", name, "--output=jsonpath={.status.phase}"):
            pass
    assert await KubernetesEngine().reap() >= 1
    assert name not in await run(IN, "get", "pods", "--output=name")


async def test_thirty_pods_at_once_answer_and_end(started: list[Container]) -> None:
    engine = KubernetesEngine()
    begin = time.monotonic()

    async def one() -> float:
        container = await engine.start(replace(a_spec(cpus=0.02)))
        started.append(container)
        await container.send(b"hello\n")
        assert await receive_line(container) == b"hello\n"
        return time.monotonic() - begin

    took = sorted(await asyncio.gather(*(one() for _ in range(30))))
    begin = time.monotonic()
    await asyncio.gather(*(container.kill() for container in started))
    print("first, median, last, ended:", took[0], took[15], took[-1], time.monotonic() - begin)
    names = await run(IN, "get", "pods", "--output=name")
    assert not [container.id for container in started if container.id in names]
