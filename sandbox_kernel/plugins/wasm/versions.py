"""Which versions of wasmtime a guest may run in: a table of known faults, as data, and the check of a version."""

from __future__ import annotations

from typing import NamedTuple

PINNED = "50.0.1"
"""What the extra `wasm` installs, and the image is compiled for."""


class Fault(NamedTuple):
    """An advisory of wasmtime's that lets a guest of ours out, or end more than itself."""

    advisory: str
    what: str
    before: tuple[int, int, int]
    """The first version without it; later majors are without it, too."""
    machines: frozenset[str] = frozenset()
    """As `uname -m` says it; empty for all."""


FAULTS = (
    Fault("GHSA-vqjp-4c8c-hfgg", "a path or link with a slash at its end leads out of a folder", (48, 0, 0)),
    Fault("GHSA-m9f7-9w4p-gv38", "renaming a link with a slash at its end leads out of a folder", (49, 0, 3)),
    Fault("GHSA-96f6-r43r-8c24", "fd_readdir shows bytes of the host's memory", (49, 0, 2)),
    Fault("GHSA-gqmc-89g8-p25r", "guests without standard streams make the host allocate", (49, 0, 2)),
    Fault("GHSA-hw8m-q44c-ggrf", "values live across try_call are lost", (49, 0, 2)),
    Fault("GHSA-897f-g5gm-fmxm", "the compiler overflows and makes wrong code", (49, 0, 4)),
    Fault("GHSA-mghf-wjfp-p5xm", "a large br_table jumps to a wrong place", (49, 0, 4), frozenset({"aarch64"})),
)


def faults(version: str, machine: str) -> tuple[Fault, ...]:
    """Return what is known of a version on a processor; all of it for a version that cannot be read."""
    try:
        major, minor, patch = (int(part) for part in version.split(".")[:3])
    except ValueError:
        return FAULTS
    return tuple(
        fault
        for fault in FAULTS
        if (major, minor, patch) < fault.before and (not fault.machines or machine in fault.machines)
    )
