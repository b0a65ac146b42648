"""The host's end of further agents in one container: each is a byte pipe that travels in frames of the container's own.

Such a pipe is a `Container` to who has it, so a session runs on it as on any other. It believes nothing: a frame that
breaks a rule of `flow` ends the container, as bytes do that are no frame. Both ends give each other credit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...container import flow, wire
from ...core.codes import EndCode
from ...core.errors import ConfigurationError, EngineError, SandboxDied, SandboxError, WireError
from ...core.model import ExitReason, SandboxSpec
from ...engines.shipping import nested_config, source_of
from ...files.file_rules import printable
from ..api import AgentPipe
from .codes import ContextCode

MODULES = ("flow", "kernelspecs", "nested_agents")
"""What the agent of the container needs for them; it gets them with the first."""
MAX_NESTED = 100
CLOSE_SECONDS = 30.0
"""How long the agent may take to end all processes of another: a crowded sandbox gives it little of the processor."""
SMALL = 1 << 12
"""Bytes below which what came is joined with what comes next."""


class NestedAgentLinks:
    """Those of one container."""

    def __init__(self, link: Any) -> None:
        """Take the link to the container's own agent (`session.agent_link`)."""
        self._link = link
        self._pipes: dict[int, NestedPipe] = {}
        self._last = 0
        self._shipping = asyncio.Lock()
        self._is_shipped = False

    async def kernelspecs(self) -> Any:
        """Return what the agent says of the image's kernelspecs; anything. Raises `SandboxDied`."""
        await self._ship()
        reply, _ = await self._link.ask("nested.kernelspecs")
        return reply.get("kernelspecs")

    async def open(self, config: Mapping[str, Any]) -> NestedPipe:
        """Start one more agent. Raises `SandboxDied`, and `ConfigurationError` if its kernel cannot begin there."""
        await self._ship()
        if len(self._pipes) >= MAX_NESTED:
            raise SandboxDied(ContextCode.NO_NESTED_AGENT.note(why="it has too many"), limit=f"{MAX_NESTED}")
        self._last += 1
        pipe = self._pipes[self._last] = NestedPipe(self._link, self._last)
        try:
            reply, _ = await self._link.ask("nested.open", number=pipe.number, config=dict(config))
        except BaseException:
            with contextlib.suppress(SandboxError):  # it may be on its way, and nobody waits for it
                self._link.tell("nested.close", number=pipe.number)
            raise
        if reply.get("ok") is True:
            return pipe
        said = reply.get("message")
        why = printable(said[:200], 200) if isinstance(said, str) else "it did not say why"
        if reply.get("error") == "folder":
            raise ConfigurationError(ContextCode.NO_FOLDER.note(why=why), value=str(config["scratch"]), setting="cwd")
        raise SandboxDied(ContextCode.NO_NESTED_AGENT.note(why=why))

    async def _ship(self) -> None:
        async with self._shipping:
            if not self._is_shipped:
                await self._link.ask("ship", modules={name: source_of(name) for name in MODULES})
                self._is_shipped = True

    def take(self, parts: list[bytes]) -> None:
        """Act on a frame of the container. Raises `WireError` for one that no agent sends."""
        try:
            op, number, amount, data = flow.parse(parts)
            pipe = self._pipes.get(number)
            if pipe is None or op not in {flow.DATA, flow.CREDIT, flow.END}:
                raise wire.FrameError("it belongs to no further agent")
            pipe.take(op, amount, data)
            if op == flow.END:
                del self._pipes[number]
        except wire.FrameError as error:
            why = f"the sandbox sent what is no frame of a further agent: {error}"
            raise WireError(EndCode.NOT_FRAMES, why) from None

    def abandon(self) -> None:
        """End all of them with their container."""
        for pipe in self._pipes.values():
            pipe.end()
        self._pipes.clear()


class NestedEngine:
    """Starts further agents of a sandbox, each for a session within that sandbox's own."""

    def __init__(self, opens: Callable[[Mapping[str, Any]], Awaitable[AgentPipe]], folder: str) -> None:
        """`opens` is `OwnedSession.open_nested` of that session; kernels begin in `folder`."""
        self._opens = opens
        self._folder = folder

    async def start(self, spec: SandboxSpec) -> AgentPipe:
        """Start one more agent in the sandbox, after that one if it does not run. Raises `SandboxError`."""
        return await self._opens(nested_config(spec, self._folder))


class NestedPipe:
    """The pipe of one of them: a `Container` that is none by itself, and is neither attested nor handed over."""

    is_nested = True

    def __init__(self, link: Any, number: int) -> None:
        self.number = number
        self.id = link.container.id
        self.held = link.container.held
        self.image_id: str | None = None
        self.introduced: Mapping[str, Any] | None = None
        self._link = link
        self._credit = flow.Credit(flow.WINDOW)
        self._came: list[bytes] = []
        self._over = self._is_lost = self._sending = False
        self._waiting: set[asyncio.Future[None]] = set()

    # --- for who has it ---

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        self._sending = True
        try:
            while view:
                while not self._credit.may_send and not self._over:
                    await self._change()
                view = view[self._put(view) :]
        finally:
            self._sending = False

    def offer(self, data: bytes) -> int:
        if self._sending or self._over:
            return 0
        try:
            return self._put(memoryview(data))
        except SandboxError:
            return 0  # whoever reads it meets its end

    def _put(self, view: memoryview) -> int:
        """Send what there is credit for, and return how many bytes that was. Raises `EngineError`."""
        if self._over:
            raise EngineError(EndCode.CONTEXT_DIED)
        done = 0
        while piece := bytes(view[done : done + min(flow.CHUNK, self._credit.may_send)]):
            self._credit.spend(len(piece))
            done += len(piece)
            try:
                self._link.send(wire.NESTED, flow.data_frame(self.number, piece))
            except SandboxDied as error:
                raise EngineError(error.code, error.message) from None
        return done

    async def receive(self, minimum: int = 1) -> bytes:
        while not self._came and not self._over:
            await self._change()
        data = b"".join(self._came)
        self._came.clear()
        if (credit := self._credit.release(len(data))) and not self._over:
            with contextlib.suppress(SandboxError):
                self._link.send(wire.NESTED, flow.frame(flow.CREDIT, self.number, credit))
        return data

    async def wait(self) -> ExitReason:
        while not self._over:
            await self._change()
        return await self._link.container.wait() if self._is_lost else ExitReason(kind="nested_ended")

    async def kill(self) -> None:
        """End it with all of its processes; if some stay, the whole sandbox."""
        if self._over:
            return
        try:
            reply, _ = await self._link.ask("nested.close", number=self.number, timeout=CLOSE_SECONDS)
            ended = reply.get("ok") is True
        except SandboxDied:
            ended = False
        if not ended and not self._over:
            await self._link.container.kill()
        self.end(lost=not ended)

    def abandon(self) -> None:
        """Do nothing: it goes with its container. A forked child shares that one's pipe, and must not write to it."""

    # --- for the container ---

    def take(self, op: int, amount: int, data: bytes) -> None:
        """Act on a frame. Raises `FrameError` for one that cannot come."""
        if op == flow.CREDIT:
            self._credit.given(amount)
        elif op == flow.END:
            self.end(lost=False)
            return
        else:
            self._credit.came(len(data))
            if self._over:
                return  # it was on its way
            if self._came and len(self._came[-1]) < SMALL:
                self._came[-1] += data  # a piece of one byte takes fifty
            else:
                self._came.append(data)
        self._wake()

    def end(self, *, lost: bool = True) -> None:
        """Note that it has ended; `lost` with its container."""
        if not self._over:
            self._over, self._is_lost = True, lost
        self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _change(self) -> None:
        """Wait until something has come, or it has ended."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
