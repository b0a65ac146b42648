"""One sandbox that waits: attested, its kernel up, and asked now and then whether it is there.

What it says before its claim is read here and goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, cast

from ...container import wire
from ...core.errors import ProtocolError, SandboxError
from ...core.tasks import Tasks
from ...session import protocol
from ...session.handshake import KernelHandshake

if TYPE_CHECKING:
    from ...core.model import SandboxSpec
    from ...engines.base import Lendable

MAX_FRAME = 4 << 20


class WarmSandbox:
    """One sandbox that waits."""

    def __init__(self, spec: SandboxSpec, container: Lendable, image: str | None) -> None:
        self.spec, self.container, self.image = spec, container, image
        self.since = time.monotonic()
        self._decoder = wire.Decoder(MAX_FRAME)
        self._answered: dict[int, asyncio.Future[None]] = {}
        self._number = 0
        self._turn = asyncio.Lock()
        self._events: set[str] = set()
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[object] | None = None
        self._handshake = KernelHandshake()

    @property
    def introduced(self) -> dict[str, Any]:
        """What its kernel said of itself, as far as the tables know it; whoever claims it need not ask again."""
        return self._handshake.known

    async def get_ready(self, tasks: Tasks) -> None:
        """Return when it was attested and its kernel answers. Raises `SandboxError`, and `ValueError` for odd frames.

        That a kernel can be heard is said of it while it still imports what it is to have imported.
        """
        asked = False
        while not self._handshake.known:
            data = await self.container.receive()
            if not data:
                raise ValueError("it ended")
            for kind, parts in self._decoder.feed(data):
                if kind == wire.AGENT:
                    await self._event(json.loads(parts[0]))
                elif asked:
                    self._heard(kind, parts)
            if not asked and "kernel_ready" in self._events:
                asked = True
                question = protocol.encode(self._handshake.question(self.spec.session_id))
                await self.container.send(b"".join(wire.encode(wire.CONTROL, question)))
        self._reading = tasks.start(self._read(), "reading a sandbox that waits", failed=lambda _: self._over())

    async def answers(self, seconds: float) -> bool:
        """Return whether it answers within this time, and has said nothing by halves."""
        if self._reading is None or self._reading.done():
            return False
        self._number += 1
        number = self._number
        question = json.dumps({"op": "ping", "id": number}).encode()
        try:
            async with asyncio.timeout(seconds), self._turn:  # no answer is under way when it is given away
                future = self._answered[number] = asyncio.get_running_loop().create_future()
                await self.container.send(b"".join(wire.encode(wire.AGENT, [question])))
                await future
        except (TimeoutError, SandboxError, ValueError):
            return False
        finally:
            self._answered.pop(number, None)
        return not self._decoder.pending

    async def let_go(self) -> bool:
        """Stop reading; return whether what comes next begins with a frame."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        return not self._decoder.pending

    async def end(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        with contextlib.suppress(SandboxError, OSError):
            await self.container.kill()

    async def _read(self) -> None:
        while data := await self.container.receive():
            for kind, parts in self._decoder.feed(data):
                if kind == wire.AGENT:
                    await self._event(json.loads(parts[0]))
        self._over()

    def _heard(self, kind: int, parts: tuple[bytes, ...]) -> None:
        with contextlib.suppress(ProtocolError):
            size = sum(map(len, parts))
            self._handshake.takes(protocol.decode(kind, list(parts), MAX_FRAME), size)

    async def _event(self, said: dict[str, object]) -> None:
        op = str(said.get("op"))
        if op == "hello":
            await self.container.attest(said.get("report"), self.spec)
        elif op == "kernel_ready" and "hello" not in self._events:
            raise ValueError("its kernel was ready before it was attested")
        elif op == "kernel_exited":
            raise ValueError("its kernel ended")
        elif op == "reply":
            future = self._answered.get(cast("int", said.get("id")))
            if future is not None and not future.done():
                future.set_result(None)
            return
        self._events.add(op)

    def _over(self) -> None:
        for future in self._answered.values():
            if not future.done():
                future.set_exception(ValueError("it ended"))
                future.exception()
