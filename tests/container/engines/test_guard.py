"""A container whose owner ends while the engine creates it: nobody but the guard can know of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import docker
import pytest

from sandbox_kernel.core.errors import EngineUnavailable, ImageMissing
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.hardening import LABEL
from tests.support.engines import IMAGE

MakeSpec = Callable[..., SandboxSpec]
Start = Callable[..., Awaitable[DockerContainer]]
Events = Callable[[float, set[str]], list[tuple[str, str]]]

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
    spec = SandboxSpec(session_id=session_id, image=image, limits=Limits(), command=tuple(command), uid=12345)
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
    """What the engine did since a time with the containers of some sessions: session and action, in order."""
    with closing(docker.from_env()) as client:

        def since(begin: float, sessions: set[str]) -> list[tuple[str, str]]:
            filters: dict[str, Any] = {"type": "container", "label": f"{LABEL}.session"}
            told = client.events(since=begin, until=time.time(), filters=filters, decode=True)
            found = [(event["Actor"]["Attributes"].get(f"{LABEL}.session"), event["Action"]) for event in told]
            return [(session, action) for session, action in found if session in sessions]

        yield since


async def gone(engine: DockerEngine, identity: str) -> None:
    async with asyncio.timeout(20):
        while await engine.inspect(identity) is not None:  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


def kill_after(seconds: float, spec: SandboxSpec) -> None:
    """Start an owner, and kill it that long after it asked the engine."""
    command = [sys.executable, "-c", OWNER, spec.session_id, spec.image, *spec.command]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"asks\n"
        time.sleep(seconds)  # the moment of the kill, which is what the test varies
        owner.kill()


async def test_an_owner_that_is_killed_while_its_container_is_created_leaves_nothing(
    engine: DockerEngine, start: Start, make_spec: MakeSpec, events: Events
) -> None:
    begin, specs = time.time(), [make_spec(DEAF) for _ in range(MOMENTS)]
    sessions = {spec.session_id for spec in specs}
    for count, spec in enumerate(specs):
        await asyncio.to_thread(kill_after, STEP_SECONDS * count, spec)
    await start(make_spec())  # what was asked for before this one is there by the time that it is
    async with asyncio.timeout(30):  # the machine that runs the tests may be busy
        while {row["session"] for row in await engine.list()} & sessions:  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.05)
    told = await asyncio.to_thread(events, begin, sessions)
    created = [session for session, action in told if action == "create"]
    started = {session for session, action in told if action == "start"}
    assert set(created) - started, "no owner was killed in the midst of a create"
    assert sorted(created) == sorted(session for session, action in told if action == "destroy")


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
