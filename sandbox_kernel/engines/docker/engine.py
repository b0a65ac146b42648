"""The Docker engine: a container for each session, over the Engine API that Docker and Podman share.

Imports asyncio, its own HTTP, the pipe and the pure arguments; never the engine's client library (see api_client.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...core.codes import EndCode
from ...core.errors import EngineError, EngineUnavailable
from ...core.model import SandboxSample, SandboxSpec
from ...core.tasks import Tasks, made_in_thread
from .. import container_reaper
from ..abilities import PAUSE
from ..attachment import EMPTY, Attachment, may_wait, opens_disks
from ..demultiplexer import Demultiplexer
from ..inspectable import EngineInfo, ImageInfo, Listed
from ..owner_process import UNKNOWN_HOST, OwnerProcess, host_name
from ..pipe import Pipe
from . import api_version, few_users
from .ahead import PendingContainer, create_target, creation
from .api_client import DockerApi, EngineConnection
from .arguments import LABEL, renamed
from .container import DockerContainer, identity_of
from .discovery import socket_path
from .engine_errors import OtherVersion, odd
from .few_users import LIMITED, TRIES, LacksUsers, OwnUser, UserTaken, require_alone, users, why

if TYPE_CHECKING:
    from .. import base
    from ..inspectable import EngineInfo, ImageInfo, Listed, MachineCondition, Shown

CONTENTS = f"{LABEL}.contents"
"""The label of an image of ours that says what went into it."""


NUMBERS = (f"{LABEL}.uid", f"{LABEL}.memory")
"""Labels that are numbers."""


def lines(found: Any) -> list[dict[str, Any]]:
    """Return the lines of the engine's list of containers (`GET /containers/json`).

    What is being removed has no name any more, and is left out: Docker 20.10 may list it for as long as Docker runs.
    Raises LookupError, TypeError or ValueError for what is no such list.
    """
    kept: list[dict[str, Any]] = []
    for line in found:
        names, labels = line["Names"], line["Labels"]
        texts = (line["Id"], line["State"], line["Image"], *(names or ()))
        if not (isinstance(labels, dict) and all(isinstance(text, str) for text in (*texts, *labels.values()))):
            raise TypeError(f"a container with {labels!r} and {texts!r}")
        for number in (line["Created"], *(labels.get(name) or 0 for name in NUMBERS)):
            int(number)
        if names:
            kept.append(line)
    return kept


def listed(found: Mapping[str, Any]) -> Listed:
    """Return what one of the lines says."""
    owner, labels = OwnerProcess.parse(found["Names"][0]), found["Labels"]
    here = labels.get(f"{LABEL}.host") == host_name()
    return Listed(
        session=labels.get(f"{LABEL}.session", ""),
        container=found["Id"][:12],
        owner_pid=owner.pid if owner else None,
        owner_alive=owner.alive() if owner and here else None,
        state=found["State"],
        age_seconds=max(0, int(time.time() - found["Created"])),
        image=found["Image"],
        memory_bytes=int(labels.get(f"{LABEL}.memory") or 0),
        version=labels.get(f"{LABEL}.version", ""),
        reaches_hosts={"yes": True, "no": False}.get(labels.get(f"{LABEL}.hosts", "")),
    )


def used(found: Mapping[str, Any] | None) -> SandboxSample:
    """Return what a container uses (`GET /containers/ID/stats`), less the cache that the machine may take back.

    Of one that ends just then, the engine has nothing to say.
    """
    memory, processors = ((found or {}).get(name) or {} for name in ("memory_stats", "cpu_stats"))
    usage, details = memory.get("usage"), memory.get("stats") or {}
    cpu = (processors.get("cpu_usage") or {}).get("total_usage")
    cache = int(details.get("inactive_file") or details.get("total_inactive_file") or 0)
    return SandboxSample(
        cpu_seconds=cpu / 1e9 if isinstance(cpu, int) and isinstance(usage, int) else None,
        memory_bytes=max(0, usage - cache) if isinstance(usage, int) else None,
    )


def engine_info(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineInfo:
    """Return what an engine says of itself (`GET /version`, `GET /info`)."""
    return EngineInfo(
        version=str(version.get("Version")),
        api_version=str(version.get("ApiVersion")),
        architecture=str(info.get("Architecture", "")),
        runtimes=frozenset(_installed(info)),
        default_runtime=str(info.get("DefaultRuntime", "unknown")),
        seccomp=any(str(option).startswith("name=seccomp") for option in info.get("SecurityOptions") or ()),
        limited=frozenset(what for key, what in LIMITED.items() if info.get(key)),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        memory_bytes=int(info.get("MemTotal") or 0),
        folder=str(info.get("DockerRootDir") or ""),
        users=users(info),
    )


def _installed(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield the runtimes of an engine, without those whose program is missing, if it is one of this machine."""
    here = os.path.isdir(str(info.get("DockerRootDir") or ""))  # noqa: PTH112 (as a string)
    for name, about in (info.get("Runtimes") or {}).items():
        path = str((about or {}).get("path") or "")
        if not (here and path.startswith("/") and not os.path.exists(path)):  # noqa: PTH110 (as above)
            yield str(name)


def image_info(found: Mapping[str, Any]) -> ImageInfo:
    """Return what an engine says of an image (`GET /images/NAME/json`)."""
    settings = found.get("Config") or {}
    variables = (str(line).partition("=") for line in settings.get("Env") or ())
    return ImageInfo(
        size_bytes=int(found.get("Size", 0)),
        made=str(found.get("Created"))[:10],
        contents=(settings.get("Labels") or {}).get(CONTENTS),
        variables=tuple((name, value) for name, _, value in variables),
        identity=str(found.get("Id", "")),
    )


def _use_paths(body: dict[str, Any], held: Attachment) -> None:
    """Have a body name folders by their paths. Raises `EngineError`, and `held` is closed then."""
    try:
        held.use_paths()
    except BaseException:
        held.close()
        raise
    body["HostConfig"]["Mounts"] = renamed(body["HostConfig"]["Mounts"], held.names)


Rows = list[dict[str, Any]]

REAP_SECONDS = 15.0
REAP_AGE_SECONDS = 30
"""A container younger than this may belong to a start that is under way."""
AT_REST = {"created", "exited", "dead"}
"""States of a container without a pipe, which cannot be handed over."""
HANDED_OVER_PAUSE = 2.0
elsewhere: set[str] = set()
"""The sockets of engines that see another /proc than this process, as a start has shown: they are given paths."""


class DockerEngine(DockerApi):
    """A Docker engine, or another that speaks its API, behind a unix socket."""

    abilities = PAUSE
    container: type[DockerContainer] = DockerContainer
    """What its containers are made as."""

    def __init__(
        self, base_url: str | None = None, *, owner_pid: int | None = None, ahead: base.Ahead | None = None
    ) -> None:
        """`base_url` is like "unix:///path", and found by itself if None; `owner_pid` is the process to name.

        `ahead` is a create that this engine was asked for already; a start with its spec takes it up.
        """
        super().__init__(socket_path(base_url))
        self.owner_pid = owner_pid or os.getpid()
        self._ahead = ahead
        self._starting: asyncio.Task[DockerContainer] | None = None
        self._tasks = Tasks()

    # --- the seam ---------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Start what was asked ahead, as soon as it is created; `start` takes it up. Call from the loop."""
        if isinstance(self._ahead, PendingContainer) and self._starting is None:
            self._starting = self._tasks.hold(self._start_ahead(self._ahead), f"go on with {self._ahead.name}")

    async def start(self, spec: SandboxSpec) -> DockerContainer:
        """Create a container, attach to it, start it. A start that fails, or is cancelled, leaves nothing behind."""
        ahead, self._ahead = self._ahead, None
        starting, self._starting = self._starting, None
        try:
            if isinstance(ahead, PendingContainer) and ahead.spec == spec:
                return await (starting or self._start_ahead(ahead))
            if starting is not None:
                starting.cancel()
            if ahead is not None:
                ahead.give_up()
            if may_wait(spec) or not few_users.may_be(self.path):
                return await self._start_new(spec)
            if few_users.note(self.path, await self.request("GET", "/info")) is None:
                return await self._start_new(spec)
        except LacksUsers:
            if may_wait(spec):  # a disk that is mounted is another user's
                raise
        tries = 0
        while True:
            own, tries = few_users.drawn(spec, few_users.known[self.path]), tries + 1
            try:
                return await self._start_new(replace(spec, uid=own.uid), own)
            except UserTaken:
                if tries >= TRIES:
                    raise

    async def _start_new(self, spec: SandboxSpec, own: OwnUser | None = None) -> DockerContainer:
        if opens_disks(spec):
            body, held = await made_in_thread(lambda: creation(spec), lambda made: made[1].close())
        else:
            body, held = creation(spec)
        container = await self.start_body(spec.session_id, body, held, spec.program)
        container.has(own)
        return container

    async def start_body(
        self, session_id: str, body: dict[str, Any], held: Attachment | None = None, program: bytes = b""
    ) -> DockerContainer:
        """Start what `body` says; for `start`, and for tests that leave a protection out. `held` is closed then."""
        held = held or Attachment()
        if self.path in elsewhere:
            _use_paths(body, held)
        name = OwnerProcess.of(self.owner_pid).container_name(session_id)
        user = body["Labels"].get(few_users.USER)
        since = time.time()
        self.guard.expect(name)  # should this process end in the midst of it, the engine creates it all the same
        creating = self._tasks.hold(self.request("POST", create_target(name), body), f"create {name}")
        return await self._start(session_id, name, since, creating, held, body=body, program=program, user=user)

    async def _start(
        self,
        session_id: str,
        name: str,
        since: float,
        creating: asyncio.Task[dict[str, Any]],
        held: Attachment,
        *,
        body: dict[str, Any],
        user: str | None = None,
        program: bytes,
    ) -> DockerContainer:
        # Creating takes most of the time, so the subscription comes for free. It must stand before the start: what
        # ended a container that removes itself is told once, to those who listen.
        listening = self._tasks.hold(self.subscribe(session_id, since), f"listen {name}")
        pipe: Pipe | None = None
        try:
            created = await asyncio.shield(creating)
            self.guard.created(name, identity_of(created))
            if user is not None:
                await require_alone(user, created["Id"], self.request)
            pipe = await self.attach(created["Id"])
            events = await asyncio.shield(listening)
            starting = self._tasks.hold(self.request("POST", f"/containers/{created['Id']}/start"), f"start {name}")
            # The engine answers when all is done for a container that runs: it has read its program by then.
            loading = self._tasks.hold(pipe.load(program), f"load {name}")
            await asyncio.shield(starting)
            await asyncio.shield(loading)
        except BaseException as error:
            if pipe is not None:
                pipe.close()
            try:
                await asyncio.shield(self._tasks.hold(self._undo(name, creating, listening), f"undo {name}"))
            except BaseException:
                held.close()
                raise
            unseen = isinstance(error, EngineError) and error.code is EndCode.FOLDER_NOT_MOUNTED
            if unseen and held.names.get(EMPTY, "").startswith("/proc/"):
                _use_paths(body, held)
                container = await self.start_body(session_id, body, held, program)
                elsewhere.add(self.path)
                return container
            held.close()
            if isinstance(error, EngineError) and (better := await why(error, self.path, self.request)):
                raise better from error
            raise
        held.started()
        return self.container(self, created["Id"], name, session_id, pipe=pipe, events=events, since=since, held=held)

    async def _start_ahead(self, ahead: PendingContainer) -> DockerContainer:
        creating = self._tasks.hold(self._created_ahead(ahead), f"create {ahead.name}")
        spec = ahead.spec
        return await self._start(
            spec.session_id, ahead.name, ahead.since, creating, ahead.held, body=ahead.body, program=spec.program
        )

    async def adopt(self, fd: int, state: dict[str, Any]) -> DockerContainer:
        """Take over a container whose pipe another process gave up; its name tells the new owner from now on."""
        try:
            identity, session_id, since = str(state["id"]), str(state["session"]), float(state["since"])
            own = few_users.told(state.get("own"))
            pipe = Pipe.attach(fd, state["pipe"], Demultiplexer.of(state["pipe"]))
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(
                EndCode.CONTAINER_NOT_ADOPTED, f"no container can be adopted from this state ({error!r})"
            ) from error
        events: EngineConnection | None = None
        try:
            events = await self.subscribe(session_id, since)
            name = await self.rename(identity, session_id, self.owner_pid)
        except BaseException:
            pipe.close()
            if events is not None:
                events.close()
            raise
        self.guard.watch(identity)
        container = self.container(self, identity, name, session_id, pipe=pipe, events=events, since=since)
        container.has(own)
        return container

    async def reap(self) -> int:
        """Remove containers whose owner is dead, of this host only; return how many. Takes a minute and a half at most.

        Those of other users are left alone, unless this is root's: they have starts of their own. One that runs may be
        between two owners, the first gone and the second not written into its name yet. It is removed if it still
        has the same name after the longest time that this takes.
        Raises the first `EngineError` that a removal met, after it has tried the others.
        """
        begin, lost = time.monotonic(), await self._lost()
        done = [each for each, found in lost.items() if found["State"] in AT_REST]
        running = lost.keys() - done
        count, failure = await self._remove_all(done, begin + REAP_SECONDS)
        handed_over = begin + container_reaper.HANDED_OVER_SECONDS
        while running:
            left = handed_over - time.monotonic()
            await asyncio.sleep(max(0.0, min(left, HANDED_OVER_PAUSE)))
            still = await self._lost()
            running = {each for each in running if each in still and still[each]["Names"] == lost[each]["Names"]}
            if left <= 0:
                break
        removed, late = await self._remove_all(running, handed_over + REAP_SECONDS)
        if (failure := failure or late) is not None:
            raise failure
        return count + removed

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"unix://{self.path}"

    async def list(self) -> tuple[Listed, ...]:

        return tuple(map(listed, await self._ours()))

    async def info(self) -> EngineInfo:

        version = await self.request("GET", "/version")
        text = str(version.get("ApiVersion", "0"))
        if (api_version.number(text) or (0, 0)) < api_version.OLDEST:
            why = "the container engine is too old: it must be Docker 20.10 or later"
            raise EngineError(EndCode.ENGINE_TOO_OLD, why, limit="API 1.41", value=text)
        return engine_info(version, await self.request("GET", "/info"))

    async def conditions(self) -> tuple[MachineCondition, ...]:
        return ()

    async def shown(self, container: str) -> Shown:
        from ..inspectable import Shown

        return Shown()

    async def image(self, name: str) -> ImageInfo:

        return image_info(await self.request("GET", f"/images/{quote(name, safe='/:@')}/json"))

    async def used(self, container: str) -> SandboxSample:

        return used(await self.request("GET", f"/containers/{container}/stats?stream=false&one-shot=true"))

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _created_ahead(self, ahead: PendingContainer) -> Any:
        connection, target = EngineConnection(self.path, ahead.socket), create_target(ahead.name)
        try:
            found = await self.answered(connection, connection.answer(), target, ahead.body, ahead.version)
        except OtherVersion:
            return await self.request("POST", target, ahead.body)
        return await self.decoded(found, target)

    async def _ours(self) -> Rows:
        filters = quote(json.dumps({"label": [f"{LABEL}.session"]}), safe="")
        found = await self.request("GET", f"/containers/json?all=1&filters={filters}")

        try:
            return lines(found)
        except (LookupError, TypeError, ValueError) as error:
            raise odd("what runs", error) from error

    async def _lost(self) -> dict[str, dict[str, Any]]:
        """Return what the engine has of this host, and of this process's user, whose owner is dead, by identity."""
        lost: dict[str, dict[str, Any]] = {}
        for found in await self._ours():
            owner, labels = OwnerProcess.parse(found["Names"][0]), found["Labels"]
            if (
                host_name() != UNKNOWN_HOST
                and labels.get(f"{LABEL}.host") == host_name()
                and os.getuid() in {0, int(labels.get(f"{LABEL}.uid", os.getuid()))}
                and not (owner is not None and owner.alive())
                and time.time() - found["Created"] >= REAP_AGE_SECONDS
            ):
                lost[found["Id"]] = found
        return lost

    async def _remove_all(self, identities: Iterable[str], until: float) -> tuple[int, EngineError | None]:
        """Remove containers, beginning with none after `until`; return how many this call did, and the first error."""
        count, failure = 0, None
        for identity in identities:
            if time.monotonic() > until:
                break
            try:
                count += await self.remove(identity)
            except EngineError as error:
                failure = failure or error
        return count, failure

    async def _undo(self, name: str, creating: asyncio.Task[Any], listening: asyncio.Task[EngineConnection]) -> None:
        """Remove what a start that did not succeed may have created by now, or creates yet."""
        results: list[object] = list(await asyncio.gather(creating, listening, return_exceptions=True))
        if isinstance(results[1], EngineConnection):
            results[1].close()
        answer = results[0]
        identity = str(answer["Id"]) if isinstance(answer, dict) and "Id" in answer else name
        try:
            if identity != name:
                await self.remove(identity)
            elif isinstance(answer, EngineUnavailable) or not isinstance(answer, BaseException):
                self.guard.remove(name)  # it may have taken the request, and do what it says later
        except EngineError:
            self.guard.remove(identity)
        for each in (name, identity):
            self.guard.forget(each)
