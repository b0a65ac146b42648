"""One running sandbox of bubblewrap's: its pipe, and why it ended.

Two processes of the machine are followed by their pidfds: bubblewrap's own, which stays outside and says with which
code the sandbox ended, and the sandbox's first, with which all others end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError
from ...core.helper_processes import start_helper
from ...core.model import ATTACHED, SIGKILLED, ExitReason, SandboxSample, SandboxSpec
from ...engines.abilities import NONE, PAUSE, Ability
from ...engines.attachment import watch
from ...engines.attestation import checks, demand
from ...engines.base import AttestationCheck, Handover, Inspection
from ...engines.limit_watch import CgroupPlace, LimitWatch, watch_memory
from ...engines.owner_process import start_ticks
from ...engines.pipe import TAIL_BYTES, OverPipe, Pipe
from ...engines.process_sample import of_cgroup
from ...engines.usage_watch import MayUse, UsageWatch, sample_of_family
from . import engine_errors, scratch_folder
from .arguments import Descriptors, arguments
from .cgroups import CgroupSet, Freezer
from .inspection import look, witness
from .launch import Launched, confine_user, machine, walls
from .process_labels import MARK, command_of, has_ended, mark_of
from .reaper import kill, reaper
from .root_lookup import Root, find
from .watch import FolderWatch, confine

if TYPE_CHECKING:
    from ..api import FileWatch


class CgroupPause:
    """The part of a container that is paused."""

    paused = False
    _launched: Launched
    _freezer: Freezer | None = None

    @property
    def abilities(self) -> frozenset[Ability]:
        return PAUSE if self._switch().there else NONE

    async def pause(self) -> None:
        await self._switch().freeze()
        self.paused = True

    async def resume(self) -> None:
        self._let_go_on()

    def _let_go_on(self) -> None:
        """Let its processes go on: a frozen one of version 1 could not even be killed."""
        if self._freezer is not None:
            self._freezer.thaw()
        self.paused = False

    def _switch(self) -> Freezer:
        if self._freezer is None:
            self._freezer = Freezer(self._launched.group)
        return self._freezer


KILL_SECONDS = 4.0
"""How long an end is waited for. One that takes longer is left to the reaper."""
START_SECONDS = 30.0
LOOK_SECONDS = 0.001
JUST_BEFORE_SECONDS = 5.0
"""An older out-of-memory event was another process's end."""
STATUS_BYTES = 16384
READ_BYTES = 65536


class BubblewrapContainer(OverPipe, CgroupPause):
    """A running sandbox. Made by `BubblewrapEngine.start` and `BubblewrapEngine.adopt` only."""

    def __init__(self, program: str, launched: Launched, pipe: Pipe, most: MayUse, first: int | None = None) -> None:
        """`first` is the number of the sandbox's first process, if that is known already."""
        self.image_id: str | None = None
        self._program = program
        self._most = most
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ExitReason] = self._loop.create_future()
        self._take_up(launched, first)

    def _take_up(self, launched: Launched, first: int | None = None) -> None:
        """Listen to the processes that this container has from now on."""
        self.id = launched.name
        self.held = launched.group is not None and launched.folder is None
        self._launched = launched
        self._freezer = None
        self._over = asyncio.Event()
        """Set when neither of the two processes is there any more."""
        self._changed = asyncio.Event()
        self._status = bytearray(launched.said)
        self._stderr = bytearray()
        self._exit_code: int | None = None
        self._first = 0
        self._handle: int | None = None
        self._oom_at = -math.inf
        self._oom_known = launched.group.kills_for_memory() if launched.group is not None else 0
        self._filled = ""
        """What there was too much of in the folder for its scratch."""
        self._limit: LimitWatch | UsageWatch | None = None
        self._fill: FolderWatch | None = None
        self._listening = True
        self._loop.add_reader(launched.monitor, self._monitor_ended)
        self._loop.add_reader(launched.errors, self._hear_errors)
        self._loop.add_reader(launched.status, self._hear_status)
        if launched.group is not None:
            with contextlib.suppress(OSError):
                self._limit = watch_memory(launched.group.place("memory"), self._ran_out)
        if first is not None:
            self._began(first)
        self._note_status()

    async def sample(self) -> SandboxSample:
        """Return what its cgroup and its processes show; without a cgroup, what its processes do."""
        group, places = self._launched.group, dict[str, CgroupPlace]()
        if group is None:
            return await asyncio.to_thread(sample_of_family, self._first, disk=bool(self._most.disk_bytes))
        for name in ("pids", "cpuacct", "memory"):
            with contextlib.suppress(StopIteration):
                places[name] = group.place(name)
        return await asyncio.to_thread(of_cgroup, places, self._launched.pid)

    def watch_files(self) -> FileWatch | None:
        """Hear which files it opens of the host's. Raises OSError, for an ordinary user always."""
        root = f"/proc/{self._first}/root"
        places = {path: f"{root}{path}" for path in self._launched.opened if path.startswith(f"{ATTACHED}/")}
        return watch(places, partial=False) if self._first else None

    # --- the pipe ---------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        self._pipe.abandon()  # the reaper is told by the system, and ends it
        self._forget()

    def detach(self) -> Handover:
        """Give the pipe away. The sandbox lives on for as long as somebody holds the file descriptor."""
        fd, pipe = self._pipe.detach()
        group = self._launched.group
        state = {
            "id": self.id,
            "session": self._launched.session,
            "pid": self._launched.pid,
            "started": start_ticks(self._launched.pid),
            "first": self._first,
            "host_uid": self._launched.host_uid,
            "group": None if group is None else {"folders": group.folders, "version": group.version},
            "descriptors": self._launched.descriptors._asdict(),
            "layers": sorted(self._launched.layers),
            "space": self._launched.space,
            "opened": dict(self._launched.opened),
            "disks": dict(self._launched.disks),
            "may_use": [*self._most],
            "pipe": pipe,
        }
        self._forget()
        return Handover(fd, state)

    def lend(self) -> Handover:
        """Give the pipe away. Its other end is the reaper's too, so the owner reports the end to the new one."""
        fd, pipe = self._pipe.detach()
        return Handover(fd, {"pipe": pipe})

    async def owned_by(self, pid: int) -> None:
        """Do nothing: whose a sandbox is, is seen by who has its pipe."""

    # --- the end ----------------------------------------------------------------------------------------------------

    async def wait(self) -> ExitReason:
        return await asyncio.shield(self._ended)

    async def kill(self) -> None:
        """End the sandbox, within 4 s. Raises `EngineError` when that is not done by then; the reaper then goes on."""
        self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended by its owner"))
        self._let_go_on()
        if self._listening and not self._over.is_set():
            kill([self._launched.monitor, *([] if self._handle is None else [self._handle])])
        self._pipe.close()
        group = self._launched.group
        try:
            if self._listening:
                async with asyncio.timeout(KILL_SECONDS):
                    await self._over.wait()
            gone = group is None or group.remove(0) or await asyncio.to_thread(group.remove, KILL_SECONDS)
        except TimeoutError:
            gone = False
        if not gone:
            raise EngineError(EndCode.CONTAINER_NOT_REMOVED, "the sandbox did not end", limit=f"{KILL_SECONDS:.0f} s")
        self._forget()
        if (folder := self._launched.folder) is not None:
            await self._remove(folder)
        reaper().forget(self.id)

    async def _remove(self, folder: str) -> None:
        """Remove what it had on the host's disk; what takes long is left to a process that outlives this one."""
        if not await asyncio.to_thread(scratch_folder.remove, folder, KILL_SECONDS):
            with contextlib.suppress(OSError):  # `reap` is left
                start_helper(scratch_folder.__file__, folder, stdin=subprocess.DEVNULL)

    # --- what it is -------------------------------------------------------------------------------------------------

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        return checks(spec, report, await self.look(spec))

    async def look(self, spec: SandboxSpec) -> Inspection:
        if self._over.is_set() or self._ended.done() or self._handle is None:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        self.image_id = (root := find(spec.image)).contents
        return witness(spec, root, self._launched, self._words(spec, root), look(self._launched, self._first))

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        demand(await self.compare(report, spec))

    def _words(self, spec: SandboxSpec, root: Root) -> list[str]:
        """Return the arguments of the gate that are still visible: bubblewrap's own."""
        mine = self._launched
        return arguments(
            walls(spec), root, machine(mine.group, mine.layers, mine.space, mine.opened), mine.descriptors, spec.command
        )

    # --- how it begins ----------------------------------------------------------------------------------------------

    async def running(self) -> None:
        """Return when the sandbox's program runs. Raises `EngineError` if it does not come to that."""
        own = os.path.basename(self._program)[:15]  # noqa: PTH119 (as the system cuts it)
        try:
            async with asyncio.timeout(START_SECONDS):
                while self._handle is None and not self._over.is_set():
                    self._changed.clear()
                    await self._changed.wait()
                while not self._over.is_set() and command_of(self._first) in {own, ""}:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await self._over.wait()
        except TimeoutError as error:
            raise EngineError(
                EndCode.ENGINE_SILENT, "bubblewrap does not start the sandbox", limit=f"{START_SECONDS:.0f} s"
            ) from error
        if self._over.is_set() and (self._handle is None or self._stderr.startswith(engine_errors.PREFIX.encode())):
            raise engine_errors.refusal(self._stderr.decode("utf-8", "replace"))

    def _began(self, first: int) -> None:
        """The sandbox's first process is there."""
        try:
            handle = os.pidfd_open(first)
        except OSError:
            return  # it ended already, and so does bubblewrap
        self._first, self._handle = first, handle
        self._loop.add_reader(handle, self._first_ended)
        if self._launched.group is None:
            with contextlib.suppress(OSError):  # it ended already; and the attestation sees what is not there
                confine(first, self._most)
            self._limit = UsageWatch(first, self._most, self._used_too_much)
        if (folder := self._launched.folder) is not None:
            self._fill = FolderWatch(first, folder, self._most.disk_bytes, self._filled_up)
        with contextlib.suppress(OSError):  # it ended, or is another user's, who has counts of their own
            confine_user(first)
        reaper().started(self.id, handle)
        self._changed.set()

    # --- what is heard ----------------------------------------------------------------------------------------------

    def _hear_status(self) -> None:
        """Take in what bubblewrap says: one JSON document a line."""
        data = _read(self._launched.status)
        if data == b"":
            self._loop.remove_reader(self._launched.status)
        self._status += data or b""
        self._note_status()

    def _note_status(self) -> None:
        del self._status[:-STATUS_BYTES]
        while (end := self._status.find(b"\n")) >= 0:
            line = bytes(self._status[:end])
            del self._status[: end + 1]
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                said = json.loads(line)
                if "child-pid" in said and self._handle is None:
                    self._began(int(said["child-pid"]))
                if "exit-code" in said:
                    self._exit_code = int(said["exit-code"])

    def _hear_errors(self) -> None:
        data = _read(self._launched.errors)
        if data == b"":
            self._loop.remove_reader(self._launched.errors)
        self._stderr += data or b""
        del self._stderr[:-TAIL_BYTES]

    def _ran_out(self) -> None:
        self._oom_at = time.monotonic()
        if self._launched.group is not None:
            self._oom_known = self._launched.group.kills_for_memory()

    def _used_too_much(self) -> None:
        self._oom_at = time.monotonic()
        self._stop()

    def _filled_up(self, what: str) -> None:
        self._filled = what
        self._let_go_on()
        self._stop()

    def _stop(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _first_ended(self) -> None:
        """All that the sandbox had has ended, so nothing more comes through the pipe, even if its other end is open."""
        if self._handle is None:
            return
        self._loop.remove_reader(self._handle)
        self._pipe.finish()
        if isinstance(self._limit, UsageWatch):
            self._limit.close()
        if self._fill is not None:
            self._fill.close()
        if has_ended(self._launched.monitor):
            self._conclude()

    def _monitor_ended(self) -> None:
        self._loop.remove_reader(self._launched.monitor)
        self._hear_status()
        if self._handle is not None and not has_ended(self._handle):
            with contextlib.suppress(OSError):  # somebody ended bubblewrap, and the sandbox goes on without it
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            return
        self._conclude()

    def _conclude(self) -> None:
        """Tell why it ended, from what was noted."""
        if self._over.is_set():
            return
        for hear in (self._hear_status, self._hear_errors):
            hear()
        with contextlib.suppress(ChildProcessError):  # it is another process's child
            os.waitpid(self._launched.pid, os.WNOHANG)
        self._over.set()
        self._changed.set()
        self._pipe.finish()
        code = SIGKILLED if self._exit_code is None else self._exit_code
        if code != SIGKILLED:
            detail = self._stderr.decode("utf-8", "replace").strip()
            self._end(ExitReason(kind="exited", exit_code=code, detail=detail))
            return
        if self._filled:
            self._end(ExitReason(kind="out_of_scratch", exit_code=SIGKILLED, detail=self._filled))
            return
        group = self._launched.group
        more = group is not None and group.kills_for_memory() > self._oom_known
        if more or time.monotonic() - self._oom_at < JUST_BEFORE_SECONDS:
            self._end(ExitReason(kind="out_of_memory", exit_code=SIGKILLED))
        else:
            self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended from outside"))

    def _end(self, reason: ExitReason) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    def _forget(self) -> None:
        """Listen no longer, and close all that is held; the sandbox is not touched. Works without a loop."""
        if not self._listening:
            return
        self._listening = False
        self._launched.held.close()
        if self._limit is not None:
            self._limit.close()
        if self._fill is not None:
            self._fill.close()
        handles = [self._launched.monitor, self._launched.errors, self._launched.status]
        for fd in [*handles, *([] if self._handle is None else [self._handle])]:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
            os.close(fd)


def taken_over(state: dict[str, Any], variable: str = MARK) -> tuple[Launched, MayUse, int]:
    """Return what `detach` gave up, with its first process. Raises LookupError, TypeError, ValueError or OSError."""
    pid, name = int(state["pid"]), str(state["id"])
    if start_ticks(pid) != state["started"] or f'"{name}"' not in mark_of(pid, variable):
        raise ProcessLookupError(name)
    said = state["descriptors"]
    descriptors = Descriptors(int(said["filter"]), int(said["status"]), dict(said["etc"]))
    group = None
    if state["group"] is not None:
        folders = tuple((str(inside), str(folder)) for inside, folder in state["group"]["folders"])
        group = CgroupSet(folders, int(state["group"]["version"]))
    first, most, host_uid = int(state["first"]), MayUse(*map(int, state["may_use"])), int(state["host_uid"])
    layers = frozenset(map(str, state["layers"]))
    space = None if state["space"] is None else int(state["space"])
    there = {str(place): str(path) for place, path in dict(state["opened"]).items()}
    disks = {str(path): str(numbers) for path, numbers in state["disks"].items()}
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    opened: list[int] = []
    try:
        opened.append(os.pidfd_open(pid))
        # Its own ends of both pipes are open, and a process that may inspect it can open the other ones.
        opened += [os.open(f"/proc/{pid}/fd/{number}", flags) for number in (2, descriptors.status)]
    except BaseException:
        for fd in opened:
            os.close(fd)
        raise
    monitor, stderr, status = opened
    known = (name, str(state["session"]), pid, monitor, stderr, status, group, descriptors)
    launched = Launched(*known, host_uid, layers, space, there, disks=disks)
    return launched, most, first


def _read(fd: int) -> bytes | None:
    """Return what is there, b"" at the end, None for nothing yet."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
