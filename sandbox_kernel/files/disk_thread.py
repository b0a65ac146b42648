"""A thread for the files of one folder of the host: a slow disk holds up neither the loop, nor the order of the steps.

Knows nothing of what is done there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from ..core.codes import FileCode
from ..core.errors import FileRefused

T = TypeVar("T")
FOLDER_SECONDS = 15.0
"""How long a folder of the host may take for one step; the walk through it is the longest."""


class Disk:
    """The thread, which starts with the first step."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "sandbox-files")

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what `function` does. Raises `FileRefused` after `FOLDER_SECONDS`; later steps wait for this one."""
        try:
            async with asyncio.timeout(FOLDER_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        except TimeoutError:
            raise FileRefused(FileCode.FOLDER_SILENT, limit=f"{FOLDER_SECONDS:.0f} s") from None

    async def finish(self, function: Callable[[], None]) -> None:
        """Run `function` after all steps before it, also when the caller was cancelled, and wait for it a little."""
        done = self._thread.submit(function)
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLDER_SECONDS):
                await asyncio.shield(asyncio.wrap_future(done))

    def close(self) -> None:
        """Have the thread end after the steps that it has; waits for nothing. There are no steps any more."""
        self._thread.shutdown(wait=False)
