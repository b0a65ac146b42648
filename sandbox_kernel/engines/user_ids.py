"""The user ids that sandboxes have."""

from __future__ import annotations

import os

UID_RANGE = (300_000_000, 2_000_000_000)
"""A user id of its own for each session: outside what useradd and subuid ranges hand out."""
FEW_UIDS = (10_000, 60_000)
"""The same where an engine has 65,536 that are not the machine's: those that images seldom give to anybody."""


def new_uid(low_and_high: tuple[int, int] = UID_RANGE) -> int:
    """Return a user id for a session, by chance."""
    low, high = low_and_high
    return low + int.from_bytes(os.urandom(8)) % (high - low)


def is_few(uid: int) -> bool:
    """Return whether it is one of those."""
    return FEW_UIDS[0] <= uid < FEW_UIDS[1]


def is_of_a_sandbox(uid: object) -> bool:
    """Return whether a sandbox may have this user id."""
    return type(uid) is int and any(low <= uid < high for low, high in (UID_RANGE, FEW_UIDS))
