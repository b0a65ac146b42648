"""QEMU's monitor (QMP), which only the host reaches: standing still, going on, and writing a machine's state down.

QEMU says nothing there before it is asked. What it answers is read as the work of whoever has taken QEMU over.
Imports asyncio, errors and the lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError
from .lines import Lines

ANSWER_SECONDS = 10.0
SAVE_SECONDS = 60.0
LOOK_SECONDS = 0.01
NO_LIMIT = 1 << 40
"""Bytes a second; QEMU has a limit of its own, for networks."""


class Monitor:
    """One machine's monitor."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lines: Lines | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0

    async def ask(self, what: str, fds: tuple[int, ...] = (), **arguments: object) -> dict[str, Any]:
        """Return what a command returns. Raises `EngineError`."""
        if self._lines is None:
            self._lines = Lines(self._socket, self._heard, self._lost)
            await self.ask("qmp_capabilities")
        self._number += 1
        number = self._number
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        question: dict[str, Any] = {"execute": what, "id": number}
        if arguments:
            question["arguments"] = {name.replace("_", "-"): value for name, value in arguments.items()}
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._lines.send(question, fds)
                said = await future
        except TimeoutError as error:
            raise EngineError(
                EndCode.ENGINE_SILENT, f"QEMU does not answer to {what}", limit=f"{ANSWER_SECONDS:.0f} s"
            ) from error
        except OSError as error:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING) from error
        finally:
            self._answers.pop(number, None)
        if "error" in said:
            raise EngineError(EndCode.ENGINE_FAILED, f"QEMU refuses {what}: {str(said['error'])[:300]}")
        answer = said.get("return")
        return answer if isinstance(answer, dict) else {}

    async def write_down(self, fd: int) -> None:
        """Write the machine's state to a file; the machine stands still afterwards. Raises `EngineError`."""
        await self.ask("migrate-set-parameters", max_bandwidth=NO_LIMIT)
        await self.ask("getfd", (fd,), fdname="state")
        await self.ask("migrate", uri="fd:state")
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                while (status := (await self.ask("query-migrate")).get("status")) != "completed":
                    if status in {"failed", "cancelled"}:
                        raise EngineError(EndCode.ENGINE_FAILED, "QEMU could not write the machine's state down")
                    await asyncio.sleep(LOOK_SECONDS)
        except (TimeoutError, EngineError) as error:
            with contextlib.suppress(EngineError):  # it would go on writing, while the sandbox goes on, without an end
                await self.ask("migrate_cancel")
            if isinstance(error, EngineError):
                raise
            raise EngineError(
                EndCode.ENGINE_SILENT, "QEMU does not write the machine's state", limit=f"{SAVE_SECONDS:.0f} s"
            ) from error

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
