"""The codes of machines."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code


@unique
class QemuCode(Code):
    """What makes the state of a machine of no use (docs/qemu.md)."""

    STATE_HAS_DRAWN = (
        "failure",
        "a module drew random numbers, which every copy of a state would repeat",
        "Take that module out of the setting preload.",
    )
