"""Starting the user's own broker, for the first session that asks for one where none listens."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import time

from ....core.errors import EngineUnavailable
from ....core.helper_processes import start_apart
from ..codes import BrokerCode
from .channel import connect

START_SECONDS = 15.0
"""Until it listens: a Python process that loads a part of this package, on a busy machine."""
PAUSE = 0.02
NOBODY_THERE = {errno.ENOENT, errno.ECONNREFUSED}


async def connect_or_start(path: str) -> socket.socket:
    """Return a connection to the user's own broker at `path`, which is started if nobody listens.

    It outlives this process, and ends when it was unused for half an hour. If two processes start one at a time, one of
    them listens and the other ends. Raises `EngineUnavailable`.
    """
    try:
        return await connect(path)
    except EngineUnavailable as error:
        if getattr(error.__cause__, "errno", None) not in NOBODY_THERE:
            raise
    await asyncio.to_thread(_start, path)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return await connect(path)
        except EngineUnavailable as error:
            if time.monotonic() > deadline:
                words = "the broker that was started does not answer: see what `sandbox-kernel broker` says"
                raise EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, words) from error
        await asyncio.sleep(PAUSE)


def _start(path: str) -> None:
    try:
        start_apart("sandbox_kernel", "broker", "--socket", path, seconds=START_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, f"no broker can be started: {error}") from error
