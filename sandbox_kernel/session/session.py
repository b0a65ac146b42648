"""One session: owns a container and its cells. Everything a user meets is a thin front door to this.

It starts the container, has it attested before the first cell, reads its one pipe, and names the reason when a kernel
or the whole sandbox dies; the next cell then finds a new one. Imports no sockets and no settings machinery.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable
from typing import Any, Literal

import orjson

from ..container import wire
from ..core.codes import MessageCode, Note
from ..core.errors import (
    EngineError,
    EngineUnavailable,
    KernelDied,
    OutOfMemory,
    ProtocolError,
    SandboxDied,
    SandboxError,
    WireError,
)
from ..core.model import ExitReason, Message, SandboxSpec, Settings, format_bytes
from ..core.tasks import Tasks, log_defect, noted_in
from ..engines.base import Container, Engine, Handover
from ..engines.shipping import new_spec
from ..files.audit import Audit
from ..files.folders import Folders
from ..files.names import printable
from ..policy import OutputPolicy
from . import protocol
from .agent_words import Death, Metered, Oversized, Usage
from .introduction import Introduction
from .link import Link
from .publisher import Front
from .router import Router

MAX_FAILED_KERNELS = 3
"""Kernels that end before they take up a cell, one after another, before their sandbox is given up.

A cell can plant code that every later kernel of its sandbox runs at its start.
"""
EXIT_SECONDS = 5.0
LARGE, MEDIUM = 1 << 20, 1 << 15
"""Bytes from which a message is parsed, and filtered, in another thread: an interrupt must not wait for that."""
TURN_SECONDS = 0.02
"""How long messages are taken in a row before other work gets its turn."""

State = Literal["new", "starting", "ready", "gone", "closed"]


class Session:
    """Cells in, messages out, for one front door.

    `submit` never blocks; what comes back goes to `front`. The container is started by `launch`, or by the first
    request that needs one, and again after it was lost.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        front: Front,
        first: SandboxSpec | None = None,
    ) -> None:
        """`first` is the spec of the first container, if the engine was asked for it already."""
        self.settings = settings
        self.limits = settings.limits
        self.engine = engine
        self._first = first
        self.id = first.session_id if first is not None else secrets.token_hex(16)
        self._problems: list[str] = []
        self.audit = Audit(settings.audit, session=self.id, report=self._problems.append)
        self.state: State = "new"
        self.ready = False
        """Whether the kernel takes requests (the router's port)."""
        self.introduction = Introduction()
        self.failure: SandboxError | None = None
        """Why the last start failed or the last sandbox ended."""
        self._link: Link | None = None
        self._life: asyncio.Task[object] | None = None
        self._settled = asyncio.Event()
        self.attested = False
        self._idled = self._restarting = False
        self._awaited = True
        """Whether the next word of a ready kernel is waited for; each kernel says it once."""
        self._failed_kernels = 0
        self._fatal: SandboxError | None = None
        self._used = 0.0
        """When it was last in use, by the loop's clock."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._start_timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks(noted_in(self.audit))
        self.folders = Folders(settings, self.ask, self.audit)
        self.router = Router(
            self.limits,
            self,
            front,
            OutputPolicy(settings.outputs, self.limits.message_bytes),
            self.audit,
            before_cell=self.folders.before_cell,
            after_cell=self.folders.after_cell,
            notices=self._problems,
        )

    @property
    def kernel_info(self) -> dict[str, Any]:
        """What the first kernel said of itself, as far as it is passed on; empty until one was ready."""
        return self.introduction.known

    # --- what a front door calls ---

    def launch(self) -> None:
        """Start a container unless there is one."""
        if self.state in {"new", "gone"}:
            self.state = "starting"
            self._begin(self._start)

    def adopt(self, fd: int, state: dict[str, Any]) -> None:
        """Go on with a container that another process parked."""
        self.state = "starting"
        self.folders.restore(state["folders"])
        self.introduction.restore(state.get("introduction"))  # cells may have run: this kernel is not asked

        async def take() -> Container:
            return await self.engine.adopt(fd, state)

        self._begin(take, adopted=True)

    def submit(self, request: Message, client: bytes, seconds: float | None = None) -> None:
        """Take a request of a front end; `seconds` is a shorter time limit than that of every cell."""
        if self.state == "closed":
            return
        self.touch()
        self.launch()
        self.router.submit(request, client, seconds)

    async def settled(self) -> None:
        """Wait until the kernel is ready, or its start has failed."""
        await self._settled.wait()

    async def started(self) -> str:
        """Start a sandbox unless there is one; return its id once it is attested and ready. Raises `SandboxError`."""
        self.touch()
        if self._idled and self._life is not None:
            await asyncio.wait({self._life})
        self.launch()
        await self.settled()
        if self._link is None:
            raise self.failure or SandboxDied("no sandbox is running")
        return self._link.container.id

    async def interrupt(self) -> None:
        """Send SIGINT to the kernel and its children."""
        if self.ready and self._link is not None:
            with contextlib.suppress(SandboxDied):
                await self.signal(signal.SIGINT)
        self.router.interrupted()

    async def usage(self) -> Usage:
        """Return what the sandbox uses of its limits, as it says. Raises `SandboxDied` when there is none."""
        return Usage.of((await self.ask("usage", timeout=5.0))[0])

    def start_meter(self) -> None:
        """Measure what is used from now on; does nothing without a sandbox."""
        if self._link is not None:
            with contextlib.suppress(SandboxDied):
                self._link.tell("meter", start=True)

    async def read_meter(self) -> tuple[float | None, int | None]:
        """Return CPU seconds and the peak of memory in bytes since `start_meter`, as the sandbox says; None if unknown.

        Cells can make their sandbox lie: the figures are for people, and nothing may depend on them.
        """
        try:
            reply, _ = await self.ask("meter", timeout=5.0)
        except SandboxDied:
            return None, None
        metered = Metered.of(reply, self.limits.memory_bytes)
        return metered.cpu_seconds, metered.memory_peak_bytes

    async def ask(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the agent. Raises `SandboxDied` when there is none or it does not answer."""
        if self._link is None:
            raise SandboxDied("no sandbox is running")
        if op.startswith("file."):
            self.touch()
        return await self._link.ask(op, data, **fields)

    async def restart(self) -> None:
        """Replace the kernel by a new one in the same container: files are kept. `settled` waits for it."""
        if self._link is not None:
            self.audit("restart")
            self.ready = False  # what is sent from here on is for the new one
            self._restarting = True
            self._settled.clear()
            self._expect_kernel(asyncio.get_running_loop().time() + self.limits.start_seconds)
            await self._link.ask("stop_kernel", timeout=EXIT_SECONDS)

    async def park(self) -> Handover:
        """Give the container away for a restart of this process, with a new kernel starting in it already."""
        if self._link is None or not self.ready or self._life is None:
            raise SandboxDied("no sandbox is running")
        link, life = self._link, self._life
        await link.ask("park", timeout=EXIT_SECONDS)
        if link.pending:
            raise SandboxDied("the sandbox sent more after it was parked")
        self.state = "closed"
        self.ready = False
        self._link = None
        handover = link.container.detach()
        handover.state["folders"] = self.folders.state()
        handover.state["introduction"] = self.introduction.known
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        return handover

    def abandon(self) -> None:
        """Let go of the container, which ends then. For where no loop runs any more: a closed one, a forked child."""
        self.state = "closed"
        self.ready = False
        if self._link is not None:
            self._link.container.abandon()
        self.audit.close()

    async def close(self) -> None:
        """End the session and its container; idempotent, bounded."""
        self.state = "closed"
        self.ready = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        self._settled.set()
        await self.router.close()
        await self._tasks.close()
        self.audit.close()

    # --- the router's port ---

    def transmit(self, kind: int, parts: list[bytes]) -> None:
        if self._link is None:
            raise SandboxDied("no sandbox is running")
        self._link.send(kind, parts)

    async def signal(self, number: int) -> None:
        await self.ask("signal", signal=int(number), timeout=2.0)

    async def kill_kernel(self) -> None:
        await self.ask("stop_kernel", timeout=2.0)

    async def kill_sandbox(self, error: SandboxError) -> None:
        self._fatal = error
        if self._link is not None:
            await self._remove(self._link.container)

    def touch(self) -> None:
        """Note that the sandbox is in use; its idleness counts from now."""
        if self.state == "closed":
            return
        loop = asyncio.get_running_loop()
        self._used = loop.time()
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self.limits.idle_seconds, self._idle)

    # --- the life of a container ---

    def _begin(self, open_container: Callable[[], Any], *, adopted: bool = False) -> None:
        self._settled.clear()
        self.attested = adopted  # it was attested when it started, and the engine cannot change it since
        self.failure = self._fatal = None
        self._failed_kernels = 0
        self._restarting = False
        self._awaited = True
        self.introduction.forget()
        self._life = self._tasks.start(self._live(open_container, adopted=adopted), "the life of a sandbox")

    async def _start(self) -> Container:
        self.folders.forget_scratch()
        first, self._first = self._first, None
        self._expected = first or new_spec(self.settings, self.id)
        return await self.engine.start(self._expected)

    async def _live(self, open_container: Callable[[], Any], *, adopted: bool) -> None:
        """From the container's start to its end. Cancelled, it ends the container unless that was given away."""
        error: SandboxError
        try:
            deadline = asyncio.get_running_loop().time() + self.limits.start_seconds
            async with asyncio.timeout_at(deadline):
                container = await open_container()
        except TimeoutError:
            error = self._too_slow("the container engine")
        except SandboxError as failure:
            error = failure
        except OSError as failure:
            error = EngineUnavailable(f"the container engine cannot be asked: {failure}")
        except Exception as defect:
            # What an engine says may find one of ours; whoever waits for a sandbox must be told all the same.
            log_defect("the start of a sandbox", defect)
            error = EngineError(f"sandbox_kernel failed at starting a sandbox: {defect!r}")
        else:
            link = self._link = Link(container, self.limits.message_bytes + (2 << 20))
            self._expect_kernel(deadline)
            try:
                if adopted:
                    link.tell("resume")
                await self._read(link)
                error = await self._reason(container)
            except WireError as failure:
                error = SandboxDied(failure.message, survived="nothing")
            except SandboxError as failure:
                error = failure
            except Exception as defect:
                # What a sandbox sends may find a defect of ours; its cells must end all the same.
                log_defect("what a sandbox sent", defect)
                error = SandboxDied(f"sandbox_kernel failed at what the sandbox sent: {defect!r}", survived="nothing")
            finally:
                self._expect_kernel(None)
                await link.close()
                if self._link is not None:
                    # Not given away: the container ends with this task, whatever ended the task.
                    await self._remove(container)
                    self._link = None
            error = self._fatal or error
        self.ready = False
        self.failure = error
        self.state = "gone"
        self.audit("sandbox_ended", error=error.name, reason=str(error))
        self._settled.set()
        idled, self._idled = self._idled, False
        self.router.sandbox_died(error, keep_waiting=idled, lost=self.attested)
        if idled and self.router.requests.active:
            self.launch()  # for what came while the idle sandbox was on its way out

    async def _remove(self, container: Container) -> None:
        try:
            await asyncio.shield(container.kill())
        except SandboxError as error:
            # Its pipe is closed, so the agent ends; what an engine that fails leaves, `reap` finds.
            self.audit("left", container=container.id, reason=str(error))

    async def _read(self, link: Link) -> None:
        turn = time.monotonic()
        async for kind, parts in link.frames():
            if time.monotonic() - turn > TURN_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()
            size = sum(map(len, parts))
            if kind == wire.AGENT:
                await self._event(link, parts, size)
                continue
            verdict = None
            try:
                if size < LARGE:
                    message = protocol.decode(kind, parts, self.limits.message_bytes)
                else:
                    message = await asyncio.to_thread(protocol.decode, kind, parts, self.limits.message_bytes)
            except protocol.TooHeavyError as error:
                parts.clear()
                self.router.outputs.too_heavy(error, size)
                continue
            except ProtocolError as error:
                self.router.outputs.drop(Note(error.code, error.message), size)
                continue
            parts.clear()  # before the message is written anew: what came and what goes are not held together
            if self.introduction.takes(message, size):
                self._introduced()
            elif not self.ready:
                self.router.outputs.drop(MessageCode.NO_KERNEL_READY, size, message.type, quietly=True)
            else:
                if size >= MEDIUM:
                    verdict = await asyncio.to_thread(self.router.outputs.judge, message)
                self.router.outputs.receive(message, size, verdict)

    async def _event(self, link: Link, parts: list[bytes], size: int) -> None:
        event = orjson.loads(parts[0])  # the link has looked at it: it is small, and an object with an "op"
        op = event["op"]
        if op == "hello":
            if self.attested:
                raise WireError("the sandbox introduced itself twice")
            await link.container.attest(event.get("report", {}), self._expected)
            self.audit("attested", image=self.settings.image, runtime=self.settings.runtime or "default")
            self.attested = True
        elif self._awaited and (op == "kernel_ready" or (op == "resumed" and event.get("ready"))):
            self._kernel_ready(link)
        elif op == "kernel_exited":
            self._kernel_exited(link, event)
        elif op == "oversized":
            self.router.outputs.oversized(Oversized.of(event), size)
        elif op != "resumed" or not self._awaited:
            self.router.outputs.drop(MessageCode.AGENT_UNASKED, size, op[:100])

    def _kernel_ready(self, link: Link) -> None:
        if not self.attested:
            raise SandboxDied("the sandbox did not attest itself before its first kernel was ready")
        self._awaited = False
        if self.introduction.known:
            self._open()
        else:  # before the first cell is let in, which could answer in the kernel's place
            link.send(wire.CONTROL, protocol.encode(self.introduction.question(self.id)))

    def _introduced(self) -> None:
        if not self.ready and self.introduction.known:
            self._open()

    def _open(self) -> None:
        """Let requests in: the kernel is ready."""
        self._expect_kernel(None)
        self.ready = True
        self.state = "ready"
        self._settled.set()
        self.touch()
        self.router.pump()

    def _kernel_exited(self, link: Link, event: dict[str, Any]) -> None:
        self.ready = False
        self._awaited = True
        self.introduction.forget()
        restarting, self._restarting = self._restarting, False
        death = Death.of(event)
        worked = restarting or self.router.outputs.kernel_worked
        error = _restarted() if restarting else _kernel_death(death, self.limits.memory_bytes)
        self.audit("kernel_died", error=error.name, reason=str(error), tail=death.tail[-2000:])
        self._failed_kernels = 0 if worked else self._failed_kernels + 1
        if self._failed_kernels >= MAX_FAILED_KERNELS:
            tail = printable(death.tail.strip()[-1000:], 1000)
            raise SandboxDied(f"no kernel starts in image {self.settings.image!r}: {tail or error.message}")
        link.tell("start_kernel")
        self._expect_kernel(asyncio.get_running_loop().time() + self.limits.start_seconds)
        self.router.kernel_died(error, asked_for=restarting)

    async def _reason(self, container: Container) -> SandboxError:
        """Say why the container's stream ended."""
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                reason = await container.wait()
        except TimeoutError:
            reason = ExitReason(kind="killed", detail="its stream ended")
        detail = printable(reason.detail.strip()[-1000:], 1000)
        if reason.kind == "out_of_memory":
            return _out_of_memory(self.limits.memory_bytes, "nothing: the whole sandbox was ended")
        if reason.kind == "engine_lost":
            return SandboxDied(f"the container engine stopped: {detail}", survived="nothing")
        if self._link is not None and self._link.failure is not None:
            return SandboxDied(self._link.failure, survived="nothing")
        how = "was killed" if reason.kind == "killed" else f"ended with exit code {reason.exit_code}"
        return SandboxDied(f"the sandbox {how}{': ' + detail if detail else ''}", survived="nothing")

    def _expect_kernel(self, deadline: float | None) -> None:
        """End the sandbox unless a kernel is ready in time; a cell can plant what makes the next one hang."""
        if self._start_timer is not None:
            self._start_timer.cancel()
        self._start_timer = None
        if deadline is not None:
            self._start_timer = asyncio.get_running_loop().call_at(deadline, self._check_ready)

    def _check_ready(self) -> None:
        if not self.ready and self.state in {"starting", "ready"}:
            self._tasks.start(self.kill_sandbox(self._too_slow("the kernel")), "the end of a sandbox")

    def _too_slow(self, what: str) -> SandboxDied:
        limit = f"{self.limits.start_seconds:g} s"
        return SandboxDied(f"{what} was not ready in time", limit=limit, setting="start_timeout")

    # --- idleness ---

    def _idle(self) -> None:
        """End the sandbox if it was idle for long enough, and look again later if not."""
        self._idle_timer = None
        if self.state != "ready":
            return  # the next use of it begins anew
        waiting = any(request.awaiting_input for request in self.router.requests.in_flight)
        if self.router.requests.active and not waiting:
            self.touch()
            return
        loop = asyncio.get_running_loop()
        if (left := self._used + self.limits.idle_seconds - loop.time()) > 0:
            self._idle_timer = loop.call_later(left, self._idle)
            return
        limit = f"{self.limits.idle_seconds:g} s"
        error = SandboxDied(
            "the sandbox was idle and was ended", limit=limit, setting="idle_timeout", survived="nothing"
        )
        self.ready = False
        self._idled = True
        self._tasks.start(self.kill_sandbox(error), "the end of a sandbox")


def _out_of_memory(limit: int, survived: str) -> OutOfMemory:
    return OutOfMemory(
        "the cell used more memory than the sandbox has", limit=format_bytes(limit), setting="memory", survived=survived
    )


def _restarted() -> KernelDied:
    return KernelDied("the kernel was restarted", survived="files, but no variables")


def _kernel_death(death: Death, memory_bytes: int) -> SandboxError:
    """Name the reason of a kernel's death from what the agent saw."""
    if death.signal == signal.SIGKILL and death.ooms:
        return _out_of_memory(memory_bytes, "files, but no variables")
    if death.signal is not None:
        try:
            how = f"was ended by signal {death.signal} ({signal.Signals(death.signal).name})"
        except ValueError:
            how = f"was ended by signal {death.signal}"
    else:
        how = f"ended itself with exit code {'unknown' if death.code is None else death.code}"
    return KernelDied(f"the kernel {how}", survived="files, but no variables")
