"""What sandboxes of one machine share that no wall between them closes: its processors, caches and memory.

What the machine says of these, each with a code, and core scheduling of Linux. It reads /sys and asks one system call;
what neither says is unknown. Imports core.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..core.codes import EndCode, NeighbourCode
from ..core.errors import EngineError

SYS = Path("/sys")
PR_SCHED_CORE, GET, CREATE = 62, 0, 1
ONE_THREAD, ALL_THREADS = 0, 1
"""Of a process: what the call is about (`PIDTYPE_PID`, `PIDTYPE_TGID`)."""
BALLOONS = {
    "bus/virtio/drivers/virtio_balloon": "virtio*",
    "bus/vmbus/drivers/hv_balloon": "*-*",
    "devices/system/xen_memory": "xen_memory0",
    "bus/pci/drivers/vmw_balloon": "*:*",
}
"""Drivers by which a hypervisor takes memory from this machine, and what is beneath one that is in use."""
_OPEN = re.compile(r"\bvulnerable\b|^unknown", re.IGNORECASE)
"""What the kernel says of a fault that is mitigated in part counts, too: "BHI: Vulnerable", "SMT vulnerable"."""
_NO_CORES = {
    errno.EINVAL: "this kernel has none: it was built without CONFIG_SCHED_CORE, or is older than 5.14",
    errno.ENODEV: "no core of this machine runs two threads: there is nobody to keep off",
}


@dataclass(frozen=True, slots=True)
class NeighbourFact:
    """One thing that neighbours share, or might."""

    name: str
    state: Literal["ok", "note", "unknown"]
    found: str
    code: NeighbourCode | None = None
    """What it is to programs where somebody may want to do something about it."""

    def to_json(self) -> dict[str, str | None]:
        return {
            "name": self.name,
            "state": self.state,
            "code": None if self.code is None else self.code.code,
            "found": self.found,
        }


def facts() -> tuple[NeighbourFact, ...]:
    """Return what this machine says of itself, in an order for people. Reads some thirty small files."""
    smt, code = _smt(), NeighbourCode.PAGE_CACHE_SHARED
    page_cache = NeighbourFact("page cache", "note", code.text, code)
    return (smt, _core_scheduling(needed=smt.state != "ok"), _mitigations(), _same_pages(), page_cache, _balloon())


def _smt() -> NeighbourFact:
    said = _read("devices/system/cpu/smt/active")
    if said == "1":
        return NeighbourFact("smt", "note", NeighbourCode.SMT_ON.text, NeighbourCode.SMT_ON)
    if said == "0":
        return NeighbourFact("smt", "ok", "off: no two programs are on one core at a time")
    return NeighbourFact("smt", "unknown", "this machine does not say whether a core runs two threads")


def _core_scheduling(*, needed: bool) -> NeighbourFact:
    number = _ask(os.getpid())
    if isinstance(number, int):
        return NeighbourFact("core scheduling", "ok", 'there; core_scheduling = "on" asks for it')
    if number.errno == errno.ENODEV or not needed:
        return NeighbourFact("core scheduling", "ok", f"not needed: {_NO_CORES[errno.ENODEV]}")
    if number.errno == errno.EINVAL:
        code = NeighbourCode.NO_CORE_SCHEDULING
        return NeighbourFact("core scheduling", "note", _NO_CORES[errno.EINVAL], code)
    return NeighbourFact("core scheduling", "unknown", f"the kernel does not answer: {number.strerror}")


def _mitigations() -> NeighbourFact:
    rows = sorted((SYS / "devices/system/cpu/vulnerabilities").glob("*"))
    said = {row.name: found for row in rows if (found := _read(row)) is not None}
    if not said:
        return NeighbourFact("mitigations", "unknown", "this machine does not say which faults its processors have")
    exposed = [f"{name} ({text[:80]})" for name, text in said.items() if _OPEN.search(text)]
    if exposed:
        code = NeighbourCode.CPU_VULNERABLE
        return NeighbourFact("mitigations", "note", code.text.format(names=", ".join(exposed)), code)
    return NeighbourFact("mitigations", "ok", f"none of the {len(said)} faults that this kernel knows is open")


def _same_pages() -> NeighbourFact:
    said = _read("kernel/mm/ksm/run")
    if said == "1":
        return NeighbourFact(
            "same pages", "note", NeighbourCode.SAME_PAGES_MERGED.text, NeighbourCode.SAME_PAGES_MERGED
        )
    if said is None:
        return NeighbourFact(
            "same pages", "unknown", "this machine does not say whether it merges equal pages of memory"
        )
    return NeighbourFact("same pages", "ok", "equal pages of memory are not merged (KSM is off)")


def _balloon() -> NeighbourFact:
    for folder, within in BALLOONS.items():
        if any((SYS / folder).glob(within)):
            code = NeighbourCode.MEMORY_BALLOON
            return NeighbourFact("balloon", "note", code.text.format(driver=folder.rpartition("/")[2]), code)
    return NeighbourFact("balloon", "ok", "no hypervisor takes memory back from this machine")


def _read(path: str | Path) -> str | None:
    try:
        return (SYS / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


# --- core scheduling --------------------------------------------------------------------------------------------------


def keep_core(pid: int) -> None:
    """Give a process, and all that it starts from then on, the cores that they run on for themselves.

    While one of them runs on a thread of a core, none of another such group, and nothing else, runs on the other one.

    Raises:
        EngineError: This kernel or machine cannot, or does not let this process.
    """
    if (found := _prctl(CREATE, pid, ALL_THREADS, None)) is not None:
        why = _NO_CORES.get(found.errno or 0, found.strerror or "")
        words = f"core scheduling cannot be switched on for a sandbox: {why}"
        raise EngineError(EndCode.ENGINE_LACKS_PROTECTION, words, setting="core_scheduling")


def core_of(pid: int) -> int:
    """Return the number that all have who may share a core with a process; 0 for everybody who asked for nothing.

    0 also where the kernel does not say.
    """
    found = _ask(pid)
    return found if isinstance(found, int) else 0


def _ask(pid: int) -> int | OSError:
    cookie = ctypes.c_uint64()
    return _prctl(GET, pid, ONE_THREAD, ctypes.byref(cookie)) or cookie.value


def _prctl(what: int, pid: int, whom: int, place: object) -> OSError | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "prctl"):
        return OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    words = [ctypes.c_ulong(PR_SCHED_CORE), *map(ctypes.c_ulong, (what, pid, whom))]
    if libc.prctl(*words, place if place is not None else ctypes.c_ulong(0)) == 0:
        return None
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
