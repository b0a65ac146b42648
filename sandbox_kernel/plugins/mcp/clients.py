"""Who uses the server, and the sessions of each: named by the client, limited in number, ended when idle.

A session of a client is found through that client alone, so that no name of a session means anything to another.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from ...core.codes import Code
from ...core.errors import SandboxError
from ...core.model import Audience, Settings
from ...core.tasks import Tasks
from ...files.file_rules import FileLimits, check_size
from ...sdk.client import AsyncSandbox, handle_of
from ...sdk.sandbox_paths import place
from .codes import McpCode
from .output_store import SESSION_NAME, OutputStore

CLOSE_SECONDS = 6.0
"""For the ends of sessions that are under way when the server stops."""
AUDIENCE = Audience(
    bring="Bring a file in with the tool upload_file.",
    bring_by_folder="Bring a file in with the tool upload_file. A person can also put it into the upload folder.",
    packages="The operator of this server can add packages to the image.",
)
REMEMBERED = 100
"""Ended sessions of one client whose end is told when their name is used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What clients may have of one server."""

    sessions_per_client: int = 4
    sessions: int = 16
    """Of all clients together."""
    calls_per_session: int = 8
    """Calls that run or wait in one session."""
    away_seconds: float = 60.0
    """For a client over HTTP that is gone without a word, until its sessions end."""
    text_characters: int = 20_000
    """One text in an answer; the whole of a longer one is a resource."""


Make = Callable[[str, str], Awaitable[AsyncSandbox]]


class RefusedCall(Exception):
    """A call that cannot be served now; the text is for the model, and the code for programs."""

    def __init__(self, code: Code, words: str) -> None:
        super().__init__(words)
        self.code = code


class SandboxSession:
    """One session of one client."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.take(AsyncSandbox(settings))
        self.outputs = OutputStore(name)
        self.started = False
        self.since = self.used = time.monotonic()
        self.busy = 0
        """Calls that run or wait."""
        self.cells = 0
        self._uploads: OrderedDict[str, BinaryIO] = OrderedDict()

    def take(self, sandbox: AsyncSandbox) -> None:
        """Have this sandbox from now on."""
        self.sandbox = sandbox
        handle_of(sandbox).session.hints_are_for(AUDIENCE)

    def part(self, path: str, offset: int, data: bytes) -> BinaryIO | None:
        """Add a part to a file that comes in parts; None if it does not follow what is there.

        The parts lie in a temporary file without a name, which goes with this process.
        """
        if offset == 0:
            place(path)  # refused now, and not with the last part
            self.forget_part(path)
            while len(self._uploads) >= 4:
                self._uploads.popitem(last=False)[1].close()
            # It lives until its last part has come; no block can hold it.
            self._uploads[path] = cast("BinaryIO", tempfile.TemporaryFile(prefix="sandbox-upload-"))  # noqa: SIM115
        file = self._uploads.get(path)
        if file is None or file.seek(0, 2) != offset:
            return None
        check_size(offset + len(data), FileLimits.of(self.sandbox.settings.limits).file_bytes)
        file.write(data)
        return file

    def forget_part(self, path: str) -> None:
        file = self._uploads.pop(path, None)
        if file is not None:
            file.close()

    async def close(self) -> None:
        for path in list(self._uploads):
            self.forget_part(path)
        await self.sandbox.kill()


class McpClient:
    """One client: a process at the other end of stdio, or one connection over HTTP."""

    def __init__(self, clients: Clients, owner: str) -> None:
        self._clients = clients
        self._owner = owner
        self._id = secrets.token_hex(4)
        """Part of the names under which others know its sandboxes."""
        self.sessions: dict[str, SandboxSession] = {}
        self._ends: OrderedDict[str, str] = OrderedDict()
        """Why sessions ended that were not ended by the client."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.gone = False
        self.bound = False
        """Whether the end of its connection ends its sessions."""

    def find(self, name: str) -> SandboxSession:
        """Return a session that is there. Raises `RefusedCall`."""
        self._bury(name)
        if name not in self.sessions:
            reason = self._ends.get(name)
            why = f": it ended because {reason}" if reason else ". run_code and upload_file start one"
            raise RefusedCall(McpCode.NO_SUCH_SESSION, f"There is no session {name!r}{why}.")
        return self.sessions[name]

    def alive(self) -> list[SandboxSession]:
        """Return the sessions that are there."""
        for name in list(self.sessions):
            self._bury(name)
        return list(self.sessions.values())

    @asynccontextmanager
    async def use(self, name: str, *, make: bool = True) -> AsyncIterator[tuple[SandboxSession, list[str]]]:
        """Give the session of a name, and what the client should be told of it; with `make`, start it if need be.

        Raises `RefusedCall`, and `SandboxError` if no sandbox can be started.
        """
        session, notes = self._find_or_make(name) if make else (self.find(name), [])
        if session.busy >= self._clients.limits.calls_per_session:
            raise RefusedCall(
                McpCode.SESSION_BUSY,
                f"Session {name!r} is busy with {session.busy} calls. Wait for one of them, or interrupt it.",
            )
        session.busy += 1
        self._stop_timer(name)
        try:
            if make:
                await self._start(session)
            yield session, notes
        finally:
            session.busy -= 1
            session.used = time.monotonic()
            if not session.busy and self.sessions.get(name) is session:
                self._start_timer(name)

    async def end(self, name: str, reason: str | None = None) -> None:
        """End a session; with a reason, the client is told when it uses the name again."""
        self._stop_timer(name)
        session = self.sessions.pop(name, None)
        if reason is not None:
            self._remember(name, reason)
        if session is not None:
            await session.close()

    async def leave(self) -> None:
        """End all sessions; the client is gone."""
        self.gone = True
        await asyncio.gather(*(self.end(name) for name in list(self.sessions)), return_exceptions=True)

    def _find_or_make(self, name: str) -> tuple[SandboxSession, list[str]]:
        if not SESSION_NAME.fullmatch(name):
            raise RefusedCall(
                McpCode.SESSION_NAME_IMPROPER,
                "The name of a session is 1 to 64 letters, digits, dots, dashes and underscores.",
            )
        if self.gone:
            raise RefusedCall(McpCode.CONNECTION_CLOSED, "The connection was closed.")
        self._bury(name)
        if name in self.sessions:
            return self.sessions[name], []
        self._clients.check_limits(self)
        session = self.sessions[name] = SandboxSession(name, self._clients.settings)
        if reason := self._ends.pop(name, None):
            lost = "Its variables and files are gone"
            return session, [f"session {name!r} is new: the one before it ended because {reason}. {lost}"]
        return session, [f"session {name!r} is new: it has no variables and no files yet"]

    async def _start(self, session: SandboxSession) -> None:
        try:
            if self._clients.make is None:
                await session.sandbox.start()
            elif not session.started:
                session.take(await self._clients.make(self._owner, f"{self._id}/{session.name}"))
                if self.sessions.get(session.name) is not session:  # it was ended before there was anything to end
                    await session.close()
                    raise RefusedCall(McpCode.NO_SUCH_SESSION, f"Session {session.name!r} was ended while it started.")
        except BaseException:
            if self.sessions.get(session.name) is session and not session.started and session.busy == 1:
                self._clients.keep(self.end(session.name))
            raise
        session.started = True

    def _bury(self, name: str) -> None:
        """Forget a session whose sandbox ended by itself; its next use starts another one, and says so."""
        session = self.sessions.get(name)
        if session is not None and session.started and not session.sandbox.is_alive and not session.busy:
            del self.sessions[name]
            self._stop_timer(name)
            self._remember(name, "its sandbox was lost or was idle for too long")
            self._clients.keep(session.close())

    def _remember(self, name: str, reason: str) -> None:
        self._ends[name] = reason
        while len(self._ends) > REMEMBERED:
            self._ends.popitem(last=False)

    def _start_timer(self, name: str) -> None:
        self._stop_timer(name)
        seconds = self._clients.settings.limits.idle_timeout
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._idle, name)

    def _stop_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _idle(self, name: str) -> None:
        session = self.sessions.get(name)
        if session is not None and not session.busy:
            seconds = self._clients.settings.limits.idle_timeout
            self._clients.keep(self.end(name, f"it was not used for {seconds:g} s"))


class Clients:
    """All clients of a server."""

    def __init__(self, settings: Settings, limits: ServerLimits, make: Make | None = None) -> None:
        """`make` returns a running sandbox of an owner, by a name. None: they are this server's own."""
        self.settings = settings
        self.limits = limits
        self.make = make
        self._clients: dict[Hashable, McpClient] = {}
        self._tasks = Tasks()
        self._closed = False

    def client(self, key: Hashable, owner: str = "") -> McpClient:
        """Return the client of a key, which must be one that no other client can know or choose.

        `owner` is whose sandboxes its are, if they are not ours.
        """
        if self._closed:
            raise RefusedCall(McpCode.CONNECTION_CLOSED, "The server stops.")
        return self._clients.setdefault(key, McpClient(self, owner))

    async def leave(self, key: Hashable) -> None:
        client = self._clients.pop(key, None)
        if client is not None:
            await client.leave()

    def lost(self, key: Hashable) -> None:
        """End the sessions of a client that seems to be gone; should it come back, it is told."""
        if (client := self._clients.get(key)) is not None:
            for name in list(client.sessions):
                self.keep(client.end(name, "its client was away for too long"))

    async def close(self) -> None:
        """End all sessions of all clients. Idempotent."""
        self._closed = True
        await asyncio.gather(*(self.leave(key) for key in list(self._clients)), return_exceptions=True)
        await self._tasks.close(CLOSE_SECONDS)

    def check_limits(self, client: McpClient) -> None:
        """Raise `RefusedCall` if a client, or the server, has as many sessions as it may have."""
        if len(client.sessions) >= self.limits.sessions_per_client:
            names = ", ".join(sorted(client.sessions))
            raise RefusedCall(
                McpCode.TOO_MANY_SESSIONS,
                f"You have {len(client.sessions)} sessions, which is the limit: {names}. Use one of them, or end one "
                "with end_session.",
            )
        if sum(len(other.sessions) for other in self._clients.values()) >= self.limits.sessions:
            raise RefusedCall(
                McpCode.TOO_MANY_SESSIONS,
                f"The server has {self.limits.sessions} sessions, which is its limit, all clients taken together. "
                "Use a session that you have, or try again later.",
            )

    def keep(self, ending: Coroutine[Any, Any, None]) -> None:
        """Run the end of a session, for which nobody waits."""
        self._tasks.start(_quietly(ending), "the end of a session")


async def _quietly(ending: Coroutine[Any, Any, None]) -> None:
    with suppress(SandboxError):  # its pipe is closed then, and with it the container
        await ending
