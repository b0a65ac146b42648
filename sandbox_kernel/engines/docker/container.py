"""One running container of a Docker engine: its pipe, and why it ended.

Imports asyncio, the pipe and the model; the engine is handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError, EngineUnavailable
from ...core.model import ATTACHED, SIGKILLED, ExitReason, SandboxSample, SandboxSpec
from ...core.tasks import Tasks
from ..abilities import PAUSE
from ..attachment import Attachment, watch
from ..attestation import EXCUSED, as_list, at, checks, demand, only, same, short
from ..base import AttestationCheck, Handover, Inspection
from ..container_reaper import kill_processes
from ..limit_watch import CgroupPlace, LimitWatch, places_of, watch_memory, watch_processes
from ..pipe import OverPipe, Pipe
from ..process_sample import of_cgroup
from ..socket_memory import limit_sockets, sockets_line
from ..usage_watch import UsageWatch, sample_of_family
from .api_client import DockerApi, EngineConnection
from .arguments import LABEL, container_arguments, digest, renamed
from .engine_errors import odd
from .few_users import OwnUser, excused

if TYPE_CHECKING:
    from ...plugins.api import FileWatch

ENGINE_EMPTY = (
    *("VolumesFrom", "Links", "ExtraHosts", "PortBindings", "PublishAllPorts", "DeviceRequests", "DeviceCgroupRules"),
    *("Sysctls", "UsernsMode", "Cgroup", "OomKillDisable"),
)
"""Settings of the engine that arguments.py leaves alone, and that would open something."""


def witness(spec: SandboxSpec, inspected: object, image_environment: object) -> Inspection:
    """Compare the engine's document on a container with `spec`; the image's own environment may be there too."""
    found = inspected if isinstance(inspected, Mapping) else {}
    variables = (str(entry).partition("=")[0] for entry in as_list(at(found, "Config", "Env")))
    return Inspection(tuple(_compared(spec, found, image_environment)), frozenset(variables))


def _compared(spec: SandboxSpec, inspected: Mapping[str, Any], image_environment: object) -> Iterator[AttestationCheck]:
    host = container_arguments(spec)["HostConfig"]
    asked_mounts = host["Mounts"]
    yield from configured(spec, inspected, image_environment)
    yield equal("engine: StdinOnce", True, at(inspected, "Config", "StdinOnce"))
    asked_for = at(inspected, "HostConfig", "Mounts") or []
    yield equal("engine: Mounts", plain(host.pop("Mounts")), plain(renamed(asked_for)))
    for name, expected in host.items():
        yield equal(f"engine: {name}", plain(expected), plain(at(inspected, "HostConfig", name)))
    for name in ENGINE_EMPTY:
        yield equal(f"engine: {name}", None, at(inspected, "HostConfig", name))
    mounted = _named(inspected.get("Mounts", "nothing said") or [])
    yield equal("engine: mounted", plain(_mounted(asked_mounts)), plain(mounted))


def configured(
    spec: SandboxSpec, inspected: Mapping[str, Any], image_environment: object, own: frozenset[str] = frozenset()
) -> Iterator[AttestationCheck]:
    """Compare what all engines that have Docker's API say alike; `own` are variables that the engine itself sets."""
    asked = container_arguments(spec)
    yield same("engine: spec", digest(spec), at(inspected, "Config", "Labels", f"{LABEL}.spec"))
    yield same("engine: running", True, at(inspected, "State", "Running"))
    for name in ("User", "Hostname", "WorkingDir", "Entrypoint", "Cmd", "OpenStdin", "Tty"):
        yield equal(f"engine: {name}", asked[name], at(inspected, "Config", name))
    networks = at(inspected, "NetworkSettings", "Networks")
    yield only("engine: networks besides none", {"none"}, list(networks) if isinstance(networks, Mapping) else networks)
    environment = at(inspected, "Config", "Env") or []
    allowed = {*map(str, asked["Env"]), *map(str, as_list(image_environment))}
    others = [one for one in as_list(environment) if str(one).partition("=")[0] not in own]
    yield only("engine: environment besides the image's", allowed, others if isinstance(environment, list) else None)
    lost = [one for one in asked["Env"] if one not in as_list(environment)]
    yield AttestationCheck("engine: environment that is lost", "none", ", ".join(lost) or "none", not lost)
    profile = inspected.get("AppArmorProfile")
    yield AttestationCheck(
        "engine: AppArmor", "not switched off", short(profile), isinstance(profile, str) and profile != "unconfined"
    )


_VOLUME = {"Type": "volume", "Driver": "local", "RW": True, "Propagation": ""}
"""What an engine says of each volume without a name. Whether one can be written is in its own options."""


def _mounted(asked: list[dict[str, Any]]) -> list[object]:
    """Return what the engine says of volumes without a name, that were asked for."""
    return [_VOLUME | {"Destination": one["Target"]} for one in asked]


def _named(found: object) -> object:
    """Return what counts of the engine's list of mounts."""
    if not isinstance(found, list):
        return "nothing said"
    keys = (*_VOLUME, "Destination")
    return [{key: one.get(key) for key in keys} if isinstance(one, Mapping) else "no mount" for one in found]


GVISOR = "runsc"
"""Keeps files open that a cell has closed: it opens them once, also those that are only listed."""


def mounted_here(inspected: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    """Return where the engine's machine has what is attached, by its path inside; and whether gVisor opens it."""
    found = as_list(inspected.get("Mounts"))
    pairs = ((one.get("Destination"), one.get("Source")) for one in found if isinstance(one, Mapping))
    places = {str(path): str(place) for path, place in pairs if str(path).startswith(f"{ATTACHED}/") and place}
    return places, at(inspected, "HostConfig", "Runtime") == GVISOR


def disk_line(path: str, number: int, inspected: Mapping[str, Any]) -> AttestationCheck:
    """Compare the disk that the engine mounted with the device that was made: another one may have its name."""
    sources = [one.get("Source") for one in as_list(inspected.get("Mounts")) if at(one, "Destination") == path]
    try:
        found = os.stat(str(sources[0])).st_dev if len(sources) == 1 else None  # noqa: PTH116 (a string)
    except OSError:
        found = None  # the engine is on another machine
    ok = found == number
    return AttestationCheck(
        f"engine: disk at {path}", "the one that was made", "the one that was made" if ok else "another one", ok
    )


def equal(name: str, expected: object, found: object) -> AttestationCheck:
    """Compare with an engine's document, in which null, false, zero and empty mean the same: not set."""
    return AttestationCheck(name, short(expected), short(found), found == expected if expected or found else True)


def plain(value: object) -> object:
    """Return a form of an engine's setting in which neither order nor what is not set counts."""
    if isinstance(value, Mapping):
        return sorted((str(key), plain(item)) for key, item in value.items() if item)
    if isinstance(value, list):
        return sorted(str(plain(item)) for item in value)
    return value


KILL_SECONDS = 4.0
"""How long a removal is waited for. One that takes longer goes on without anybody who waits."""
BY_HAND_SECONDS = 1.5
LATE_OOM_SECONDS = 2.0
"""The engine tells "out of memory" and "died" by two ways, and either may come first."""
JUST_BEFORE_SECONDS = 5.0
"""An older out-of-memory event was another process's end."""
ENGINE_BACK_SECONDS = 3.0
"""How long an engine may be gone before the sandbox counts as lost."""
REPLAY_SECONDS = 1.0
LAST_WORDS_SECONDS = 0.5
PAUSE_TRIES, PAUSE_AGAIN_SECONDS = 4, 0.1
"""With cgroups of the first version, an engine gives up where a busy machine does not stop all processes soon."""
GIVEN_NO_THREAD = 2
"""How gVisor ends, as all programs in Go, when the system has no thread for it; no agent of ours ends so."""


class DockerContainer(OverPipe):
    """A running container. Made by `DockerEngine.start` and `DockerEngine.adopt` only."""

    abilities = PAUSE

    def __init__(
        self,
        engine: DockerApi,
        identity: str,
        name: str,
        session_id: str,
        *,
        pipe: Pipe,
        events: EngineConnection,
        since: float,
        held: Attachment | None = None,
    ) -> None:
        """`held` is what it was started with, and closed with its end."""
        self._held = held or Attachment()
        self.id = identity
        self.image_id: str | None = None
        self.own_user: OwnUser | None = None
        self.held = True
        self.name = name
        self._engine = engine
        self._session_id = session_id
        self._pipe = pipe
        self._since = since
        self._events = events
        self._exit_code: int | None = None
        self._removed = False
        self._lent = False
        self.paused = False
        self._pausing: asyncio.Task[None] | None = None
        self._given_up = False
        """A pause was given up by its caller: the engine may still carry it out."""
        self._oom = asyncio.Event()
        self._oom_at = -math.inf
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ExitReason] = loop.create_future()
        self._tasks = Tasks()
        self._concluding: asyncio.Task[object] | None = None
        self._watching = self._tasks.start(self._watch(), f"watch {name}", failed=self._blind)
        self._watching.add_done_callback(lambda _: self._events.close())
        self._no_room = False
        self._first = 0
        """Its first process, where nothing but a look at its processes keeps its limits."""
        self._places: dict[str, CgroupPlace] = {}
        self._mounted: tuple[dict[str, str], bool] | None = None
        self._limits: list[LimitWatch | UsageWatch] = []
        self._finding = self._tasks.start(self._watch_limits(), f"find the limits of {name}")

    def has(self, own: OwnUser | None) -> None:
        """Note who it runs as in place of the user that was asked for; before the loop runs again."""
        self.own_user = own
        self.held = own is None or own.most is None

    async def wait(self) -> ExitReason:
        """Return why the container ended; `detail` holds the end of its stderr that `receive` has read."""
        reason = await asyncio.shield(self._ended)
        if reason.kind != "exited" or self._lent:
            return reason
        with contextlib.suppress(TimeoutError):  # the receiver is about to read the last output
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._pipe.ended.wait()
        return replace(reason, detail=self._pipe.stderr)

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        spec = self._own(spec)
        return checks(spec, report, await self.look(spec))

    def _own(self, spec: SandboxSpec) -> SandboxSpec:
        return spec if self.own_user is None else replace(spec, uid=self.own_user.uid)

    async def look(self, spec: SandboxSpec) -> Inspection:
        """Return what the engine says of it, compared with `spec`."""
        found = await self._engine.inspect(self.id)
        if found is None:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        image = await self._engine.request("GET", f"/images/{found['Image']}/json")
        self.image_id = str(found["Image"])[:100]
        self._mounted = mounted_here(found)
        seen = self.seen(self._own(spec), found, image["Config"].get("Env"))
        await asyncio.wait({self._finding})
        devices, attached = self._held.devices, self._held.identities()
        seen = seen._replace(lines=(*seen.lines, sockets_line(self._places.get("memory"))))
        if spec.runtime not in EXCUSED:
            return seen._replace(attached=attached)
        # gVisor does not show the number of a file system: the machine is asked for the disk that it has there.
        disks = tuple(disk_line(path, number, found) for path, number in devices.items())
        folders = {path: times for path, times in attached.items() if path not in devices}
        return seen._replace(lines=(*seen.lines, *disks), attached=folders, engine="")

    def seen(self, spec: SandboxSpec, inspected: Mapping[str, Any], image_environment: object) -> Inspection:
        """Return what the engine's document shows, and whose excuses hold."""
        return witness(spec, inspected, image_environment)._replace(engine=excused(self.own_user))

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        demand(await self.compare(report, spec))

    async def pause(self) -> None:
        """Have the engine freeze it. One that is paused ends as any other: the engine lets it go on to die."""
        if not self.paused:
            self.paused = True  # from here on it may be: the engine does it even if the caller gives up
            self._given_up = False
            self._pausing = self._tasks.hold(self._pause(), f"pause {self.name}")
        if self._pausing is not None:
            await asyncio.shield(self._pausing)

    async def resume(self) -> None:
        if self._pausing is not None:
            await asyncio.wait({self._pausing})
        if self.paused:
            await self._unpause()
            self.paused = False

    async def _pause(self) -> None:
        try:
            for left in reversed(range(PAUSE_TRIES)):
                try:
                    await self._engine.request("POST", f"/containers/{self.id}/pause")
                    break
                except EngineError as error:
                    if error.code is not EndCode.ENGINE_FAILED or not left:
                        raise
                await asyncio.sleep(PAUSE_AGAIN_SECONDS)
        except BaseException:
            # The engine may do it all the same, now or later than anybody waits for, and tells of it then.
            self._given_up = True
            with contextlib.suppress(EngineError):
                await asyncio.shield(self._tasks.hold(self._undo(), f"let {self.name} go on"))
            self.paused = False
            raise

    async def _undo(self) -> None:
        await self._unpause()
        self._given_up = False

    async def _unpause(self) -> None:
        await self._engine.request("POST", f"/containers/{self.id}/unpause")

    async def kill(self) -> None:
        """End and remove the container, within 4 s. Raises `EngineError` when that is not done by then.

        It is then left to the guard, which tries until it is removed.
        """
        self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended by its owner"))
        self._pipe.close()
        if self._removed:
            return
        removing = self._tasks.hold(self._remove(), f"remove {self.name}")
        try:
            async with asyncio.timeout(KILL_SECONDS):
                done, _ = await asyncio.wait({removing}, timeout=BY_HAND_SECONDS)
                if not done:
                    await asyncio.to_thread(kill_processes, self.id)
                await removing
            self._removed = True
            self._engine.guard.forget(self.id)
        except EngineUnavailable:
            pass  # no engine, no container; and without its pipe the agent ends anyway
        except EngineError:
            self._engine.guard.remove(self.id)
            raise
        except TimeoutError as error:
            self._engine.guard.remove(self.id)
            raise EngineError(
                EndCode.CONTAINER_NOT_REMOVED,
                "the engine did not remove the container",
                limit=f"{KILL_SECONDS:.0f} s",
            ) from error
        finally:
            removing.cancel()

    async def _remove(self) -> bool:
        with contextlib.suppress(EngineError):
            await self.resume()  # gVisor's is not killed while it is paused; of one that is gone, the removal tells
        return await self._engine.remove(self.id)

    def abandon(self) -> None:
        self._held.close()
        self._pipe.abandon()
        self._events.close()
        self._forget_limits()
        self._engine.guard.abandoned(self.id)

    def detach(self) -> Handover:
        """Give the pipe away. The container lives on for as long as somebody holds the file descriptor."""
        for task in (self._watching, self._concluding):
            if task is not None:
                task.cancel()
        self._forget_limits()
        self._held.close()
        fd, pipe = self._pipe.detach()
        self._engine.guard.handed_over(self.id)
        state = {"id": self.id, "name": self.name, "session": self._session_id, "since": time.time(), "pipe": pipe}
        return Handover(fd, state | {"own": self.own_user})

    def lend(self) -> Handover:
        """Give the pipe away; its new owner gets the last output, too."""
        fd, pipe = self._pipe.detach()
        self._lent = True
        return Handover(fd, {"id": self.id, "session": self._session_id, "pipe": pipe})

    async def owned_by(self, pid: int) -> None:
        self.name = await self._engine.rename(self.id, self._session_id, pid)

    # --- why it ended -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Follow the engine's events until the container has ended, over lost connections and engine restarts."""
        while True:
            try:
                async for event in self._events.lines():
                    self._note(event)
            except (OSError, ValueError, EngineError):
                pass  # the stream is lost; whether the container is, the engine must tell
            self._events.close()
            try:
                self._events = await self._subscribe_again()
                found = await self._engine.inspect(self.id)
            except EngineError as error:
                self._pipe.close()
                self._end(ExitReason(kind="engine_lost", detail=error.message))
                return
            if found is not None and self._pipe.ended.is_set():
                # An engine that keeps containers over its own restart does not keep their pipes.
                self._end(ExitReason(kind="engine_lost", detail="the container engine was restarted"))
                return
            if found is None or not found["State"]["Running"]:
                # It ended without a listener. The engine tells again what it remembers, if it is still the same.
                self._exit_code = found["State"]["ExitCode"] if found else None
                asyncio.get_running_loop().call_later(REPLAY_SECONDS, self._has_ended)

    async def _subscribe_again(self) -> EngineConnection:
        deadline = time.monotonic() + ENGINE_BACK_SECONDS
        while True:
            try:
                return await self._engine.subscribe(self._session_id, self._since)
            except EngineUnavailable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    def _note(self, event: dict[str, Any]) -> None:
        """Take in one event of the engine; it may be another container's of this session, which is on its way out."""
        if event.get("Actor", {}).get("ID", self.id) != self.id:
            return
        what = str(event.get("Action") or event.get("status"))
        if what == "oom":
            self._ran_out()
        elif what == "pause" and self._given_up:
            self._tasks.start(self._undo(), f"let {self.name} go on")
        elif what == "die":
            code = str(event.get("Actor", {}).get("Attributes", {}).get("exitCode", ""))
            self._exit_code = int(code) if code.isdigit() else None
            self._has_ended()

    def _ran_out(self) -> None:
        self._oom_at = time.monotonic()  # not the engine's clock, which may be another machine's
        self._oom.set()

    def _used_too_much(self) -> None:
        self._ran_out()
        self._tasks.start(self._engine.remove(self.id), f"end {self.name}")

    def _had_no_room(self) -> None:
        self._no_room = True

    async def _watch_limits(self) -> None:
        """Hear of them from the machine as well, if it is this one: the engine may miss what ends a container."""
        with contextlib.suppress(EngineError, OSError, LookupError, TypeError, ValueError):
            found = await self._engine.inspect(self.id)
            pid = int(found["State"]["Pid"]) if found and not self._ended.done() else 0
            self._mounted = self._mounted or (mounted_here(found) if found else None)
            if pid and self.own_user is not None and self.own_user.most is not None:
                self._limits.append(UsageWatch(pid, self.own_user.most, self._used_too_much))
                self._first = pid
            self._places = places = places_of(pid, self.id)
            if "memory" in places:
                limit_sockets(places["memory"])
                self._limits.append(watch_memory(places["memory"], self._ran_out))
            if "pids" in places:
                self._limits.append(watch_processes(places["pids"], pid, self._had_no_room))

    async def sample(self) -> SandboxSample:
        """Return what its cgroup and its processes show; nothing on another machine, or once it is gone."""
        if self._first:
            return await asyncio.to_thread(sample_of_family, self._first)
        return await asyncio.to_thread(of_cgroup, self._places)

    def watch_files(self) -> FileWatch | None:
        """Hear which files it opens of the host's. Raises OSError, also if the engine is on another machine."""
        if self._mounted is None:
            return None
        places, partial = self._mounted
        return watch(places, partial=partial)

    def _forget_limits(self) -> None:
        self._finding.cancel()
        for limit in self._limits:
            limit.close()

    def _has_ended(self) -> None:
        if self._concluding is None:
            self._concluding = self._tasks.start(self._conclude(), f"conclude {self.name}", failed=self._blind)

    async def _conclude(self) -> None:
        """Tell from what was noted why the container ended."""
        if self._exit_code != SIGKILLED:
            crowded = self._no_room and self._exit_code == GIVEN_NO_THREAD
            self._end(ExitReason(kind="out_of_processes" if crowded else "exited", exit_code=self._exit_code))
            return
        if time.monotonic() - self._oom_at > JUST_BEFORE_SECONDS:
            self._oom.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LATE_OOM_SECONDS):
                    await self._oom.wait()
        if self._oom.is_set():
            self._end(ExitReason(kind="out_of_memory", exit_code=SIGKILLED))
            return
        try:
            # An engine that shuts down closes its socket first, and then kills what it runs.
            found = await self._engine.inspect(self.id)
        except EngineUnavailable as error:
            self._end(ExitReason(kind="engine_lost", exit_code=SIGKILLED, detail=error.message))
        except EngineError:
            self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the engine refuses to say by whom"))
        else:
            if found is not None and found["State"].get("OOMKilled"):  # the engine knew it before it could say so
                self._end(ExitReason(kind="out_of_memory", exit_code=SIGKILLED))
                return
            self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended from outside"))

    def _blind(self, error: BaseException) -> None:
        """Give the container up, whose end would not be noticed."""
        self._pipe.close()
        self._end(ExitReason(kind="engine_lost", detail=f"sandbox_kernel failed at what the engine said: {error!r}"))

    def _end(self, reason: ExitReason) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)
            self._forget_limits()
            self._held.close()
            for task in (self._watching, self._concluding):
                if task is not None and task is not asyncio.current_task():
                    task.cancel()


def identity_of(created: object) -> str:
    """Return the id in an engine's answer to a create."""
    if isinstance(created, dict) and isinstance(created.get("Id"), str):
        return str(created["Id"])
    raise odd("a create", ValueError("it has no Id"))
