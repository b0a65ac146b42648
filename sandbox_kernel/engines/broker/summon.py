"""Starting the user's own broker, for the first session that asks for one where none listens. Imports the channel."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import time

from ...core.codes import EndCode
from ...core.errors import EngineUnavailable
from ...core.resources import environment_of_helpers
from .channel import connect

START_SECONDS = 15.0
"""Until it listens: a Python process that loads a part of this package, on a busy machine."""
PAUSE = 0.02
NOBODY_THERE = {errno.ENOENT, errno.ECONNREFUSED}
APART = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
"""A child that is nobody's: whoever starts it need not be there at its end."""


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
                raise EngineUnavailable(EndCode.BROKER_UNAVAILABLE, words) from error
        await asyncio.sleep(PAUSE)


def _start(path: str) -> None:
    command = [sys.executable, "-I", "-m", "sandbox_kernel", "broker", "--socket", path]
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", APART, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment_of_helpers(),
            start_new_session=True,  # what ends this process's group is to leave it alone
            timeout=START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnavailable(EndCode.BROKER_UNAVAILABLE, f"no broker can be started: {error}") from error
