"""The messages of a kernel on their way in: parsed against the tables, judged by the policy, the large ones apart.

What takes long is done in another thread, one message at a time, so that an interrupt need not wait for it. Knows
neither links nor containers; whether a kernel is ready, and what a message means, is said elsewhere.
"""

from __future__ import annotations

import asyncio

from ..core.allowance import MEMORY_FACTOR
from ..core.codes import Note
from ..core.errors import ProtocolError
from ..core.model import Message
from . import protocol
from .outputs import Outputs

LARGE, MEDIUM = 1 << 20, 1 << 15
"""Bytes from which a message is parsed, and filtered, in another thread: an interrupt must not wait for that."""


class Incoming:
    """The messages of one container, in order: whoever calls waits for one before the next."""

    def __init__(self, outputs: Outputs, message_bytes: int) -> None:
        self._outputs = outputs
        self._most = message_bytes

    async def parse(self, kind: int, parts: list[bytes], size: int) -> Message | None:
        """Return the message of a frame of `size` bytes, None for one that may not pass; empties `parts`."""
        try:
            if size < LARGE:
                message = protocol.decode(kind, parts, self._most)
            else:
                message = await asyncio.to_thread(protocol.decode, kind, parts, self._most)
        except protocol.TooHeavyError as error:
            parts.clear()
            self._outputs.too_heavy(error, size)
            return None
        except ProtocolError as error:
            self._outputs.drop(Note(error.code, error.message), size)
            return None
        parts.clear()  # before the message is written anew: what came and what goes are not held together
        return message

    async def pass_on(self, message: Message, size: int) -> None:
        """Give a message of a kernel that is ready to the request it belongs to.

        What it becomes in memory counts as well as what came: a cell may send many messages, and a program keeps them.
        """
        verdict = await asyncio.to_thread(self._outputs.judge, message) if size >= MEDIUM else None
        self._outputs.receive(message, max(size, message.memory // MEMORY_FACTOR), verdict)
