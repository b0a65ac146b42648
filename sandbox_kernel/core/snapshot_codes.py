"""The codes of snapshots: why one is not taken, or not begun from. Imports code only."""

from __future__ import annotations

from enum import unique

from .code import Code

_NEW = "Take a new snapshot, of a sandbox that is as you want it."
_OWN = "Delete it (`sandbox-kernel snapshots delete NAME`); look who could write there."


@unique
class SnapshotCode(Code):
    """Why a snapshot is refused."""

    SNAPSHOT_MISSING = (
        "failure",
        "there is no snapshot {name!r}",
        "See `sandbox-kernel snapshots`.",
    )
    SNAPSHOT_EXISTS = "failure", "there is a snapshot {name!r} already", "Take another name, or delete that one first."
    SNAPSHOT_NAME_UNFIT = (
        "failure",
        "a snapshot's name has up to 64 letters, digits, '.', '-' and '_', and begins with a letter or digit",
        "Take a plain name.",
    )
    SNAPSHOT_DAMAGED = "violation", "the snapshot {name!r} is damaged: {why}", _OWN
    SNAPSHOT_NOT_OWN = "violation", "the snapshot {name!r} is not this user's alone: {why}", _OWN
    SNAPSHOT_UNFIT = "failure", "the snapshot {name!r} does not fit: {why}", _NEW
    SNAPSHOT_NO_ROOM = (
        "limit",
        "there is no room for a snapshot: {why}",
        "Delete some (`sandbox-kernel snapshots delete NAME`), or raise snapshots_size.",
    )
    SNAPSHOT_BUSY = "failure", "a snapshot cannot be taken now: {why}", "Let what runs come to its end, and try again."
    SNAPSHOT_NOT_WHOLE = (
        "failure",
        "what belongs to the sandbox cannot be written down: {why}",
        "Take snapshots of sandboxes without it.",
    )
    SNAPSHOTS_UNFIT = "failure", "the folder of snapshots cannot be used: {why}", "Make it this user's own folder."
