"""LibreChat's wire: files that are kept between requests, since each request may have a sandbox of its own.

They are on disk here, without names, and end with the server. The oldest make room for new ones: LibreChat has copies,
and sends again what is not found any more.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import IO, Any, cast

from ....files.file_rules import check_size
from ..codes import ServeCode
from ..requests import Refusal, spool

MAX_SESSIONS = 64
"""Of one tenant: each may have a file open here."""
MAX_BYTES = 1 << 30
"""Of one tenant."""
MAX_MEMORY = 64 << 10
"""Bytes of a session before it is written to disk."""
KEEP = timedelta(hours=24)
"""LibreChat counts on 23 hours."""
CHUNK_BYTES = 1 << 20
ID = re.compile(r"[A-Za-z0-9_-]{21}")


def new_id() -> str:
    """Return an id in the form that LibreChat insists on."""
    return secrets.token_urlsafe(16)[:21]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, as a part of its session's content."""

    id: str
    name: str
    """Its path in the folder of a sandbox."""
    offset: int
    size: int


@dataclass(slots=True, eq=False)
class StoredSession:
    """Files that came together, or that one run made."""

    id: str = field(default_factory=new_id)
    made: datetime = field(default_factory=lambda: datetime.now(UTC))
    files: dict[str, StoredFile] = field(default_factory=dict)
    size: int = 0
    _content: Any = field(default_factory=lambda: spool(MAX_MEMORY))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def add(self, name: str, pieces: AsyncIterator[bytes], most: int) -> StoredFile:
        """Keep a file of up to `most` bytes. Raises `FileRefused` for a larger one. What fails leaves no file."""
        begin = done = self.size
        async for piece in pieces:
            check_size(done - begin + len(piece), most)
            self._write(done, piece)
            done += len(piece)
        self.size = done
        stored = StoredFile(new_id(), name, begin, done - begin)
        self.files[stored.id] = stored
        return stored

    def _write(self, offset: int, piece: bytes) -> None:
        with self._lock:
            self._content.seek(offset)
            self._content.write(piece)

    def read(self, offset: int, size: int) -> bytes:
        """Return a piece. Raises `Refusal` if the session is not kept any more."""
        with self._lock:
            if self._content.closed:
                raise unknown()
            self._content.seek(offset)
            return cast("bytes", self._content.read(size))

    def close(self) -> None:
        """Give up what is kept. Idempotent."""
        with self._lock:
            self._content.close()

    def __del__(self) -> None:
        self._content.close()


class StoredContent:
    """A kept file that is read as one that is open."""

    def __init__(self, session: StoredSession, stored: StoredFile) -> None:
        self._session = session
        self._at, self._end = stored.offset, stored.offset + stored.size

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._at
        piece = self._session.read(self._at, left if size < 0 else min(size, left))
        self._at += len(piece)
        return piece

    @property
    def file(self) -> IO[bytes]:
        return cast("IO[bytes]", self)


class FileStore:
    """What is kept for one tenant."""

    def __init__(self) -> None:
        self._sessions: dict[str, StoredSession] = {}
        self._timer: asyncio.TimerHandle | None = None
        """Of the oldest session, while there is one."""

    def keep(self, session: StoredSession) -> None:
        """Keep a session; the oldest go if they are too many, too large or too old."""
        self._sessions[session.id] = session
        self._sweep()

    def _sweep(self) -> None:
        """Drop what makes room or is too old, and come back when the next one is."""
        before = datetime.now(UTC) - KEEP
        for one in list(self._sessions.values()):
            total = sum(kept.size for kept in self._sessions.values())
            is_full = len(self._sessions) > MAX_SESSIONS or total > MAX_BYTES
            if one.made < before or (is_full and len(self._sessions) > 1):
                self._drop(one)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sessions:
            seconds = (min(one.made for one in self._sessions.values()) - before).total_seconds() + 1
            self._timer = asyncio.get_running_loop().call_later(seconds, self._sweep)

    def session(self, identity: object) -> StoredSession:
        """Return a session. Raises `Refusal`, alike for one that never was."""
        found = self._sessions.get(identity) if isinstance(identity, str) and ID.fullmatch(identity) else None
        if found is not None and found.made < datetime.now(UTC) - KEEP:
            self._sweep()
            found = None
        if found is None:
            raise unknown()
        return found

    def file(self, session: object, identity: object) -> tuple[StoredSession, StoredFile]:
        """Return a file. Raises `Refusal`."""
        found = self.session(session)
        stored = found.files.get(identity) if isinstance(identity, str) else None
        if stored is None:
            raise unknown()
        return found, stored

    def remove(self, session: object, identity: object) -> None:
        """Keep a file no more. Raises `Refusal`."""
        found, stored = self.file(session, identity)
        del found.files[stored.id]
        if not found.files:
            self._drop(found)

    def _drop(self, session: StoredSession) -> None:
        del self._sessions[session.id]
        session.close()


def unknown() -> Refusal:
    return Refusal(404, ServeCode.FILE_NOT_KEPT)


async def pieces(session: StoredSession, stored: StoredFile) -> AsyncIterator[bytes]:
    content = StoredContent(session, stored)
    while piece := content.read(CHUNK_BYTES):
        yield piece
