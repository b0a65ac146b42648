"""A sandbox as a kernel with many clients: one more front end of its session, and the `Transport` of all WebSockets.

Everything that is published goes to all of them, also of cells that other wires run; a reply and a question go to the
one that asked. It passes the session's output policy, and what a page does not bear is left out as in any notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ....core import json_memory
from ....core.call_context import caller
from ....core.errors import ProtocolError
from ....core.events import MessageDropped
from ....core.model import Message
from ....core.tasks import log_defect
from ....policy import protocol
from ....sdk.client import AsyncSandbox, handle_of
from ...api import KernelProcess, SandboxHandle, SessionRequest
from ..tenants import Lease
from .history import History
from .messages import REFUSED, Closed, Outgoing

MAX_SOCKETS = 8
"""Of one sandbox."""
MAX_HELD = 32 << 20
"""Bytes of memory for requests that wait in one sandbox, or run."""


class ChannelClient(KernelProcess, Protocol):
    """One WebSocket."""

    client: bytes
    """What it is to the session."""
    who: str

    def send(self, message: Outgoing) -> None: ...
    def look(self) -> None:
        """End it if the sandbox has ended."""


class JupyterFront:
    """See the module; one of a sandbox, from its start on. It does not hold the sandbox."""

    def __init__(self, sandbox: SandboxHandle, engine: str, gone: Callable[[], object]) -> None:
        """`engine` is what the settings call it; `gone` is called with each end of a kernel."""
        self._gone = gone
        self.session = session = sandbox.session
        self.history = History()
        self.is_listed = True
        """Whether people are offered to join it by a kernelspec."""
        self.used = datetime.now(UTC)
        self.clients: dict[bytes, ChannelClient] = {}
        self._held: dict[str, int] = {}
        self.server = sandbox.serve(self, engine)
        session.join(self)
        session.observe(self)
        session.on_change(self._changed)

    # --- clients ---

    def add(self, client: ChannelClient) -> None:
        """Begin to send to a client. Raises `Closed` if there are too many."""
        if len(self.clients) >= MAX_SOCKETS:
            raise Closed(REFUSED, f"the sandbox has {MAX_SOCKETS} connections, which is the limit")
        self.clients[client.client] = client

    def remove(self, client: ChannelClient) -> None:
        self.clients.pop(client.client, None)

    # --- the session's front ---

    def deliver(self, message: Message, client: bytes | None) -> None:
        """Pass a message on. Never raises."""
        try:
            if client is not None:
                self.send(message, client)
            elif self._is_shown(message) and self.clients:
                self.server.publish(message)
        except ProtocolError as error:
            self.session.emit(MessageDropped(type=message.type, code=error.code, reason=str(error)))
        except Exception as defect:
            log_defect("a front end of Jupyter's", defect)

    def drain(self) -> None:
        """Nothing waits to be read."""

    def _is_shown(self, message: Message) -> bool:
        """Note what is published; return whether a person's cell says it, and none of ours: a command, a file."""
        request = self.session.find(message.parent.get("msg_id"))
        if message.type == "status":
            self.used = datetime.now(UTC)
        elif request is not None and request.reads is not None:
            return False
        elif request is not None:
            self.history.take(message, request)
        return True

    # --- its transport ---

    def send(self, message: Message, client: bytes | None = None) -> None:
        """Send a message to one client, or to all; one that has gone gets nothing."""
        found = [one for name, one in self.clients.items() if client in {None, name}]
        if found:
            outgoing = Outgoing(replace(message, header=self.server.headers.of(message.type)))
            for one in found:
                one.send(outgoing)

    def unsent_bytes(self) -> int:
        """Return 0: each socket has a bound of its own."""
        return 0

    # --- what happens to cells ---

    def cell_sent(self, cell: SessionRequest) -> None: ...
    def cell_ended(self, cell: SessionRequest) -> None: ...

    def kernel_gone(self) -> None:
        self._gone()
        for one in list(self.clients.values()):
            one.look()

    def _changed(self, request: SessionRequest) -> None:
        if request.is_over:
            self._held.pop(request.id, None)

    # --- requests ---

    def receive(self, request: Message, client: ChannelClient) -> Coroutine[Any, Any, None] | None:
        """Take a request, and return what is to be run for its answer. Raises `Closed` for one more than may wait."""
        size = 0
        if protocol.way(request) == "passed on":
            try:
                parts = [protocol.dumps(part) for part in (request.metadata, request.content)]
                size = sum(map(json_memory.kept, parts)) + sum(map(len, request.buffers))
            except ProtocolError:  # it nests too deep to be measured, or sent: alone it may wait for its reply
                size = MAX_HELD
        if sum(self._held.values()) + size > MAX_HELD:
            raise Closed(REFUSED, f"requests of {MAX_HELD:,} bytes wait in the sandbox, which is the limit")
        token = caller.set(client.who)
        try:
            answering = self.server.receive(request, client.client, client)
        finally:
            caller.reset(token)
        pending = self.session.find(request.id)
        if pending is not None and pending.message is request and not pending.is_over:
            self._held[request.id] = size
        return answering

    async def restart(self) -> None:
        """Replace the kernel by a new one; files stay. What comes after that is of another session to clients."""
        await self.session.renew()
        self.server.headers.renew()
        await self.session.settled()
        if self.session.failure is not None:
            raise self.session.failure


_fronts: WeakKeyDictionary[AsyncSandbox, JupyterFront] = WeakKeyDictionary()


def front_of(lease: Lease) -> JupyterFront:
    """Return the front of a sandbox, which is made with the first call: a server calls it once the sandbox is there."""
    if lease.sandbox not in _fronts:
        # The next kernel is told again where E2B's clients think they are, whichever wire ended this one.
        engine = lease.sandbox.settings.engine
        _fronts[lease.sandbox] = JupyterFront(handle_of(lease.sandbox), engine, lease.settled.clear)
    return _fronts[lease.sandbox]
