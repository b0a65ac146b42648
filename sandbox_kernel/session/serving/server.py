"""A kernel towards its clients: what it answers itself and with what, and what goes to its session.

One for all transports: the sockets of a notebook's kernel and the WebSockets of `serve` carry messages and no more.
Imports neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ...core.codes import MessageCode
from ...core.errors import ProtocolError, SandboxError
from ...core.events import RequestRefused
from ...core.model import Message
from ...core.screen_findings import MAX_PASTED, MAX_SAID
from ...core.tasks import noted_in
from ...files.file_rules import FileLimits
from ...plugins import index
from ...plugins.api import Answer, FileAnswers, KernelProcess, Transport
from ...policy import protocol
from ..requests.queue import PendingRequest
from ..session import Session
from .kernel_info import SCREEN, kernel_info, state
from .large_outputs import Overflow
from .shown_behaviour import ShownBehaviour

QUIET = frozenset({"sandbox_state_request", "sandbox_screen_request"})
"""Requests without statuses: asked every few seconds, these would make a kernel look busy, and in use."""

ORDER_SECONDS = 1.0
"""How long a kernel_info_request on shell waits for the cells that its client sent before it."""


class MessageHeaders:
    """The headers of what a kernel sends: its session, and a number that each message raises by one."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.renew()

    def renew(self) -> None:
        """Begin another session: front ends leave out what they asked of the one before."""
        self.session = f"{os.urandom(4).hex()}-{os.urandom(12).hex()}"

    def of(self, kind: str) -> dict[str, str]:
        """Return the header of the next message, which is of a type."""
        return {
            "msg_id": f"{self.session}_{next(self._numbers)}",
            "msg_type": kind,
            "username": "kernel",
            "session": self.session,
            "date": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "version": protocol.PROTOCOL_VERSION,
        }


class FilesOfClients:
    """The files of a session for its clients. What answers is a plugin's, and loaded with the first request."""

    def __init__(self, session: Session, transport: Transport) -> None:
        self._session, self._transport = session, transport
        self._answers: FileAnswers | None = None
        self._closed = False

    def described(self) -> dict[str, int]:
        """Return what kernel_info says of these requests; nothing where no plugin answers them."""
        found: dict[str, int] = index.file_requests().described() if index.is_here("file_messages") else {}
        return found

    async def answer(self, request: Message) -> Answer:
        """Return content and buffers of the reply. Raises `ConfigurationError` if no plugin answers."""
        if self._answers is None:
            session = self._session
            self._answers = made = index.file_requests().answers(
                session.started,
                session.ask,
                session.emit,
                limit=FileLimits.of(session.settings.limits).file_bytes,
                unsent_bytes=self._transport.unsent_bytes,
                arrived=session.folders.arrived,
            )
            if self._closed:
                await made.close()
        return await self._answers.answer(request)

    async def close(self) -> None:
        """Answer no more, and remove what has not arrived as a whole; bounded."""
        self._closed = True
        if self._answers is not None:
            await self._answers.close()


class KernelServer:
    """The kernel of one session, for all clients of one transport."""

    def __init__(self, session: Session, transport: Transport, engine: str) -> None:
        """`engine` is what clients are told of what makes the sandboxes, "" if there are no settings to speak of."""
        self._session = session
        self._transport = transport
        self._engine = engine
        self.headers = MessageHeaders()
        self._defect = noted_in(session.emit)
        self.files = FilesOfClients(session, transport)
        self._overflow = Overflow(session, transport.send)
        self.publish = self._overflow.publish
        """Sends all clients what a cell's page bears of a message of the session's."""
        self._cpu = (0.0, 0.0)
        self._ended = asyncio.Event()
        """Set when a request has ended."""
        session.on_change(self._changed)
        self._behaviour = ShownBehaviour(session)

    def _changed(self, request: PendingRequest) -> None:
        if request.finished:
            self._ended.set()

    def receive(self, request: Message, client: bytes, process: KernelProcess) -> Coroutine[Any, Any, None] | None:
        """Take a request of a client. Whatever fails with it, it is answered.

        Returns:
            What is to be run for its answer, if the host gives it.
        """
        try:
            match protocol.way(request):
                case "refused":
                    self._refuse(request, client)
                case "answered":
                    return self._answer(request, client, process)
                case _:
                    self._session.submit(request, client)
        except Exception as defect:
            self._failed(request, client, defect)
        return None

    async def _answer(self, request: Message, client: bytes, process: KernelProcess) -> None:
        """Answer a request with a reply and idle, whatever fails on the way."""
        quiet = request.type in QUIET
        buffers: list[bytes] = []
        try:
            if not quiet:
                self.status("busy", request)
            if request.type == "kernel_info_request" and request.channel == "shell":
                await self._until_ended(client)
            try:
                content, buffers = await self._content(request, process)
                content = {"status": "ok", **content}
            except SandboxError as error:
                content = _refusal(error)
            self._reply(request, client, content, buffers)
        except Exception as defect:
            # A sandbox's answer may trigger a bug here; the client must not wait for ever.
            self._failed(request, client, defect)
        else:
            if not quiet:
                self.status("idle", request)
        if not quiet:
            self.say_busy()
        if request.type == "shutdown_request":
            await process.shut_down(request)

    async def _content(self, request: Message, process: KernelProcess) -> Answer:
        """Return content and buffers of a reply. Raises `SandboxError`."""
        match request.type:
            case "kernel_info_request":
                await self._session.settled()
                return kernel_info(self._session, self._engine, file_messages=self.files.described()), []
            case "connect_request":
                return dict(process.ports()), []
            case "interrupt_request":
                await process.interrupt()
                return {}, []
            case "usage_request":
                return await self._usage(), []
            case "shutdown_request":
                if restart := bool(request.content.get("restart", False)):
                    await process.restart()
                return {"restart": restart}, []
            case "sandbox_state_request":
                return await state(self._session) | {"behaviour": self._behaviour.to_json()}, []
            case "sandbox_screen_request":
                return {"reasons": self._reasons(str(request.content.get("code", "")))}, []
            case _:
                return await self.files.answer(request)

    def _reasons(self, code: str) -> list[str]:
        """Return what the screen says against code that is in no cell yet; nothing where there is no screen."""
        screen: Any = self._session.part(SCREEN)
        return [] if screen is None else screen.preview(code[:MAX_PASTED]).reasons()[:MAX_SAID]

    def _refuse(self, request: Message, client: bytes) -> None:
        """Answer a request on a channel that is not for it: whoever asked must not wait for ever."""
        error = ProtocolError(MessageCode.WRONG_CHANNEL.note(type=request.type, channel=request.channel))
        self._session.emit(RequestRefused(reason=error.message, code=error.code))
        self.status("busy", request)
        self._reply(request, client, _refusal(error))
        self.status("idle", request)

    def _failed(self, request: Message, client: bytes, defect: Exception) -> None:
        """Answer a request whose handling met a defect of ours."""
        self._defect(f"a {request.type}", defect)
        content = {"status": "error", "ename": type(defect).__name__, "traceback": []}
        content["evalue"] = f"sandbox_kernel failed at this {request.type}; the log of this program has the details"
        try:
            self._reply(request, client, content)
        finally:
            self.status("idle", request)

    def _reply(
        self, request: Message, client: bytes, content: Mapping[str, Any], buffers: Iterable[bytes] = ()
    ) -> None:
        if (kind := protocol.reply_type(request.type)) is not None:
            header, parts = {"msg_type": kind}, tuple(buffers)
            reply = Message(
                channel=request.channel, header=header, parent=request.header, content=content, buffers=parts
            )
            self._transport.send(reply, client)

    def status(self, state: str, request: Message | None = None, client: bytes | None = None) -> None:
        """Say a state of the kernel, or of a request, to all clients or to one."""
        self.say("status", {"execution_state": state}, request, client)

    def say(self, kind: str, content: Mapping[str, Any], request: Message | None, client: bytes | None = None) -> None:
        """Say something about a request to all clients, or to one."""
        parent = {} if request is None else request.header
        self._transport.send(
            Message(channel="iopub", header={"msg_type": kind}, parent=parent, content=content), client
        )

    def say_busy(self) -> None:
        """Say of running cells that they run: clients keep one state for a kernel, and have just heard idle."""
        for cell in self._session.requests.queue.running_cells():
            if cell.busy:
                self.status("busy", cell.message)

    async def close(self) -> None:
        """Give up what is not written of outputs."""
        await self._overflow.close()

    async def _until_ended(self, client: bytes) -> None:
        """Wait for the cells of a client, but not for long: a kernel answers on shell in order.

        Some take a cell to have ended with its error, and ask who the kernel is before they send the next one. It is
        aborted if it comes before the failed one's end.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ORDER_SECONDS):
                while any(cell.client == client for cell in self._session.requests.queue.running_cells()):
                    self._ended.clear()
                    await self._ended.wait()

    async def _usage(self) -> dict[str, Any]:
        """Return what ipykernel says of a process and its machine, of the sandbox and its limits."""
        limits = self._session.limits
        content: dict[str, Any] = {"hostname": "sandbox", "pid": os.getpid(), "cpu_count": limits.cpus}
        try:
            usage = await self._session.usage()
        except SandboxError:
            return content  # the sandbox is starting or gone: what is known remains
        if usage.cpu_seconds is not None:
            content["kernel_cpu"] = self._cpu_percent(usage.cpu_seconds)
            content["host_cpu_percent"] = content["kernel_cpu"] / limits.cpus
        if usage.memory_bytes is not None:
            content["kernel_memory"] = used = min(usage.memory_bytes, limits.memory)
            content["host_virtual_memory"] = {
                "total": limits.memory,
                "available": limits.memory - used,
                "percent": round(100 * used / limits.memory, 1),
                "used": used,
                "free": limits.memory - used,
            }
        return content

    def _cpu_percent(self, seconds: float) -> float:
        """Return the load since the last question in percent of one core; 0 for the first."""
        now = time.monotonic()
        (last, before), self._cpu = self._cpu, (now, seconds)
        return round(max(0.0, 100 * (seconds - before) / (now - last)), 1) if last else 0.0


def _refusal(error: SandboxError) -> dict[str, Any]:
    return {"status": "error", "ename": error.name, "evalue": str(error), "traceback": []}
