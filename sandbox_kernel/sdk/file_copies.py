"""How far a copy of a file is, and the hash of what was copied, for callers of the SDK.

The hash is of the bytes that this process sent or received. Where the sandbox is to be believed about nothing, that is
all that can be said: of a download it is what lies here now, of an upload it is what was handed over. A caller who
knows the right hash gives it along, and gets the file whole and as it should be, or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import IO, NamedTuple, TypeVar

from ..core.codes import FileCode
from ..core.errors import FileRefused, wrong_argument
from ..files.file_rules import CHUNK_BYTES
from .callbacks import Callback

R = TypeVar("R")


class Progress(NamedTuple):
    """How far the copy of one file is."""

    path: str
    """In the sandbox, relative to /mnt/data."""
    done: int
    """Bytes that the other side has taken."""
    total: int | None
    """Bytes of the whole file; None where that is not known before its end."""
    sha256: str | None = None
    """Of the whole content, in hexadecimal digits; with the last call for a file, and not before."""


class Hash:
    """The SHA-256 of a copy, and what it should be."""

    def __init__(self, expected: str | None) -> None:
        """Raises `ConfigurationError` for what is no such hash."""
        if expected is not None and not (isinstance(expected, str) and re.fullmatch("[0-9a-fA-F]{64}", expected)):
            raise wrong_argument("sha256", "sha256 must be 64 hexadecimal digits")
        self._expected = None if expected is None else expected.lower()
        self._digest = hashlib.sha256()

    async def add(self, data: bytes) -> None:
        """Add what was copied."""
        await asyncio.to_thread(self._digest.update, data)

    async def add_beginning(self, file: IO[bytes], size: int) -> None:
        """Add the first `size` bytes of a file, and leave it there. Raises `FileRefused` if it has not as many."""
        while size:
            data = await asyncio.to_thread(file.read, min(size, CHUNK_BYTES))
            if not data:
                raise FileRefused(FileCode.CHANGED.note(done="copied"))
            await self.add(data)
            size -= len(data)

    def check(self) -> str:
        """Return the hash of the whole. Raises `FileRefused` if it should be another one."""
        found = self._digest.hexdigest()
        if self._expected not in (None, found):
            raise FileRefused(FileCode.HASH_DIFFERS, value=found, limit=self._expected)
        return found


async def followed(steps: AsyncGenerator[Progress | R, None], progress: Callback[Progress] | None) -> R:
    """Do a copy, and return its result, which is the last step. What `progress` raises ends the copy."""
    if progress is not None and not callable(progress):
        await steps.aclose()
        raise wrong_argument("progress", f"progress must be a function, not {type(progress).__name__}")
    async with aclosing(steps):
        async for step in steps:
            if not isinstance(step, Progress):
                result = step
            elif progress is not None:
                answer = progress(step)
                if inspect.isawaitable(answer):
                    await answer
    return result
