"""A sandbox that outlives its caller: what a caller leaves with the broker, and how the next one goes on from it.

Settings are left, too. Some of them are the next owner's own.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Container, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...config.sources import SETTINGS, changed, from_keywords
from ...container import wire
from ...core.codes import EndCode, UsageCode
from ...core.errors import ConfigurationError, EngineError, EngineUnavailable, SandboxClosed, SandboxError
from ...core.events import SessionEvent
from ...core.model import Message, Settings, format_bytes
from ...engines.select import AUTO, BROKER, is_service
from ...sdk.ownership import Ownership
from ...sdk.values import AttachedSandbox, Missed, SandboxInfo
from .. import index
from .client import packets
from .client.channel import BrokerChannel, connect
from .client.container import CHANNEL, BrokerContainer, Given
from .client.engine import BrokerEngine
from .codes import BrokerCode

if TYPE_CHECKING:
    from ...core.model import SandboxSpec
    from ...engines.pipe import Pipe
    from ..api import OwnedSession, SandboxHandle, SessionRequest

MAX_PAGES = 1000


class SandboxTakenOver(SessionEvent):
    """A detached sandbox has an owner again."""

    name = "taken_over"
    age_seconds: float


class KeptContainer(BrokerContainer):
    """A sandbox whose pipe the broker has, too."""

    _kept = False

    def let_go(self) -> None:
        """Have the end of this process's part be the end of nothing else, from now on."""
        self._kept = True

    async def begin(self) -> dict[str, int]:
        """Hear all from now on, from the beginning of the cell that runs; return what of that was dropped."""
        if self._channel is None:
            raise EngineError(EndCode.CONTAINER_GONE)
        missing = (await self._channel.ask("begin"))[0].get("missing")
        given = missing if isinstance(missing, dict) else {}
        return {name: count for name in ("messages", "bytes") if type(count := given.get(name)) is int and count > 0}

    async def kill(self) -> None:
        if not self._kept:
            await super().kill()
            return
        channel, self._channel = self._channel, None
        self._pipe.close()
        self._left.set()
        if channel is not None:
            channel.close()


class KeptEngine(BrokerEngine):
    """A broker that keeps the sandbox which it is asked for."""

    def __init__(self, address: str, *, seconds: float, metadata: Mapping[str, str], settings: str = "") -> None:
        super().__init__(address)
        self._wish = {"seconds": seconds, "metadata": dict(metadata), "settings": settings}
        self.prepared: dict[str, Any] = {}
        """What plugins have inside what it is asked for, by their names."""
        self._one: KeptContainer | None = None

    @property
    def container(self) -> KeptContainer | None:
        """The one that was made or taken over last."""
        return self._one

    def beside(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kept": {"name": spec.session_id, **self._wish, "prepared": self.prepared}}

    async def connect(self, name: str, *, take: bool) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Become the owner of a sandbox. Returns its pipe and the state for `adopt`, and what the broker says of it.

        Raises `EngineError` if there is none of that name, or it has an owner.
        """
        channel = BrokerChannel(await connect(self.path))
        try:
            said, files = await channel.ask("connect", name=name, take=take)
            try:
                (fd,), kept = files, row(said["kept"])
            except (LookupError, TypeError, ValueError) as error:
                for one in files:
                    os.close(one)
                raise EngineError(BrokerCode.BROKER_IMPROPER, f"what the broker says is not proper: {error}") from error
        except BaseException:
            channel.close()
            raise
        connection, asked = channel.detach()
        return fd, {**said, CHANNEL: connection, "asked": asked}, kept

    async def described(self, name: str) -> dict[str, Any]:
        """Return with which settings and metadata a sandbox was made. Raises `EngineError` if there is none."""
        return await self._query("described", name=name)

    async def end(self, name: str) -> None:
        """End a sandbox, whoever owns it. Raises `EngineError`."""
        await self._query("end", name=name)

    async def extend(self, name: str, seconds: float) -> float:
        """Have a sandbox end in so many seconds; return when it does. Raises `EngineError` and `QuotaExceeded`."""
        return _number((await self._query("extend", name=name, lasts=seconds)).get("left"))

    async def kept(self) -> list[dict[str, Any]]:
        """Return what there is to be taken over, the oldest first."""
        rows: list[dict[str, Any]] = []
        for _ in range(MAX_PAGES):
            said = await self._query("kept", after=len(rows))
            try:
                rows += map(row, said["rows"])
            except (LookupError, TypeError, ValueError) as error:
                raise EngineError(
                    BrokerCode.BROKER_IMPROPER, f"what the broker lists is not proper: {error}"
                ) from error
            if said.get("more") is not True:
                break
        return rows

    def _made(self, given: Given, pipe: Pipe, channel: BrokerChannel | None) -> KeptContainer:
        self._one = KeptContainer(given, pipe, channel)
        return self._one


def row(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a list, each value of its own kind. Raises LookupError, TypeError or ValueError."""
    if not packets.NAME.fullmatch(name := packets.text(said["name"])):
        raise ValueError("that is no name")
    return {
        **said,
        "name": name,
        "metadata": packets.metadata(said["metadata"]),
        "age": _number(said["age"]),
        "left": _number(said["left"]),
        "owned": said["owned"] is True,
        "busy": said["busy"] is True,
        "paused": said["paused"] is True,
    }


def _number(said: Any) -> float:
    if type(said) not in {int, float} or not abs(said) < packets.MAX_SECONDS:
        raise EngineError(BrokerCode.BROKER_IMPROPER, "what the broker says is no number")
    return float(said)


LIFETIME_SECONDS = 3600.0
MAX_READS = 200
MAX_CODE = 8 << 10
"""Characters of a cell's code that the next owner is told."""
AGAIN_SECONDS = 60.0
"""For what a cell that has ended sent to be heard again."""
EVENTS = frozenset({"stdout", "stderr", "result", "error", "message"})


class Detached(Ownership):
    """Of one such sandbox, which this process owns until it leaves it."""

    is_detached = True
    engine: KeptEngine

    def __init__(
        self, settings: Settings, seconds: float | None, metadata: Mapping[str, str], how: AttachedSandbox | bool
    ) -> None:
        """Raises `ConfigurationError` for what cannot outlive this process."""
        self.attached = how if isinstance(how, AttachedSandbox) else None
        check_settings(settings)
        address = address_of(settings.engine)
        try:
            metadata = packets.metadata(metadata)
        except ValueError as error:
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, str(error), setting="metadata") from error
        self.name = self.attached.name if self.attached is not None else None
        self.seconds = seconds = LIFETIME_SECONDS if seconds is None else seconds
        engine = KeptEngine(address, seconds=seconds, metadata=metadata, settings=settings_to_text(settings))
        super().__init__(engine, address, None)  # the broker ends it

    # --- from a start to its end ---

    async def start(self, sandbox: SandboxHandle) -> None:
        if sandbox.session.is_open:
            await sandbox.session.started()
        else:
            self.lifetime.known(*await self._started(sandbox))

    async def _started(self, sandbox: SandboxHandle) -> tuple[datetime, datetime]:
        """Start it, or take it over; return when it was started, and when it ends."""
        session = sandbox.session
        session.observe(_Noting(session, self))
        prepared = session.prepared
        if self.attached is None:
            check_prepared(prepared)
            self.engine.prepared = prepared
            await session.started()
            self.tell(session, {"session": {"handshake": session.kernel_info}})
            now = datetime.now(UTC)
            return now, now + timedelta(seconds=self.seconds)
        if missing := prepared.keys() - self.attached.prepared.keys():
            raise ConfigurationError(BrokerCode.DETACHED_NOT_PREPARED, setting=min(missing))
        fd, state, kept = await self.engine.connect(self.attached.name, take=self.attached.take)
        noted, cell = kept.get("session"), kept.get("cell")  # by the owner before
        handshake = noted.get("handshake") if isinstance(noted, dict) else None
        session.adopt(fd, {**state, "handshake": handshake})
        session.emit(SandboxTakenOver(age_seconds=round(kept["age"], 3)))
        await session.started()
        if isinstance(cell, dict):
            self._go_on(sandbox, cell)
        container = self.engine.container
        if container is not None:
            self.missed = Missed(**await container.begin())
            if any(self.missed):
                lost = f"{self.missed.messages} messages, {format_bytes(self.missed.bytes)}"
                session.say(f"What came while nobody read it is kept up to 8 MiB; not kept were {lost}.")
        return moment(-kept["age"]), moment(kept["left"])

    async def extend(self, session: OwnedSession, limit: float) -> None:
        if self.lifetime.is_new:
            raise ConfigurationError(UsageCode.NOT_TOGETHER, "a detached sandbox that has not started has a lifetime")
        left = await self.engine.extend(session.id, limit)
        self.lifetime.known(self.lifetime.started, datetime.now(UTC) + timedelta(seconds=left))

    def ends_with_caller(self, session: OwnedSession) -> Leaving:
        return Leaving(session, self)

    def leave(self) -> None:
        self.is_left = True
        if self.engine.container is not None:
            self.engine.container.let_go()

    def _go_on(self, sandbox: SandboxHandle, said: Mapping[str, Any]) -> None:
        """Take up the cell that runs, in the place of the owner before, with the time that it has left."""
        try:
            header = {str(name): value for name, value in said["header"].items() if isinstance(value, str)}
            content = {str(name): value for name, value in said["content"].items()}
            seconds, elapsed, done = float(said["seconds"]), float(said["elapsed"]), said["done"] is True
            reads = said["reads"] if isinstance(said["reads"], str) else None
            request = Message(channel="shell", header=header | {"msg_id": str(said["id"])}, content=content)
            str(content["code"])
            if (
                not (0 <= seconds < packets.MAX_SECONDS and 0 <= elapsed < packets.MAX_SECONDS)
                or request.type != "execute_request"
            ):
                raise ValueError("that is no cell")
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise EngineError(BrokerCode.BROKER_IMPROPER, f"what the owner before noted is no cell: {error}") from error
        wanted = None
        if reads is None and not content.get("silent"):
            wanted = EVENTS | {"input"} if content.get("allow_stdin") else EVENTS
        limit = min(seconds, sandbox.settings.limits.cell_timeout)
        left = AGAIN_SECONDS if done and elapsed <= limit else max(0.0, limit - elapsed)
        sandbox.resume_cell(request, seconds, reads, elapsed=elapsed, left=left, wanted=wanted)

    # --- what is left for the next owner ---

    def note(self, session: OwnedSession, request: SessionRequest) -> None:
        """Leave word of a cell that is sent now, and of all that it takes to go on with it."""
        content = dict(request.message.content)
        content["code"] = str(content.get("code", ""))[:MAX_CODE]
        every = session.settings.limits.cell_timeout
        cell = {
            "id": request.id,
            "seconds": min(every, request.seconds or every) + session.settings.limits.interrupt_grace,
            "header": dict(request.message.header),
            "content": content,
            "reads": request.reads[:MAX_READS] if request.reads else request.reads,
        }
        if packets.note({"cell": cell}) is None:  # what it is escaped to is longer than it is
            cell["content"] = {**content, "code": ""}
        self.tell(session, {"cell": cell})

    def tell(self, session: OwnedSession, said: dict[str, Any]) -> None:
        """Leave word for the next owner, unless there is none to be."""
        if not self.is_left:
            with contextlib.suppress(SandboxError):  # it is gone
                if (note := packets.note(said)) is not None:
                    session.transmit(wire.AGENT, [note])


class _Noting:
    """Leaves word for the next owner of which cell runs."""

    def __init__(self, session: OwnedSession, detached: Detached) -> None:
        self._session, self._detached = session, detached

    def cell_sent(self, cell: SessionRequest) -> None:
        self._detached.note(self._session, cell)

    def cell_ended(self, cell: SessionRequest) -> None:
        self._detached.tell(self._session, {"cell": None})

    def kernel_gone(self) -> None:
        """The ends of its cells are noted already."""


class Leaving:
    """What is called where a caller goes without a word: the session ends, and the sandbox goes on."""

    def __init__(self, session: OwnedSession, detached: Detached) -> None:
        self._session, self._detached = session, detached

    async def close(self) -> None:
        self._detached.leave()
        await self._session.close()

    def abandon(self) -> None:
        self._detached.leave()
        self._session.abandon()


ownership = Detached
"""Returns whose a sandbox is that outlives this process. Raises `ConfigurationError` for what cannot."""


# --- their settings ---------------------------------------------------------------------------------------------------

KEPT_SETTINGS = [one for one in SETTINGS.values() if one.scope in ("sandbox", "session") and one.name != "engine"]
"""Settings that go with a sandbox."""
OF_THE_ENTRY = ("charts", "home")
"""What an entry point chooses for its sandboxes, and no user."""
OF_ANOTHER_USER = {one.name for one in KEPT_SETTINGS if one.scope == "sandbox" or one.is_limit}
"""Those that count if another user made it. What leaves it is decided by whoever takes it over."""
OF_THE_CALLER = [one for one in SETTINGS.values() if one.scope == "caller"]
"""What a process does for the cells, which are to outlive it."""
PLUGIN_OF = {name: plugin for plugin, asked in index.SERVICES.items() for name in asked}
"""Settings that a plugin serves, so that the next owner's serves them again."""


def address_of(engine: str) -> str:
    """Return the address of the broker that is meant. Raises `ConfigurationError` for another engine."""
    if engine == AUTO:
        return BROKER
    if is_service(engine):
        return engine
    raise ConfigurationError(
        UsageCode.NOT_TOGETHER,
        'a detached sandbox is kept by a broker: engine="broker"',
        setting="engine",
        value=engine,
    )


def check_settings(settings: Settings) -> None:
    """Raise `ConfigurationError` for what no sandbox can have that outlives this process."""
    for one in OF_THE_CALLER:
        if one.name not in PLUGIN_OF and one.value(settings) != one.default:
            raise ConfigurationError(BrokerCode.OF_THE_CALLER, setting=one.name)


def check_prepared(prepared: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for more than a broker keeps for the next owner."""
    if (size := packets.size(prepared)) > packets.MAX_PREPARED:
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER,
            "what the next owner of a detached sandbox needs is too long to be kept",
            limit=format_bytes(packets.MAX_PREPARED),
            value=format_bytes(size),
            setting=max(prepared, key=lambda name: packets.size(prepared[name])),
        )


def settings_to_text(settings: Settings) -> str:
    said = {one.name: one.form.kept(one.value(settings)) for one in KEPT_SETTINGS}
    longest = max(said, key=lambda name: packets.size(said[name]))
    text = json.dumps({**said, **{name: getattr(settings, name) for name in OF_THE_ENTRY}})
    if (size := packets.size(text)) > packets.MAX_SETTINGS:
        limit, value = format_bytes(packets.MAX_SETTINGS), format_bytes(size)
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER,
            "the settings of a detached sandbox are too long to be kept",
            limit=limit,
            value=value,
            setting=longest,
        )
    return text


def settings_from_text(
    text: object,
    engine: str,
    *,
    own: bool,
    given: Mapping[str, Any] = MappingProxyType({}),
    prepared: Container[str] = (),
) -> Settings:
    """Return the settings that a sandbox was made with, and of this process those that are a process's own.

    `given` are those that a caller gives; others than a process's own, and what it serves, count for nothing. With
    `settings` in there all of them are given, and what the sandbox was not `prepared` for counts for nothing either.
    """
    whole = given.get("settings")
    if isinstance(whole, Settings):
        unserved = (one for one in OF_THE_CALLER if PLUGIN_OF.get(one.name) not in prepared)
        base = changed(whole, {one.name: one.default for one in unserved})
    else:
        mine = {name: value for name, value in given.items() if name in SETTINGS and _is_own(name)}
        served = {one.name: one.default for one in OF_THE_CALLER if one.name not in mine}
        base = changed(from_keywords(**mine), served)
    try:
        said = json.loads(packets.text(text, packets.MAX_SETTINGS))
        if set(said) != {*OF_THE_ENTRY, *(one.name for one in KEPT_SETTINGS)}:
            raise ValueError("they have other names")
        # What counts for nothing is not read: rules of a screen are a program of another user's for our parser.
        wanted = [one for one in KEPT_SETTINGS if own or one.name in OF_ANOTHER_USER]
        found = {one.name: one.form.restore(one.name, said[one.name]) for one in wanted}
        return replace(changed(base, found), engine=engine, charts=said["charts"] is True, home=said["home"] is True)
    except (ConfigurationError, TypeError, ValueError, RecursionError, OverflowError) as error:
        why = error.message if isinstance(error, ConfigurationError) else error
        raise EngineError(BrokerCode.BROKER_IMPROPER, f"the settings of the sandbox are not proper: {why}") from error


def _is_own(name: str) -> bool:
    """Return whether each owner says for itself what a setting is."""
    return SETTINGS[name].scope == "process" or (SETTINGS[name].scope == "caller" and name in PLUGIN_OF)


# --- by their ids -----------------------------------------------------------------------------------------------------


def _engine(given: Mapping[str, Any]) -> tuple[KeptEngine | None, bool]:
    """Return the broker that is meant, None if the settings name another engine; and whether a caller named it."""
    named = given.get("engine")
    wanted = named if isinstance(named, str) else from_keywords().engine
    if wanted != AUTO and not is_service(wanted):
        return None, False
    return KeptEngine(address_of(wanted), seconds=LIFETIME_SECONDS, metadata={}), wanted != AUTO


async def listed(given: Mapping[str, Any]) -> list[SandboxInfo]:
    """Return those that this user's broker keeps. Raises `EngineUnavailable` if one is named that is not there."""
    engine, named = _engine(given)
    try:
        rows = [] if engine is None else await engine.kept()
    except EngineUnavailable:
        if named and "engine" in given:
            raise
        rows = []
    return [_info(row) for row in rows]


async def described(name: str, *, take: bool, given: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Return with which arguments a sandbox is made that takes one over. Raises `SandboxClosed`, `EngineError`."""
    engine, _ = _engine(given)
    try:
        if engine is None:
            raise _not_there(name)
        said = await engine.described(name)
    except EngineUnavailable as error:
        raise _not_there(name) from error
    try:
        prepared, metadata = packets.prepared(said["prepared"]), packets.metadata(said["metadata"])
    except (LookupError, ValueError) as error:
        raise EngineError(BrokerCode.BROKER_IMPROPER, f"what the broker says is not proper: {error}") from error
    settings = settings_from_text(
        said["settings"], engine.address, own=said["own"] is True, given=given, prepared=prepared
    )
    how = {"detached": AttachedSandbox(name, take, prepared), "metadata": metadata}
    return settings, how | {one: given[one] for one in ("tools",) if given.get(one) is not None}


async def ended(name: str, given: Mapping[str, Any]) -> bool:
    """End one; return whether there was one."""
    engine, _ = _engine(given)
    try:
        if engine is None:
            return False
        await engine.end(name)
    except (EngineUnavailable, EngineError) as error:
        if error.code in {EndCode.DETACHED_NOT_THERE, BrokerCode.BROKER_UNAVAILABLE}:
            return False
        raise
    return True


async def extended(name: str, seconds: float, given: Mapping[str, Any]) -> None:
    """Have one end in so many seconds. Raises `SandboxClosed`, `QuotaExceeded`."""
    engine, _ = _engine(given)
    if engine is None:
        raise _not_there(name)
    await engine.extend(name, seconds)


def _not_there(name: str) -> SandboxClosed:
    return SandboxClosed(EndCode.SANDBOX_NOT_HERE.note(id=name[:64]))


def _info(row: Mapping[str, Any]) -> SandboxInfo:
    try:
        limits = packets.limits(row["limits"])
        runtime = "default" if row["runtime"] is None else packets.text(row["runtime"])
        image = packets.text(row["image"])
    except (LookupError, TypeError, ValueError) as error:
        raise EngineError(BrokerCode.BROKER_IMPROPER, f"what the broker lists is not understood: {error}") from error
    return SandboxInfo(
        id=row["name"],
        image=image,
        engine=BROKER,
        runtime=runtime,
        outputs="unknown",
        network="unknown" if row["owned"] else "none",
        secrets=(),
        limits=limits,
        python=None,
        metadata=row["metadata"],
        started_at=moment(-row["age"]),
        end_at=moment(row["left"]),
        state="paused" if row["paused"] else "running",
        detached=True,
        owned=row["owned"],
        busy=row["busy"],
    )


def moment(seconds: float) -> datetime:
    """Return the moment in so many seconds. Raises `EngineError` for one that no calendar has."""
    try:
        return datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError as error:
        raise EngineError(BrokerCode.BROKER_IMPROPER, "what the broker says is no moment") from error
