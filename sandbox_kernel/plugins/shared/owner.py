"""The process that owns a shared sandbox, while a kernel is in it: `python -m … SOCKET SETTINGS`, by `engine`.

It starts the sandbox with the first kernel and attests it, as every session does. It moves the bytes of each kernel
between a socket and the pipe of an agent, and reads none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from ...config.sources import changed
from ...core.errors import SandboxDied, SandboxError
from ...core.model import Limits, Settings
from ...sdk.bare_session import bare_session
from ..api import AgentPipe
from .codes import SharedCode
from .meeting_point import MAX_LINE, digest, is_own

LINGER_SECONDS = 2.0
"""How long it waits for the next kernel when the last one has left: a notebook is restarted within that."""
FIRST_SECONDS = 60.0
REQUEST_SECONDS = 10.0
READ_BYTES = 256 << 10
BACKLOG = 64


class SharedOwner:
    """One shared sandbox."""

    def __init__(self, said: dict[str, Any]) -> None:
        """Raises `SandboxError`, LookupError, TypeError or ValueError for settings that are none."""
        self._digest = digest(said)
        given = {**said, "limits": Limits(**said["limits"])}
        data = {name: tuple(found) for name, found in given.pop("data").items()}
        settings = changed(Settings(**given), data)
        self.session = bare_session(settings)
        self._kernels = 0
        self._changed = asyncio.Event()

    async def serve(self, listener: socket.socket, path: Path) -> None:
        """Take kernels until the last one has left; the name is free then, before the listener is closed."""
        server = await asyncio.start_unix_server(self._take, sock=listener, limit=MAX_LINE)
        seconds = FIRST_SECONDS
        try:
            while True:
                self._changed.clear()
                try:
                    async with asyncio.timeout(None if self._kernels else seconds):
                        await self._changed.wait()
                except TimeoutError:
                    return
                seconds = LINGER_SECONDS
        finally:
            await asyncio.to_thread(forget, path)
            server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._kernels += 1
        self._changed.set()
        try:
            if is_own(writer.get_extra_info("socket")):
                await self._serve(reader, writer)
        finally:
            self._kernels -= 1
            self._changed.set()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = json.loads(await reader.readline())
            pipe = await self._opened(request)
        except SandboxError as error:
            await _answer(writer, {"ok": False, "code": error.code.code, "message": str(error)})
            return
        except (TimeoutError, ValueError, LookupError, TypeError, OSError):
            return  # it is no kernel of ours, or has gone
        try:
            await _answer(writer, {"ok": True, "id": pipe.id, "held": pipe.held})
            inward = asyncio.create_task(self._inward(reader, pipe))
            outward = asyncio.create_task(self._outward(pipe, writer))
            await asyncio.wait({inward, outward}, return_when=asyncio.FIRST_COMPLETED)
            for task in (inward, outward):
                task.cancel()
            await asyncio.gather(inward, outward, return_exceptions=True)
        finally:
            await pipe.kill()

    async def _opened(self, request: dict[str, Any]) -> AgentPipe:
        if request["digest"] != self._digest:
            raise SandboxDied(SharedCode.SHARED_OTHER_SETTINGS.note(name=""))
        return await self.session.open_nested(request["config"])

    async def _inward(self, reader: asyncio.StreamReader, pipe: AgentPipe) -> None:
        while data := await reader.read(READ_BYTES):
            self.session.touch()
            await pipe.send(data)

    async def _outward(self, pipe: AgentPipe, writer: asyncio.StreamWriter) -> None:
        while data := await pipe.receive():
            writer.write(data)
            await writer.drain()


async def _answer(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


def listen(path: Path) -> socket.socket:
    """Listen where nobody does any more; whoever starts an owner holds the lock of the folder meanwhile."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(BACKLOG)
    return listener


def forget(path: Path) -> None:
    """Remove what this process listens at, while no other can begin to."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        path.unlink(missing_ok=True)
    finally:
        os.close(folder)


async def run(path: Path, said: dict[str, Any]) -> None:
    """Own a sandbox, and listen at `path`, until the last kernel has left."""
    owner = SharedOwner(said)
    try:
        await owner.serve(listen(path), path)
    finally:
        await owner.session.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), json.loads(sys.argv[2])))
