"""An engine for tests that encloses nothing: a child process of this one, with a socket for its stdin and stdout.

It shows that the seam is wide enough for an engine that is not Docker, and that what is not enforced is refused: no
sandbox of it can be attested. Its table of what it lacks is in `tests.support.engines`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_kernel.core.codes import EndCode, Survived
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import ExitReason, SandboxSpec
from sandbox_kernel.engines.attestation import checks, demand
from sandbox_kernel.engines.base import AttestationCheck, Handover, Inspection
from tests.support.patience import until

SESSION = "PLAIN_ENGINE_SESSION"
"""The variable by which a look from outside tells whose process it is."""
TAIL = 8192


def has_ended(pid: int) -> bool:
    """Return whether a child is over, which is left to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class PlainEngine:
    """Starts the command of a spec as it is."""

    async def start(self, spec: SandboxSpec) -> PlainContainer:
        if spec.runtime is not None:
            raise EngineError(f"a plain process has no runtime {spec.runtime!r}", setting="runtime")
        mine, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
        environment = {"PATH": os.environ["PATH"], **spec.environment, SESSION: spec.session_id}
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 (it does not wait)
                spec.command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            mine.close()
            errors.close()
            raise EngineError(f"it does not start: {error.strerror}".lower()) from error
        finally:
            theirs.close()
        # Popen returns when the program's descriptors are closed; a moment later, Linux has its environment. By that it
        # is found, and without it nobody would see that it is there.
        await until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes() or has_ended(process.pid))
        process.returncode = 0  # its end is awaited here, by its pidfd
        mine.sendall(spec.program)
        return PlainContainer(process.pid, spec.session_id, mine, errors)

    async def adopt(self, fd: int, state: dict[str, Any]) -> PlainContainer:
        try:
            pid, session = int(state["pid"]), str(state["session"])
            os.kill(pid, 0)
        except (KeyError, ValueError) as error:
            raise EngineError(f"no process can be adopted from this state ({error!r})") from error
        except ProcessLookupError as error:
            os.close(fd)
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING) from error
        return PlainContainer(pid, session, socket.socket(fileno=fd), None)

    async def reap(self) -> int:
        return 0


class PlainContainer:
    """A child process."""

    def __init__(self, pid: int, session: str, pipe: socket.socket, errors: Any) -> None:
        self.id = str(pid)
        self.image_id: str | None = None
        self.held = False
        self.introduced: Mapping[str, Any] | None = None
        self._pid = pid
        self._session = session
        self._errors = errors
        self._pipe = pipe
        pipe.setblocking(False)
        self._sending = False
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ExitReason] = self._loop.create_future()
        self._handle = os.pidfd_open(pid)
        self._loop.add_reader(self._handle, self._has_ended)

    # --- the pipe ---

    async def send(self, data: bytes) -> None:
        left = memoryview(data)
        self._sending = True
        try:
            while left:
                left = left[self._write(left) :]
                if left:
                    await self._until(self._loop.add_writer, self._loop.remove_writer)
        finally:
            self._sending = False

    def offer(self, data: bytes) -> int:
        return 0 if self._sending else self._write(memoryview(data))

    async def receive(self, minimum: int = 1) -> bytes:
        while not self._closed.is_set():
            try:
                return self._pipe.recv(1 << 20)
            except BlockingIOError:
                await self._until(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                break
        return b""

    def _write(self, data: memoryview) -> int:
        try:
            return self._pipe.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise EngineError("the pipe into the process is gone", kept=Survived.NOTHING) from error

    async def _until(self, add: Any, remove: Any) -> None:
        """Wait until the pipe can be used again, or is closed; cancelled, it has used nothing."""
        ready = asyncio.Event()
        if self._closed.is_set():
            return
        fd = self._pipe.fileno()
        add(fd, ready.set)
        waits = [asyncio.ensure_future(one.wait()) for one in (ready, self._closed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            if not self._closed.is_set():
                remove(fd)

    def abandon(self) -> None:
        if not self._closed.is_set():
            self._forget_pipe()
            self._pipe.close()

    def _forget_pipe(self) -> None:
        for remove in (self._loop.remove_reader, self._loop.remove_writer):
            remove(self._pipe.fileno())
        self._closed.set()

    def detach(self) -> Handover:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._forget_pipe()
        if self._errors is not None:
            self._errors.close()
        return Handover(self._pipe.detach(), {"pid": self._pid, "session": self._session})

    # --- the end ---

    async def wait(self) -> ExitReason:
        return await asyncio.shield(self._ended)

    async def kill(self) -> None:
        if not self._ended.done():
            self._finish(ExitReason(kind="killed", exit_code=137, detail="the process was ended by its owner"))
        self.abandon()

    def _has_ended(self) -> None:
        self._finish(None)

    def _finish(self, reason: ExitReason | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        code, detail = os.waitstatus_to_exitcode(status), ""
        if self._errors is not None:
            self._errors.seek(-min(TAIL, self._errors.seek(0, os.SEEK_END)), os.SEEK_END)
            detail = self._errors.read().decode(errors="replace")
            self._errors.close()
        if reason is None and code < 0:
            reason = ExitReason(kind="killed", exit_code=128 - code, detail="the process was ended from outside")
        self._ended.set_result(reason or ExitReason(kind="exited", exit_code=code, detail=detail))

    # --- what it is ---

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        if self._ended.done():
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        nothing = AttestationCheck("engine", "a wall around the sandbox", "none", ok=False)
        return checks(spec, report, Inspection((nothing,), frozenset({*spec.environment, SESSION})))

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        demand(await self.compare(report, spec))
