"""What a sample says of the programs of a machine."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from sandbox_kernel.engines.usage_watch import MayUse
from sandbox_kernel.plugins.bubblewrap.container import BubblewrapContainer
from sandbox_kernel.plugins.qemu.container import QemuContainer

PROGRAM = str(Path("/proc/self/exe").readlink())


async def test_qemu_s_process_is_no_program_of_its_machine() -> None:
    """The control is a sandbox of bubblewrap's with the same process."""
    found = []
    for kind in (BubblewrapContainer, QemuContainer):
        container = object.__new__(kind)
        container.__dict__.update(_launched=SimpleNamespace(group=None, pid=0), _first=os.getpid(), _most=MayUse(0, 0))
        found.append((await container.sample()).programs)
    assert found[0] is not None
    assert PROGRAM in {file for one in found[0] for file in one.files}
    assert found[1] is None
