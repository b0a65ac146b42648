"""The codes of machines, and of their snapshots."""

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


_LIST = "See `sandbox-kernel snapshots`."
_OWN = "Delete it, `sandbox-kernel snapshots delete NAME`, and check who can write there."
_NEW = "Take a new snapshot, of another sandbox if need be."


@unique
class SnapshotCode(Code):
    """Why a snapshot of a sandbox is not taken or not restored."""

    SNAPSHOT_MISSING = "failure", "there is no snapshot {name!r}", _LIST
    SNAPSHOT_EXISTS = "failure", "there is a snapshot {name!r} already", _LIST
    SNAPSHOT_NAME_UNFIT = (
        "failure",
        "the snapshot's name is not valid",
        "Use letters, digits, '.', '-' and '_', at most 64, and begin with a letter or digit.",
    )
    SNAPSHOT_DAMAGED = "violation", "the snapshot {name!r} is damaged: {why}", _OWN
    SNAPSHOT_NOT_OWN = "violation", "the snapshot {name!r} is not this user's alone: {why}", _OWN
    SNAPSHOT_UNFIT = "failure", "the snapshot {name!r} does not fit: {why}", _NEW
    SNAPSHOT_NO_ROOM = "limit", "there is no room for a snapshot: {why}", "Delete some, or raise snapshots_size."
    SNAPSHOT_BUSY = "failure", "a snapshot cannot be taken now: {why}", "Wait until what runs has ended."
    SNAPSHOT_NOT_WHOLE = "failure", "a part of the sandbox cannot be saved: {why}", _NEW
    SNAPSHOTS_UNFIT = "failure", "the folder of snapshots cannot be used: {why}", "Make it this user's own folder."
