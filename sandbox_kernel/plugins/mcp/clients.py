"""A client and its sessions: named by the client, limited in number, gone when their sandboxes are.

A session is found through its client alone, so that no name of a session means anything to another. It is there from
the moment that its sandbox is asked for. Whoever uses it meanwhile waits for that one.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
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
    full="The image {image}, which the operator can choose, has {name}. ",
)
REMEMBERED = 100
"""Ended sessions of one client whose end is told when their name is used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What clients may have of one server."""

    sessions_per_client: int = 4
    calls_per_session: int = 8
    """Calls that run or wait in one session."""
    away_seconds: float = 60.0
    """For a client over HTTP that is gone without a word, until its sessions end."""
    text_characters: int = 20_000
    """One text in an answer; the whole of a longer one is a resource."""


Make = Callable[[str], Coroutine[Any, Any, AsyncSandbox]]
"""Returns a running sandbox for the session of a name, and leaves none behind when it fails or is cancelled."""


class RefusedCall(Exception):
    """A call that cannot be served now; the text is for the model, and the code for programs."""

    def __init__(self, code: Code, words: str) -> None:
        super().__init__(words)
        self.code = code


class SandboxSession:
    def __init__(self, name: str, making: asyncio.Task[AsyncSandbox]) -> None:
        self.name = name
        self._making = making
        self.outputs = OutputStore(name)
        self.since = self.used = time.monotonic()
        self.busy = 0
        """Calls that run or wait."""
        self.cells = 0
        self._uploads: OrderedDict[str, BinaryIO] = OrderedDict()

    @property
    def sandbox(self) -> AsyncSandbox:
        """Its sandbox, once it has `started`."""
        return self._making.result()

    @property
    def started(self) -> bool:
        return self._making.done() and not self._making.cancelled() and self._making.exception() is None

    async def start(self) -> None:
        """Wait for its sandbox. Raises `RefusedCall` if the session is ended meanwhile, and what refused a sandbox."""
        try:
            await asyncio.shield(self._making)
        except asyncio.CancelledError:
            if self._making.cancelled():
                words = f"Session {self.name!r} was ended while it started."
                raise RefusedCall(McpCode.NO_SUCH_SESSION, words) from None
            raise

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
        """End its sandbox, also one that starts."""
        for path in list(self._uploads):
            self.forget_part(path)
        self._making.cancel()
        await asyncio.wait({self._making})
        if self.started:
            with suppress(SandboxError):  # its pipe is closed then, and with it the container
                await self.sandbox.kill()


class McpClient:
    """One client: the process at the other end of stdio, or one connection over HTTP."""

    def __init__(self, limits: ServerLimits, make: Make) -> None:
        """Have no session yet; `make` brings the sandbox of each."""
        self._limits = limits
        self._make = make
        self.sessions: dict[str, SandboxSession] = {}
        self._ends: OrderedDict[str, str] = OrderedDict()
        """Why sessions ended that were not ended by the client."""
        self._tasks = Tasks()
        self._gone = False

    def find(self, name: str) -> SandboxSession:
        """Return a session that is there. Raises `RefusedCall`."""
        self._bury(name)
        if name not in self.sessions:
            reason = self._ends.get(name)
            why = f": it ended because {reason}" if reason else ". run_code and upload_file start one"
            raise RefusedCall(McpCode.NO_SUCH_SESSION, f"There is no session {name!r}{why}.")
        return self.sessions[name]

    async def find_started(self, name: str) -> SandboxSession:
        """Return a session that is there, once it has its sandbox. Raises what `use` raises."""
        session = self.find(name)
        await session.start()
        return session

    def alive(self) -> list[SandboxSession]:
        for name in list(self.sessions):
            self._bury(name)
        return list(self.sessions.values())

    @asynccontextmanager
    async def use(self, name: str, *, make: bool = True) -> AsyncIterator[tuple[SandboxSession, list[str]]]:
        """Give the session of a name, and what the client should be told of it; with `make`, start it if need be.

        Raises `RefusedCall`, and `SandboxError` if no sandbox can be started.
        """
        session, notes = self._find_or_make(name) if make else (self.find(name), [])
        if session.busy >= self._limits.calls_per_session:
            raise RefusedCall(
                McpCode.SESSION_BUSY,
                f"Session {name!r} is busy with {session.busy} calls. Wait for one of them, or interrupt it.",
            )
        session.busy += 1
        try:
            await session.start()
            yield session, notes
        finally:
            session.busy -= 1
            session.used = time.monotonic()
            if not session.busy and not session.started and self.sessions.get(name) is session:
                self._end_soon(name)

    async def end(self, name: str, reason: str | None = None) -> None:
        """End a session; with a reason, the client is told when it uses the name again."""
        if (session := self._forget(name, reason)) is not None:
            await session.close()

    def lose(self, reason: str) -> None:
        """End all sessions of a client that seems to be gone; should it come back, it is told."""
        for name in list(self.sessions):
            self._end_soon(name, reason)

    async def leave(self) -> None:
        """End all sessions; the client is gone. Idempotent."""
        self._gone = True
        await asyncio.gather(*(self.end(name) for name in list(self.sessions)), return_exceptions=True)
        await self._tasks.close(CLOSE_SECONDS)

    def _find_or_make(self, name: str) -> tuple[SandboxSession, list[str]]:
        if not SESSION_NAME.fullmatch(name):
            raise RefusedCall(
                McpCode.SESSION_NAME_IMPROPER,
                "The name of a session is 1 to 64 letters, digits, dots, dashes and underscores.",
            )
        if self._gone:
            raise RefusedCall(McpCode.CONNECTION_CLOSED, "The connection was closed.")
        if len(there := self.alive()) >= self._limits.sessions_per_client and name not in self.sessions:
            names = ", ".join(sorted(session.name for session in there))
            raise RefusedCall(
                McpCode.TOO_MANY_SESSIONS,
                f"You have {len(there)} sessions, which is the limit: {names}. Use one of them, or end one "
                "with end_session.",
            )
        if name in self.sessions:
            return self.sessions[name], []
        making = self._tasks.hold(self._made(name), "the start of a session")
        session = self.sessions[name] = SandboxSession(name, making)
        if reason := self._ends.pop(name, None):
            lost = "Its variables and files are gone"
            return session, [f"session {name!r} is new: the one before it ended because {reason}. {lost}"]
        return session, [f"session {name!r} is new: it has no variables and no files yet"]

    async def _made(self, name: str) -> AsyncSandbox:
        sandbox = await self._make(name)
        handle_of(sandbox).session.hints_are_for(AUDIENCE)
        return sandbox

    def _bury(self, name: str) -> None:
        """Forget a session whose sandbox ended by itself; its next use starts another one, and says so."""
        session = self.sessions.get(name)
        if session is not None and session.started and not session.sandbox.is_alive and not session.busy:
            self._end_soon(name, "its sandbox was lost or was idle for too long")

    def _end_soon(self, name: str, reason: str | None = None) -> None:
        if (session := self._forget(name, reason)) is not None:
            self._tasks.start(session.close(), "the end of a session")

    def _forget(self, name: str, reason: str | None) -> SandboxSession | None:
        if reason is not None:
            self._ends[name] = reason
            while len(self._ends) > REMEMBERED:
                self._ends.popitem(last=False)
        return self.sessions.pop(name, None)


async def own_sandbox(settings: Settings) -> AsyncSandbox:
    """Return a running sandbox of this process."""
    sandbox = AsyncSandbox(settings)
    try:
        await sandbox.start()
    except BaseException:
        await asyncio.shield(sandbox.kill())
        raise
    return sandbox
