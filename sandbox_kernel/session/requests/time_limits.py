"""The clocks of requests: how long one may run, wait for a person, and be half done.

Each is a timer of the event loop that calls back when its time is up; what happens then is for others to decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from ...core.codes import EndCode, Note
from ...core.errors import CellTimeout, SandboxError
from ...core.model import Limits
from .queue import PendingRequest
from .request_states import State

PATIENCE_SECONDS = 10.0
"""How long a reply may wait for its idle, or idle for its reply, with nothing else heard of the request.

Idle comes behind the cell's displays: one of 2 GB takes 4 s from the kernel to the agent on a busy machine, and what
the agent then says of it must still find its cell. The front end waits for nothing meanwhile: it gets both together.
"""
FORGOTTEN_SECONDS = 0.3
"""The same after an interrupt: ipykernel never replies if that met it outside the cell's code."""


class Alarm(Protocol):
    """Who is told that a time is up."""

    def time_is_up(self, request: PendingRequest, error: SandboxError) -> None: ...
    def pause_is_over(self, request: PendingRequest, error: SandboxError) -> None: ...
    def patience_is_lost(self, request: PendingRequest) -> None: ...


class Timer:
    """One time that runs out, and that can be stopped meanwhile."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._kept: float | None = None
        """Seconds left, while it is frozen."""
        self._frozen = False

    @property
    def runs(self) -> bool:
        return self._handle is not None or self._kept is not None

    def start(self, seconds: float) -> None:
        """Ring in so many seconds, and at no other time; of one that is frozen, they count later."""
        self.stop()
        if self._frozen:
            self._kept = seconds
        else:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._rung)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._kept = None

    def left(self) -> float | None:
        """Return the seconds until it rings; None if it does not run."""
        if self._handle is None:
            return self._kept
        return max(0.0, self._handle.when() - asyncio.get_running_loop().time())

    def freeze(self) -> None:
        left = self.left()
        self.stop()
        self._kept, self._frozen = left, True

    def thaw(self) -> None:
        left, self._frozen = self._kept, False
        if left is not None:
            self.start(left)

    def _rung(self) -> None:
        self._handle = None
        self._ring()


class Clock:
    """The clock of one request."""

    def __init__(self, request: PendingRequest, limits: Limits, alarm: Alarm) -> None:
        self._request = request
        self._limits = limits
        self._alarm = alarm
        self._limit = Timer(self._time_is_up)
        """Runs while the request does, to its time limit."""
        self._left: float | None = None
        """Seconds left of that while it is paused."""
        self._pause = Timer(self._pause_is_over)
        """Runs while it is paused, to what all pauses of a request may come to."""
        self._pause_left = limits.idle_timeout
        self._rest = Timer(self._patience_is_lost)
        """Runs while only one of reply and idle has come."""

    def start(self, seconds: float) -> None:
        """Give the request so many seconds from now."""
        self._limit.start(seconds)
        self._left = None

    def pause(self) -> None:
        """Let the request wait for a person; all its waits together may last as long as an unused sandbox."""
        left = self._limit.left()
        if left is not None:
            self._left = left
            self._limit.stop()
            self._pause.start(self._pause_left)

    def resume(self) -> None:
        """Go on after a pause."""
        if (left := self._pause.left()) is not None:
            self._pause_left = left
            self._pause.stop()
        if self._left is not None:
            self.start(self._left)

    def freeze(self) -> None:
        """Stop the clock: its whole sandbox is paused."""
        for timer in (self._limit, self._pause, self._rest):
            timer.freeze()

    def thaw(self) -> None:
        """Go on where it was frozen."""
        for timer in (self._limit, self._pause, self._rest):
            timer.thaw()

    def left(self) -> float | None:
        """Return the seconds that the request may still run; None if its time does not count."""
        left = self._limit.left()
        return self._left if left is None else left

    def wait_for_rest(self, seconds: float) -> None:
        """Wait for what the kernel still owes, reply or idle; again if it was waited for already."""
        self._rest.start(seconds)

    @property
    def waits_for_rest(self) -> bool:
        return self._rest.runs

    def cancel(self) -> None:
        for timer in (self._limit, self._pause, self._rest):
            timer.stop()

    def _time_is_up(self) -> None:
        request, every = self._request, self._limits.cell_timeout
        what = "the cell" if request.is_execute else f"a {request.message.type}"
        code = EndCode.CELL_TIMEOUT if request.is_execute else EndCode.REQUEST_TIMEOUT
        own = request.seconds is not None and request.seconds < every
        error = CellTimeout(
            Note(code, f"{what} ran longer than its time limit and was stopped"),
            limit=f"{request.seconds if own else every:g} s",
            value=f"{time.monotonic() - request.started:.1f} s",
            setting="timeout" if own else "cell_timeout",
        )
        self._alarm.time_is_up(request, error)

    def _pause_is_over(self) -> None:
        limit = f"{self._limits.idle_timeout:g} s"
        error = CellTimeout(EndCode.CELL_WAITED_TOO_LONG, limit=limit, setting="idle_timeout")
        self._alarm.pause_is_over(self._request, error)

    def _patience_is_lost(self) -> None:
        self._alarm.patience_is_lost(self._request)


class Clocks:
    """The clocks of all requests that are under way; a request without one has no time to count."""

    def __init__(self, limits: Limits, alarm: Alarm) -> None:
        self._limits = limits
        self._alarm = alarm
        self._clocks: dict[PendingRequest, Clock] = {}
        self._frozen = False

    def changed(self, request: PendingRequest, _: State) -> None:
        """Run from when a request is sent, a comm message from when it is taken up, to its end."""
        every = self._limits.cell_timeout
        if request.state is State.SENT and not request.is_comm:
            self.start(request, min(every, request.seconds or every))
        elif request.state is State.BUSY and request.is_comm:
            self.start(request, every)
        elif request.state is State.ENDED:
            self.stop(request)

    def start(self, request: PendingRequest, seconds: float) -> None:
        self._of(request).start(seconds)

    def pause(self, request: PendingRequest) -> None:
        if request in self._clocks:
            self._clocks[request].pause()

    def resume(self, request: PendingRequest) -> None:
        if request in self._clocks:
            self._clocks[request].resume()

    def wait_for_rest(self, request: PendingRequest) -> None:
        """Wait for what the kernel still owes; not for long if it was interrupted and went idle without a reply."""
        forgotten = request.interrupted and request.idle
        self._of(request).wait_for_rest(FORGOTTEN_SECONDS if forgotten else PATIENCE_SECONDS)

    def prolong(self, request: PendingRequest) -> None:
        """Note that something was heard of a request: if its rest is waited for, that begins again."""
        if self.waits_for_rest(request):
            self._clocks[request].wait_for_rest(PATIENCE_SECONDS)

    def left(self, request: PendingRequest) -> float | None:
        """Return the seconds that a request may still run; None if it has no time to count."""
        return self._clocks[request].left() if request in self._clocks else None

    def waits_for_rest(self, request: PendingRequest) -> bool:
        return request in self._clocks and self._clocks[request].waits_for_rest

    def freeze(self) -> None:
        """Let no time pass for any request, until `thaw`."""
        self._frozen = True
        for clock in self._clocks.values():
            clock.freeze()

    def thaw(self) -> None:
        self._frozen = False
        for clock in self._clocks.values():
            clock.thaw()

    def stop(self, request: PendingRequest) -> None:
        """Forget the clock of a request."""
        if request in self._clocks:
            self._clocks.pop(request).cancel()

    def close(self) -> None:
        for request in list(self._clocks):
            self.stop(request)

    def _of(self, request: PendingRequest) -> Clock:
        if request not in self._clocks:
            clock = self._clocks[request] = Clock(request, self._limits, self._alarm)
            if self._frozen:
                clock.freeze()
        return self._clocks[request]
