"""One sandbox that a broker made: its pipe is this process's own, and the broker tells of its end.

A broker that ends takes no sandbox along: the pipe goes on, and only the reason of a later end stays unsaid.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....container import wire
from ....core.codes import EndCode, Survived
from ....core.errors import EngineError, EngineUnavailable
from ....core.model import SIGKILLED, ExitReason, SandboxSample, SandboxSpec
from ....core.tasks import Tasks
from ....engines.abilities import NONE, PAUSE, Ability
from ....engines.attestation import LOOKED_AT, checks, demand, same
from ....engines.base import AttestationCheck, Handover, Inspection
from ....engines.pipe import OverPipe, Pipe
from ....engines.user_ids import is_of_a_sandbox
from ... import index
from ..codes import BrokerCode
from . import packets
from .channel import BrokerChannel

KILL_SECONDS = 5.0
PAUSE_SECONDS = 60.0
"""More than any engine takes to say that it cannot."""
LAST_WORDS_SECONDS = 0.5
CHANNEL = "channel"
"""In what is handed over, the connection to the broker."""
OF_KEPT = ("taken", "expired", "flooded", "broker_ended")
OF_SHARED = ("nested_ended",)
KINDS = ("exited", "out_of_memory", "out_of_processes", "out_of_scratch", "killed", "engine_lost", *OF_KEPT, *OF_SHARED)


@dataclass(frozen=True, slots=True)
class Given:
    """What a broker said of a sandbox that it handed over."""

    id: str
    uid: int
    nonce: str | None = None
    """What a warm one has to repeat."""
    held: bool = False
    """Whether its limits were seen to be enforced, before it was given away."""
    introduced: Mapping[str, Any] | None = None
    """What its kernel said of itself, before it was given away; the session holds it against its tables."""
    abilities: frozenset[Ability] = NONE
    """What its broker lets it do."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Given:
        """Raises LookupError, TypeError or ValueError for what is not one."""
        uid = said["uid"]
        if not is_of_a_sandbox(uid):
            raise ValueError(f"a sandbox must not run as uid {uid!r}")
        if not isinstance(identity := said["id"], str) or not 0 < len(identity) <= 200:
            raise ValueError("no name")
        return cls(
            identity,
            uid,
            secrets.token_hex(16) if said.get("warm") is True else None,
            said.get("held") is True,
            said["introduced"] if isinstance(said.get("introduced"), Mapping) else None,
            PAUSE if "pause" in said.get("abilities", ()) else NONE,
        )


class BrokerContainer(OverPipe):
    """A running sandbox. Made by `BrokerEngine.start` and `BrokerEngine.adopt` only."""

    def __init__(self, given: Given, pipe: Pipe, channel: BrokerChannel | None) -> None:
        """Without a `channel`, its broker is gone."""
        self.id = given.id
        self.image_id: str | None = None
        self.held = given.held
        self.is_warm = given.nonce is not None
        self.introduced = given.introduced
        self.paused = False
        self._given = given
        self._pipe = pipe
        self._channel = channel
        self._ended: asyncio.Future[ExitReason] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks()
        self._looking: asyncio.Task[tuple[dict[str, Any], list[int]]] | None = None
        self._left = asyncio.Event()
        """Set when the broker is gone, or there never was one."""
        if channel is None:
            self._left.set()
        else:
            channel.heard, channel.lost = self._hear, self._left.set

    def claim(self) -> None:
        """Tell a warm sandbox that it has an owner. It reports on itself again, and its engine attests it again."""
        if self._given.nonce is not None:
            claim = b'{"op": "claim", "nonce": "%s"}' % self._given.nonce.encode()
            data = b"".join(wire.encode(wire.AGENT, [claim]))
            if self._pipe.offer(data) != len(data):
                raise EngineError(EndCode.PIPE_GONE, kept=Survived.NOTHING)
        if self._channel is not None:  # the engine can be asked while the sandbox looks at itself
            looking = self._channel.ask("look")
            self._looking = self._tasks.hold(looking, f"asking what {self.id} is")
            self._looking.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can while its broker is there."""
        return self._given.abilities if self._channel is not None and self._channel.is_open else NONE

    async def pause(self) -> None:
        """Have the broker let it stand still. It ends as any other, with its owner or by the broker."""
        if not self.paused:
            try:
                await self._told("pause")
            except BaseException:
                # The broker may do it all the same, and does one after the other.
                self._tasks.hold(self._told("resume"), f"let {self.id} go on").add_done_callback(_heed)
                raise
            self.paused = True

    async def resume(self) -> None:
        if self.paused:
            await self._told("resume")
            self.paused = False

    async def sample(self) -> SandboxSample:
        """Return what the broker sees of it; nothing where the broker is not there."""
        if self._channel is not None and self._channel.is_open:
            with contextlib.suppress(EngineError):
                said, _ = await self._channel.ask("sample")
                return packets.sample(said)
        return SandboxSample()

    async def _told(self, op: str) -> None:
        if self._channel is None:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        await self._channel.ask(op, seconds=PAUSE_SECONDS)

    async def wait(self) -> ExitReason:
        """Return why it ended, as the broker says; `detail` holds the end of its stderr."""
        lost = self._tasks.hold(self._lost(), f"the end of {self.id} without a broker")
        either: set[asyncio.Future[Any]] = {self._ended, lost}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
        if not self._ended.done():
            why = "its stream ended, and the broker is not there to say why"
            self._end(ExitReason(kind="killed", detail=why))
        reason = self._ended.result()
        if reason.kind != "exited" or reason.detail:
            return reason
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._pipe.ended.wait()
        return replace(reason, detail=self._pipe.stderr)

    async def kill(self) -> None:
        self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended by its owner"))
        self._pipe.close()
        channel, self._channel = self._channel, None
        if channel is None or not channel.is_open:
            return  # without its pipe it ends by itself, and what outlives the broker sees to it
        try:
            await channel.ask("kill", seconds=KILL_SECONDS)
        except EngineUnavailable:
            pass
        finally:
            channel.close()

    def abandon(self) -> None:
        self._pipe.abandon()
        if self._channel is not None:
            self._channel.close()

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        if self._channel is None or self._ended.done():
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        looking, self._looking = self._looking, None
        said, _ = await (looking if looking is not None else self._channel.ask("look"))
        witness = _witness(said)
        self.held = witness.engine not in LOOKED_AT
        image = said.get("image_id")
        self.image_id = image[:100] if isinstance(image, str) else None
        found = checks(replace(spec, uid=self._given.uid), report, witness)
        if self._given.nonce is None:
            return found
        nonce = report.get("nonce") if isinstance(report, Mapping) else None
        return (*found, same("nonce of the claim", self._given.nonce, nonce))

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        demand(await self.compare(report, spec))

    def detach(self) -> Handover:
        """Give the pipe away, and the connection to the broker: it sees an owner all the time."""
        channel, self._channel = self._channel, None
        fd, pipe = self._pipe.detach()
        given = self._given
        own = {"id": given.id, "uid": given.uid, "held": self.held, "abilities": sorted(given.abilities)}
        state = {**own, "pipe": pipe}
        if channel is None or not channel.is_open:
            return Handover(fd, state)
        connection, asked = channel.detach()
        return Handover(fd, {**state, "asked": asked}, {CHANNEL: connection})

    def _hear(self, said: dict[str, Any]) -> None:
        if said.get("op") != "ended" or said.get("kind") not in KINDS:
            return
        code, detail, name = said.get("exit_code"), said.get("detail"), said.get("code")
        ended = ExitReason(
            kind=said["kind"],
            exit_code=code if type(code) is int else None,
            detail=detail if isinstance(detail, str) else "",
        )
        with contextlib.suppress(KeyError):  # an engine of another package has codes of its own
            ended = replace(ended, code=index.code(name) if isinstance(name, str) else None)
        self._end(ended)
        self._tasks.start(self._finish(), f"the rest of {self.id}")

    async def _finish(self) -> None:
        """Give up the pipe when nothing has come for a while though a reader waited: what has it may not close it.

        An engine such as Docker may still have a part of what the sandbox wrote last.
        """
        while self._channel is not None:
            before = self._pipe.waits_at
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    await self._pipe.ended.wait()
                return
            if before is not None and before == self._pipe.waits_at:
                self._pipe.finish()
                return

    async def _lost(self) -> None:
        await self._left.wait()
        await self._pipe.ended.wait()

    def _end(self, reason: ExitReason) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)


def _witness(said: Mapping[str, Any]) -> Inspection:
    """Return what the broker heard of its engine. Raises `EngineError` for what cannot be read."""
    try:
        lines = tuple(
            AttestationCheck(str(name), str(expected), str(found), ok is True)
            for name, expected, found, ok in said["lines"]
        )
        if not lines:
            raise ValueError("nothing was compared")
        places = (frozenset(map(str, said["environment"])), frozenset(map(str, said["mounts"])))
        layers = frozenset(map(str, said["layers"]))
        attached = {str(path): (int(was), int(opened), int(now)) for path, was, opened, now in said["attached"]}
        return Inspection(lines, *places, str(said["engine"]), said["shared"] is not False, layers, attached)
    except (LookupError, TypeError, ValueError) as error:
        raise EngineError(
            BrokerCode.BROKER_IMPROPER, f"what the broker says of a sandbox is not understood: {error}"
        ) from error


def _heed(done: asyncio.Task[None]) -> None:
    """Take the outcome of a task that may fail."""
    if not done.cancelled():
        done.exception()
