"""What a cell has sent since it began, for whoever takes its sandbox over: bounded, and what is missing is counted.

Pure. The first of it is kept, and after that what tells how the cell ended: a reply, a status, the end of a kernel.
"""

from __future__ import annotations

MAX_BYTES = 8 << 20
RESERVED_BYTES = 1 << 20
"""For what tells how a cell ended. An honest one needs a few kilobytes of it."""
OF_A_FRAME = 256
"""Bytes that a frame costs beside its own."""


class Transcript:
    """The frames of one cell, as they came."""

    def __init__(self, most: int = MAX_BYTES, reserved: int = RESERVED_BYTES) -> None:
        self._most, self._reserved = most, reserved
        self._pieces: list[bytes] = []
        self._cost = 0
        self.dropped_messages = self.dropped_bytes = 0

    @property
    def cost(self) -> int:
        """Bytes that it takes."""
        return self._cost

    @property
    def pieces(self) -> list[bytes]:
        return list(self._pieces)

    def forget(self) -> None:
        """Begin anew."""
        self._pieces.clear()
        self._cost = self.dropped_messages = self.dropped_bytes = 0

    def reserve(self, size: int, *, essential: bool = False) -> bool:
        """Return whether there is room for a frame of `size` bytes, which is taken then; else it counts as dropped."""
        cost = size + OF_A_FRAME
        if self._cost + cost > self._most + (self._reserved if essential else 0):
            self.dropped_messages += 1
            self.dropped_bytes += size
            return False
        self._cost += cost
        return True

    def add(self, data: bytes) -> None:
        """Add a piece for which there is room."""
        self._pieces.append(data)
