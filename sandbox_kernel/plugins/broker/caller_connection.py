"""One connection: a few bounded requests, each answered once, and the sandbox that was made for it.

Nothing waits for a caller. The connection is closed if the caller does not read, or sends an improper request.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, Protocol

from ...core.codes import EndCode
from ...core.descriptors import send_fds
from ...core.errors import EngineError, ImageMissing, SandboxError
from ...core.model import ExitReason, SandboxSample
from ...core.package_files import installation
from ...core.tasks import Tasks
from ...core.version import __version__
from ...engines.abilities import PAUSE, Ability, Pausable, Sampled, abilities_of, demand
from ...engines.inspectable import CrowdUser, Inspectable, MachineCondition, Shown
from ...engines.owner_process import account_name
from .ceilings import Policy
from .client import packets
from .client.listener_trust import CREDENTIALS, Peer, peer
from .codes import BrokerCode
from .detached_registry import DetachedRegistry
from .detached_sandbox import DetachedSandbox
from .lease import PipeLease
from .pool import Pool
from .prometheus_metrics import BrokerFigures
from .usage_counters import UsageCounters
from .user_volumes import UserVolumes

Made = tuple[PipeLease, dict[str, Any], int, bool]
"""A sandbox, what its caller needs to know of the pipe, the pipe, and whether it was ready."""


class BrokerService(Protocol):
    """A broker. Methods raise `SandboxError`."""

    engine: Inspectable
    policy: Policy
    pool: Pool
    tally: UsageCounters
    keeping: DetachedRegistry
    volumes: UserVolumes
    figures: BrokerFigures
    lent: dict[str, PipeLease]
    tasks: Tasks

    async def make(self, said: dict[str, Any], whose: Peer) -> Made:
        """Return a sandbox for a caller."""

    async def look(self) -> None:
        """Note what sandboxes use now."""

    def users(self, only: int | None = None) -> list[CrowdUser]:
        """Return what each user has, and had since the start; or what one has."""

    async def reap(self) -> int:
        """Remove what lost owners left; return how many."""

    def has_left(self, connection: object) -> None:
        """Note that a connection is closed."""


MAX_ROWS = 300
"""That fit in one answer."""
MAX_ANSWER = packets.MAX_BYTES - 4096
"""Bytes of the rows of one answer; the rest is asked for with the number of the last."""


async def status(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """What the broker is, how many it has ready, and what this user may have."""
    ceiling = broker.policy.of(peer.uid)
    return {
        "version": __version__,
        "package": installation(),
        "engine": broker.engine.address,
        "ready": broker.pool.ready,
        "pool": broker.pool.size,
        "yours": broker.tally.running[peer.uid],
        "all": broker.tally.total,
        "set_by": broker.policy.source,
        "sessions": ceiling.sessions,
        "datasets": sorted(ceiling.datasets)[:MAX_ROWS],
    }


async def list_own(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """The sandboxes of this user; root sees all."""
    rows: list[Answer] = [
        {
            "session": lent.name,
            "container": lent.container.id,
            "owner_pid": lent.pid or None,
            "owner_alive": lent.is_owned,
            "state": lent.state,
            "age_seconds": int(time.monotonic() - lent.since),
            "image": lent.spec.image,
            "memory_bytes": lent.spec.limits.memory,
            "version": __version__,
            "user": account_name(lent.uid),
            "reaches_hosts": lent.spec.reaches_hosts,
        }
        for lent in broker.lent.values()
        if peer.uid in {0, lent.uid}
    ]
    if peer.uid in {0, os.geteuid()}:
        rows += broker.pool.rows()
    return {"rows": fitting(rows)}


def fitting(rows: Iterable[Answer]) -> list[Answer]:
    """Return the first of some rows, as many as one answer takes."""
    found: list[Answer] = []
    size = 0
    for row in islice(rows, MAX_ROWS):
        size += len(json.dumps(row)) + 1
        if size > MAX_ANSWER:
            break
        found.append(row)
    return found


async def used(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """What a sandbox of this user uses; root may ask for all. Of others, and of those that are gone, nothing."""
    name = packets.text(said["container"])
    there = [one.container for one in broker.lent.values() if peer.uid in {0, one.uid}]
    if peer.uid in {0, os.geteuid()}:
        there += broker.pool.containers()
    found = next((one for one in there if one.id == name), None)
    return (await found.sample() if isinstance(found, Sampled) else SandboxSample())._replace(programs=None)._asdict()


async def crowd(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """What an operator sees of all users: root, and the broker's own user; another sees itself."""
    await broker.look()
    of_all = peer.uid in {0, os.geteuid()}
    rows = [asdict(one) for one in broker.users(None if of_all else peer.uid)]
    pool = {"ready": broker.pool.ready, "size": broker.pool.size} if of_all else {"ready": 0, "size": 0}
    return {**pool, "most": broker.policy.sessions, "rows": fitting(rows)}


async def info(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    found = asdict(await broker.engine.info())
    return {"info": {**found, "runtimes": sorted(found["runtimes"]), "limited": sorted(found["limited"])}}


async def conditions(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    detached = MachineCondition("detached", met=True, found=broker.keeping.allows(peer))
    return {"rows": [asdict(row) for row in (*await broker.engine.conditions(), detached)]}


async def shown(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """How the machine shows one of this user's sandboxes; of others, and of those that are gone, nothing."""
    container = packets.text(said["container"])
    own = any(one.container.id == container and one.uid == peer.uid for one in broker.lent.values())
    found = asdict(await broker.engine.shown(container) if own else Shown())
    return {"shown": {**found, **{name: sorted(found[name]) for name in ("inside", "own", "mounts")}}}


async def image(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """What the engine says of an image that this user may have; of no other whether it is there."""
    name, ceiling = packets.text(said["image"]), broker.policy.of(peer.uid)
    allowed = name in ceiling.images if ceiling.images is not None else ceiling.own or not name.startswith("/")
    if ceiling.denied or not allowed:
        raise ImageMissing(EndCode.IMAGE_MISSING, f"the broker has no image {name[:100]!r} for this user")
    found = asdict(await broker.engine.image(name))
    return {"image": {**found, "variables": [list(pair) for pair in found["variables"]]}}


async def reap(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """Remove what lost owners left; all who ask meanwhile get the same answer."""
    return {"count": await broker.reap()}


async def kept(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """List those that a user may have, the oldest first, from behind a row on."""
    after = said.get("after", 0)
    if type(after) is not int or after < 0:
        raise ValueError("no row")
    found = sorted(broker.keeping.of(peer), key=lambda one: one.since)
    rest = found[after:]
    rows = fitting(
        {
            **one.shown(),
            "image": one.spec.image,
            "runtime": one.spec.runtime,
            "limits": packets.asked(one.spec)["limits"],
        }
        for one in rest
    )
    return {"rows": rows, "more": len(rows) < len(rest)}


async def described(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    one = broker.keeping.named(said, peer)
    own = one.uid == peer.uid
    prepared = one.wish.prepared if own else {}  # another user's words are nothing for this one's plugins to read
    return {"settings": one.wish.settings, "metadata": one.wish.metadata, "own": own, "prepared": prepared}


async def end(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    await broker.keeping.named(said, peer).kill()
    return {}


async def extend(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    one = broker.keeping.named(said, peer)
    one.extend(packets.seconds(said["lasts"]))
    return {"left": one.left}


async def volumes(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    """List the volumes of this user, and of nobody else."""
    return {"rows": [list(one) for one in (await broker.volumes.list(peer.uid))[:MAX_ROWS]]}


async def create_volume(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    size = said["size"]
    if size is not None and (type(size) is not int or not 0 < size < 1 << 53):
        raise ValueError("that is no size")
    await broker.volumes.create(peer.uid, packets.text(said["name"], 200), size)
    return {}


async def remove_volume(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    await broker.volumes.remove(peer.uid, packets.text(said["name"], 200))
    return {}


async def rename_volume(broker: BrokerService, peer: Peer, said: Answer) -> Answer:
    await broker.volumes.rename(peer.uid, packets.text(said["name"], 200), packets.text(said["new"], 200))
    return {}


ANSWERS: dict[str, Callable[[BrokerService, Peer, Answer], Awaitable[Answer]]] = {
    "status": status,
    "list": list_own,
    "used": used,
    "crowd": crowd,
    "info": info,
    "conditions": conditions,
    "shown": shown,
    "image": image,
    "reap": reap,
    "kept": kept,
    "described": described,
    "end": end,
    "extend": extend,
    "volumes": volumes,
    "create_volume": create_volume,
    "remove_volume": remove_volume,
    "rename_volume": rename_volume,
}


NEXT_SECONDS = 10.0
"""For the next request; a connection without one, and without a sandbox, is in others' way."""
AT_ONCE = 4
MAX_REQUESTS = 1000
OF_ITS_SANDBOX = {"adopt", "sample", "pause", "resume"}

Answer = dict[str, Any]


class CallerProcess:
    def __init__(self, broker: BrokerService, sock: socket.socket) -> None:
        self.peer: Peer = peer(sock)
        self.lent: PipeLease | None = None
        self._broker = broker
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._busy = self._requests = 0
        self._starting = False
        self._patience = self._loop.call_later(NEXT_SECONDS, self.hang_up)
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._hear)

    def hang_up(self) -> None:
        """Close the connection; a sandbox that was made for it ends."""
        if self._socket.fileno() < 0:
            return
        self._patience.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        lent, self.lent = self.lent, None
        if lent is not None:
            lent.lost()
        self._broker.has_left(self)
        self._broker.tasks.start(self._tasks.close(), "the end of a connection")

    def refuse(self, error: SandboxError) -> None:
        """Say why there is no place for it, and hang up; a request is not waited for."""
        self._say({"refused": packets.refusal(error), "n": 1})
        self.hang_up()

    def release(self) -> None:
        """Close the connection; the sandbox goes on, for its pipe is the caller's, or another has it."""
        self.lent = None
        self.hang_up()

    # --- what it says ---

    def _hear(self) -> None:
        try:
            # Without room for them, the system takes the files that a caller sends along out of the world again.
            data, beside, flags, _ = self._socket.recvmsg(packets.MAX_BYTES, socket.CMSG_LEN(CREDENTIALS.size))
        except (BlockingIOError, ConnectionResetError):
            return  # what it said before it went is still to be read, and then its end
        except OSError:
            data, beside, flags = b"", [], 0
        if not data:
            self.hang_up()
            return
        self._requests += 1
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or self._requests > MAX_REQUESTS:
                raise ValueError("too much was sent")
            said = {**packets.unpacked(data), "sender": Peer(*CREDENTIALS.unpack(beside[0][2]))}
            op, number = said["op"], said.get("n")
            serve = self._ops().get(op) if isinstance(op, str) else None
            if serve is None or type(number) is not int or self._busy >= AT_ONCE:
                raise ValueError("no request")
            if op in OF_ITS_SANDBOX and self.lent is not None:
                self._requests -= 1  # there may be any number of these in a sandbox's life
        except (ValueError, LookupError, TypeError, struct.error):
            self._broker.figures.refused("broker-improper", self.peer.uid)
            self.hang_up()
            return
        self._patience.cancel()
        self._busy += 1
        self._tasks.start(self._serve(number, serve, said), f"request {op}", failed=lambda _: self.hang_up())

    def _ops(self) -> dict[str, Callable[[Answer], Awaitable[Answer | None]]]:
        return {
            "start": self._start,
            "adopt": self._adopt,
            "connect": self._connect,
            "begin": self._begin,
            "look": self._look,
            "kill": self._kill,
            "sample": self._sample,
            "pause": self._pause,
            "resume": self._resume,
            **{op: partial(answer, self._broker, self.peer) for op, answer in ANSWERS.items()},
        }

    async def _serve(self, number: int, serve: Callable[[Answer], Awaitable[Answer | None]], request: Answer) -> None:
        try:
            answer = await serve({**request, "n": number})
        except SandboxError as error:
            self._broker.figures.refused(error.code.code, self.peer.uid)
            answer = {"refused": packets.refusal(error)}
        except (LookupError, TypeError, ValueError) as error:
            self._broker.figures.refused("broker-improper", self.peer.uid)
            improper = EngineError(BrokerCode.BROKER_IMPROPER, f"a request lacks something: {error!r}"[:200])
            answer = {"refused": packets.refusal(improper)}
        finally:
            self._busy -= 1
            # A connection that is used for nothing ends, unless more is asked soon.
            self._patience.cancel()
            if self.lent is None and not self._busy and self._socket.fileno() >= 0:
                self._patience = self._loop.call_later(NEXT_SECONDS, self.hang_up)
        if answer is not None:
            self._say({**answer, "n": number})

    # --- its sandbox ---

    async def _start(self, said: Answer) -> None:
        if self.lent is not None or self._starting:
            raise EngineError(BrokerCode.BROKER_IMPROPER, "there is one sandbox a connection")
        self._starting = True
        try:
            lent, state, fd, warm = await self._broker.make(said, self.peer)
        finally:
            self._starting = False
        self.lent = lent
        self._give(lent, fd, {"pipe": state["pipe"], "warm": warm, "introduced": lent.introduced, "n": said["n"]})
        if self._socket.fileno() < 0:
            lent.end()
        else:
            self._owns(lent)

    async def _connect(self, said: Answer) -> None:
        """Become the owner of a sandbox that is kept."""
        if self.lent is not None or self._starting:
            raise EngineError(BrokerCode.BROKER_IMPROPER, "there is one sandbox a connection")
        kept = self._broker.keeping.free(said, self.peer)
        fd = kept.open()
        try:
            told = {"pipe": packets.PLAIN, "kept": kept.told(), "n": said["n"]}
            self.lent = kept
            self._owns(kept)
            if kept.paused:
                await kept.resume()
        except BaseException:
            os.close(fd)
            raise
        self._give(kept, fd, told)

    def _give(self, lent: PipeLease, fd: int, told: Answer) -> None:
        """Say what a new owner needs to know, with the pipe."""
        container = lent.container
        user = getattr(container, "own_user", None)
        uid = lent.spec.uid if user is None else user.uid
        own = {"id": container.id, "session": lent.spec.session_id, "uid": uid, "held": container.held}
        try:
            self._say({**own, "abilities": sorted(abilities_of(container) & PAUSE), **told}, fd)
        finally:
            os.close(fd)

    async def _begin(self, said: Answer) -> Answer:
        if not isinstance(lent := self._own(), DetachedSandbox):
            raise EngineError(BrokerCode.BROKER_IMPROPER, "this sandbox is not kept")
        return {"missing": await lent.begin()}

    def _owns(self, lent: PipeLease) -> None:
        lent.belongs_to(self._ended, self.peer.pid)
        if isinstance(lent, DetachedSandbox):
            lent.cast_out = self.release

    async def _adopt(self, said: Answer) -> Answer:
        """Note that another process of the same user has the connection, which says so itself."""
        sender: Peer = said["sender"]
        if sender.uid != self.peer.uid:
            raise EngineError(EndCode.CONTAINER_NOT_ADOPTED, "the sandbox is another user's")
        await self._own().adopted(sender.pid)
        return {}

    async def _look(self, said: Answer) -> Answer:
        lent = self._own()
        witness = await lent.container.look(lent.spec)
        return {
            "lines": [[line.name, line.expected, line.found, line.ok] for line in witness.lines],
            "environment": sorted(witness.environment),
            "mounts": sorted(witness.mounts),
            "engine": witness.engine,
            "shared": witness.shared,
            "layers": sorted(witness.layers),
            "attached": [[path, *times] for path, times in sorted(witness.attached.items())],
            "image_id": lent.container.image_id,
        }

    async def _kill(self, said: Answer) -> Answer:
        await self._own().kill()
        return {}

    async def _sample(self, said: Answer) -> Answer:
        container = self._own().container
        return (await container.sample() if isinstance(container, Sampled) else SandboxSample())._asdict()

    async def _pause(self, said: Answer) -> Answer:
        await self._pausable().pause()
        return {}

    async def _resume(self, said: Answer) -> Answer:
        await self._pausable().resume()
        return {}

    def _pausable(self) -> Pausable:
        """Return the sandbox of this connection."""
        lent = self._own()
        if isinstance(lent, DetachedSandbox):
            return lent
        container = lent.container
        demand(Ability.PAUSE, container)
        if not isinstance(container, Pausable):
            raise EngineError(EndCode.ENGINE_CANNOT_PAUSE)
        return container

    def _own(self) -> PipeLease:
        if self.lent is None:
            raise EngineError(BrokerCode.BROKER_IMPROPER, "there is no sandbox on this connection")
        return self.lent

    # --- what it is told ---

    def _ended(self, reason: ExitReason) -> None:
        said = {"kind": reason.kind, "exit_code": reason.exit_code, "detail": reason.detail}
        self._say({**said, "code": reason.code and reason.code.code, "op": "ended"})

    def _say(self, said: Answer, fd: int | None = None) -> None:
        try:
            data = packets.packed(said)
            if fd is None:
                self._socket.send(data)
            else:
                send_fds(self._socket, data, [fd])
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is gone; it may have said that it leaves, which is read first
        except (OSError, SandboxError):  # it does not read
            self.hang_up()
