"""The codes of machines."""

from __future__ import annotations

from enum import unique

from ...core.code import Code


@unique
class QemuCode(Code):
    """What makes the state of a machine of no use (docs/qemu.md)."""

    STATE_HAS_DRAWN = (
        "failure",
        "what drew random numbers is not kept in the state of a machine: each copy would go on from the same ones",
        "Take a module that draws out of the setting preload: cells import it in their own sandbox.",
    )
