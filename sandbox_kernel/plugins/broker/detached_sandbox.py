"""A sandbox whose pipe the broker keeps, so that it outlives whoever uses it: one owner at a time, or none.

Its owner has the other end of a pipe of the broker's own, and what goes over it is passed on frame by frame. So an
owner that dies in the midst of one leaves the sandbox in step. What a running cell has sent since it began is kept for
the next owner, within bounds; while there is none, the cell's clock runs here. Nothing is parsed but what an owner
notes on the way, and the small words of the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...container import wire
from ...core.codes import EndCode
from ...core.errors import EngineError, QuotaExceeded, SandboxError
from ...core.model import ExitReason
from ...core.tasks import Tasks
from ...engines.abilities import Ability, Pausable, demand
from ...engines.pipe import Pipe
from .client import packets
from .codes import BrokerCode
from .lease import PipeLease
from .owner_states import OwnerEvent, OwnerState, following

if TYPE_CHECKING:
    from ...core.model import SandboxSpec
    from ...engines.base import Lendable

_NOTE = b"{" + packets.KEEP
_HEAD = struct.Struct("!IB")
MIN_BYTES = 3
"""Bytes that a frame announces at least: its kind, and how many parts it has."""
WHOLE = 64 << 10
"""Bytes of a frame of the sandbox's that is held until it is complete."""
OWNERS_WHOLE = 8 << 20
"""The same of an owner's: what an honest one sends is less, so it is passed on whole or not at all."""
FRAME_RESERVE = 2 << 20
SLICE = 32 << 10
"""Bytes that are cut before others have their turn: they may be thousands of frames."""


class Piece(NamedTuple):
    """A whole frame, or a part of a large one."""

    data: bytes
    kind: int
    size: int
    """Of the whole frame, in bytes."""
    first: bool
    last: bool

    @property
    def whole(self) -> bool:
        return self.first and self.last


class Frames:
    """Cuts one direction of a pipe."""

    def __init__(self, max_frame: int, whole: int) -> None:
        """A frame of up to `whole` bytes comes in one piece; one over `max_frame` is none."""
        self._max, self._whole = max_frame, whole
        self._begun = bytearray()
        self._kind = self._size = self._left = 0

    @property
    def cut(self) -> bool:
        """Whether the last piece was one of a large frame, and not its last."""
        return self._left > 0

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces that `data` completes. Raises `wire.FrameError` for what begins no frame."""
        pieces: list[Piece] = []
        view = memoryview(data)
        while view:
            if self._left:
                part = view[: self._left]
                self._left -= len(part)
                pieces.append(Piece(bytes(part), self._kind, self._size, first=False, last=not self._left))
                view = view[len(part) :]
                if not self._left:
                    self._size = 0
                continue
            needed = (self._size or _HEAD.size) - len(self._begun)
            self._begun += view[:needed]
            view = view[needed:]
            if len(self._begun) < (self._size or _HEAD.size):
                break
            if not self._size:
                size, kind = _HEAD.unpack(self._begun)
                if not MIN_BYTES <= size <= self._max or kind not in wire.KINDS:
                    raise wire.FrameError(f"no frame of kind {kind} has {size} bytes")
                self._kind, self._size = kind, size + 4
                if self._size <= self._whole:
                    continue
                self._left = self._size - len(self._begun)
            pieces.append(Piece(bytes(self._begun), self._kind, self._size, first=True, last=not self._left))
            self._begun.clear()
            self._size = self._size if self._left else 0
        return pieces


async def cut(frames: Frames, receive: Callable[[], Awaitable[bytes]]) -> AsyncIterator[Piece]:
    """Cut what is received, until its end. Raises `wire.FrameError`, and what `receive` raises."""
    while data := await receive():
        for start in range(0, len(data), SLICE):
            for piece in frames.feed(data[start : start + SLICE]):
                yield piece
            await asyncio.sleep(0)


def parts(piece: Piece) -> tuple[bytes, ...]:
    """Return the parts of a whole frame. Raises `wire.FrameError`."""
    [(_, found)] = wire.Decoder(piece.size).feed(piece.data)
    return found


def is_note(piece: Piece) -> bool:
    """Return whether a frame is an owner's note: one part alone, which begins as a note does, and data never can."""
    return piece.kind == wire.AGENT and piece.whole and piece.data[5:7] == b"\0\1" and piece.data[11:].startswith(_NOTE)


def op_of(piece: Piece) -> str | None:
    """Return which event of the agent's a whole frame is; what cannot be read is the owner's to judge."""
    try:
        return str(json.loads(parts(piece)[0])["op"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedOptions:
    """What is asked for with a sandbox that is kept."""

    name: str
    """Its id, of its owner's choice; another user may have the same."""
    seconds: float
    """Until it ends."""
    most_seconds: float
    """Until it ends whatever is asked for later."""
    set_by: str
    metadata: dict[str, str]
    settings: str
    """What the next owner needs to know of it, as the first one wrote it."""
    prepared: dict[str, Any]
    """What plugins of the first owner's have inside, by their names, as they need it to serve it again."""


class OwnerLink:
    """One end of the pipe between an owner and the broker."""

    def __init__(self, pipe: Pipe, *, began: bool) -> None:
        self.pipe, self.began = pipe, began
        """Before an owner has begun it knows nothing of the cell that runs, and hears of the agent alone."""
        self.turn = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Wait until it is written; nothing if the owner is gone."""
        async with self.turn:
            with contextlib.suppress(EngineError):
                await self.pipe.send(data)


def noted(data: bytes) -> dict[str, Any]:
    """Return what an owner notes of its session. Raises LookupError, TypeError or ValueError for what is improper."""
    if len(data) > packets.MAX_NOTE:  # which is known before millions of lists are made of it
        raise ValueError("a note is too long")
    said = packets.unpacked(data)
    session, cell = said.get("session", {}), said.get("cell")
    # It is written anew for the next owner, where a number or a letter can be longer than it came.
    if packets.size(said) > packets.MAX_NOTE or packets.size(session) > packets.MAX_SESSION:
        raise ValueError("a note is too long")
    if not isinstance(session, dict) or not (cell is None or isinstance(cell, dict)):
        raise ValueError("that is no note")
    if cell is not None and not (packets.text(cell["id"], 200) and packets.seconds(cell["seconds"])):
        raise ValueError("that is no cell")
    return said


MAX_BYTES = 8 << 20
RESERVED_BYTES = 1 << 20
"""For what tells how a cell ended. An honest one needs a few kilobytes of it."""
SMALL_BYTES = 256 << 10
"""What each sandbox may keep, however much all of them have."""
OF_A_FRAME = 256
"""Bytes that a frame costs beside its own."""


class Transcript:
    """The frames of one cell, as they came."""

    def __init__(self, most: int = MAX_BYTES, reserved: int = RESERVED_BYTES) -> None:
        self._most, self._reserved = most, reserved
        self.has_room: Callable[[int], bool] = lambda size: True
        """Whether all of the broker together have room for so many bytes more, for what is not small."""
        self._pieces: list[bytes] = []
        self._cost = 0
        self.dropped_messages = self.dropped_bytes = 0

    @property
    def cost(self) -> int:
        """Bytes that it takes."""
        return self._cost

    @property
    def pieces(self) -> list[bytes]:
        return list(self._pieces)

    def forget(self) -> None:
        self._pieces.clear()
        self._cost = self.dropped_messages = self.dropped_bytes = 0

    def reserve(self, size: int, *, essential: bool = False) -> bool:
        """Return whether there is room for a frame of `size` bytes, which is taken then; else it counts as dropped."""
        cost = size + OF_A_FRAME
        most = self._most + (self._reserved if essential else 0)
        if self._cost + cost > most or (self._cost + cost > SMALL_BYTES and not essential and not self.has_room(cost)):
            self.dropped_messages += 1
            self.dropped_bytes += size
            return False
        self._cost += cost
        return True

    def add(self, data: bytes) -> None:
        """Add a piece for which there is room."""
        self._pieces.append(data)


STATUS_BYTES = 4096
PING_SECONDS = 10.0
"""The agent ends itself when it hears nothing for 60 s; an owner may be there and be stopped."""
ESSENTIAL = frozenset({"kernel_exited", "kernel_ready", "oversized"})
"""Of what an agent tells unasked."""
LATE_SECONDS = 1.0
"""Given to a cell over its time, for its owner told the time a moment before it began."""
LADDER_SECONDS = 10.0
"""From one step to the next, where a cell does not end: interrupt, kill, the end of the sandbox."""
MAX_KERNELS = 3
"""That end one after another while nobody is there."""
MAX_DROPPED = 128 << 20
"""Bytes of one cell that nobody reads, after which it is ended."""
PACED_BYTES, PACE_SECONDS = 1 << 20, 0.05
"""What nobody reads is read at this pace at most: the broker has other callers."""


class DetachedSandbox(PipeLease):
    def __init__(self, container: Lendable, spec: SandboxSpec, uid: int, tasks: Tasks, wish: DetachedOptions) -> None:
        super().__init__(container, spec, uid, 0, tasks)
        loop = asyncio.get_running_loop()
        self.wish, self.name = wish, wish.name
        self._state = OwnerState.KEPT
        self.transcript = Transcript()
        self.noted: dict[str, Any] = {}
        """What its owner noted of the session."""
        self.cell: dict[str, Any] | None = None
        self._began = self._cell_began = loop.time()
        self._loop = loop
        self._owner: OwnerLink | None = None
        self.passing = 0
        """Owners of whom something may still be passed on: the last one, and those before it."""
        self._upstream: asyncio.Task[None] | None = None
        self.cast_out: Callable[[], None] = lambda: None
        """What is called when another takes it over."""
        self._to: OwnerLink | None = None
        self._keeping = self._midst = False
        self._answered = self._cell_began
        self._owed: set[int] = set()
        """Which of reply and idle the running cell has not brought yet."""
        self._clock: asyncio.TimerHandle | None = None
        self._step = self._kernels = 0
        self._paced = 0
        self._unsettled = 0
        """Owners that are gone, and whose connections and contexts the agent has not ended yet."""
        self.paused = False
        self._paused_at = self._began
        self._end_at = self._began + wish.seconds
        self._life = loop.call_at(self._end_at, self._expire)
        self._reading = tasks.start(
            self._read(), f"reading {container.id}", failed=lambda _: self.finish(ExitReason(kind="killed"))
        )
        tasks.start(self._ping(), f"keeping {container.id}", failed=lambda _: self.finish(ExitReason(kind="killed")))

    # --- its owner ---

    @property
    def left(self) -> float:
        """Seconds until it ends."""
        return max(0.0, self._end_at - self._loop.time())

    @property
    def last(self) -> float:
        """Seconds until it ends whatever is asked for."""
        return max(0.0, self._began + self.wish.most_seconds - self._loop.time())

    def open(self, *, first: bool = False) -> int:
        """Return an owner's end of a new pipe; whoever owned it until now has none any more."""
        cast_out, self.cast_out = self.cast_out, lambda: None
        cast_out()  # also one that closed its pipe alone: its end would be taken for the next owner's
        self._let_go()
        ours, theirs = socket.socketpair()
        self.passing += 1
        owner = self._owner = OwnerLink(Pipe(ours), began=first)
        self._state = following(self._state, OwnerEvent.CLAIM)
        self._upstream = self._tasks.hold(self._forward(owner, self._upstream), f"an owner of {self.container.id}")
        return theirs.detach()

    async def adopted(self, pid: int) -> None:
        self.pid = pid  # the sandbox stays the broker's

    def taken(self) -> None:
        """Tell the owner that another one takes it over."""
        told, self._told = self._told, None
        if told is not None:
            told(ExitReason(kind="taken"))

    def lost(self) -> None:
        """Go on without an owner, whose connection is closed. What it wrote until now is still passed on."""
        self.cast_out = lambda: None
        self._let_go()

    def _let_go(self, told: Callable[[ExitReason], None] | None = None) -> None:
        owner, self._owner, self._told = self._owner, None, told
        self.pid = 0
        if owner is not None:
            self._state = following(self._state, OwnerEvent.LEAVE)
            self._unsettled += 1
            owner.pipe.refuse()
            self._look_at_clock()

    async def begin(self) -> dict[str, Any]:
        """Have the owner hear all, from the beginning of the cell that runs. Returns what of that is missing."""
        owner = self._owner
        if owner is None or owner.began:
            raise EngineError(BrokerCode.BROKER_IMPROPER, "there is nothing to begin with")
        kept, missing = self.transcript.pieces, self.missing
        owner.began, self._kernels = True, 0
        if self.cell is None:
            self.transcript.forget()  # what has been told is not told again
        if self._midst and self._keeping:
            self._to = owner
        async with owner.turn:
            with contextlib.suppress(EngineError):
                for data in kept:
                    await owner.pipe.send(data)
        return missing

    @property
    def missing(self) -> dict[str, int]:
        return {"messages": self.transcript.dropped_messages, "bytes": self.transcript.dropped_bytes}

    def told(self) -> dict[str, Any]:
        """Return what the next owner has to know."""
        cell = self.cell
        if cell is not None:
            now = self._paused_at if self.paused else self._loop.time()
            elapsed = (now if self._owed else self._answered) - self._cell_began
            cell = {**cell, "elapsed": elapsed, "done": not self._owed}
        return {"session": self.noted, "cell": cell, **self.shown()}

    def shown(self) -> dict[str, Any]:
        return {
            "name": self.wish.name,
            "metadata": self.wish.metadata,
            "age": self._loop.time() - self._began,
            "left": self.left,
            "owned": self.is_owned,
            "busy": self.cell is not None and bool(self._owed),
            "paused": self.paused,
        }

    # --- its pauses ---

    async def pause(self) -> None:
        """Freeze it, for as long as its owner or the next one wants. Its lifetime counts on. Raises `SandboxError`.

        An owner that is gone before it is frozen does not leave it half done, and the next one has it running.
        """
        await asyncio.shield(self._tasks.hold(self._pause(self._owner), f"pausing {self.container.id}"))

    async def _pause(self, owner: OwnerLink | None) -> None:
        await self._pausable().pause()
        if not self.paused:
            self.paused, self._paused_at = True, self._loop.time()
        if self._owner is not None and self._owner is not owner:
            await self._resume()

    async def resume(self) -> None:
        """Let it go on, with the time that its cell had left. Raises `SandboxError`."""
        await asyncio.shield(self._tasks.hold(self._resume(), f"resuming {self.container.id}"))

    async def _resume(self) -> None:
        await self._pausable().resume()
        if self.paused:
            self.paused = False
            self._cell_began += self._loop.time() - self._paused_at
            self._look_at_clock()

    def _pausable(self) -> Pausable:
        demand(Ability.PAUSE, self.container)
        if not isinstance(self.container, Pausable):
            raise EngineError(EndCode.ENGINE_CANNOT_PAUSE)
        return self.container

    # --- its end ---

    def extend(self, seconds: float) -> None:
        """Have it end in so many seconds. Raises `QuotaExceeded` if that is later than it may."""
        if seconds > self.last:
            raise QuotaExceeded(
                BrokerCode.LIFETIME_TOO_LONG,
                limit=f"{self.wish.most_seconds:g} s from its start, {self.last:.0f} s of them left",
                value=f"{seconds:g} s",
                set_by=self.wish.set_by,
            )
        self._life.cancel()
        self._end_at = self._loop.time() + seconds
        self._life = self._loop.call_at(self._end_at, self._expire)

    def _expire(self) -> None:
        self.finish(ExitReason(kind="expired"))

    def over(self) -> None:
        """Let go of what is here, now that it is gone."""
        self._life.cancel()
        if self._clock is not None:
            self._clock.cancel()
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.pipe.close()

    # --- from its owner to the sandbox ---

    async def _forward(self, owner: OwnerLink, before: asyncio.Task[None] | None) -> None:
        frames = Frames(self.spec.limits.message_limit + FRAME_RESERVE, OWNERS_WHOLE)
        try:
            if before is not None:
                await asyncio.wait({before})
            async for piece in cut(frames, owner.pipe.receive):
                if is_note(piece):
                    self._note(parts(piece)[0])
                else:
                    await self.container.send(piece.data)
        except (wire.FrameError, ValueError, LookupError, TypeError, SandboxError):
            pass  # it is no proper owner, or there is no sandbox any more
        finally:
            owner.pipe.close()
            if self._owner is owner:
                self._let_go(self._told)  # its connection is there still, and hears of the end
            if frames.cut:
                self.finish(ExitReason(kind="killed"))  # the sandbox would take what comes next for the rest of it
            else:
                await self._tell("orphaned")  # behind all that it wrote, and before what the next one does
            self.passing -= 1

    def _note(self, data: bytes) -> None:
        """Take what an owner says of its session; raises what a wrong note brings."""
        said = noted(data)
        self.noted = said.get("session", self.noted)
        if "cell" not in said:
            return
        self.cell, self._cell_began = said["cell"], self._loop.time()
        self.transcript.forget()
        self._keeping = self._keeping and not self._midst
        self._step = self._paced = self._kernels = 0
        self._owed = {wire.SHELL, wire.IOPUB}
        self._look_at_clock()

    async def _tell(self, op: str, **fields: object) -> None:
        with contextlib.suppress(SandboxError, OSError):
            head = json.dumps({**fields, "op": op}).encode()
            await self.container.send(b"".join(wire.encode(wire.AGENT, [head])))

    def _say(self, op: str, **fields: object) -> None:
        self._tasks.start(self._tell(op, **fields), f"telling {self.container.id}")

    async def _ping(self) -> None:
        while not self._reading.done():
            await asyncio.sleep(PING_SECONDS)
            if not self.paused:
                await self._tell("ping")

    # --- from the sandbox to its owner ---

    async def _read(self) -> None:
        frames = Frames(self.spec.limits.message_limit + FRAME_RESERVE, WHOLE)
        try:
            async for piece in cut(frames, self.container.receive):
                if piece.first:
                    self._to, self._keeping = self._route(piece)
                self._midst = not piece.last
                if self._keeping:
                    self.transcript.add(piece.data)
                if self._to is not None and self._to is self._owner:
                    await self._to.send(piece.data)
                elif not self._keeping:
                    self._paced += len(piece.data) + OF_A_FRAME
                    if self._paced > PACED_BYTES:
                        self._paced = 0
                        await asyncio.sleep(PACE_SECONDS)
        except wire.FrameError:
            self.finish(ExitReason(kind="killed"))
        finally:
            if (owner := self._owner) is not None:
                async with owner.turn:
                    owner.pipe.close()

    def _route(self, piece: Piece) -> tuple[OwnerLink | None, bool]:
        """Return who hears a frame now, and whether it is kept for the next owner."""
        owner = self._owner
        if piece.kind in {wire.STREAM, wire.NESTED}:  # each owner serves its own
            return None if self._unsettled else owner, False
        hears = owner if owner is not None and owner.began else None
        if piece.kind == wire.AGENT:
            op = op_of(piece) if piece.whole else None
            if op == "orphaned":
                self._unsettled = max(0, self._unsettled - 1)
                return None, False
            if op in {None, "reply", "resumed", "hello"}:
                return owner, False
            if op == "kernel_exited":
                self._owed, self._answered = set(), self._loop.time()  # it brings nothing more
                if hears is None:
                    # A new kernel takes the place of one that ended, as an owner would have it.
                    self._kernels += 1
                    if self._kernels > MAX_KERNELS:
                        self.finish(ExitReason(kind="killed"))
                    else:
                        self._say("start_kernel")
            if op == "kernel_ready":
                hears = owner  # one that has not begun waits for it
            wanted, essential = hears is None or self.cell is not None, op in ESSENTIAL
        else:
            wanted = self.cell is not None
            essential = piece.kind != wire.IOPUB or (piece.size <= STATUS_BYTES and b'"status"' in piece.data)
            of_cell = self.cell is not None and essential and str(self.cell["id"]).encode() in piece.data
            if of_cell and piece.kind in self._owed and (piece.kind == wire.SHELL or b'"idle"' in piece.data):
                self._owed.remove(piece.kind)
                self._answered = self._loop.time()
        if not wanted:
            return hears, False
        is_recorded = self.transcript.reserve(piece.size, essential=essential)
        if not is_recorded and hears is None:
            if essential:
                self.finish(ExitReason(kind="flooded"))
            elif self.transcript.dropped_bytes > MAX_DROPPED and not self._step:
                self._overdue()
        return hears, is_recorded

    # --- the clock of a cell that nobody waits for ---

    def _look_at_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        if self.cell is not None and self.reason is None:
            due = self._cell_began + float(self.cell["seconds"]) + LATE_SECONDS
            self._clock = self._loop.call_at(max(due, self._loop.time()), self._overdue)

    def _overdue(self) -> None:
        """End a cell that goes on over its time; an owner that is there does that itself."""
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._loop.call_later(LADDER_SECONDS, self._overdue)
        if (self._owner is not None and self._owner.began) or not self._owed or self.paused:
            return
        self._step += 1
        if self._step == 1:
            self._say("signal", signal=int(signal.SIGINT))
        elif self._step == 2:
            self._say("stop_kernel")
        else:
            self.finish(ExitReason(kind="killed"))
