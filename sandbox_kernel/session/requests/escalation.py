"""The escalation of ends: interrupt, then a new kernel, then the end of the sandbox; each step is bounded in time.

It asks for the ends; that a request is finished is told to it. What a front end hears of it is `completion`'s.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Protocol

from ...core.codes import Survived
from ...core.errors import SandboxError
from ...core.model import Limits
from ...core.tasks import Tasks
from .outbound import Emit
from .queue import PendingRequest
from .request_states import State
from .time_limits import Clocks

KILL_SECONDS = 3.0
"""How long a killed kernel may take to be seen dead, before its sandbox is ended."""


class KernelControl(Protocol):
    """What can be done to a kernel and its sandbox. Each raises `SandboxError` if it cannot be done."""

    async def signal(self, number: int) -> None: ...
    async def kill_kernel(self) -> None: ...
    async def kill_sandbox(self, error: SandboxError) -> None: ...


class Escalation:
    """Ends requests from outside."""

    def __init__(self, limits: Limits, control: KernelControl, clocks: Clocks, emit: Emit, tasks: Tasks) -> None:
        self._limits = limits
        self._control = control
        self._clocks = clocks
        self._emit = emit
        self._tasks = tasks
        self._ending: dict[PendingRequest, asyncio.Event] = {}
        """Set with the end of the request."""
        self._death: asyncio.Event | None = None
        """Set with the end of a kernel that is being killed."""

    @property
    def is_killing(self) -> bool:
        """Whether the kernel is about to end: what is sent to it now would end with it."""
        return self._death is not None

    def kernel_gone(self) -> None:
        """Note that the kernel has ended, or its sandbox."""
        if self._death is not None:
            self._death.set()
            self._death = None

    def end(self, request: PendingRequest, error: SandboxError) -> None:
        """End a request from outside: interrupt, then kill its kernel, then its sandbox."""
        if request.finished or request.verdict is not None:
            return
        error.leaves(Survived.VARIABLES_AND_FILES)  # now: the cell may end before the interrupt is answered
        self._begin(request, error, interrupt=True)

    def block(self, request: PendingRequest, error: SandboxError) -> None:
        """End a request without an interrupt, which its processes could ignore: kill its kernel, then its sandbox."""
        if request.finished or request.verdict is not None:
            return
        error.leaves(Survived.FILES, "its kernel was ended with all of its processes")
        self._begin(request, error, interrupt=False)

    def _begin(self, request: PendingRequest, error: SandboxError, *, interrupt: bool) -> None:
        request.condemn(error)
        request.interrupt(self._limits)
        if request.idle and self._clocks.waits_for_rest(request):
            self._clocks.wait_for_rest(request)  # with the shorter patience
        self._emit("condemned", request=request.message.type, error=error.name, code=error.code.code, reason=str(error))
        self._ending[request] = asyncio.Event()
        work = self._end(request, error, interrupt)
        self._tasks.start(work, "the end of a cell", failed=lambda _: self._end_sandbox(error))

    def changed(self, request: PendingRequest, _: State) -> None:
        """Note the end of a request, which makes the next step needless."""
        if request.state is State.ENDED and request in self._ending:
            self._ending[request].set()

    async def calm(self) -> None:
        """Return when no request is being ended; each end takes bounded time."""
        while self._ending:
            await next(iter(self._ending.values())).wait()
            await asyncio.sleep(0)  # it is set a moment before it is gone

    def end_kernel(self, error: SandboxError) -> None:
        """Have the kernel replaced, or its sandbox ended if that cannot be done; `error` says why."""
        self._tasks.start(self._end_kernel(), "the end of a flood", failed=lambda _: self._end_sandbox(error))

    async def _end_kernel(self) -> None:
        try:
            await self._kill()
        except SandboxError as failure:
            self._emit("escalation", reason=str(failure))
            await self._control.kill_sandbox(failure)

    async def _kill(self) -> bool:
        """Have the kernel killed, to which nothing is sent from now on; return whether it is seen dead in time."""
        death = self._death = self._death or asyncio.Event()
        try:
            await self._control.kill_kernel()
            async with asyncio.timeout(KILL_SECONDS):
                await death.wait()
        except TimeoutError:
            return False
        finally:
            if self._death is death:
                self._death = None
        return True

    async def _end(self, request: PendingRequest, error: SandboxError, interrupt: bool) -> None:
        try:
            if request.finished:
                return  # the signal would meet the next cell
            if interrupt:
                await self._control.signal(signal.SIGINT)
                if await self._ended(request, self._limits.interrupt_grace):
                    return
                error.leaves(Survived.FILES, "the cell ignored the interrupt and its kernel was replaced")
            if await self._kill():
                return
        except SandboxError as failure:
            self._emit("escalation", reason=str(failure))
        finally:
            self._ending.pop(request).set()
        if not request.finished:
            error.leaves(Survived.NOTHING, "the sandbox had to be ended")
            await self._control.kill_sandbox(error)

    def _end_sandbox(self, error: SandboxError) -> None:
        """Take the last step: one before it met a defect of ours."""
        self._tasks.start(self._control.kill_sandbox(error), "the end of a sandbox")

    async def _ended(self, request: PendingRequest, seconds: float) -> bool:
        """Wait for the end of a request for a bounded time; return whether it came."""
        try:
            async with asyncio.timeout(seconds):
                await self._ending[request].wait()
        except TimeoutError:
            return False
        return True
