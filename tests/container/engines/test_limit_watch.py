"""A limit that a container met is heard of from the machine, where the engine does not say so."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.docker import container as docker_container
from sandbox_kernel.engines.docker.api_client import EngineConnection
from sandbox_kernel.engines.docker.arguments import LABEL
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.limit_watch import CgroupPlace, places_of, watch_memory, watch_processes
from tests.support.descriptors import open_files
from tests.support.engines import SMALL, Docker, receive_all, receive_line
from tests.support.patience import within

MakeSpec = Callable[..., SandboxSpec]

GVISOR = "runsc"
"""The runtime under which a limit is the end of the container."""
VERSION = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
HIERARCHY = Path("/sys/fs/cgroup", "memory" if VERSION == 1 else "")
counted = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(HIERARCHY, os.W_OK), reason="a cgroup of one's own needs root"
)
HOG = "print('up', flush=True); input(); x = bytearray(b'x') * (400 << 20)"
CROWD = """
import os
print("up", flush=True)
input()
for _ in range(30):
    if not os.fork():
        while True: pass
"""
HOG_IN = """
import sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
x = bytearray(b"x") * (200 << 20)
"""


class Silent(DockerEngine):
    """Says no word of memory, as an engine that missed it."""

    async def subscribe(self, session_id: str, since: float) -> EngineConnection:
        filters = {"label": [f"{LABEL}.session={session_id}"], "event": ["die", "destroy"]}
        return await self._ask("GET", f"/events?since={since:.9f}&filters={quote(json.dumps(filters))}")

    async def inspect(self, identity: str) -> dict[str, Any] | None:
        found = await super().inspect(identity)
        if found is not None:
            found["State"]["OOMKilled"] = False
        return found


@pytest.fixture(scope="module")
def gvisor() -> None:
    if reason := Docker(GVISOR, "docker-gvisor").absent():
        pytest.skip(reason)


@pytest.mark.usefixtures("gvisor")
@pytest.mark.alone
@pytest.mark.parametrize(
    ("code", "listens", "kind"),
    [
        (HOG, True, "out_of_memory"),
        (HOG, False, "killed"),
        (CROWD, True, "out_of_processes"),
        (CROWD, False, "exited"),
    ],
    ids=["memory", "memory, control", "processes", "processes, control"],
)
async def test_it_is_heard_although_the_engine_says_nothing(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, code: str, listens: bool, kind: str
) -> None:
    """GVisor's whole sandbox ends, and its cgroup with it. Its own threads count, one or more for each that works."""
    monkeypatch.setattr(docker_container, "LATE_OOM_SECONDS", 0.5)
    if not listens:
        monkeypatch.setattr(docker_container, "places_of", lambda pid, identity: {})
    container = await Silent().start(make_spec(code, runtime=GVISOR, limits=replace(SMALL, pids=80)))
    try:
        assert await receive_line(container) == b"up\n"
        await container.send(b"\n")
        assert await receive_all(container) == b""
        assert (await container.wait()).kind == kind
    finally:
        with contextlib.suppress(EngineError):
            await container.kill()


@pytest.fixture
def cgroup() -> Iterator[Path]:
    folder = HIERARCHY / f"sandbox-kernel-test-{secrets.token_hex(4)}"
    folder.mkdir()
    (folder / ("memory.limit_in_bytes" if VERSION == 1 else "memory.max")).write_text(str(32 << 20))
    yield folder
    if folder.exists():
        folder.rmdir()


@counted
@pytest.mark.parametrize("ran_out", [True, False])
async def test_the_end_of_a_cgroup_is_told_from_memory_that_ran_out_in_it(cgroup: Path, ran_out: bool) -> None:
    """Both come by the same counter in version 1; whoever looks only once the cgroup is gone has to know them apart.

    In version 2 its end says nothing, and takes the count along.
    """
    heard = asyncio.Event()
    watch = watch_memory(CgroupPlace(str(cgroup), VERSION), heard.set)
    try:
        if ran_out:
            done = subprocess.run([sys.executable, "-c", HOG_IN, str(cgroup)], check=False)  # noqa: ASYNC221 (nobody may look yet)
            assert done.returncode == -9
        os.rmdir(cgroup)  # noqa: PTH106 (before the loop has another turn)
        if ran_out and VERSION == 1:
            async with within(5):
                await heard.wait()
        else:
            await asyncio.sleep(0.3)  # that nothing happens cannot be waited for
            assert not heard.is_set()
    finally:
        watch.close()


@counted
async def test_it_is_heard_each_time_while_the_cgroup_is_there(cgroup: Path) -> None:
    heard = asyncio.Event()
    watch = watch_memory(CgroupPlace(str(cgroup), VERSION), heard.set)
    try:
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOG_IN, str(cgroup))
            async with within(20):
                await heard.wait()
                assert await process.wait() == -9
            heard.clear()
        os.rmdir(cgroup)  # noqa: PTH106 (before the loop has another turn)
        await asyncio.sleep(0.3)  # as above
        assert not heard.is_set(), "its removal is no third time"
    finally:
        watch.close()


@pytest.mark.alone
@pytest.mark.parametrize(
    ("listens", "kind"), [(True, "out_of_memory"), (False, "killed")], ids=["heard", "not heard, control"]
)
async def test_a_process_that_ran_out_is_heard_of_although_the_engine_says_nothing(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, listens: bool, kind: str
) -> None:
    """Process 1 of the machine's own runtime, in its cgroup of either version, which lives on for a moment."""
    monkeypatch.setattr(docker_container, "LATE_OOM_SECONDS", 0.5)
    if not listens:
        monkeypatch.setattr(docker_container, "places_of", lambda pid, identity: {})
    container = await Silent().start(make_spec(HOG))
    try:
        assert await receive_line(container) == b"up\n"
        await container.send(b"\n")
        assert await receive_all(container) == b""
        assert (await container.wait()).kind == kind
    finally:
        with contextlib.suppress(EngineError):
            await container.kill()


def test_nobody_listens_to_the_limits_of_another_process() -> None:
    """A number may be another machine's, or be used again: the identity has to stand in the cgroup's name."""
    assert places_of(os.getpid(), "f" * 64) == {}
    assert places_of(1 << 30, "") == {}


async def test_a_cgroup_that_is_gone_is_listened_to_by_nobody(tmp_path: Path) -> None:
    before = open_files()
    for version in (1, 2):
        place = CgroupPlace(str(tmp_path), version)
        with pytest.raises(FileNotFoundError):
            watch_memory(place, lambda: None)
        with pytest.raises(FileNotFoundError):
            watch_processes(place, os.getpid(), lambda: None)
    (tmp_path / "pids.events").write_text("max 0\n")
    with pytest.raises(ProcessLookupError):
        watch_processes(CgroupPlace(str(tmp_path), 1), 1 << 22, lambda: None)
    assert not open_files() - before
