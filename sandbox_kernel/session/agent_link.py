"""The host's end of the wire to one agent: frames in both directions, and questions with answers.

It believes nothing of what it reads: a byte that is no frame ends the link.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import orjson

from ..container import wire
from ..core import json_memory
from ..core.codes import EndCode, MessageCode, Note
from ..core.errors import EngineError, ProtocolError, SandboxDied, WireError
from ..core.model import format_bytes
from ..core.tasks import Tasks, log_defect
from ..engines.base import Container
from ..plugins import index

MAX_QUEUED_BYTES = 256 << 20
"""Bytes waiting to be written to the container; a container that reads nothing must not fill the host."""
AGENT_RESERVE = 2 << 20
"""Bytes by which a frame to the agent stays below what this end takes: the agent would end itself for a larger one."""
MAX_HEAD_COST = 96 << 20
"""Bytes that the JSON in a frame of the agent may cost: a list of 20,000 files is the largest, with a third of that."""
AT_ONCE = 1 << 16
"""Bytes up to which a frame is written without a detour over the queue, if nothing is in there."""
JOINED = 1 << 18
"""Bytes up to which a part is copied so that it and those beside it are one write: each write wakes three programs."""
PING_SECONDS = 10.0
"""The agent ends itself after 60 s without a byte from the host."""
ANSWER_SECONDS = 30.0
"""A crowded sandbox gives its agent little of the processor; one that stays silent this long is lost."""


class Link:
    """Frames to and from one container. Use `frames()` from one task only; everything else from anywhere."""

    def __init__(self, container: Container, max_frame: int) -> None:
        self.container = container
        self._decoder = wire.Decoder(max_frame)
        self._max_sent = max_frame - AGENT_RESERVE
        self._queue: deque[list[bytes]] = deque()
        self._work = asyncio.Event()
        self._last: Callable[[], list[bytes] | None] = lambda: None
        self._queued_bytes = 0
        self._asked: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._tasks = Tasks(self._defect)
        self._tasks.start(self._write(), "writing to a sandbox")
        self._tasks.start(self._ping(), "asking a sandbox whether it is there")
        self._over = False
        self._flowing = asyncio.Event()
        """Not set while the container is paused."""
        self._flowing.set()
        self._turn = asyncio.Lock()
        self._waits: dict[asyncio.Timeout, float | None] = {}
        """Those of questions, with what is left of each while nothing flows."""
        self.spoke = -math.inf
        """When the last message to the kernel was sent, by the loop's clock."""
        self._nested: Any = None
        """Further agents of the same container, once there was one."""
        self.failure: Note | None = None
        """Why the link was given up, where it was not the container's end."""

    def send(self, kind: int, parts: Sequence[bytes]) -> None:
        """Queue a frame. Raises `ProtocolError` for one that is too large, `SandboxDied` if it is not taken."""
        if self._over:
            raise SandboxDied(EndCode.SANDBOX_DIED)
        try:
            frame = wire.encode(kind, tuple(parts))
        except wire.FrameError as error:
            raise ProtocolError(MessageCode.REQUEST_NOT_SENT.note(why=error)) from None
        if kind not in {wire.AGENT, wire.STREAM, wire.NESTED}:
            self.spoke = asyncio.get_running_loop().time()
        size = sum(map(len, frame))
        if size > self._max_sent:
            limit, value = format_bytes(self._max_sent), format_bytes(size)
            raise ProtocolError(MessageCode.REQUEST_TOO_LARGE, limit=limit, value=value, setting="message_limit")
        if self._queued_bytes + size > MAX_QUEUED_BYTES:
            raise SandboxDied(
                EndCode.NOT_READING,
                limit=f"{MAX_QUEUED_BYTES} bytes waiting",
            )
        if not self._queued_bytes and size <= AT_ONCE:
            data = b"".join(frame)
            frame = [data[self.container.offer(data) :]]
            size = len(frame[0])
        if size:
            self._queued_bytes += size
            self._queue.append(frame)
            self._work.set()

    def nested(self) -> Any:
        """Return what has further agents of the container. Raises `ConfigurationError` where no plugin has them."""
        if self._nested is None:
            self._nested = index.nested(self)
        return self._nested

    def take_nested(self, parts: list[bytes]) -> None:
        """Act on a frame of a further agent. Raises `WireError` for one that none sends."""
        if self._nested is None:
            raise WireError(EndCode.NOT_FRAMES, "the sandbox sent a frame of a further agent, and has none")
        self._nested.take(parts)

    def serve_last(self, source: Callable[[], list[bytes] | None]) -> None:
        """Take frames from `source` as long as it has some, each when nothing that was sent waits any more."""
        self._last = source
        self.wake()

    def wake(self) -> None:
        """Note that the source may have a frame."""
        self._work.set()

    def tell(self, op: str, **fields: Any) -> None:
        """Send a command that has no answer."""
        self.send(wire.AGENT, [json.dumps({**fields, "op": op}).encode()])

    @property
    def is_over(self) -> bool:
        """Whether nothing that is sent is answered any more."""
        return self._over

    @property
    def is_held(self) -> bool:
        """Whether the container is paused, so that no answer is expected."""
        return not (self._flowing.is_set() or self._over)

    def hold(self) -> None:
        """Note that the container is paused: requests wait, and their time does not count."""
        self._flowing.clear()
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            when = wait.when()
            if when is not None and not wait.expired():
                self._waits[wait] = max(0.0, when - now)
                wait.reschedule(None)

    async def quiet(self) -> None:
        """Return when a held container has answered all that it was asked. Raises `SandboxDied` without an answer."""
        await self.ask_held("ping")

    async def ask_held(self, op: str) -> tuple[dict[str, Any], bytes]:
        """Ask an agent that answers although its container is held. Raises as `ask`."""
        return await self._answer(op, b"", ANSWER_SECONDS, {})

    def let_go_on(self) -> None:
        """Note that the container goes on."""
        now = asyncio.get_running_loop().time()
        for wait, left in self._waits.items():
            if left is not None:
                wait.reschedule(now + left)
        self._flowing.set()

    async def ask(
        self, op: str, data: bytes = b"", *, timeout: float = ANSWER_SECONDS, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a command and return its answer, a JSON object and raw data. Raises `SandboxDied` without one."""
        async with self._turn:  # chunks of a file must not pass each other when a paused container goes on
            await self._flowing.wait()
        return await self._answer(op, data, timeout, fields)

    async def _answer(
        self, op: str, data: bytes, timeout: float, fields: dict[str, Any]
    ) -> tuple[dict[str, Any], bytes]:
        number = secrets.randbits(52)  # JSON's numbers are exact everywhere up to here
        future: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            head = json.dumps({**fields, "op": op, "id": number}).encode()
            self.send(wire.AGENT, [head, data] if data else [head])
            async with asyncio.timeout(timeout) as wait:
                self._waits[wait] = None
                try:
                    return await future
                finally:
                    del self._waits[wait]
        except TimeoutError:
            raise SandboxDied(
                Note(EndCode.SANDBOX_SILENT, f"the sandbox did not answer {op!r}"), limit=f"{timeout:g} s"
            ) from None
        finally:
            self._asked.pop(number, None)

    async def frames(self) -> AsyncIterator[tuple[int, list[bytes]]]:
        """Yield frames until the container's end; answers to `ask` are not among them. Raises `WireError`.

        A frame may be 90 MB: clearing its list of parts frees them.
        """
        try:
            while data := await self.container.receive(self._decoder.missing):
                try:
                    frames = self._decoder.feed(data)
                except wire.FrameError as error:
                    raise WireError(
                        EndCode.NOT_FRAMES, f"the sandbox sent bytes that are not frames: {error}"
                    ) from None
                frames.reverse()
                while frames:
                    kind, parts = frames[-1][0], list(frames.pop()[1])
                    if kind != wire.AGENT:
                        yield kind, parts
                        continue
                    head, extra = self._parse(parts)
                    future = self._asked.get(head.get("id", 0)) if head["op"] == "reply" else None
                    if future is not None and not future.done():
                        future.set_result((head, extra))
                    else:
                        yield kind, parts
        finally:
            self._abandon()

    @staticmethod
    def _parse(parts: list[bytes]) -> tuple[dict[str, Any], bytes]:
        try:
            if json_memory.heavy(parts[0], MAX_HEAD_COST) is not None:
                raise ValueError
            head = orjson.loads(parts[0])
            if not isinstance(head["op"], str) or not isinstance(head.get("id", 0), int):
                raise TypeError
        except (ValueError, LookupError, TypeError):
            raise WireError(EndCode.NOT_FRAMES, "the sandbox sent an agent frame without a proper head") from None
        return head, parts[1] if len(parts) > 1 else b""

    @property
    def pending(self) -> bytes:
        """Bytes of an unfinished frame; empty at a frame's boundary."""
        return self._decoder.pending

    async def close(self) -> None:
        """Stop the link's tasks; the container is left alone."""
        self._abandon()
        await self._tasks.close()

    def _defect(self, name: str, error: BaseException) -> None:
        """End the container: the link does not work any more."""
        log_defect(name, error)
        if self.failure is None:
            self.failure = Note(EndCode.DEFECT, f"sandbox_kernel failed at {name}: {error!r}")
            self._tasks.start(self.container.kill(), "the end of a sandbox")

    def _abandon(self) -> None:
        self._over = True  # no request would be answered from here on
        if self._nested is not None:
            self._nested.abandon()
        self._flowing.set()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(SandboxDied(EndCode.SANDBOX_DIED))
                future.exception()  # its caller may be gone

    async def _write(self) -> None:
        with contextlib.suppress(EngineError):  # the reader sees the end too, and knows the reason
            while True:
                if self._queue:
                    frame, own = self._queue.popleft(), True
                elif (last := self._last()) is not None:
                    frame, own = last, False
                else:
                    self._work.clear()
                    await self._work.wait()
                    continue
                small = b"".join(part for part in frame if len(part) <= JOINED)
                if sum(map(len, frame)) == len(small):
                    await self.container.send(small)
                else:
                    for part in frame:
                        await self.container.send(part)
                if own:
                    self._queued_bytes -= sum(map(len, frame))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            try:
                await self.ask("ping")
            except SandboxDied as error:
                if self._over:
                    return  # the reader has met the end of the stream, and finds its reason
                if self.failure is None:
                    self.failure = Note(error.code, error.message)
                await self.container.kill()
                return
