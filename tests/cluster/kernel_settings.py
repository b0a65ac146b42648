"""Settings of the machine's kernel that a kubelet changes at its start: kept before, and put back when none runs."""

from __future__ import annotations

import json
from pathlib import Path

SYSTEM = Path("/proc/sys")
CHANGED = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def keep(file: Path) -> None:
    """Write down how they are, unless that was done before."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: (SYSTEM / name).read_text() for name in CHANGED}))


def put_back(file: Path) -> None:
    """Have them as they were."""
    if file.exists():
        for name, value in json.loads(file.read_text()).items():
            (SYSTEM / name).write_text(value)
        file.unlink()
