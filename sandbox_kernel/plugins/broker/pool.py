"""Sandboxes that are ready before anybody asks: started, attested, their kernel up; claimed once and never taken back.

What callers asked for lately is what is made ahead, one sandbox at a time. Each has the broker's process for its owner,
and with it what outlives that: a broker that is killed leaves none. What one says before its claim is read here and
goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...container import wire
from ...core.errors import ProtocolError, SandboxError
from ...core.model import GIB, PYTHON_KERNEL
from ...core.tasks import Tasks
from ...core.version import __version__
from ...policy import protocol
from ...policy.handshake import KernelHandshake

if TYPE_CHECKING:
    from ...core.model import PYTHON_KERNEL, SandboxSpec
    from ...engines.base import Lendable
    from ...engines.inspectable import Inspectable
    from .create_request import CreateRequest

MAX_FRAME = 4 << 20


async def undo(container: Lendable) -> None:
    """End a sandbox that nobody is to have, whatever becomes of it."""
    with contextlib.suppress(SandboxError, OSError):
        await container.kill()


class WarmSandbox:
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
        self._handshake = KernelHandshake(spec.made_of.kernel if spec.made_of is not None else PYTHON_KERNEL)

    @property
    def introduced(self) -> dict[str, Any]:
        """What its kernel said of itself, as far as the tables know it; whoever claims it need not ask again."""
        return self._handshake.known

    async def get_ready(self, tasks: Tasks) -> None:
        """Return when it was attested and its kernel answers. Raises `SandboxError`, and `ValueError` for odd frames.

        A kernel can be heard before it has imported all that it is to import.
        """
        has_asked = False
        while not self._handshake.known:
            data = await self.container.receive()
            if not data:
                raise ValueError("it ended")
            for kind, parts in self._decoder.feed(data):
                if kind == wire.AGENT:
                    await self._event(json.loads(parts[0]))
                elif has_asked:
                    with contextlib.suppress(ProtocolError):
                        size = sum(map(len, parts))
                        self._handshake.takes(protocol.decode(kind, list(parts), MAX_FRAME), size)
            if not has_asked and "kernel_ready" in self._events:
                has_asked = True
                question = self._handshake.question(self.spec.session_id)
                frame = wire.encode(wire.CHANNELS[question.channel], protocol.encode(question))
                await self.container.send(b"".join(frame))
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
        await undo(self.container)

    async def _read(self) -> None:
        while data := await self.container.receive():
            for kind, parts in self._decoder.feed(data):
                if kind == wire.AGENT:
                    await self._event(json.loads(parts[0]))
        self._over()

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


START_SECONDS = 60.0
PING_SECONDS = 5.0
"""Between two questions whether a sandbox is there; its agent ends itself after a minute of silence."""
ANSWER_SECONDS = 0.5
"""For an answer at the claim. One that is slower is not ready, whatever it is."""
MISSED_SECONDS = 10.0
REST_SECONDS = 1.0
"""After a claim, before the next one is made: whoever claimed has a cell to run first."""
AFTER_FAILURE_SECONDS, MAX_AFTER_FAILURE_SECONDS = 5.0, 300.0
MAX_DOUBLINGS = 16
"""An engine may be away for weeks; the thousandth doubling is no number of seconds."""
KINDS = 8
"""How many different sandboxes are remembered."""
STALE_SECONDS = 1800.0
"""How long a kind is kept ready after its last request."""
PRESSURE = 60.0
"""Percent of the last ten seconds in which something waited for a processor; above it nothing is made ahead."""
SPARE_BYTES = GIB
"""Of memory that must be left over."""


def under_pressure() -> bool:
    """Return whether somebody waits for a processor, or there is little memory left."""
    try:
        first = Path("/proc/pressure/cpu").read_text(encoding="ascii").split("\n", 1)[0]
        share = float(first.partition("avg10=")[2].split(" ", 1)[0])
    except (OSError, ValueError):
        share = 0.0  # a kernel that does not say so
    return share > PRESSURE or spare_memory() < SPARE_BYTES


def spare_memory() -> int:
    """Return the bytes that could be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 1 << 62


class PoolKind:
    """Sandboxes of one digest."""

    def __init__(self, order: CreateRequest) -> None:
        self.order = order
        self.asked = time.monotonic()
        self.ready: list[WarmSandbox] = []
        self.failures = 0
        self.not_before = 0.0

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self.asked > STALE_SECONDS


class Pool:
    """At most `size` sandboxes, of the kinds that were asked for last."""

    def __init__(
        self,
        engine: Inspectable,
        *,
        size: int,
        preload: tuple[str, ...] = (),
        busy: Callable[[], bool] = under_pressure,
        report: Callable[[str], None] = lambda line: None,
        rest_seconds: float = REST_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.size, self.preload = size, preload
        self.made = self.lost = 0
        self._engine = engine
        self._busy = busy
        self._report = report
        self._kinds: OrderedDict[str, PoolKind] = OrderedDict()
        self._tasks = Tasks()
        self._wanted = asyncio.Event()
        self._claimed = -rest_seconds
        self._rest = rest_seconds
        self._answer_seconds = answer_seconds
        self._closed = False

    @property
    def ready(self) -> int:
        return sum(len(kind.ready) for kind in self._kinds.values())

    def begin(self) -> None:
        if self.size > 0:
            self._tasks.start(self._fill(), "making sandboxes ahead", failed=lambda _: self.stop())
            self._tasks.start(self._look_after(), "looking after sandboxes that wait", failed=lambda _: self.stop())

    async def claim(
        self, order: CreateRequest, whose: Callable[[WarmSandbox], Awaitable[object]]
    ) -> WarmSandbox | None:
        """Return one that answered just now and is of today's image, None where there is none: start one, then.

        `whose` notes meanwhile who is to have it; if that fails, it is ended, too.
        """
        if self.size <= 0 or self._closed or not order.is_plain:
            return None
        key = order.key(self.preload)
        kind = self._kinds.pop(key, None) or PoolKind(order)
        self._kinds[key] = kind  # the last one asked for stands last
        kind.asked = self._claimed = time.monotonic()
        while len(self._kinds) > KINDS:
            self._forget(next(iter(self._kinds)))
        self._wanted.set()
        while kind.ready:
            warm = kind.ready.pop()
            try:
                answers, image, noted = await asyncio.gather(
                    warm.answers(self._answer_seconds), self._image(order), whose(warm), return_exceptions=True
                )
                current = answers is True and image == warm.image and not isinstance(noted, BaseException)
                if current and await warm.let_go():
                    return warm
            except BaseException:
                self._drop(warm)
                raise
            self._drop(warm)
        return None

    def rows(self) -> list[dict[str, Any]]:
        """Return those that wait, as `ps` lists sandboxes."""
        return [
            {
                "session": warm.spec.session_id,
                "container": warm.container.id,
                "owner_pid": os.getpid(),
                "owner_alive": True,
                "state": "ready",
                "age_seconds": int(time.monotonic() - warm.since),
                "image": warm.spec.image,
                "memory_bytes": warm.spec.limits.memory,
                "version": __version__,
            }
            for kind in self._kinds.values()
            for warm in kind.ready
        ]

    def containers(self) -> list[Lendable]:
        return [warm.container for kind in self._kinds.values() for warm in kind.ready]

    async def empty(self) -> None:
        waiting = [warm for kind in self._kinds.values() for warm in kind.ready]
        self._kinds.clear()
        await asyncio.gather(*(warm.end() for warm in waiting))

    def stop(self) -> None:
        self._closed = True
        self._wanted.set()

    async def close(self) -> None:
        self.stop()
        await self._tasks.close()
        await self.empty()

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        """Make one after another, and none while the machine has other work."""
        while not self._closed:
            self._wanted.clear()
            kind = self._next()
            if kind is None or self._busy() or time.monotonic() - self._claimed < self._rest:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._rest):
                        await self._wanted.wait()
                if self._wanted.is_set():
                    await asyncio.sleep(self._rest / 4)
                continue
            await self._make(kind)

    def _next(self) -> PoolKind | None:
        """Return the kind of which one is to be made: each of the last ones has one before the last has two."""
        now = time.monotonic()
        wanted = [kind for kind in reversed(self._kinds.values()) if not kind.is_stale][: self.size]
        if not wanted:
            return None
        if self.ready >= self.size:
            surplus = next((key for key, kind in self._kinds.items() if kind.ready and kind not in wanted), None)
            if surplus is None:
                return None
            self._forget(surplus)
        fewest = min(wanted, key=lambda kind: len(kind.ready))
        return fewest if fewest.not_before <= now else None

    async def _make(self, kind: PoolKind) -> None:
        spec = kind.order.spec(warm=True, preload=self.preload)
        container: Lendable | None = None
        try:
            async with asyncio.timeout(START_SECONDS):
                image = await self._image(kind.order)
                container = cast("Lendable", await self._engine.start(spec))
                warm = WarmSandbox(spec, container, image)
                await warm.get_ready(self._tasks)
        except Exception as error:  # what a sandbox says may find a defect of ours, which must not end the pool
            kind.failures += 1
            doubled = min(kind.failures - 1, MAX_DOUBLINGS)
            pause = min(AFTER_FAILURE_SECONDS * 2**doubled, MAX_AFTER_FAILURE_SECONDS)
            kind.not_before = time.monotonic() + pause
            self.lost += 1
            self._report(f"a sandbox could not be made ahead: {error}"[:500])
            if container is not None:
                await undo(container)
            return
        except BaseException:
            if container is not None:
                await asyncio.shield(self._tasks.hold(undo(container), "undo a sandbox made ahead"))
            raise
        kind.failures = 0
        self.made += 1
        if self._closed or not any(kind is one for one in self._kinds.values()):
            await warm.end()  # nobody asks for it any more
            return
        kind.ready.append(warm)

    async def _look_after(self) -> None:
        """Keep those that wait alive; end what does not answer, what nobody wants, and all if memory is short."""
        while not self._closed:
            await asyncio.sleep(PING_SECONDS)
            for key, kind in list(self._kinds.items()):
                if kind.is_stale:
                    self._forget(key)
                    continue
                for warm in list(kind.ready):
                    if not await warm.answers(MISSED_SECONDS) and warm in kind.ready:
                        kind.ready.remove(warm)
                        self._drop(warm)
            if self.ready and spare_memory() < SPARE_BYTES // 2:
                self._report("the machine is short of memory: a sandbox that waited is ended")
                kind = next(kind for kind in self._kinds.values() if kind.ready)
                self._drop(kind.ready.pop(0))
                self._claimed = time.monotonic() + PING_SECONDS

    def _forget(self, key: str) -> None:
        for warm in self._kinds.pop(key).ready:
            self._drop(warm)

    def _drop(self, warm: WarmSandbox) -> None:
        self.lost += 1
        self._tasks.start(warm.end(), "the end of a sandbox that waited")

    async def _image(self, order: CreateRequest) -> str | None:
        """Return what the engine has under the image's name at this moment. Raises `SandboxError`."""
        return (await self._engine.image(order.image)).identity
