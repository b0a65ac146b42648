"""The life of one container: from the engine's work on it to the name of its death, in one state at a time.

It attests the container before anything of it counts, reads its one pipe, replaces kernels that end, and tells the
requests what became of them. The next container has a life of its own.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from ..container import wire
from ..core.codes import EndCode, MessageCode, Note, Survived
from ..core.errors import (
    CellTimeout,
    EngineError,
    EngineUnavailable,
    ImageMissing,
    KernelDied,
    OutOfMemory,
    SandboxDied,
    SandboxError,
    WireError,
)
from ..core.events import (
    CallsWatched,
    ContainerLeft,
    Emit,
    KernelEnded,
    KernelReplaced,
    SandboxAttested,
    SandboxEnded,
)
from ..core.model import KERNEL_NAME, ExitReason, Limits, SandboxSpec, Settings, format_bytes
from ..core.tasks import Tasks, log_defect
from ..engines.abilities import Ability, Nested, abilities_of
from ..engines.base import Container, Handover
from ..files.file_rules import printable
from ..plugins.api import RESET_BY_KERNEL
from ..policy import protocol
from ..policy.handshake import KernelHandshake
from .agent_link import Link
from .agent_messages import Death, Oversized, calls_of, watches
from .container_states import AWAITING_KERNEL, LET_GO, UNATTESTED, UNHEARD, ContainerEvent, ContainerState, following
from .requests.driver import Requests
from .running_cells import NoStreams

OF_A_BROKER = {
    "taken": EndCode.DETACHED_TAKEN,
    "expired": EndCode.LIFETIME_OVER,
    "flooded": EndCode.NOBODY_READ,
    "broker_ended": EndCode.BROKER_ENDED,
}


def out_of_memory(limit: int, kept: Survived, because: str | None = None) -> OutOfMemory:
    return OutOfMemory(EndCode.OUT_OF_MEMORY, limit=format_bytes(limit), setting="memory", kept=kept, because=because)


def restarted() -> KernelDied:
    return KernelDied(EndCode.KERNEL_RESTARTED, kept=Survived.FILES)


def too_slow(what: str, limits: Limits) -> SandboxDied:
    limit = f"{limits.start_timeout:g} s"
    return SandboxDied(EndCode.START_TOO_SLOW.note(what=what), limit=limit, setting="start_timeout")


def unused(limits: Limits) -> SandboxDied:
    limit = f"{limits.idle_timeout:g} s"
    return SandboxDied(EndCode.SANDBOX_IDLE, limit=limit, setting="idle_timeout", kept=Survived.NOTHING)


def no_kernel(image: str, death: Death, error: SandboxError) -> SandboxDied:
    """Name the end of a sandbox in which kernel after kernel ends; `error` is the last one's."""
    return SandboxDied(EndCode.NO_KERNEL_STARTS.note(image=image, why=_last_words(death.tail) or error.message))


def no_kernelspec(settings: Settings, said: Mapping[str, Any]) -> ImageMissing:
    """Name a kernel that the image does not have, or cannot start, as its agent says."""
    found, reason = said.get("names"), said.get("why")
    listed = found if isinstance(found, list) else []
    names = [name for name in listed if isinstance(name, str) and re.fullmatch(KERNEL_NAME, name)]
    why = f": {_last_words(reason[:1000])}" if isinstance(reason, str) else ""
    has = ", ".join(names[:MAX_NAMES]) or "none"
    code = EndCode.NO_KERNELSPEC.note(image=settings.image, kernel=settings.kernel, why=why, has=has)
    return ImageMissing(code, value=settings.kernel, setting="kernel")


def no_time_zone(spec: SandboxSpec) -> ImageMissing:
    zone = None if spec.made_of is None else spec.made_of.zone
    return ImageMissing(EndCode.NO_TIME_ZONE.note(image=spec.image, zone=zone), value=zone, setting="time_zone")


def of_kernel(death: Death, limits: Limits, *, fuel: int = 0, undoes: bool = False) -> SandboxError:
    """Name the reason of a kernel's death from what the agent saw.

    Only a sandbox that can is believed that the next kernel goes on (`undoes`), or that this one had so much `fuel`.
    """
    if undoes and death.undone:
        error = of_kernel(replace(death, undone=False), limits, fuel=fuel)
        error.leaves(Survived.BEFORE_CELL)
        return error
    if fuel and death.out_of_fuel:
        return CellTimeout(EndCode.CELL_OUT_OF_FUEL, limit=f"{fuel:,}", setting="fuel", kept=Survived.FILES)
    if death.signal == signal.SIGKILL and death.ooms:
        return out_of_memory(limits.memory, Survived.FILES)
    if death.signal is not None:
        try:
            how = f"was ended by signal {death.signal} ({signal.Signals(death.signal).name})"
        except ValueError:
            how = f"was ended by signal {death.signal}"
    else:
        how = f"ended itself with exit code {'unknown' if death.code is None else death.code}"
    if death.signal == signal.SIGBUS:
        return KernelDied(
            EndCode.KERNEL_DIED,
            f"the kernel {how}: a file that was mapped into memory found no room. Shared memory is in /dev/shm "
            f"(shm_size), others may be in /tmp ({format_bytes(limits.tmp_size)}, tmp_size) and /mnt/data "
            f"({format_bytes(limits.scratch_size)}, scratch_size)",
            limit=format_bytes(limits.shm_size),
            setting="shm_size",
            kept=Survived.FILES,
        )
    return KernelDied(EndCode.KERNEL_DIED, f"the kernel {how}", kept=Survived.FILES)


def of_sandbox(reason: ExitReason, limits: Limits, link_failure: Note | None) -> SandboxError:
    """Name the reason why a container's stream ended; `link_failure` says why its pipe was given up, if it was."""
    detail = _last_words(reason.detail)
    if reason.kind == "out_of_memory":
        return out_of_memory(limits.memory, Survived.NOTHING, "the whole sandbox was ended")
    if reason.kind == "out_of_processes":
        return SandboxDied(EndCode.OUT_OF_PROCESSES, limit=f"{limits.pids}", setting="pids", kept=Survived.NOTHING)
    if reason.kind == "out_of_scratch":
        limit = format_bytes(limits.scratch_size)
        return SandboxDied(
            EndCode.OUT_OF_SCRATCH.note(why=detail), limit=limit, setting="scratch_size", kept=Survived.NOTHING
        )
    if reason.code is not None:
        return SandboxDied(Note(reason.code, detail or reason.code.text), kept=Survived.NOTHING)
    if reason.kind == "nested_ended":
        return SandboxDied(EndCode.CONTEXT_DIED, kept=Survived.FILES)
    if reason.kind == "engine_lost":
        return SandboxDied(EndCode.ENGINE_STOPPED.note(why=detail), kept=Survived.NOTHING)
    if (code := OF_A_BROKER.get(reason.kind)) is not None:
        return SandboxDied(code, kept=Survived.NOTHING)
    if link_failure is not None:
        return SandboxDied(link_failure, kept=Survived.NOTHING)
    how = "was killed" if reason.kind == "killed" else f"ended with exit code {reason.exit_code}"
    return SandboxDied(
        EndCode.SANDBOX_DIED, f"the sandbox {how}{': ' + detail if detail else ''}", kept=Survived.NOTHING
    )


_NO_WORDS = re.compile(r"^(?:[ \t]*[~^]+[ \t]*|.{400,})\n", re.MULTILINE)
"""Of a traceback, a line of a program that holds others, and what underlines a part of one."""


def _last_words(text: str) -> str:
    return printable(_NO_WORDS.sub("", text).strip()[-1000:], 1000)


MAX_NAMES = 50
MAX_FAILED_KERNELS = 3
"""Kernels that end before they take up a cell, in a row, before their sandbox is given up: a cell can plant code that
every later kernel of its sandbox runs at its start."""
EXIT_SECONDS = 5.0
TURN_SECONDS = 0.02
"""How long messages are taken in a row before other work gets its turn."""


class Lifecycle:
    """One container."""

    def __init__(
        self,
        session: str,
        settings: Settings,
        requests: Requests,
        handshake: KernelHandshake,
        emit: Emit,
        *,
        tasks: Tasks,
        carry: Callable[[Link], Any],
        again: Callable[[], None],
    ) -> None:
        """`again` is called at the end of an unused one, if a request came meanwhile."""
        self._session = session
        self._settings = settings
        self._limits = settings.limits
        self._requests = requests
        self._handshake = handshake
        self._emit = emit
        self._tasks = tasks
        self._again = again
        self._carry = carry
        self._streams: Any = NoStreams()
        self._state = ContainerState.NEW
        self._settled = asyncio.Event()
        self._failure: SandboxError | None = None
        self._verdict: SandboxError | None = None
        """Why it is being ended; the first reason stands."""
        self._link: Link | None = None
        self._task: asyncio.Task[object] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._failed_kernels = 0

    # --- what it is ---

    @property
    def state(self) -> ContainerState:
        return self._state

    @property
    def ready(self) -> bool:
        """Whether its kernel takes requests."""
        return self._state is ContainerState.READY and not self.is_ending

    @property
    def is_ending(self) -> bool:
        """Whether its container is being removed, for a reason that `failure` tells afterwards."""
        return self._link is not None and self._link.is_over

    @property
    def failure(self) -> SandboxError | None:
        """Why it did not start, or ended."""
        return self._failure

    @property
    def link(self) -> Link | None:
        """The way to its agent, while there is one."""
        return None if self.is_ending else self._link

    async def settled(self) -> None:
        """Wait until its kernel is ready, or it is gone."""
        await self._settled.wait()

    async def gone(self) -> None:
        """Wait for its end."""
        if self._task is not None:
            await asyncio.wait({self._task})

    # --- what is done to it ---

    def launch(self, opens: Callable[[], Awaitable[Container]], spec: SandboxSpec | None) -> None:
        """Start it with what `opens` returns, and hold it against `spec`; None if another process did that."""
        self._go(ContainerEvent.LAUNCH)
        self._handshake.forget()
        self._task = self._tasks.start(self._live(opens, spec), "the life of a sandbox")

    async def restart(self) -> None:
        """Replace its kernel, unless a new one is on its way; `settled` waits for it. Raises `SandboxDied`."""
        if self.is_ending:
            await self.gone()
        if self._link is None:
            return
        self._emit(KernelReplaced())
        self._settled.clear()
        after = self._go(ContainerEvent.RESTART)
        if after is ContainerState.RESTARTING:
            self._expect_kernel(asyncio.get_running_loop().time() + self._limits.start_timeout)
        if after is ContainerState.RESTARTING or after in UNHEARD:  # which says that it ends
            await self._link.ask("stop_kernel", timeout=EXIT_SECONDS)

    def retire(self) -> None:
        """End it as unused."""
        self._go(ContainerEvent.IDLE)
        self._tasks.start(self.end(unused(self._limits)), "the end of a sandbox")

    async def end(self, error: SandboxError) -> None:
        """End it for a reason; does nothing without a container."""
        if self._link is None or self._state in LET_GO:
            return
        self._go(ContainerEvent.END)
        self._verdict = self._verdict or error
        await self._remove(self._link.container)

    async def park(self) -> Handover:
        """Give it away, with a new kernel starting in it already. Raises `SandboxDied`, or `EngineError`."""
        link, task = self._link, self._task
        if link is None or task is None or not self.ready:
            raise SandboxDied(EndCode.SANDBOX_NOT_RUNNING)
        await self._streams.close()
        await link.ask("park", timeout=EXIT_SECONDS)
        if link.pending:
            raise SandboxDied(EndCode.PARKED_AND_SPOKE)
        handover = link.container.detach()
        self._go(ContainerEvent.PARK)
        self._link = None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return handover

    def abandon(self) -> None:
        """Let go of it, without a loop."""
        self._go(ContainerEvent.CLOSE)
        if self._link is not None:
            self._link.container.abandon()

    async def close(self) -> None:
        """End it with its session; idempotent, bounded."""
        self._go(ContainerEvent.CLOSE)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._settled.set()

    # --- from start to end ---

    def _go(self, event: ContainerEvent) -> ContainerState:
        self._state = following(self._state, event)
        return self._state

    async def _live(self, opens: Callable[[], Awaitable[Container]], spec: SandboxSpec | None) -> None:
        """From the container's start to its end. Cancelled, it ends the container unless that was given away."""
        deadline = asyncio.get_running_loop().time() + self._limits.start_timeout
        try:
            async with asyncio.timeout_at(deadline):
                container = await opens()
        except TimeoutError:
            error: SandboxError = too_slow("the container engine", self._limits)
        except SandboxError as failure:
            error = failure
        except OSError as failure:
            error = EngineUnavailable(EndCode.ENGINE_UNAVAILABLE, f"the container engine cannot be asked: {failure}")
        except Exception as defect:
            # An engine's answer may trigger a bug here; waiting requests must be answered in any case.
            log_defect("the start of a sandbox", defect)
            error = EngineError(EndCode.PLATFORM_FAILED, f"sandbox_kernel failed at starting a sandbox: {defect!r}")
        else:
            error = await self._attached(container, None if isinstance(container, Nested) else spec, deadline)
        if self._state not in LET_GO:
            self._ended(self._verdict or error)

    async def _attached(self, container: Container, spec: SandboxSpec | None, deadline: float) -> SandboxError:
        """Listen to a container until its end, and return the reason."""
        link = self._link = Link(container, self._limits.message_limit + (2 << 20))
        self._streams = self._carry(link)
        self._go(ContainerEvent.ATTACHED if spec is not None else ContainerEvent.ADOPTED)
        self._expect_kernel(deadline)
        try:
            if spec is None:
                link.tell("resume")
            await self._read(link, spec)
            return await self._reason(link)
        except WireError as failure:
            return SandboxDied(Note(failure.code, failure.message), kept=Survived.NOTHING)
        except SandboxError as failure:
            return failure
        except Exception as defect:
            # A sandbox's message may trigger a bug here; its cells must end in any case.
            log_defect("what a sandbox sent", defect)
            return SandboxDied(EndCode.DEFECT.note(what=repr(defect)), kept=Survived.NOTHING)
        finally:
            self._expect_nothing()
            await self._streams.close()
            await link.close()
            if self._link is not None:
                # Not given away: the container ends with this task, whatever ended the task.
                await self._remove(container)
                self._link = None

    def _ended(self, error: SandboxError) -> None:
        retired, lost = self._state is ContainerState.RETIRING, self._state not in UNATTESTED
        self._failure = error
        self._go(ContainerEvent.GONE)
        self._emit(SandboxEnded(error=error.name, code=error.code, reason=str(error)))
        self._settled.set()
        self._requests.sandbox_died(error, keep_waiting=retired, lost=lost)
        if retired and self._requests.queue.active:
            self._again()

    async def _remove(self, container: Container) -> None:
        try:
            await asyncio.shield(container.kill())
        except SandboxError as error:
            # Its pipe is closed, so the agent ends; what an engine that fails leaves, `reap` finds.
            self._emit(ContainerLeft(container=container.id, reason=str(error)))

    async def _reason(self, link: Link) -> SandboxError:
        """Say why the container's stream ended."""
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                reason = await link.container.wait()
        except TimeoutError:
            reason = ExitReason(kind="killed", detail="its stream ended")
        return of_sandbox(reason, self._limits, link.failure)

    def _expect_kernel(self, deadline: float) -> None:
        """End the sandbox unless a kernel is ready in time; a cell can plant what makes the next one hang."""
        self._expect_nothing()
        self._deadline = asyncio.get_running_loop().call_at(deadline, self._check_ready)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _check_ready(self) -> None:
        if self._state in AWAITING_KERNEL and self._link is not None and self._link.is_held:
            self._expect_kernel(asyncio.get_running_loop().time() + self._limits.start_timeout)
        elif self._state in AWAITING_KERNEL:
            self._tasks.start(self.end(too_slow("the kernel", self._limits)), "the end of a sandbox")

    # --- what it sends ---

    async def _read(self, link: Link, spec: SandboxSpec | None) -> None:
        turn = time.monotonic()
        async for kind, parts in link.frames():
            if time.monotonic() - turn > TURN_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()
            if self._state in UNHEARD:
                parts.clear()
            elif kind == wire.AGENT:
                await self._event(link, parts, spec)
            elif kind == wire.STREAM:
                self._streams.take(parts)
            elif kind == wire.NESTED:
                link.take_nested(parts)
            else:
                await self._message(kind, parts)

    async def _message(self, kind: int, parts: list[bytes]) -> None:
        size = sum(map(len, parts))
        message = await self._requests.parse(kind, parts, size)
        if message is None:
            return
        if self._handshake.takes(message, size):
            if self._state is ContainerState.ASKING and self._handshake.known:
                self._open()
        elif not self.ready:
            self._requests.drop(MessageCode.NO_KERNEL_READY, size, message.type, quietly=True)
        else:
            await self._requests.pass_on(message, size)

    async def _event(self, link: Link, parts: list[bytes], spec: SandboxSpec | None) -> None:
        event = orjson.loads(parts[0])  # the link has looked at it: it is small, and an object with an "op"
        op, size = event["op"], sum(map(len, parts))
        awaited = self._state in {ContainerState.ATTESTING, ContainerState.BOOTING, ContainerState.REPLACING}
        if op == "hello":
            await self._attest(link, event.get("report", {}), spec)
        elif awaited and (op == "kernel_ready" or (op == "resumed" and event.get("ready"))):
            self._kernel_ready(link)
        elif op == "no_kernelspec" and awaited:
            raise no_kernelspec(self._settings, event)
        elif op == "kernel_exited":
            self._kernel_exited(link, Death.of(event))
        elif op == "oversized":
            self._requests.oversized(Oversized.of(event), size)
        elif op == "calls" and self._settings.watches_calls:
            for tried in calls_of(event):
                self._emit(tried)
        elif op != "resumed" or not awaited:
            self._requests.drop(MessageCode.AGENT_UNASKED, size, op[:100])

    async def _attest(self, link: Link, report: Any, spec: SandboxSpec | None) -> None:
        if self._state is not ContainerState.ATTESTING or spec is None:
            raise WireError(EndCode.INTRODUCED_TWICE)
        await (one := link.container).attest(report, spec)
        if isinstance(report, dict) and report.get("zone") is False:
            raise no_time_zone(spec)
        if self._state is ContainerState.ATTESTING:  # else it was ended meanwhile
            runtime = spec.runtime or "default"
            self._emit(SandboxAttested(container=one.id, image=spec.image, image_id=one.image_id, runtime=runtime))
            if spec.watched:
                self._emit(CallsWatched(watching=watches(report)))
            self._go(ContainerEvent.ATTESTED)
            self._handshake.told(one.introduced)

    def _kernel_ready(self, link: Link) -> None:
        if self._state is ContainerState.ATTESTING:
            raise SandboxDied(EndCode.NOT_ATTESTED)
        self._go(ContainerEvent.KERNEL_READY)
        if self._handshake.known:
            self._open()
        else:  # before the first cell is let in, which could answer in the kernel's place
            question = self._handshake.question(self._session)
            link.send(wire.CHANNELS[question.channel], protocol.encode(question))

    def _open(self) -> None:
        """Let requests in."""
        self._expect_nothing()
        self._go(ContainerEvent.INTRODUCED)
        self._settled.set()
        self._streams.begin()
        self._requests.kernel_ready()

    def _kernel_exited(self, link: Link, death: Death) -> None:
        restarting = self._state is ContainerState.RESTARTING
        self._go(ContainerEvent.KERNEL_EXITED)
        self._handshake.forget()
        self._streams.reset_all(RESET_BY_KERNEL)
        own = {"fuel": self._settings.get("fuel", 0), "undoes": Ability.CHECKPOINT in abilities_of(link.container)}
        error = restarted() if restarting else of_kernel(death, self._limits, **own)
        tail = death.tail[-2000:]
        self._emit(KernelEnded(error=error.name, code=error.code, reason=str(error), tail=tail))
        worked = restarting or self._requests.kernel_worked
        self._failed_kernels = 0 if worked else self._failed_kernels + 1
        if self._failed_kernels >= MAX_FAILED_KERNELS:
            raise no_kernel(self._settings.image, death, error)
        link.tell("start_kernel")
        self._expect_kernel(asyncio.get_running_loop().time() + self._limits.start_timeout)
        self._requests.kernel_died(error, asked_for=restarting)
