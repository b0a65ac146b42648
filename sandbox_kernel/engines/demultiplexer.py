"""Docker's stream of an attached container: stdout and stderr on one socket, each piece with a header.

Eight bytes of header (stream, three zeros, length), then a payload.
"""

from __future__ import annotations

import base64
from typing import Any

from .pipe import TAIL_BYTES

_HEADER = 8
_STDERR = 2


class Demultiplexer:
    """Takes the engine's headers out of a stream that is cut anywhere. It holds no payload, only a part of a header."""

    def __init__(self, stream: int = 0, remaining: int = 0, header: bytes = b"") -> None:
        self.stream = stream
        self.remaining = remaining
        self.header = header
        self.stderr = bytearray()

    @classmethod
    def of(cls, state: dict[str, Any]) -> Demultiplexer:
        """Continue where `state` was said. Raises KeyError, TypeError or ValueError for one that is not one."""
        header = base64.b64decode(state["header"], validate=True)
        return cls(int(state["stream"]), int(state["remaining"]), header)

    def state(self) -> dict[str, Any]:
        header = base64.b64encode(self.header).decode()
        return {"stream": self.stream, "remaining": self.remaining, "header": header}

    def feed(self, data: memoryview) -> bytes:
        """Return the stdout in `data`; its stderr is added to the tail."""
        pieces = []
        position, end = 0, len(data)
        while position < end:
            if not self.remaining:
                missing = _HEADER - len(self.header)
                self.header += data[position : position + missing]
                position += missing
                if len(self.header) == _HEADER:
                    self.stream = self.header[0]
                    self.remaining = int.from_bytes(self.header[4:], "big")
                    self.header = b""
                continue
            piece = data[position : position + self.remaining]
            position += len(piece)
            self.remaining -= len(piece)
            if self.stream == _STDERR:
                self.stderr += piece
                del self.stderr[:-TAIL_BYTES]
            else:
                pieces.append(piece)
        return b"".join(pieces)
