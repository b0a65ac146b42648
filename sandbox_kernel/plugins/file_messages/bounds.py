"""What clients are told of the file messages."""

from __future__ import annotations

from ...files.file_rules import CHUNK_BYTES

VERSION = 1
"""Of the file messages."""
MAX_WAITING = 32
"""Requests that have no reply yet: so many chunks of one MiB are held at most."""


def described() -> dict[str, int]:
    """Return what kernel_info says of these messages."""
    return {"version": VERSION, "chunk_bytes": CHUNK_BYTES, "waiting": MAX_WAITING}
