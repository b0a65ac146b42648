"""Ctrl-C and the other signals that end a run: the first ends it in order, the second at once.

What is run is handed in.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from ...core.errors import SandboxError
from .exit_codes import End, decide

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SECONDS = 15.0
"""How long a run that is being stopped may take to end its sandbox and write what it has."""


class Stoppable(Protocol):
    """A run."""

    found: list[End]

    async def run(self) -> None: ...
    def stop(self, number: int, name: str) -> None: ...
    def finish(self) -> None: ...


class Stopped(BaseException):
    """A signal came while no cell could run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class Stopper:
    """Ends a run at the first signal, in order, and at the second at once.

    Before there is a loop, a signal is heard where the command waits for somebody. Elsewhere it is kept until then:
    an exception in the middle of an import makes extension modules crash that do not expect one.
    """

    def __init__(self, close: Callable[[End], int]) -> None:
        """`close` writes the report with that end and returns the exit code."""
        self.closing = False
        """Whether the run is over, and only its report is to be written."""
        self._close = close
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run: Stoppable | None = None
        self._stopping = asyncio.Event()
        self._waiting = False
        self._kept: int | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Surround a step that may be broken off anywhere. Raises `Stopped` for a signal before it, and within."""
        self._waiting = True
        try:
            if self._kept is not None:
                raise Stopped(self._kept)
            yield
        finally:
            self._waiting = False

    def heard(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop, signal.Signals(number))
        elif self._waiting or (self._kept is not None and not self.closing):
            raise Stopped(number)
        else:
            self._kept = number

    async def until_stopped(self, run: Stoppable) -> None:
        """Run to the end, or until a signal; bounded from then on. Raises `Stopped` for a signal that came before."""
        self._run, self._loop = run, asyncio.get_running_loop()
        if self._kept is not None:
            self._loop = None
            raise Stopped(self._kept)
        task = asyncio.create_task(run.run())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_SECONDS)
        if not task.done():
            self._hurry(run)
        stopping.cancel()
        self._loop, self.closing = None, True
        if not task.cancelled():
            task.result()

    def _stop(self, number: signal.Signals) -> None:
        if self._run is None:
            return
        if self._stopping.is_set():
            self._hurry(self._run)
        self._run.stop(number, number.name)
        self._stopping.set()

    def _hurry(self, run: Stoppable) -> None:
        """End this process now; the sandbox goes with its connection to it."""
        with suppress(SandboxError):
            run.finish()
        code = self._close(decide(run.found))
        sys.stdout.flush()
        os._exit(code)


@contextmanager
def signals(stopper: Stopper) -> Iterator[None]:
    """Have the stopper hear the signals that end a run; those that are ignored (nohup) stay ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    wanted = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    for number in wanted:
        signal.signal(number, stopper.heard)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, before[number])
