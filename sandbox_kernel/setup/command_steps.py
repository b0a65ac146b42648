"""What takes a while when a machine is set up: commands that end, and what people are told meanwhile."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..core.codes import EndCode
from ..core.errors import EngineError

Say = Callable[[str], None]


class Steps:
    """Progress for people: each line says what is being done and how long the whole has taken so far."""

    def __init__(self, say: Say, *, every: float = 15.0) -> None:
        self.say = say
        self._every = every
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        self.say(f"[{time.monotonic() - self._began:5.1f} s] {text}")

    @contextmanager
    def during(self, text: str) -> Iterator[None]:
        """Say `text`, and every so many seconds that it is still going on, until the block ends."""
        self(text)
        done = threading.Event()

        def keep_saying() -> None:
            while not done.wait(self._every):
                self(f"still {text}")

        thread = threading.Thread(target=keep_saying, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(1)


def step(
    command: list[str],
    *,
    seconds: float,
    environment: Mapping[str, str],
    folder: str | Path = "/",
    umask: int = -1,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal; what it prints, on either stream, is in `stdout`.

    Raises `OSError`, and `subprocess.TimeoutExpired` after `seconds`.
    """
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
        cwd=folder,
        env=environment,
        umask=umask,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        check=False,
    )


def run(command: list[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command of the machine's as `step` does. Raises `EngineError` if it does not end."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        return step(command, seconds=seconds, environment=environment)
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            EndCode.ENGINE_NOT_SET_UP, f"`{' '.join(command)}` did not end", limit=f"{seconds:g} s"
        ) from error


def tail(text: str, lines: int = 5) -> str:
    """Return the end of a log, on one line."""
    return " | ".join(text.strip().splitlines()[-lines:]) or "it says nothing"
