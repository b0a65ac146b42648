"""The process of a Jupyter kernel: a `KernelServer` behind five sockets, in front of a session.

A front end sees an ordinary kernel. Here are its start, its end, and what it leaves to the next process at a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..core.codes import Survived
from ..core.errors import ConfigurationError, SandboxError
from ..core.events import SandboxNotKept
from ..core.model import Audience, Message, SandboxSpec, Settings
from ..core.tasks import Tasks, noted_in
from ..engines.base import Container, Engine
from ..engines.preparations import Preparations
from ..policy import protocol
from ..session.serving.server import KernelServer
from ..session.session import Session
from . import handover, pipe_holder
from .head_start import NOTHING_BEGUN, HeadStart, import_meanwhile

if TYPE_CHECKING:
    from ..engines.inspectable import Inspectable
    from ..files.notebook_files import Beside
    from .front_sockets import FrontSockets

PARENT_SECONDS = 1.0


class RefusingEngine:
    """The `Engine` of a kernel whose settings cannot work: it starts nothing, so every cell is told why."""

    def __init__(self, reason: SandboxError) -> None:
        self.reason = reason

    async def start(self, spec: SandboxSpec) -> Container:
        """Raise the reason."""
        raise self.reason.with_traceback(None)  # or it would grow with every cell

    async def adopt(self, fd: int, state: dict[str, Any]) -> Container:
        """Let a container that was parked end, and raise the reason."""
        os.close(fd)
        raise self.reason.with_traceback(None)

    async def reap(self) -> int:
        """Remove nothing: no engine is known."""
        return 0


async def until_left(stopping: asyncio.Event) -> None:
    """Set `stopping` when the process that started this one is gone; nothing is known of one without a starter."""
    starter, parent = os.environ.get("JPY_PARENT_PID"), os.getppid()
    if starter is None or starter == "1":
        return
    # Process 1 inherits the orphans: the starter was gone before this process could look.
    while parent != 1:
        await asyncio.sleep(PARENT_SECONDS)
        if os.getppid() != parent:
            break
    stopping.set()


LISTENERS_SECONDS = 5.0
"""How long a request for the kernel waits at most, for those who listened before a restart, or for the first to listen.

Clients connect to each socket by itself, within 0.1 to 0.2 s. A kernel that is ready at once would publish the outputs
of the first cell, and the idle that ends it, before they can be heard. On a busy machine clients are slower, and some
do not come again.
"""
FIRST_SECONDS = 0.2
"""How long any other request waits for the first who listens: who asks whether a kernel is there may never do so."""


class StartupGate:
    """The requests that came before they could be answered in public."""

    def __init__(self, receive: Callable[[Message, bytes], None]) -> None:
        """`receive` takes what was held back, in order."""
        self._receive = receive
        self._early: list[tuple[Message, bytes]] = []
        self.listeners = 1
        """How many are expected to listen."""
        self.is_open = self.is_heard = False

    def holds(self, request: Message, client: bytes) -> bool:
        """Return whether a request is held back: one for the kernel until all listen, one for the host until one does.

        What a client asks on control is answered at once, and so is what it asks the host at a restart.
        """
        is_early = protocol.way(request) == "passed on" or (request.channel == "shell" and not self.is_heard)
        if self.is_open or not is_early:
            return False
        self._early.append((request, client))
        return True

    async def open_once_heard(self, until_heard_by: Callable[[int], Awaitable[None]]) -> None:
        """Let requests through once as many listen as are expected, within bounds."""
        if not self.is_heard:
            await _bounded(until_heard_by(1), FIRST_SECONDS)
        self.is_heard = True
        self._let_through()
        await _bounded(until_heard_by(self.listeners), LISTENERS_SECONDS)
        self.open()

    def open(self) -> None:
        """Let requests through."""
        self.is_open = True
        self._let_through()

    def _let_through(self) -> None:
        early, self._early = self._early, []
        for request, client in early:
            if self.is_open or not self.holds(request, client):
                self._receive(request, client)


async def _bounded(waiting: Awaitable[None], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting


SHUTDOWN_SECONDS = 2.0
"""jupyter_client sends SIGTERM 2.5 s after the request."""

NOTEBOOK = Audience(
    bring=(
        'In JupyterLab\'s file browser, choose "Bring into the Sandbox" in the menu of the file. In other front ends, '
        "use a kernel with an upload folder, such as the one that `sandbox-kernel setup` installs."
    ),
    bring_by_folder=(
        'Put a copy into the folder `{uploads}` beside the notebook (make it if there is none), or choose "Bring into '
        'the Sandbox" in the menu of the file in JupyterLab; then run the cell again.'
    ),
)
"""What a person at a notebook can do about a wall of the sandbox."""


def lies_beside(paths: Sequence[str]) -> str | None:
    """Return the first of some relative paths that lies in the folder of the notebook; for another thread."""
    return _beside(os.getpid())(paths)


@lru_cache(maxsize=1)
def _beside(pid: int) -> Beside:
    """Return the folder of one process: a copy of it has another one, and has closed the file that this one has."""
    from ..files.notebook_files import Beside

    return Beside()


class Proxy:
    """The entry point of one kernel process."""

    def __init__(
        self,
        connection_file: str,
        connection: dict[str, Any],
        settings: Settings | ConfigurationError,
        begun: HeadStart = NOTHING_BEGUN,
        asked: Inspectable | None = None,
    ) -> None:
        """`asked` is the engine that was asked for the container that is `begun`; nothing was left then."""
        self.connection = connection
        self.problem = _until_mended(settings) if isinstance(settings, ConfigurationError) else None
        self.settings = Settings() if isinstance(settings, ConfigurationError) else settings
        self.meeting_place = pipe_holder.place(connection_file, str(connection.get("key", "")))
        ahead = begun.ahead if asked is not None else None
        self._left = None
        if asked is None:
            self._left = handover.collect(self.settings, self.meeting_place, wanted=self.problem is None)
        self._prepared = self._preparations(begun)
        self._ports = self._left.ports if self._left is not None and self._left.ports else begun.ports
        engine: Engine
        if self.problem is None:
            engine = made = asked or handover.engine_of(self.settings, self._left)
            self.engine_address = made.address
        else:
            engine, self.engine_address = RefusingEngine(self.problem), ""
        self.session = Session(
            self.settings,
            engine,
            self,
            ahead.spec if ahead is not None else None,
            prepared=self._prepared,
        )
        self.session.hints.address(NOTEBOOK, lies_beside)
        self.emit = self.session.emit
        self.sockets: FrontSockets
        self.server: KernelServer
        self._stopping = asyncio.Event()
        self._shutdown: Message | None = None
        self._tasks = Tasks(noted_in(self.emit))
        self.gate = StartupGate(self.receive)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        # A front end interrupts by message; what a terminal sends to the whole group is not for this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGTERM, self._stopping.set)
        self._start_session()
        sockets = await import_meanwhile("sandbox_kernel.kernel.front_sockets")
        gc.freeze()  # what was loaded stays, and is not looked through
        gc.enable()
        self.serve(
            sockets.FrontSockets(
                self.connection,
                self.receive,
                self.emit,
                message_bytes=self.settings.limits.message_limit,
                anybody=self.settings.clients == "any",
                ports=self._ports,
            )
        )
        self.server.status("starting")
        self.sockets.listen()
        self._tasks.start(self.gate.open_once_heard(self.sockets.until_heard_by), "waiting for who listens")
        self._tasks.start(until_left(self._stopping), "watching the parent process")
        self._tasks.start(self._reap(), "removing what earlier kernels left")
        try:
            await self._stopping.wait()
            await self._stop()
        finally:
            await self._tasks.close()
            await self.server.close()
            await self.session.close()
            self.sockets.close()
            await asyncio.to_thread(self.sockets.destroy)
        return 0

    def serve(self, sockets: FrontSockets) -> None:
        """Be a kernel to the clients of these sockets."""
        self.sockets, self.server = sockets, KernelServer(self.session, sockets, self.engine_address)

    # --- the session's front ---

    def deliver(self, message: Message, client: bytes | None) -> None:
        if client is None:
            self.server.publish(message)
        elif (reason := self._end_of_batch(message)) is not None:
            sys.stderr.write(f"sandbox-kernel: {reason}\n")
            self._stopping.set()
        else:
            self.sockets.send(message, client)

    def _end_of_batch(self, reply: Message) -> SandboxError | None:
        """Return why a batch ends here: its variables are gone, and it may not go on after an error.

        nbclient knows a dead kernel by the end of this process, and takes any reply for that of a cell that failed.
        """
        request = self.session.requests.queue.find(reply.parent.get("msg_id"))
        if request is None or request.batch is None or not request.sent or request.verdict is None:
            return None
        if request.message.content.get("stop_on_error") is False:
            return None
        return request.verdict if request.verdict.kept in {Survived.FILES, Survived.NOTHING} else None

    def drain(self) -> None:
        self.sockets.drain()

    # --- requests ---

    def receive(self, request: Message, client: bytes) -> None:
        """Take a request that the sockets have verified."""
        if not self.gate.is_open and self.gate.holds(request, client):
            return
        if (answering := self.server.receive(request, client, self)) is not None:
            self._tasks.start(answering, f"a {request.type}")

    # --- what a client asks of the process ---

    def ports(self) -> dict[str, Any]:
        ports = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        return {port: self.connection[port] for port in ports}

    async def interrupt(self) -> None:
        await self.session.interrupt()

    async def restart(self) -> None:
        """Do nothing: the next process starts the next kernel."""

    async def shut_down(self, request: Message) -> None:
        self._shutdown = request
        self._stopping.set()

    # --- from start to end ---

    def _preparations(self, begun: HeadStart) -> Preparations:
        """Return what is prepared for the container that is there or asked for, or for the next."""
        if self._left is None and begun.prepared is not None:
            return begun.prepared
        try:
            return Preparations(self.settings, state=self._left.plugins if self._left is not None else None)
        except ConfigurationError as error:
            self.problem = _until_mended(error)
        if self._left is not None:  # it ends, since nobody could serve it
            self._left.close()
            self._left = None
        return Preparations(Settings())

    def _start_session(self) -> None:
        if self._left is None:
            self.session.launch()
            return
        self.gate.listeners, self.gate.is_heard = max(self._left.listeners, 1), True
        self._left.adopted(self.session)

    async def _stop(self) -> None:
        await self.server.files.close()
        if (request := self._shutdown) is None:
            return
        restart = bool(request.content.get("restart", False))
        self.server.say("shutdown_reply", {"status": "ok", "restart": restart}, request)
        if restart:
            await self._leave()

    async def _leave(self) -> None:
        """Leave the container, and the sockets on which clients knock, for the next process."""
        copies = {channel: os.dup(port) for channel, port in self._ports.items()}
        known, heard = self._prepared.state(), self.sockets.listeners
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await handover.leave(self.session, self.meeting_place, known, listeners=heard, ports=copies)
        except (SandboxError, TimeoutError, OSError) as error:
            self.emit(SandboxNotKept(reason=str(error) or "the sandbox did not park in time"))
        finally:
            for fd in copies.values():
                os.close(fd)

    async def _reap(self) -> None:
        await self.session.settled()
        await self.session.reap()


def _until_mended(error: ConfigurationError) -> ConfigurationError:
    message = f"{error.message}. No sandbox is started; restart the kernel once this is mended"
    return ConfigurationError(error.code, message, limit=error.limit, value=error.value, setting=error.setting)
