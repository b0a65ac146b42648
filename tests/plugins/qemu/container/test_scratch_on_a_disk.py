"""Scratch on a machine's second disk: its size, its end, and who holds its file. Emulated: `make test-qemu`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.errors import AbilityMissing
from sandbox_kernel.core.model import MIB, SandboxSpec
from sandbox_kernel.engines.abilities import Ability, demand
from sandbox_kernel.plugins.data import disk_images
from sandbox_kernel.plugins.qemu.codes import SnapshotCode
from tests.plugins.qemu.container.test_machines import machine_of
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.support.engines import ONLY, REPORT, SMALL, alive, receive_line, report_sources

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.skipif(disk_images.cannot_make() is not None, reason=str(disk_images.cannot_make())),
    pytest.mark.timeout(300),
]

SIZE = 256 * MIB
"""More than the sandbox has of memory."""

FILL = """
import errno, json, os, sys
written, why = 0, None
with open("/mnt/data/x", "wb", buffering=0) as file:
    try:
        while True:
            written += file.write(bytes(1 << 20))
    except OSError as error:
        why = errno.errorcode[error.errno]
denied = []
for what in ("/dev/vdb", "/dev/block"):
    try:
        os.stat(what)
    except OSError as error:
        denied.append(errno.errorcode[error.errno])
print(json.dumps({"written": written, "why": why, "names": os.listdir("/mnt/data"), "device": denied}), flush=True)
sys.stdin.read()
"""


def spec_of(code: str, *arguments: str, **fields: Any) -> SandboxSpec:
    limits = replace(SMALL, memory=192 * MIB, scratch="disk", scratch_size=SIZE)
    return QEMU.spec(code, *arguments, limits=limits, **fields)


def files_of(pid: int) -> set[str]:
    """Return what a process has open of where disks are, as the machine names it."""
    links = (path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink())
    return {str(link) for link in links if str(link).startswith(disk_images.folder())}


async def test_a_full_disk_is_enospc_and_its_file_is_the_machine_s_alone() -> None:
    spec = spec_of(FILL)
    async with alive(QEMU.make().start(spec)) as container:
        said = json.loads(await receive_line(container))
        assert (said["why"], said["device"], said["names"]) == ("ENOSPC", ["ENOENT", "ENOENT"], ["x"])
        assert SIZE * 3 // 4 < said["written"] < SIZE
        of_machine = files_of(machine_of(spec.session_id).pid)
        assert of_machine
        assert all(name.endswith(" (deleted)") for name in of_machine)
        assert not of_machine & files_of(os.getpid())  # it ends with QEMU, whatever becomes of this process
        with pytest.raises(AbilityMissing) as raised:
            demand(Ability.SNAPSHOT, container)
        assert raised.value.code is SnapshotCode.SNAPSHOT_NOT_WHOLE
        demand(Ability.PAUSE, container)


async def test_a_scratch_on_a_disk_is_attested() -> None:
    spec = spec_of(REPORT, *report_sources())
    async with alive(QEMU.make().start(spec)) as container:
        report = json.loads(await receive_line(container))
        await container.attest(report, spec)
        lines = {line.name: line for line in await container.compare(report, spec)}
        assert lines["file system of a disk"].ok
        # The control: one in memory is another thing.
        other = replace(spec, limits=replace(spec.limits, scratch="memory", scratch_size=32 * MIB))
        assert [
            line
            for line in await container.compare(report, other)
            if line.name.startswith("file system of /mnt") and not line.ok
        ]
