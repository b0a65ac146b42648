"""The user ids that sandboxes have."""

from __future__ import annotations

import os

UID_RANGE = (300_000_000, 2_000_000_000)
"""A user id of its own for each session: outside what useradd and subuid ranges hand out."""


def new_uid() -> int:
    """Return a user id for a session, by chance."""
    low, high = UID_RANGE
    return low + int.from_bytes(os.urandom(8)) % (high - low)
