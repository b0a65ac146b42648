"""QEMU's monitor (QMP), which only the host reaches: standing still, going on, and writing a machine's state down.

QEMU writes nothing there unasked. Its answers are parsed as an attacker's, who may control QEMU.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable
from typing import Any, TypeVar

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError
from .line_protocol import LineChannel

T = TypeVar("T")

ANSWER_SECONDS = 10.0
SAVE_SECONDS = 60.0
SLOW_DISK = 8 << 20
"""Bytes a second that are waited for, where a state is so large that it takes longer."""
CANCEL_SECONDS = 10.0
ACTIVE = frozenset({"setup", "active", "pre-switchover", "device", "cancelling"})
"""What QEMU says of a writing that goes on, or is about to end."""
LOOK_SECONDS = 0.01
NO_LIMIT = 1 << 40
"""Bytes a second; QEMU has a limit of its own, for networks."""


class QmpMonitor:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lines: LineChannel | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._begun: asyncio.Future[dict[str, Any]] | None = None
        self._number = 0

    async def ask(self, what: str, fds: tuple[int, ...] = (), **arguments: object) -> dict[str, Any]:
        """Return what a command returns. Raises `EngineError`."""
        if self._lines is None:
            self._lines = LineChannel(self._socket, self._heard, self._lost)
            self._begun = asyncio.get_running_loop().create_future()
            self._answers[0] = self._begun
            await self._send(self._lines, {"execute": "qmp_capabilities", "id": 0})
        # It is asked once, and answers once; where that takes longer than one question may wait, the next one waits on.
        if self._begun is not None:
            self._said(await self._within("begin", asyncio.shield(self._begun)), "begin")
        self._number += 1
        number = self._number
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        question: dict[str, Any] = {"execute": what, "id": number}
        if arguments:
            question["arguments"] = {name.replace("_", "-"): value for name, value in arguments.items()}
        try:
            await self._send(self._lines, question, fds)
            return self._said(await self._within(what, future), what)
        finally:
            self._answers.pop(number, None)

    async def _send(self, lines: LineChannel, question: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        await self._within(str(question["execute"]), lines.send(question, fds))

    async def _within(self, what: str, answer: Awaitable[T]) -> T:
        """Return what comes of it. Raises `EngineError` if nothing does in time, or the monitor has gone."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except TimeoutError as error:
            raise EngineError(
                EndCode.ENGINE_SILENT, f"QEMU does not answer to {what}", limit=f"{ANSWER_SECONDS:.0f} s"
            ) from error
        except OSError as error:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING) from error

    def _said(self, said: dict[str, Any], what: str) -> dict[str, Any]:
        if "error" in said:
            raise EngineError(EndCode.ENGINE_FAILED, f"QEMU refuses {what}: {str(said['error'])[:300]}")
        answer = said.get("return")
        return answer if isinstance(answer, dict) else {}

    async def write_down(self, fd: int, most: int) -> None:
        """Write the machine's state to a file; the machine stands still afterwards. Raises `EngineError`.

        A QEMU that an attacker controls may write without end: more than `most` bytes are an error.
        """
        seconds = seconds_for(most)
        try:
            await self.ask("migrate-set-parameters", max_bandwidth=NO_LIMIT)
            await self.ask("getfd", (fd,), fdname="state")
            await self.ask("migrate", uri="fd:state")  # whoever gives up here may have been heard all the same
            async with asyncio.timeout(seconds):
                while (status := str((await self.ask("query-migrate")).get("status"))) != "completed":
                    _bounded(fd, most)
                    if status in {"failed", "cancelled"}:
                        raise EngineError(EndCode.ENGINE_FAILED, "QEMU could not write the machine's state down")
                    await asyncio.sleep(LOOK_SECONDS)
            _bounded(fd, most)
        except BaseException as error:
            with contextlib.suppress(EngineError, TimeoutError):
                # Else QEMU would go on writing, while the sandbox goes on, without an end.
                await self.ask("migrate_cancel")
                async with asyncio.timeout(CANCEL_SECONDS):
                    while str((await self.ask("query-migrate")).get("status")) in ACTIVE:  # noqa: ASYNC110 (another process's)
                        await asyncio.sleep(LOOK_SECONDS)
            if not isinstance(error, TimeoutError):
                raise
            raise EngineError(
                EndCode.ENGINE_SILENT, "QEMU does not write the machine's state", limit=f"{seconds:.0f} s"
            ) from error

    async def read_back(self, size: int) -> None:
        """Return when QEMU has read so many bytes of a state, and stands still as it did. Raises `EngineError`."""
        seconds = seconds_for(size)
        try:
            async with asyncio.timeout(seconds):
                while (status := await self._status()) is None or status == "inmigrate":  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise EngineError(
                EndCode.ENGINE_SILENT, "QEMU does not read the machine's state", limit=f"{seconds:.0f} s"
            ) from error
        if status != "paused":
            raise EngineError(EndCode.ENGINE_FAILED, f"the machine does not stand still: it is {status[:40]}")

    async def _status(self) -> str | None:
        """Return what QEMU does, None if it does not say: while it reads from a slow disk, it does nothing else."""
        try:
            return str((await self.ask("query-status")).get("status"))
        except EngineError as error:
            if error.code is not EndCode.ENGINE_SILENT:
                raise
            return None

    def close(self) -> None:
        """Close it, without a loop, too."""
        if self._lines is not None:
            self._lines.close()
        self._socket.close()

    def _heard(self, said: dict[str, Any]) -> None:
        future = self._answers.get(number) if isinstance(number := said.get("id"), int) else None
        if future is not None and not future.done():
            future.set_result(said)

    def _lost(self) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_exception(OSError("the monitor has gone"))


def seconds_for(size: int) -> float:
    """Return how long a state of so many bytes may take to be written, or read."""
    return max(SAVE_SECONDS, size / SLOW_DISK)


def _bounded(fd: int, most: int) -> None:
    if os.fstat(fd).st_size > most:
        raise EngineError(EndCode.ENGINE_FAILED, "QEMU writes more than a machine's state", limit=f"{most} bytes")
