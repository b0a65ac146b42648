"""A caller's connection to a broker: questions with answers, and what the broker says unasked.

A packet is one document, so a connection cannot be out of step.
"""

from __future__ import annotations

import array
import asyncio
import errno
import os
import socket
import subprocess
import time
import weakref
from collections.abc import Callable
from typing import Any

from ....core.codes import EndCode
from ....core.errors import EngineError, EngineUnavailable
from ....core.helper_processes import start_apart
from ....engines import broker_sockets
from ..codes import BrokerCode
from . import packets
from .listener_trust import peer, require_own_ground

CONNECT_SECONDS = 5.0
"""For a broker to take a connection from those that wait."""
PAUSE = 0.02
ANSWER_SECONDS = 30.0
ADDRESS_BYTES = 107


async def connect(path: str) -> socket.socket:
    """Return a connection to the broker at `path`. Raises `EngineUnavailable`."""
    if len(os.fsencode(path)) > ADDRESS_BYTES:
        raise EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, "the path of the broker is too long for a socket")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    deadline = time.monotonic() + CONNECT_SECONDS
    try:
        while True:
            try:
                sock.connect(path)
                break
            except BlockingIOError:  # as many wait as may
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE)
        require_own_ground(path, peer(sock).uid)
    except OSError as error:
        sock.close()
        raise EngineUnavailable(
            BrokerCode.BROKER_UNAVAILABLE,
            f"no broker answers at {path}: {error.strerror or error}. Start one: `{broker_sockets.starting(path)}`",
        ) from error
    except BaseException:
        sock.close()
        raise
    return sock


class BrokerChannel:
    """One connection. What comes without a number goes to `heard`; `lost` is called once, at its end."""

    def __init__(
        self,
        sock: socket.socket,
        heard: Callable[[dict[str, Any]], None] = lambda said: None,
        lost: Callable[[], None] = lambda: None,
        asked: int = 0,
    ) -> None:
        """`asked` is the number of the last request on it: an answer to another process's may be on its way."""
        self.heard, self.lost = heard, lost
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._number = asked
        self._loop.add_reader(sock.fileno(), self._hear)
        _open.add(self)

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    async def ask(
        self, op: str, *, seconds: float = ANSWER_SECONDS, sent: bool = False, **fields: Any
    ) -> tuple[dict[str, Any], list[int]]:
        """Return the broker's answer, and the file descriptors that came with it. Raises what the broker refused.

        A first request may have been `sent` already (`ahead.py`).
        """
        self._number += 1
        number = self._number
        future = self._asked[number] = self._loop.create_future()
        try:
            if not sent:
                self.tell(op, n=number, **fields)
            async with asyncio.timeout(seconds):
                said, files = await future
        except BaseException as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                _close_all(future.result()[1])  # it came in the moment in which nobody waited any more
            if isinstance(error, TimeoutError):
                raise EngineError(
                    EndCode.ENGINE_SILENT, f"the broker does not answer {op!r}", limit=f"{seconds:g} s"
                ) from error
            raise
        finally:
            self._asked.pop(number, None)
        if "refused" in said:
            _close_all(files)
            raise packets.raised(said["refused"])
        return said, files

    def tell(self, op: str, **fields: Any) -> None:
        """Say something. Raises `EngineError` if the broker does not take it, or is gone."""
        try:
            self._socket.send(packets.packed({"op": op, **fields}))
        except OSError as error:
            if "n" in fields and isinstance(error, (BrokenPipeError, ConnectionResetError)):
                return  # it hung up at once: why is still to be read, and then its end
            raise EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, "the broker is gone") from error

    def close(self) -> None:
        """Close it; works without a loop, too."""
        if self.is_open:
            os.close(self.detach()[0])

    def detach(self) -> tuple[int, int]:
        """Give the connection away, and the number of the last request; nothing is heard here any more."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        fd = self._socket.detach()
        for future in self._asked.values():
            if not future.done() and not self._loop.is_closed():
                future.set_exception(EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, "the broker is gone"))
        return fd, self._number

    def abandon(self) -> None:
        """Close this process's file descriptor and nothing else; the loop is another process's."""
        self._socket.close()

    def _hear(self) -> None:
        files = array.array("i")
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(
                packets.MAX_BYTES, socket.CMSG_SPACE(files.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, ConnectionResetError):
            return  # what it said before it went is still to be read, and then its end
        except OSError:
            data, ancillary, flags = b"", [], 0
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
        try:
            said = packets.unpacked(data) if data and not flags & socket.MSG_TRUNC else None
        except ValueError:
            said = None
        if said is None:
            _close_all(list(files))
            self.close()
            self.lost()
            return
        future = self._asked.get(said["n"]) if isinstance(said.get("n"), int) else None
        if future is not None and not future.done():
            future.set_result((said, list(files)))
            return
        _close_all(list(files))
        if "n" not in said:
            self.heard(said)


_open: weakref.WeakSet[BrokerChannel] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child, close its copies: else a sandbox would outlive the parent for as long as the child."""
    for channel in list(_open):
        channel.abandon()


os.register_at_fork(after_in_child=_forked)


def _close_all(files: list[int]) -> None:
    for fd in files:
        os.close(fd)


START_SECONDS = 15.0
"""Until it listens: a Python process that loads a part of this package, on a busy machine."""
NOBODY_THERE = {errno.ENOENT, errno.ECONNREFUSED}


async def connect_or_start(path: str, module: str, *arguments: str) -> socket.socket:
    """Return a connection to a broker of this user's at `path`, which is started if nobody listens, by a module.

    It outlives this process, and ends when nobody uses it. If two processes start one at a time, one of them listens
    and the other ends. Raises `EngineUnavailable`.
    """
    try:
        return await connect(path)
    except EngineUnavailable as error:
        if getattr(error.__cause__, "errno", None) not in NOBODY_THERE:
            raise
    try:
        await asyncio.to_thread(start_apart, module, *arguments, seconds=START_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, f"no broker can be started: {error}") from error
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return await connect(path)
        except EngineUnavailable as error:
            if time.monotonic() > deadline:
                words = "the broker that was started does not answer: see what `sandbox-kernel broker` says"
                raise EngineUnavailable(BrokerCode.BROKER_UNAVAILABLE, words) from error
        await asyncio.sleep(PAUSE)
