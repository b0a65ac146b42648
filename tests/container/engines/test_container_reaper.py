"""A container whose owner ends while the engine creates it: nobody but the guard can know of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest

from sandbox_kernel.core.errors import EngineUnavailable, ImageMissing
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines import container_reaper
from sandbox_kernel.engines.docker.arguments import LABEL
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.owner_process import OwnerProcess
from tests.support.engines import IMAGE
from tests.support.patience import within

MakeSpec = Callable[..., SandboxSpec]
Start = Callable[..., Awaitable[DockerContainer]]
Events = Callable[[float, set[OwnerProcess]], list[tuple[str, str]]]

OWNER = """
import asyncio, sys
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.core.model import Limits, SandboxSpec
class Engine(DockerEngine):
    async def request(self, method, target, body=None):
        if "/create" in target:
            print("asks", flush=True)
        return await super().request(method, target, body)
async def main():
    session_id, image, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session_id, image=image, limits=Limits(), command=tuple(command), uid=345678901)
    await Engine().start(spec)
    print("has it", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
DEAF = "import signal, time\nfor number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\ntime.sleep(600)"
MOMENTS = 16
STEP_SECONDS = 0.008
"""A create takes 0.05 s here, and more on a machine that is busy."""


@pytest.fixture
def events() -> Iterator[Events]:
    """What the engine did since a time with the containers of some owners: name and action, in order."""
    with closing(docker.from_env()) as client:

        def since(begin: float, owners: set[OwnerProcess]) -> list[tuple[str, str]]:
            filters: dict[str, Any] = {"type": "container", "label": f"{LABEL}.session"}
            told = client.events(since=begin, until=time.time(), filters=filters, decode=True)
            found = [(str(event["Actor"]["Attributes"]["name"]), str(event["Action"])) for event in told]
            return [(name, action) for name, action in found if OwnerProcess.parse(name) in owners]

        yield since


async def gone(engine: DockerEngine, identity: str) -> None:
    async with within(30):
        while await engine.inspect(identity) is not None:  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


def engine_s_owner(spec: SandboxSpec, folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that asks for a container, and return when it is about to."""
    command = [sys.executable, "-c", OWNER, spec.session_id, spec.image, *spec.command]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"asks\n"
    return owner


def kernel(spec: SandboxSpec, folder: Path) -> subprocess.Popen[bytes]:
    """The same with a kernel process, which asks while it is being loaded, right after it has started its guard."""
    file = folder / f"{spec.session_id}.json"
    file.write_text('{"key": ""}', encoding="utf-8")
    command = [sys.executable, "-P", "-m", "sandbox_kernel", "-f", str(file), "--image", spec.image]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process, deadline = psutil.Process(owner.pid), time.monotonic() + 30
    while not process.children():
        assert time.monotonic() < deadline
    return owner


@pytest.mark.parametrize("an_owner", [engine_s_owner, pytest.param(kernel, marks=pytest.mark.long)])
async def test_an_owner_that_is_killed_while_its_container_is_created_leaves_nothing(
    an_owner: Callable[[SandboxSpec, Path], subprocess.Popen[bytes]],
    start: Start,
    make_spec: MakeSpec,
    events: Events,
    tmp_path: Path,
) -> None:
    def kill_after(seconds: float) -> OwnerProcess:
        with an_owner(make_spec(DEAF), tmp_path) as process:
            time.sleep(seconds)  # the moment of the kill, which is what the test varies
            owner = OwnerProcess.of(process.pid)
            process.kill()
        return owner

    begin = time.time()
    owners = {await asyncio.to_thread(kill_after, STEP_SECONDS * count) for count in range(MOMENTS)}
    engine, pids = DockerEngine(), {owner.pid for owner in owners}
    await start(make_spec())  # what was asked for before this one is there by the time that it is
    async with within(30):  # the machine that runs the tests may be busy
        while {row.owner_pid for row in await engine.list()} & pids:  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.05)
    told = await asyncio.to_thread(events, begin, owners)
    created = [name for name, action in told if action == "create"]
    started = {name for name, action in told if action == "start"}
    assert set(created) - started, "no owner was killed in the midst of a create"
    assert sorted(created) == sorted(name for name, action in told if action == "destroy")


async def test_a_container_that_is_created_after_its_start_was_given_up_is_removed(make_spec: MakeSpec) -> None:
    """The engine's answer never came; what it creates then is nobody's."""

    class Lost(DockerEngine):
        async def request(self, method: str, target: str, body: object = None) -> Any:
            if "/create" in target:
                asked.append((target, body))
                raise EngineUnavailable("the container engine does not answer")
            return await super().request(method, target, body)

    asked: list[tuple[str, object]] = []
    with pytest.raises(EngineUnavailable):
        await Lost().start(make_spec())
    ((target, body),) = asked
    engine = DockerEngine()
    created = await engine.request("POST", target, body)
    await gone(engine, created["Id"])


async def test_a_name_that_the_engine_refused_is_forgotten(start: Start, make_spec: MakeSpec) -> None:
    """The control: what there is of that name afterwards is somebody else's, and stays."""

    class Told(DockerEngine):
        async def request(self, method: str, target: str, body: object = None) -> Any:
            asked.append(target)
            return await super().request(method, target, body)

    asked: list[str] = []
    engine = Told()
    with pytest.raises(ImageMissing):
        await engine.start(make_spec(image="no:image"))
    name = next(target for target in asked if "/create" in target).partition("name=")[2]
    created = await engine.request("POST", f"/containers/create?name={name}", {"Image": IMAGE})
    try:
        other = await start(make_spec(DEAF))
        engine.guard.remove(other.id)
        await gone(engine, other.id)  # so the guard has done all that it was told to do before
        assert await engine.inspect(created["Id"]) is not None
    finally:
        await engine.remove(created["Id"])


@pytest.mark.parametrize(("handed_over", "looks"), [(True, 4), (False, 1)], ids=["handed over", "control"])
def test_a_restart_soon_after_another_is_no_end_of_its_container(
    monkeypatch: pytest.MonkeyPatch, handed_over: bool, looks: int
) -> None:
    """The first process's guard sees a second pipe holder, which is dead, before the third process has put its name."""
    monkeypatch.setattr(container_reaper, "GRACE_SECONDS", -1.0)
    pipe_holders = (
        OwnerProcess(os.getpid(), 1),
        OwnerProcess(os.getpid(), 2),
    )  # others of before, with the number of this process
    names = [pipe_holders[0], OwnerProcess.of(os.getpid()), pipe_holders[1], OwnerProcess.of(os.getppid())]
    seen: list[OwnerProcess] = []

    class Charge(container_reaper.WatchedContainer):
        def _appears(self) -> bool:
            return True

        def _while_there(self) -> Iterator[dict[str, Any]]:
            for owner in names[len(seen) :]:
                seen.append(owner)
                yield {"Name": "/" + owner.container_name("session")}

        def remove(self) -> None:
            pass

    Charge("nowhere", "c" * 64).end_with_its_owner(handed_over=handed_over)
    assert len(seen) == looks
