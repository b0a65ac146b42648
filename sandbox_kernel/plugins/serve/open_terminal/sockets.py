"""Open Terminal's wire: shells with a terminal, each for one WebSocket.

A client proves itself with its first message, as a browser cannot send headers with a WebSocket.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from ....core.errors import SandboxError
from ....sdk.values import PtySize
from ..codes import ServeCode
from ..guard import RouteGuard
from ..requests import Refusal, answer, object_of
from ..tenants import Tenant, Tenants
from ..turns import paced
from ..web_server import admitted, known
from .bodies import Typed
from .user import Box, UserRequest, Users, header

MAX_TERMINALS = 8
"""Of one user."""
MAX_KEPT = 64 << 10
"""Bytes of what a terminal showed last."""
MAX_BACKLOG = 64
"""Pieces that wait for a client, which holds up its shell and nobody else."""
FIRST_SECONDS = 10.0
"""In which a client proves itself."""
MAX_FIRST = 4096
"""Characters of a message that is JSON: that one, and each size of its terminal."""
MAX_UNPROVEN = 64
"""Clients that have not proven themselves yet, of all tenants and strangers: the oldest goes first."""
CONNECT_SECONDS = 60.0
"""In which a new terminal is connected to."""
NOT_PROVEN, NOT_FOUND, TAKEN, FULL = 4001, 4004, 4009, 4029
MAX_SIZE = 1000


@dataclass(slots=True, eq=False)
class Terminal:
    id: str
    chat: str
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat().replace("+00:00", "Z"))
    handle: Any = None
    shown: bytearray = field(default_factory=bytearray)
    waiting: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    connected: bool = False
    ended: bool = False

    async def hear(self, data: bytes) -> None:
        """Take what the shell shows; wait for the client if it has not read enough."""
        self.shown += data
        del self.shown[:-MAX_KEPT]
        while self.connected and len(self.waiting) >= MAX_BACKLOG:
            self.room.clear()
            await self.room.wait()
        if not self.connected:
            self.waiting.clear()
        self.waiting.append(data if self.connected else bytes(self.shown))
        self.news.set()

    async def next(self) -> bytes | None:
        """Return what the client is to see next, None at the end."""
        while not self.waiting and not self.ended:
            self.news.clear()
            await self.news.wait()
        if not self.waiting:
            return None
        self.room.set()
        return self.waiting.popleft()

    def about(self) -> dict[str, Any]:
        return {"id": self.id, "created_at": self.made, "pid": self.handle.pid}


def _error(words: str, status: int) -> Response:
    return answer({"error": words, "detail": words}, status)


async def create(asked: UserRequest) -> Response:
    """Start a shell."""
    box, lease = asked.box, asked.box.lease
    if len(box.terminals) >= MAX_TERMINALS or lease.calls >= asked.tenants.limits.calls_per_sandbox:
        return _error(f"Maximum number of terminal sessions ({MAX_TERMINALS}) reached", 429)
    terminal = Terminal(secrets.token_hex(16), asked.chat)
    box.terminals[terminal.id] = terminal
    try:
        folder = box.folder(asked.chat)
        terminal.handle = await asked.sandbox.pty.create(PtySize(24, 80), terminal.hear, cwd=folder, timeout=None)
    except BaseException:
        del box.terminals[terminal.id]
        raise
    asked.tenants.tasks.start(_follow(terminal, box), "a terminal")
    return answer(terminal.about())


async def _follow(terminal: Terminal, box: Box) -> None:
    """Follow a shell to its end. A shell without a connection ends soon."""
    box.lease.calls += 1
    waiting = asyncio.create_task(terminal.handle.wait())
    try:
        await asyncio.wait({waiting}, timeout=CONNECT_SECONDS)
        if terminal.connected:
            await asyncio.wait({waiting})
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)  # how it ended is nobody's concern
    finally:
        box.lease.calls -= 1
        await _end(terminal, box)


async def _end(terminal: Terminal, box: Box) -> None:
    """End a shell. Idempotent."""
    box.terminals.pop(terminal.id, None)
    if terminal.ended:
        return
    terminal.ended = True
    terminal.connected = False
    terminal.news.set()
    terminal.room.set()
    try:
        if terminal.handle is not None:
            await terminal.handle.kill()
    except SandboxError:
        return  # it has ended with its sandbox


def _known(asked: UserRequest) -> Terminal | None:
    found = asked.box.terminals.get(asked.request.path_params["session_id"])
    return found if isinstance(found, Terminal) and found.chat == asked.chat and found.handle is not None else None


async def every(asked: UserRequest) -> Response:
    """List the terminals of a chat."""
    known = [one for one in asked.box.terminals.values() if one.chat == asked.chat and one.handle is not None]
    return answer([one.about() for one in known])


async def show(asked: UserRequest) -> Response:
    """Say what a terminal is."""
    found = _known(asked)
    return _error("Session not found", 404) if found is None else answer(found.about())


async def remove(asked: UserRequest) -> Response:
    """End a shell."""
    found = _known(asked)
    if found is None:
        return _error("Session not found", 404)
    await _end(found, asked.box)
    return answer({"status": "deleted"})


def _of_user(asked: UserRequest) -> Terminal:
    for one in reversed(list(asked.box.terminals.values())):
        if one.chat == asked.chat and one.connected:
            found: Terminal = one
            return found
    raise Refusal(404, ServeCode.NOT_THERE, "No connected user shell")


async def read(asked: UserRequest) -> Response:
    """Return what the shell that the user has open showed last. Read it before something is typed into it."""
    return answer({"output": bytes(_of_user(asked).shown).decode(errors="replace")})


async def type_in(asked: UserRequest, body: Typed) -> Response:
    """Type into the shell that the user has open. It does not wait for what comes of it."""
    await _of_user(asked).handle.send_stdin(body.input)
    return answer({"status": "ok"})


# --- WebSockets ---


class Sockets:
    """Connects WebSockets with shells."""

    def __init__(self, guard: RouteGuard, users: Users) -> None:
        self._guard = guard
        self._users = users
        self._nobody = Tenant("")
        """Whose requests those are that have not proven themselves yet."""
        self._unproven: dict[asyncio.Timeout, None] = {}
        """The oldest first."""

    def who(self, connection: HTTPConnection) -> Tenant:
        return self._nobody

    async def handle(self, socket: WebSocket, tenants: Tenants, nobody: Tenant) -> None:
        """Let a client prove itself, and have it be at its shell. The shell ends with the connection."""
        await socket.accept()
        try:
            first = await self._first(socket)
            said = _parsed(first)
            tenant = self._guard.tenant_of(str(said.get("token")) if said.get("type") == "auth" else "")
        except (TimeoutError, KeyError, Refusal):
            await socket.close(NOT_PROVEN, "Invalid API key")
            return
        if tenant.requests >= tenants.limits.requests_per_tenant:
            await socket.close(FULL, "Too many requests under way")
            return
        known(socket)
        tenant.requests += 1
        admitted(socket.scope)
        try:
            await self._proven(socket, tenant, said)
        finally:
            tenant.requests -= 1

    async def _first(self, socket: WebSocket) -> str:
        """Return what a client says first. Raises `TimeoutError`, also if too many wait that came later."""
        async with asyncio.timeout(FIRST_SECONDS) as time:
            self._unproven[time] = None
            if len(self._unproven) > MAX_UNPROVEN:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                oldest.reschedule(0)
            try:
                return await socket.receive_text()
            finally:
                self._unproven.pop(time, None)

    async def _proven(self, socket: WebSocket, tenant: Tenant, said: dict[str, Any]) -> None:
        try:
            box, terminal = self._found(socket, tenant, said)
        except Refusal:
            await socket.close(NOT_FOUND, "Session not found")
            return
        if terminal.connected:
            await socket.close(TAKEN, "Session already connected")
            return
        terminal.connected = True
        try:
            shown = asyncio.create_task(_show(socket, terminal))
            typed = asyncio.create_task(paced(_type(socket, terminal, box)))
            await asyncio.wait({shown, typed}, return_when=asyncio.FIRST_COMPLETED)
            for task in (shown, typed):
                task.cancel()
            await asyncio.gather(shown, typed, return_exceptions=True)
        finally:
            await _end(terminal, box)
        if socket.client_state.name == "CONNECTED":
            await socket.close()

    def _found(self, socket: WebSocket, tenant: Tenant, said: dict[str, Any]) -> tuple[Box, Terminal]:
        """Return the terminal that a client may connect to. Raises `Refusal`, alike for another's."""
        users = {header(socket, "X-User-Id"), *socket.query_params.getlist("user_id")} - {""}
        chat = header(socket, "X-Session-Id") or str(said.get("chat_id") or "")
        identity = socket.path_params["session_id"]
        for box in self._users.boxes(tenant):
            terminal = box.terminals.get(identity)
            is_theirs = users == ({box.user} if box.user else set())
            if isinstance(terminal, Terminal) and terminal.handle and is_theirs and chat in {"", terminal.chat}:
                return box, terminal
        raise Refusal(404, ServeCode.NOT_THERE)


def _parsed(text: str) -> dict[str, Any]:
    """Return an object of JSON, an empty one for what is none."""
    if len(text) > MAX_FIRST:
        return {}
    return object_of(text.encode()) or {}


async def _show(socket: WebSocket, terminal: Terminal) -> None:
    while (piece := await terminal.next()) is not None:
        await socket.send_bytes(piece)


async def _type(socket: WebSocket, terminal: Terminal, box: Box) -> None:
    """Type what comes, one message after another: the next is read when the shell has the last."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("bytes"):
            await terminal.handle.send_stdin(message["bytes"])
            continue
        said = _parsed(message.get("text") or "")
        rows, cols = said.get("rows", 24), said.get("cols", 80)
        proper = all(type(one) is int and 0 < one <= MAX_SIZE for one in (rows, cols))
        if said.get("type") == "resize" and proper:
            await box.lease.sandbox.pty.resize(terminal.handle.pid, PtySize(rows, cols))


ROUTES = (
    ("GET", "/api/terminals/user/output", read),
    ("POST", "/api/terminals/user/input", type_in),
    ("POST", "/api/terminals", create),
    ("GET", "/api/terminals", every),
    ("GET", "/api/terminals/{session_id}", show),
    ("DELETE", "/api/terminals/{session_id}", remove),
)
SOCKET = "/api/terminals/{session_id}"
