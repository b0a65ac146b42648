"""A disk for scratch ends with its sandbox, however that came about: no device, no volume and no mount is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.base import Engine
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.data import disk_images
from tests.support import ROOT
from tests.support.disks import loops_of, size_of_its_own
from tests.support.engines import SMALL, Bubblewrap, Docker, alive
from tests.support.patience import within

pytestmark = pytest.mark.skipif(disk_images.available() is not None, reason=f"no disks: {disk_images.available()}")

SECONDS = 30
HAVING_DISKS = (Docker("runc", "docker"), Bubblewrap("bubblewrap"))


@pytest.fixture(params=HAVING_DISKS, ids=lambda one: one.name)
def under(request: pytest.FixtureRequest) -> Docker | Bubblewrap:
    found: Docker | Bubblewrap = request.param
    if why := found.absent():
        pytest.skip(why)
    return found


OWN = """
import asyncio, sys
from dataclasses import replace
from sandbox_kernel.core.model import SandboxSpec
from tests.support.engines import SMALL, new_spec
{source}
async def main():
    limits = replace(SMALL, scratch="disk", scratch_size=int(sys.argv[1]))
    container = await Engine().start(new_spec(limits=limits, image=sys.argv[2], session_id=sys.argv[3]))
    print("up", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def spec_of(under: Docker | Bubblewrap, size: int) -> SandboxSpec:
    return under.spec(limits=replace(SMALL, scratch="disk", scratch_size=size))


async def volumes_of(device: str) -> list[str]:
    """Return the names of the engine's volumes for a device."""
    found = (await DockerEngine().request("GET", "/volumes"))["Volumes"] or []
    return [one["Name"] for one in found if (one.get("Options") or {}).get("device") == f"/dev/{device}"]


def mounted(device: str) -> list[str]:
    """Return where this machine's own namespace has a device mounted."""
    rows = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [row.split(" ")[4] for row in rows if f" /dev/{device} " in row]


async def nothing_left(under: Docker | Bubblewrap, session_id: str, size: int) -> None:
    async with within(SECONDS):
        while loops_of(size) or await under.left(session_id):  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


async def test_a_killed_owner_leaves_no_device_no_volume_and_no_mount(under: Docker | Bubblewrap) -> None:
    size = size_of_its_own()
    spec = spec_of(under, size)
    code = OWN.format(source=under.source)
    with ExitStack() as stack:
        owner = stack.enter_context(
            subprocess.Popen(  # noqa: ASYNC220 (it returns at once)
                [sys.executable, "-c", code, str(size), spec.image, spec.session_id],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )
        )
        stack.callback(owner.kill)
        assert owner.stdout is not None
        assert await asyncio.to_thread(owner.stdout.readline) == b"up\n"
        (device,) = loops_of(size)
        volumes, mounts = await volumes_of(device), mounted(device)
        if isinstance(under, Bubblewrap):
            assert not mounts  # of the sandbox alone, so no crash leaves one
        else:
            assert len(volumes) == 1
            assert mounts
        os.kill(owner.pid, signal.SIGKILL)
    await nothing_left(under, spec.session_id, size)
    assert not set(volumes) & set(await volumes_of(device))
    assert not set(mounts) & set(mounted(device))


async def test_a_sandbox_that_is_killed_from_outside_takes_its_disk_along(under: Docker | Bubblewrap) -> None:
    size = size_of_its_own()
    spec = spec_of(under, size)
    async with alive(under.make().start(spec)) as container:
        assert loops_of(size)
        await under.end_from_outside(container)
        assert (await container.wait()).kind == "killed"
    await nothing_left(under, spec.session_id, size)


async def test_a_cancelled_start_leaves_no_disk(under: Docker | Bubblewrap) -> None:
    """At any moment of it: while the disk is made, and afterwards."""
    for made in (False, True):
        size = size_of_its_own()
        spec = spec_of(under, size)
        engine: Engine = under.make()
        starting = asyncio.create_task(engine.start(spec))
        async with within(SECONDS):
            while not starting.done() and made and not loops_of(size):  # noqa: ASYNC110 (the machine makes it)
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        try:
            container = await starting
        except asyncio.CancelledError:
            pass
        else:  # it was quicker
            await container.kill()
        await nothing_left(under, spec.session_id, size)
