"""The sockets, and the daemon from its start to its end.

At its end the sandboxes that callers have go on, for their pipes are the callers'; those that wait, or are kept, end
with it. What is not bounded by a ceiling is bounded here: connections, those who wait for a start, and starts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, EngineError, QuotaExceeded, SandboxError
from ...core.tasks import Tasks
from ...engines.abilities import Sampled
from ...engines.inspectable import CrowdUser
from ...engines.owner_process import account_name
from . import create_request
from .caller_connection import CallerProcess, Made
from .ceilings import Policy
from .client import packets
from .codes import BrokerCode
from .detached_registry import DetachedRegistry
from .detached_sandbox import DetachedOptions, DetachedSandbox
from .lease import PipeLease
from .pool import Pool, undo
from .prometheus_metrics import OTHERS, BrokerFigures, Gauges
from .settings import STATE
from .start_slots import StartSlots
from .usage_counters import UsageCounters
from .user_accounts import require_account
from .user_volumes import UserVolumes

if TYPE_CHECKING:
    from ...core.model import SandboxSample, SandboxSpec
    from ...engines.base import Lendable
    from ...engines.inspectable import Inspectable
    from .client.listener_trust import Peer
    from .create_request import CreateRequest

PAUSE_SECONDS = 0.5
"""Until the next try, where no file descriptor is left, or no memory."""
AT_ONCE = 32
"""Connections, before others of the loop have their turn."""


def taken_from(sock: socket.socket) -> socket.socket | None:
    """Return the next connection, None if nobody waits any more. Raises OSError where there is no room for it."""
    while True:
        try:
            return sock.accept()[0]
        except BlockingIOError:
            return None
        except ConnectionError:  # that one has gone meanwhile
            continue


class Listener:
    """A socket that listens, on the loop that runs when it is opened."""

    def __init__(
        self,
        sock: socket.socket,
        taken: Callable[[socket.socket], object],
        *,
        no_room: Callable[[OSError], None] = lambda error: None,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        """`taken` has each connection for its own; `no_room` hears of each pause."""
        self.socket = sock
        self._taken = taken
        self._no_room = no_room
        self._pause = pause
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        sock.setblocking(False)

    def open(self) -> None:
        """Take whoever comes, from now on."""
        self.shut()
        if self.socket.fileno() >= 0:
            self._loop.add_reader(self.socket.fileno(), self._take)

    def shut(self) -> None:
        """Take nobody; the socket is the owner's to close, and who comes waits in its queue."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self.socket.fileno() >= 0:
            self._loop.remove_reader(self.socket.fileno())

    def _take(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock = taken_from(self.socket)
            except OSError as error:
                self.shut()
                self._again = self._loop.call_later(self._pause, self.open)
                self._no_room(error)
                return
            if sock is None or self.socket.fileno() < 0:
                return
            self._taken(sock)


CONNECTIONS = 512
CONNECTIONS_OF_A_USER = 128
WAITING = 64
"""Callers that wait for a start, of all users."""
STARTS = 2 * (os.cpu_count() or 1)
"""At once: more would only bring all of them near their time limit."""
BACKLOG = 64
END_SECONDS = 0.8
"""For what waits to be gone, before the process ends and takes it along."""
REAP_PAUSE = 10.0
LOOK_SECONDS = 1.0
"""For what sandboxes use; of one that does not say it in time, what it said before."""


class Broker:
    """One daemon on one engine."""

    def __init__(
        self,
        engine: Inspectable,
        policy: Policy,
        *,
        pool: Pool | None = None,
        read: Callable[[object], CreateRequest] = create_request.read,
        idle_seconds: float | None = None,
        state: str = STATE,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`idle_seconds` without a caller end it; `state` is its folder; `say` takes lines for the operator."""
        self.engine, self.policy = engine, policy
        self.pool = pool or Pool(engine, size=0)
        self.tally = UsageCounters()
        self.lent: dict[str, PipeLease] = {}
        self.keeping = DetachedRegistry(lambda: self.policy, self.lent)
        self.volumes = UserVolumes(lambda: self.policy, f"{state}/volumes")
        self.figures = BrokerFigures()
        self.tasks = Tasks()
        self.starting = 0
        self._read = read
        self._idle_seconds = idle_seconds
        self._say = say
        self._callers: set[CallerProcess] = set()
        self._by_user: Counter[int] = Counter()
        self._slots = StartSlots(STARTS, WAITING)
        self._stopping = asyncio.Event()
        self._used = time.monotonic()
        self._reaping: asyncio.Task[int] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._reaped = -REAP_PAUSE
        self._listeners: list[Listener] = []

    @property
    def connections(self) -> int:
        return len(self._callers)

    async def look(self) -> None:
        """Note what sandboxes use now: once for all who ask at the same time, and in so many seconds at most."""
        if self._looking is None or self._looking.done():
            self._looking = self.tasks.hold(self._look(), "what sandboxes use")
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        async def one(lent: PipeLease) -> None:
            if isinstance(lent.container, Sampled):
                self._noted(lent, await lent.container.sample())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await asyncio.gather(*map(one, list(self.lent.values())), return_exceptions=True)

    def _noted(self, lent: PipeLease, now: SandboxSample) -> None:
        self.figures.counted(lent.uid, "cpu_seconds", max(0.0, (now.cpu_seconds or 0) - (lent.use.cpu_seconds or 0)))
        lent.use = now if now.cpu_seconds is not None else now._replace(cpu_seconds=lent.use.cpu_seconds)

    def users(self, only: int | None = None) -> list[CrowdUser]:
        """Return what each user has, and had since the start, by their names; or what one has."""
        lent = list(self.lent.values())
        found = []
        for user in {*self.figures.of_users, *(one.uid for one in lent)} if only is None else {only}:
            own, counted = [one for one in lent if one.uid == user], self.figures.of_users.get(user, Counter())
            found.append(
                CrowdUser(
                    name=OTHERS if isinstance(user, str) else account_name(user),
                    sandboxes=len(own),
                    memory_promised=sum(one.spec.limits.memory for one in own),
                    memory_used=sum(one.use.memory_bytes or 0 for one in own),
                    cpu_seconds=round(float(counted["cpu_seconds"]), 3),
                    started=counted["started"],
                    refused=counted["refused"],
                )
            )
        return sorted(found, key=lambda one: one.name)

    async def page(self) -> str:
        """Return all figures as Prometheus reads them."""
        await self.look()
        lent = self.lent.values()
        states = Counter(one.state for one in lent)
        return self.figures.page(
            Gauges(
                states={
                    "running": states["running"],
                    "detached": states["detached"],
                    "ready": self.pool.ready,
                    "starting": self.starting,
                },
                connections=self.connections,
                memory_promised=sum(one.spec.limits.memory for one in lent),
                kept=self.keeping.cost,
                pool_made=self.pool.made,
                pool_lost=self.pool.lost,
            ),
            self.users(),
        )

    # --- its callers --------------------------------------------------------------------------------------------------

    def listen(self, sock: socket.socket) -> None:
        listener = Listener(
            sock,
            self._taken,
            no_room=lambda error: self._say(f"connections wait: one could not be taken: {error.strerror}"),
        )
        self._listeners.append(listener)
        listener.open()

    def _taken(self, sock: socket.socket) -> None:
        self._used = time.monotonic()
        caller = CallerProcess(self, sock)
        uid = caller.peer.uid
        self._callers.add(caller)
        self._by_user[uid] += 1
        try:
            require_account(uid)
        except EngineError as error:
            self.figures.refused(error.code.code)
            caller.refuse(error)
            return
        if self._by_user[uid] > CONNECTIONS_OF_A_USER or len(self._callers) > CONNECTIONS:
            own = self._by_user[uid] > CONNECTIONS_OF_A_USER
            most = f"{CONNECTIONS_OF_A_USER} of one user" if own else f"{CONNECTIONS}"
            self.figures.refused(BrokerCode.BROKER_BUSY.code, uid)
            caller.refuse(QuotaExceeded(BrokerCode.BROKER_BUSY, limit=f"{most} connections at once"))

    def has_left(self, connection: object) -> None:
        if isinstance(connection, CallerProcess) and connection in self._callers:
            self._callers.discard(connection)
            self._by_user[connection.peer.uid] -= 1
            if not self._by_user[connection.peer.uid]:
                del self._by_user[connection.peer.uid]  # an account may have thousands of user ids
            self._used = time.monotonic()

    # --- sandboxes ----------------------------------------------------------------------------------------------------

    async def make(self, said: dict[str, Any], whose: Peer) -> Made:
        """Return a sandbox for a caller, what it needs to know of the pipe, the pipe, and whether it was ready."""
        begin = time.monotonic()
        if said.get("protocol") != packets.VERSION:
            raise EngineError(BrokerCode.BROKER_OTHER_VERSION)
        ceiling = self.policy.of(whose.uid)
        wanted = ceiling.grant(self._read(said["spec"]), whose.uid, self.volumes.source(whose.uid))
        if said["agent"] != wanted.digest():
            raise EngineError(BrokerCode.BROKER_OTHER_VERSION)
        wish = self.keeping.wish(said.get("kept"), whose)
        try:
            self.tally.take(self.policy, whose.uid, begin, wanted.disk)
        except SandboxError:
            self.keeping.forget(whose.uid, wish)
            raise
        self.starting += 1
        try:
            made = await self._ready(wanted, whose, wish) or await self._cold(wanted, whose, wish)
        except BaseException:
            self.tally.give_back(whose.uid, wanted.disk)
            self.keeping.forget(whose.uid, wish)
            raise
        finally:
            self.starting -= 1
        lent, warm = made[0], made[3]
        self.lent[lent.spec.session_id] = lent
        lent.watch(self._ended)
        self.figures.claimed(warm=warm, seconds=time.monotonic() - begin)
        self.figures.counted(whose.uid, "started")
        return made

    async def _ready(self, wanted: CreateRequest, whose: Peer, wish: DetachedOptions | None) -> Made | None:
        """Return one that was made ahead, None if there is none that will do; a cold start takes its place then."""
        pid = whose.pid if wish is None else 0
        warm = await self.pool.claim(wanted, lambda one: one.container.owned_by(pid or os.getpid()))
        if warm is None:
            return None
        try:
            made = await self._lend(warm.container, warm.spec, whose, wish, warm=True)
        except SandboxError:
            return None
        made[0].introduced = warm.introduced
        return made

    async def _cold(self, wanted: CreateRequest, whose: Peer, wish: DetachedOptions | None) -> Made:
        async with self.volumes.turn(whose.uid, wanted), self._slots.turn(whose.uid):
            spec = wanted.spec()
            container = cast("Lendable", await self.engine.start(spec))
            return await self._lend(container, spec, whose, wish, warm=False)

    async def _lend(
        self, container: Lendable, spec: SandboxSpec, whose: Peer, wish: DetachedOptions | None, *, warm: bool
    ) -> Made:
        try:
            if wish is not None:  # it is this process's, and ends with it
                kept = DetachedSandbox(container, spec, whose.uid, self.tasks, wish)
                kept.transcript.has_room = self.keeping.has_room
                try:
                    return kept, {"pipe": packets.PLAIN}, kept.open(first=True), warm
                except BaseException:
                    kept.over()  # its clock would go on for as long as its lifetime
                    raise
            if not warm:
                # Its name says who has it before somebody has it: what outlives this process goes by the name.
                # A process of a PID namespace that this one does not see has no number here; this one answers for it.
                await container.owned_by(whose.pid or os.getpid())
            handover = container.lend()
        except BaseException:
            await asyncio.shield(self.tasks.hold(undo(container), f"undo {container.id}"))
            raise
        return PipeLease(container, spec, whose.uid, whose.pid, self.tasks), handover.state, handover.fd, warm

    def _ended(self, lent: PipeLease) -> None:
        if self.lent.pop(lent.spec.session_id, None) is not None:
            self.tally.give_back(lent.uid, lent.disk)
            if isinstance(lent, DetachedSandbox):
                self.keeping.forget(lent.uid, lent.wish)
            self.figures.ended(lent.reason.kind if lent.reason is not None else "unknown")
            self._used = time.monotonic()

    async def reap(self) -> int:
        """Remove what lost owners left, once for all who ask at the same time, and not at every moment."""
        if self._reaping is None or self._reaping.done():
            if time.monotonic() - self._reaped < REAP_PAUSE:
                return 0
            self._reaped = time.monotonic()
            self._reaping = self.tasks.hold(self.engine.reap(), "reaping")
        return await asyncio.shield(self._reaping)

    # --- its life -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`, or until nobody has used it for long."""
        self.pool.begin()
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0 if self._idle_seconds is not None else None):
                        await self._stopping.wait()
                if self._is_unused():
                    self._say("nobody uses this broker any more: it ends")
                    break
        finally:
            await self.close()

    def _is_unused(self) -> bool:
        if self._idle_seconds is None or self._callers or self.lent:
            return False
        return time.monotonic() - self._used > self._idle_seconds

    async def close(self) -> None:
        """Stop listening, end warm sandboxes, and let go of the sandboxes of callers."""
        for listener in self._listeners:
            listener.shut()
            listener.socket.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await asyncio.gather(self.pool.close(), self.keeping.close())
        for caller in list(self._callers):
            caller.release()
        await self.tasks.close()


# --- sockets --------------------------------------------------------------------------------------------------------


def bound(name: str, *, for_all: bool = False) -> tuple[socket.socket, int]:
    """Return a socket that listens at a path, and the lock that says so. Raises `ConfigurationError`.

    With `for_all`, other users may connect. The lock is held for as long as its file descriptor is open, so a broker
    that was killed is in nobody's way.
    """
    path = Path(name)
    if not path.is_absolute():
        raise _not_there(path, "it is no absolute path")
    try:
        _folder(path.parent)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _not_there(path, str(error.strerror)) from error
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        os.fchmod(sock.fileno(), 0o600)  # the mode of the file that bind makes
        sock.bind(str(path))
        path.chmod(0o666 if for_all else 0o600)
        # Each message says who sends it, as a connection may be another process's later. Connections have this from
        # here: one that was taken already could have a message before it is asked for.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.listen(BACKLOG)
    except BlockingIOError as error:
        os.close(lock)
        sock.close()
        raise _not_there(path, "a broker listens there already") from error
    except OSError as error:
        os.close(lock)
        sock.close()
        raise _not_there(path, str(error.strerror or error)) from error
    return sock, lock


def _folder(folder: Path) -> None:
    """Make a folder that is closed to others, unless there is one in which no other user can write."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    status = folder.stat()
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise PermissionError(1, f"others may write in {folder}")


def _not_there(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(UsageCode.ADDRESS_UNUSABLE, f"no broker can listen at {path}: {why}")


def on_signals(broker: Broker, again: Callable[[], None] | None) -> None:
    """SIGTERM and SIGINT end it; SIGHUP has it read its file `again`."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.stop)
    loop.add_signal_handler(signal.SIGHUP, again or (lambda: None))
