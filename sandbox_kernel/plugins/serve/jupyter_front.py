"""A sandbox as a kernel with many clients: one more front end of its session, for all WebSockets together.

Everything that is published goes to all of them, also of cells that other wires run; a reply and a question go to the
one that asked. It passes the session's output policy, and what a page does not bear is left out as in any notebook.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ...core import json_memory
from ...core.codes import MessageCode
from ...core.errors import ProtocolError
from ...core.model import Message
from ...core.tasks import log_defect
from ...files.file_rules import FileLimits
from ...kernel.file_messages import Answer, FileMessages
from ...kernel.large_outputs import Overflow
from ...kernel.process_requests import ProcessRequests
from ...sdk.client import AsyncSandbox, session_of
from ...session import protocol
from ...session.requests.queue import PendingRequest, caller
from ...session.requests.request_states import State
from ...session.session import Session
from .jupyter_history import History
from .jupyter_messages import REFUSED, Closed, Outgoing
from .tenants import Lease

MAX_SOCKETS = 8
"""Of one sandbox."""
MAX_HELD = 32 << 20
"""Bytes of memory for requests that wait in one sandbox, or run."""


class Client(Protocol):
    """One WebSocket."""

    client: bytes
    """What it is to the session."""
    who: str

    def send(self, message: Outgoing) -> None: ...
    def look(self) -> None:
        """End it if the sandbox has ended."""


class JupyterFront:
    """See the module; one of a sandbox, from its start on. It does not hold the sandbox."""

    def __init__(self, session: Session, gone: Callable[[], object]) -> None:
        """`gone` is called with each end of a kernel."""
        self._gone = gone
        self.session = session
        self.history = History()
        self.is_listed = True
        """Whether people are offered to join it by a kernelspec."""
        self.used = datetime.now(UTC)
        self.clients: dict[bytes, Client] = {}
        self._held: dict[str, int] = {}
        self._overflow: Overflow | None = None
        self._session_id = _new_id()
        self._numbers = itertools.count(1)
        self._files = FileMessages(
            session.started,
            session.ask,
            session.emit,
            limit=FileLimits.of(session.settings.limits).file_bytes,
            unsent_bytes=lambda: 0,  # each socket has a bound of its own
            arrived=session.folders.arrived,
        )
        self._own = ProcessRequests(session, self._files, self._publish, log_defect)
        session.requests.join(self)
        session.requests.observers.append(self)
        session.requests.queue.listeners.append(self._changed)

    # --- clients ---

    def add(self, client: Client) -> None:
        """Begin to send to a client. Raises `Closed` if there are too many."""
        if len(self.clients) >= MAX_SOCKETS:
            raise Closed(REFUSED, f"the sandbox has {MAX_SOCKETS} connections, which is the limit")
        if self._overflow is None:
            self._overflow = Overflow(self.session, self._publish)
        self.clients[client.client] = client

    def remove(self, client: Client) -> None:
        self.clients.pop(client.client, None)

    # --- the session's front ---

    def deliver(self, message: Message, client: bytes | None) -> None:
        """Pass a message on. Never raises."""
        try:
            self._deliver(message, client)
        except ProtocolError as error:
            self.session.emit("dropped", type=message.type, code=error.code.code, reason=str(error))
        except Exception as defect:
            log_defect("a front end of Jupyter's", defect)

    def drain(self) -> None:
        """Nothing waits to be read."""

    def _deliver(self, message: Message, client: bytes | None) -> None:
        if client is not None:
            if (one := self.clients.get(client)) is not None:
                one.send(self._outgoing(message))
            return
        request = self.session.requests.queue.find(message.parent.get("msg_id"))
        if message.type == "status":
            self.used = datetime.now(UTC)
        elif request is not None and request.reads is not None:
            return  # of a cell of ours: a command, a file
        elif request is not None:
            self.history.take(message, request)
        if self.clients and self._overflow is not None:
            self._overflow.publish(message)

    def _publish(self, message: Message) -> None:
        outgoing = self._outgoing(message)
        for one in list(self.clients.values()):
            one.send(outgoing)

    def _outgoing(self, message: Message) -> Outgoing:
        header = {
            "msg_id": f"{self._session_id}_{next(self._numbers)}",
            "msg_type": message.type,
            "username": "kernel",
            "session": self._session_id,
            "date": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "version": protocol.PROTOCOL_VERSION,
        }
        return Outgoing(replace(message, header=header))

    # --- what happens to cells ---

    def cell_sent(self, cell: PendingRequest) -> None: ...
    def cell_ended(self, cell: PendingRequest) -> None: ...

    def kernel_gone(self) -> None:
        self._gone()
        for one in list(self.clients.values()):
            one.look()

    def _changed(self, request: PendingRequest, _: State) -> None:
        if self._is_over(request):
            self._held.pop(request.id, None)

    @staticmethod
    def _is_over(request: PendingRequest) -> bool:
        """Return whether nothing of its content is kept any more; nobody says when a comm message is done with."""
        return request.finished or (request.is_comm and request.sent)

    # --- requests ---

    def submit(self, request: Message, client: Client) -> None:
        """Have the session take a request. Raises `Closed` for one more than may wait."""
        size = sum(json_memory.kept(protocol.dumps(part)) for part in (request.metadata, request.content))
        size += sum(map(len, request.buffers))
        if sum(self._held.values()) + size > MAX_HELD:
            raise Closed(REFUSED, f"requests of {MAX_HELD:,} bytes wait in the sandbox, which is the limit")
        token = caller.set(client.who)
        try:
            self.session.submit(request, client.client)
        finally:
            caller.reset(token)
        pending = self.session.requests.queue.find(request.id)
        if pending is not None and pending.message is request and not self._is_over(pending):
            self._held[request.id] = size

    async def answer(self, request: Message, client: Client, lease: Lease, end: Callable[[], Any]) -> None:
        """Answer what concerns the kernel's process: with a reply and idle, whatever fails on the way."""
        await self._own.answer(request, client.client, self._to(client), lambda one: self._content(one, lease))
        if request.type == "shutdown_request" and not request.content.get("restart"):
            await end()

    def refuse(self, request: Message, client: Client) -> None:
        """Answer a request on a channel that is not for it: whoever asked must not wait for ever."""
        self._own.refuse(request, self._to(client))

    def _to(self, client: Client) -> Callable[[Message], None]:
        return lambda message: client.send(self._outgoing(message))

    async def _content(self, request: Message, lease: Lease) -> Answer:
        if request.type == "connect_request":
            raise ProtocolError(MessageCode.WRONG_CHANNEL.note(type=request.type, channel="websocket"))
        if request.type == "interrupt_request":  # of calls of the SDK's, too
            await lease.sandbox.interrupt()
            return {}, []
        if request.type == "shutdown_request" and request.content.get("restart"):
            await self.restart()
        return await self._own.content(request, lease.sandbox.settings.engine)

    async def restart(self) -> None:
        """Replace the kernel by a new one; files stay. What comes after that is of another session to clients."""
        if self.session.link is None:
            await self.session.started()
        else:
            await self.session.restart()
        self._session_id = _new_id()
        await self.session.settled()
        if self.session.failure is not None:
            raise self.session.failure

    def last_word(self) -> Outgoing:
        """Return what says that there is no kernel any more."""
        content = {"execution_state": "dead"}
        return self._outgoing(Message(channel="iopub", header={"msg_type": "status"}, content=content))

    def say_busy(self) -> None:
        """Say of running cells that they run, to who has just come."""
        self._own.say_busy()


def _new_id() -> str:
    return f"{os.urandom(4).hex()}-{os.urandom(12).hex()}"


_fronts: WeakKeyDictionary[AsyncSandbox, JupyterFront] = WeakKeyDictionary()


def front_of(lease: Lease) -> JupyterFront:
    """Return the front of a sandbox, which is made with the first call: a server calls it once the sandbox is there."""
    if lease.sandbox not in _fronts:
        # The next kernel is told again where E2B's clients think they are, whichever wire ended this one.
        _fronts[lease.sandbox] = JupyterFront(session_of(lease.sandbox), lease.settled.clear)
    return _fronts[lease.sandbox]
