"""What machines need of this one, besides what bubblewrap needs: QEMU, its firmware, and whether KVM is there.

Imports about and the places; reads, and starts nothing.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from ...core.model import format_bytes
from ...engines.about import Condition
from . import artifacts, saved_states

KVM = "/dev/kvm"
INSTALL = "apt-get install --no-install-recommends qemu-system-x86"


def conditions() -> tuple[Condition, ...]:
    """Return all of them."""
    program = artifacts.qemu_program()
    if program is None:
        rows = [Condition("qemu", met=False, found="there is none", remedy=INSTALL)]
    else:
        rows = [Condition("qemu", met=True, found=program)]
    firmware = any(Path(share, "bios-256k.bin").exists() for share in artifacts.SHARES)
    rows.append(Condition("firmware", met=firmware, found="there" if firmware else "there is none", remedy=INSTALL))
    kind = platform.machine()
    if kind != "x86_64":
        found = f"{kind}: machines are x86_64's, emulated"
        rows.append(Condition("processor", met=False, found=found, remedy="use another engine"))
    there = os.access(KVM, os.R_OK | os.W_OK)
    found = "there, and not used: this version emulates" if there else "not there: machines are emulated"
    rows.append(Condition("kvm", met=True, found=found))
    rows.append(Condition("states", met=True, found=_states()))
    return tuple(rows)


def _states() -> str:
    """Say which states there are to start from; of another sandbox, the first start takes one."""
    try:
        folder = saved_states.folder_of_user()
        found = list(folder.glob(f"*/{saved_states.STATE}"))
        size = sum(path.stat().st_size for path in found)
        failures = saved_states.failures(folder)
    except (OSError, LookupError) as error:
        return f"none can be kept: machines start from nothing ({error})"
    if failures:
        return f"{len(found)}, {format_bytes(size)}: another one could not be taken of late ({'; '.join(failures)})"
    return f"{len(found)}, {format_bytes(size)}: a sandbox of which there is none starts from nothing and takes one"
