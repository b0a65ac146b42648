"""What machines are besides what every engine is: emulated, so only `make test-qemu` runs these."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel.core.errors import AttestationFailed, EngineError
from sandbox_kernel.plugins.qemu.engine import QemuEngine
from tests.container.engines.test_contract import an_owner
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.support.engines import DEAF, ONLY, REPORT, alive, receive_line, report_sources
from tests.support.patience import until

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(180),
]

SEEN = """
import json, os, sys
pci = {}
print(json.dumps({"kernel": os.uname().release, "interfaces": os.listdir("/proc/self/net") and
    [row.split(":")[0].strip() for row in open("/proc/net/dev").read().splitlines()[2:]],
    "dev": sorted(os.listdir("/dev")), "sys": sorted(os.listdir("/sys")), "pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


async def said_by(code: str, *arguments: str, **fields: Any) -> dict[str, Any]:
    async with alive(QEMU.make().start(QEMU.spec(code, *arguments, **fields))) as container:
        said: dict[str, Any] = json.loads(await receive_line(container))
        return said


async def test_code_meets_another_kernel_and_no_device() -> None:
    seen = await said_by(SEEN)
    assert seen["kernel"] != os.uname().release
    assert seen["interfaces"] == ["lo"]
    assert not [name for name in seen["dev"] if name.startswith(("vport", "vd", "hvc", "ttyS", "mem", "port"))]
    assert (seen["sys"], seen["pid"]) == (["fs"], 1)


def machine_of(session_id: str) -> psutil.Process:
    """Return QEMU's process, as the host has it."""
    (found,) = [each for each in QEMU.found() if each.session == session_id]
    (process,) = psutil.Process(found.pid).children()
    return process


def seen_of(process: psutil.Process) -> tuple[dict[str, str], list[str], set[str]]:
    """Return what the host says of a process: its status, its network interfaces, and its root's entries."""
    place = Path(f"/proc/{process.pid}")
    rows = (row.partition(":\t") for row in (place / "status").read_text(encoding="utf-8").splitlines())
    network = (place / "net/dev").read_text(encoding="utf-8").splitlines()[2:]
    names = {path.name for path in (place / "root").iterdir()}
    return {name: value for name, _, value in rows}, [row.partition(":")[0].strip() for row in network], names


async def test_qemu_has_no_rights_no_network_and_filters_around_it() -> None:
    spec = QEMU.spec()
    async with alive(QEMU.make().start(spec)):
        status, interfaces, names = seen_of(machine_of(spec.session_id))
        assert status["CapEff"] == status["CapBnd"] == status["CapPrm"] == "0" * 16
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert int(status.get("Seccomp_filters", "2")) >= 2  # ours, and QEMU's own
        assert set(status["Uid"].split()) == {str(spec.uid if os.geteuid() == 0 else os.geteuid())}
        assert interfaces == ["lo"]
        assert not names & {"root", "var", "boot", "tmp", "mnt", "srv", "opt"}


async def test_sigkill_of_the_owner_ends_it_at_once() -> None:
    spec = QEMU.spec(DEAF)
    with an_owner(QEMU, spec) as owner:
        process = machine_of(spec.session_id)
        owner.send_signal(signal.SIGKILL)
        began = time.monotonic()
        await asyncio.to_thread(process.wait, 10)
        took = time.monotonic() - began
    print(f"QEMU was gone after {took:.3f} s")
    assert took < 2.0


async def test_a_machine_that_is_another_one_than_asked_for_is_refused() -> None:
    """Its memory, its processors, its user, its limits: each is a difference that the engine's own word shows."""
    spec = QEMU.spec(REPORT, *report_sources(), environment={"TZ": "UTC"})
    async with alive(QEMU.make().start(spec)) as container:
        report = json.loads(await receive_line(container))
        await container.attest(report, spec)
        limits = spec.limits
        for other in (
            replace(spec, limits=replace(limits, memory=limits.memory * 2)),
            replace(spec, limits=replace(limits, pids=limits.pids + 1)),
            replace(spec, limits=replace(limits, scratch_size=limits.scratch_size // 2)),
            replace(spec, limits=replace(limits, cpus=limits.cpus / 2)),
        ):
            with pytest.raises(AttestationFailed):
                await container.attest(report, other)
        for name, lie in {"uids": [0] * 3, "seccomp_mode": 0, "pid": 2, "interfaces": ["lo", "eth0"]}.items():
            with pytest.raises(AttestationFailed):
                await container.attest({**report, name: lie}, spec)


async def test_a_machine_that_was_killed_within_its_start_says_so() -> None:
    spec = QEMU.spec()
    starting = asyncio.create_task(QemuEngine().start(spec))
    await until(lambda: list(QEMU.found()))
    await asyncio.sleep(0.3)
    machine_of(spec.session_id).kill()
    with pytest.raises(EngineError, match="QEMU ended"):
        await starting
    assert await QEMU.left(spec.session_id) == []


async def test_one_that_stands_still_uses_no_processor_and_goes_on_with_the_host_s_time() -> None:
    spec = QEMU.spec(CLOCK)
    async with alive(QemuEngine().start(spec)) as container:
        await receive_line(container)
        process = machine_of(spec.session_id)
        await container.pause()
        await container.pause()
        before = sum(process.cpu_times()[:2])
        await asyncio.sleep(2)
        assert sum(process.cpu_times()[:2]) - before <= 0.05
        await container.resume()
        assert not container.paused
        await container.send(b"\n")
        there = float(await receive_line(container))
        assert abs(there - time.time()) < 1.0


CLOCK = """
import sys, time
print("up", flush=True)
for _ in sys.stdin:
    print(time.time(), flush=True)
"""
