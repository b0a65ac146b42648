"""The engine as its contract meets it, and what its sandboxes start from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.plugins.bubblewrap.process_labels import LabelledProcess, sandboxes
from sandbox_kernel.plugins.qemu.artifacts import qemu_program
from sandbox_kernel.plugins.qemu.build import build
from sandbox_kernel.plugins.qemu.engine import QemuEngine
from sandbox_kernel.plugins.qemu.launch_plan import MARK
from tests.support.engines import ECHO, UNSEEN, Bubblewrap, new_spec
from tests.support.roots import root_of_tests


@cache
def machine_of_tests() -> str:
    """Return the same root, for which a machine is built."""
    return build(root_of_tests(), state=False, progress=lambda line: None)


@dataclass(frozen=True)
class Qemu(Bubblewrap):
    """Machines, on a root that is made of the test's image, for which the machine is built at first use."""

    def absent(self) -> str | None:
        if qemu_program() is None:
            return "there is no QEMU"
        if shutil.which("mksquashfs") is None:
            return "there is nothing that packs a disk (squashfs-tools)"
        return super().absent()

    @property
    def source(self) -> str:
        return "from sandbox_kernel.plugins.qemu.engine import QemuEngine as Engine"

    def make(self) -> QemuEngine:
        return QemuEngine()

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        return new_spec(code, *arguments, **{"image": machine_of_tests(), **fields})

    def found(self) -> Iterator[LabelledProcess]:
        return sandboxes(MARK)


UNDER_TEST = Qemu("qemu", lacks={UNSEEN: "this machine has QEMU's process, and none of its guest"})
"""Emulated, and slow by that: `make test-qemu` has it under test, and nothing else."""
