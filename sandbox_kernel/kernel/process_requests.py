"""Requests that concern the kernel process itself: the host answers them, whatever carries them.

For the sockets of a notebook's kernel and for the WebSockets of `serve`: each passes what is said on in its own way,
and answers in its own way what differs. Imports no sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..core.codes import MessageCode
from ..core.errors import ProtocolError, SandboxError
from ..core.model import Message
from ..session import protocol
from ..session.requests.queue import PendingRequest
from ..session.requests.request_states import State
from ..session.session import Session
from .file_messages import Answer, FileMessages
from .kernel_info import kernel_info, state

QUIET = frozenset({"sandbox_state_request"})
"""Requests without statuses: asked every few seconds, these would make a kernel look busy, and in use."""

ORDER_SECONDS = 1.0
"""How long a kernel_info_request on shell waits for the cells that its client sent before it."""

Send = Callable[[Message], None]


class ProcessRequests:
    """Those of one session."""

    def __init__(
        self, session: Session, files: FileMessages, publish: Send, defect: Callable[[str, BaseException], None]
    ) -> None:
        """`publish` sends to all clients; `defect` is told of what fails here by a fault of ours."""
        self._session = session
        self._files = files
        self._publish = publish
        self._defect = defect
        self._cpu = (0.0, 0.0)
        self._ended = asyncio.Event()
        """Set when a request has ended."""
        session.requests.queue.listeners.append(self._changed)

    def _changed(self, request: PendingRequest, _: State) -> None:
        if request.finished:
            self._ended.set()

    async def answer(
        self, request: Message, client: bytes, send: Send, own: Callable[[Message], Awaitable[Answer]]
    ) -> None:
        """Answer a request with a reply and idle, whatever fails on the way; `own` is asked for its content."""
        quiet = request.type in QUIET
        buffers: list[bytes] = []
        try:
            if not quiet:
                self.status("busy", request)
            if request.type == "kernel_info_request" and request.channel == "shell":
                await self._until_ended(client)
            try:
                content, buffers = await own(request)
                content = {"status": "ok", **content}
            except SandboxError as error:
                content = _refusal(error)
            self._reply(request, send, content, buffers)
        except Exception as defect:
            # What a sandbox says may find a defect of ours; whoever asked must not wait for ever.
            self.failed(request, send, defect)
        else:
            if not quiet:
                self.status("idle", request)
        if not quiet:
            self.say_busy()

    async def content(self, request: Message, engine: str) -> Answer:
        """Return the content of the reply to a request that all wires answer alike. Raises `SandboxError`.

        `engine` is the address of what makes the sandboxes, "" if there are no settings to speak of.
        """
        match request.type:
            case "kernel_info_request":
                await self._session.settled()
                return kernel_info(self._session, engine, file_messages=self._files.described()), []
            case "interrupt_request":
                await self._session.interrupt()
                return {}, []
            case "usage_request":
                return await self._usage(), []
            case "shutdown_request":
                return {"restart": bool(request.content.get("restart", False))}, []
            case "sandbox_state_request":
                return await state(self._session), []
            case _:
                return await self._files.answer(request)

    def refuse(self, request: Message, send: Send) -> None:
        """Answer a request on a channel that is not for it: whoever asked must not wait for ever."""
        error = ProtocolError(MessageCode.WRONG_CHANNEL.note(type=request.type, channel=request.channel))
        self._session.emit("refused", reason=error.message, code=error.code.code)
        self.status("busy", request)
        self._reply(request, send, _refusal(error), [])
        self.status("idle", request)

    def failed(self, request: Message, send: Send, defect: Exception) -> None:
        """Answer a request whose handling met a defect of ours."""
        self._defect(f"a {request.type}", defect)
        content = {"status": "error", "ename": type(defect).__name__, "traceback": []}
        content["evalue"] = f"sandbox_kernel failed at this {request.type}; the log of this program has the details"
        try:
            self._reply(request, send, content, [])
        finally:
            self.status("idle", request)

    def say_busy(self) -> None:
        """Say of running cells that they run: clients keep one state for a kernel, and have just heard idle."""
        for cell in self._session.requests.queue.running_cells():
            if cell.busy:
                self.status("busy", cell.message)

    def status(self, state: str, request: Message | None) -> None:
        parent = request.header if request is not None else {}
        content = {"execution_state": state}
        self._publish(Message(channel="iopub", header={"msg_type": "status"}, parent=parent, content=content))

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

    @staticmethod
    def _reply(request: Message, send: Send, content: dict[str, Any], buffers: list[bytes]) -> None:
        kind = protocol.reply_type(request.type)
        if kind is None:
            return
        send(
            Message(
                channel=request.channel,
                header={"msg_type": kind},
                parent=request.header,
                content=content,
                buffers=tuple(buffers),
            )
        )


def _refusal(error: SandboxError) -> dict[str, Any]:
    return {"status": "error", "ename": error.name, "evalue": str(error), "traceback": []}
