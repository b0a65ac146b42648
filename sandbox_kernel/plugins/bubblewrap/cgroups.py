"""A cgroup for each sandbox, where this process may make one: what limits memory, processes and processors.

Of version 1 or 2, as the machine has them; found by looking, for a user may have been given a part of the tree
(systemd's Delegate=, or a folder that root handed over). Where there is none, the reason is given. Who knows better
names the folders. Imports limit_watch and the protections; reads and writes in these folders only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...engines.hardening import Protections
from ...engines.limit_watch import CgroupPlace, own_folders
from ...engines.owner_process import OwnerProcess
from ...engines.socket_memory import limit_sockets

FREEZE_SECONDS = 5.0
"""How long all processes may take to freeze: one that waits for a disk does so until that answers."""
LOOK_SECONDS = 0.002


NEEDED = ("memory", "pids", "cpu")
WANTED = (*NEEDED, "cpuacct")
"""The last one counts the seconds of processors in version 1, and limits nothing."""
CPUSET = "cpuset"
"""Asked for where a sandbox has processors of its own, and by no other; no sandbox sees it."""
FREEZER = "freezer"
"""By which a sandbox is paused in version 1, where this process may; no sandbox sees it."""
INSIDE = "/sys/fs/cgroup"
LEAF = "sandbox-kernel-host"
"""Where the processes of a delegated cgroup of version 2 are put, for one with processes can have no children."""
REMOVE_SECONDS = 1.0
Folders = Mapping[str, tuple[str, str]]
"""By controllers, "" for version 2: where a hierarchy of cgroups is mounted, and the folder in it to make others in."""


class Freezer:
    """The switch of one sandbox's cgroup."""

    def __init__(self, group: CgroupSet | None) -> None:
        self._switch, self._said, self._words = _places(group)

    @property
    def there(self) -> bool:
        """Whether the machine has one for this cgroup."""
        return self._switch is not None and self._switch.exists()

    async def freeze(self) -> None:
        """Return when all processes are frozen. Raises `EngineError` if that fails; they go on then."""
        try:
            self._write(self._words[0])
            async with asyncio.timeout(FREEZE_SECONDS):
                while not self._frozen():  # noqa: ASYNC110 (the machine's kernel does it without a notice)
                    await asyncio.sleep(LOOK_SECONDS)
        except OSError as error:  # TimeoutError is one
            self.thaw()
            words = "the sandbox does not come to a standstill"
            raise EngineError(EndCode.ENGINE_SILENT, words, limit=f"{FREEZE_SECONDS:g} s") from error
        except BaseException:
            self.thaw()
            raise

    def thaw(self) -> None:
        """Let them go on; does nothing where there is no such cgroup any more."""
        with contextlib.suppress(OSError):
            self._write(self._words[1])

    def _write(self, word: str) -> None:
        if self._switch is None:
            raise FileNotFoundError
        self._switch.write_text(f"{word}\n", encoding="ascii")

    def _frozen(self) -> bool:
        return self._said is not None and self._words[2] in self._said.read_text(encoding="ascii").splitlines()


def _places(group: CgroupSet | None) -> tuple[Path | None, Path | None, tuple[str, str, str]]:
    """Return the file that switches it, the one that reports it, and the words for on, for off, and for done."""
    if group is not None and group.version == 2:
        own = Path(group.folders[0][1])
        return own / "cgroup.freeze", own / "cgroup.events", ("1", "0", "frozen 1")
    words = ("FROZEN", "THAWED", "FROZEN")
    for name, folder in group.folders if group is not None else ():
        if "freezer" in name.split(","):
            place = Path(folder, "freezer.state")
            return place, place, words
    return None, None, words


class NoCgroup(Exception):
    """This process may make no cgroup; the text says why."""


@dataclass(frozen=True, slots=True)
class CgroupSet:
    """The cgroups of one sandbox: one of version 2, or one for each controller of version 1."""

    folders: tuple[tuple[str, str], ...]
    """What it is called in a sandbox ("" for version 2), and its folder."""
    version: int

    def place(self, controller: str) -> CgroupPlace:
        if self.version == 2:
            return CgroupPlace(self.folders[0][1], 2)
        return CgroupPlace(next(folder for name, folder in self.folders if controller in name.split(",")), 1)

    def seen(self) -> tuple[tuple[str, str], ...]:
        """Return its folders, and where the sandbox sees them."""
        own = ((name, folder) for name, folder in self.folders if name not in {FREEZER, CPUSET})
        return tuple((folder, f"{INSIDE}/{name}" if name else INSIDE) for name, folder in own)

    def limit(self, wanted: Protections) -> None:
        """Set what the sandbox may use. Raises OSError."""
        if wanted.cpuset is not None:
            own = Path(self.place(CPUSET).folder)
            if self.version == 1:  # a new one has no nodes of memory, and takes no process before it has
                _write(own / "cpuset.mems", (own.parent / "cpuset.mems").read_text(encoding="ascii").strip())
            _write(own / "cpuset.cpus", wanted.cpuset)
        memory, pids, cpu = (Path(self.place(name).folder) for name in NEEDED)
        if self.version == 2:
            _write(memory / "memory.max", wanted.memory_bytes)
            if (swap := memory / "memory.swap.max").exists():
                _write(swap, wanted.swap_bytes)
            _write(pids / "pids.max", wanted.pids)
            _write(cpu / "cpu.max", f"{wanted.cpu_quota_microseconds} {wanted.cpu_period_microseconds}")
            return
        _write(memory / "memory.limit_in_bytes", wanted.memory_bytes)
        limit_sockets(CgroupPlace(str(memory), 1))
        if (both := memory / "memory.memsw.limit_in_bytes").exists():
            _write(both, wanted.memory_bytes + wanted.swap_bytes)
        _write(pids / "pids.max", wanted.pids)
        _write(cpu / "cpu.cfs_period_us", wanted.cpu_period_microseconds)
        _write(cpu / "cpu.cfs_quota_us", wanted.cpu_quota_microseconds)

    def enter(self, pid: int) -> None:
        """Put a process into it; what it starts from then on is in it, too. Raises OSError."""
        for _, folder in self.folders:
            _write(Path(folder, "cgroup.procs"), pid)

    def give_way(self) -> None:
        """Have it get a tenth of what another one gets, where both want a processor; else it gets all that it may."""
        place = self.place("cpu")
        name, share = ("cpu.weight", 10) if place.version == 2 else ("cpu.shares", 102)
        with contextlib.suppress(OSError):  # it is slower for others, and nothing worse
            _write(Path(place.folder, name), share)

    def kills_for_memory(self) -> int:
        """Return how many of its processes the system has ended for memory, 0 where that is not said."""
        place = self.place("memory")
        name = "memory.oom_control" if place.version == 1 else "memory.events"
        with contextlib.suppress(OSError, ValueError):
            rows = Path(place.folder, name).read_text(encoding="ascii").splitlines()
            return int(dict(row.split(" ", 1) for row in rows).get("oom_kill", 0))
        return 0

    def remove(self, seconds: float = REMOVE_SECONDS) -> bool:
        """Remove it, which takes until its last process has ended; return whether it is gone."""
        return remove([folder for _, folder in self.folders], seconds)


def here() -> Folders:
    """Return this process's own folders; of version 1, root's are at the top.

    There they are beside those of other engines, and not in that of a session which may end.
    """
    own = own_folders()
    return {name: (mount, mount if name and os.geteuid() == 0 else folder) for name, (mount, folder) in own.items()}


def make(name: str, wanted: Protections, within: Folders | None = None) -> CgroupSet:
    """Make a cgroup of this name, with its limits; None is within those of this process. Raises `NoCgroup`."""
    more = () if wanted.cpuset is None else (CPUSET,)
    group = CgroupSet(*new_folders(name, here() if within is None else within, more))
    try:
        for _, folder in group.folders:
            _open_folder(folder)
        group.limit(wanted)
    except OSError as error:
        group.remove(0)
        raise NoCgroup(f"{error.filename or ''}: {error.strerror}") from error
    return group


def _open_folder(folder: str) -> None:
    """Make a cgroup that the sandbox can look into, whatever this process's umask: it may be of another user."""
    os.mkdir(folder)  # noqa: PTH102 (a string everywhere else)
    os.chmod(folder, 0o755)  # noqa: PTH101, S103 (as above)


def available(within: Folders | None = None) -> str | None:
    """Return why no cgroup can be made here, None if one can; it is tried."""
    name = OwnerProcess.of(os.getpid()).container_name("try")
    try:
        folders, version = new_folders(name, here() if within is None else within)
        group = CgroupSet(folders, version)
        try:
            for _, folder in folders:
                _open_folder(folder)
            if missing := [name for name in NEEDED if not _limits(group.place(name), name)]:
                return f"controllers are missing: {', '.join(missing)}"
        finally:
            group.remove(0)
    except (NoCgroup, OSError) as error:
        return str(error)
    return None


def version(within: Folders | None = None) -> str:
    """Return "1" or "2", as the machine has memory, pids and cpu."""
    own = here() if within is None else within
    return "1" if all(controller in own for controller in NEEDED) else "2"


def folders_of(rows: list[str], name: str, within: Folders | None = None) -> list[str]:
    """Return the folders of the cgroup of a sandbox's name, from the rows of a process's /proc/PID/cgroup."""
    own, found = here() if within is None else within, []
    for row in rows:
        _, controllers, path = row.split(":", 2)
        if path.endswith(f"/{name}"):
            mount, _ = own.get(controllers.split(",")[0], ("", ""))
            folder = f"{mount}{path}"
            if mount and os.path.isdir(folder):  # noqa: PTH112 (as above)
                found.append(folder)
    return found


def left_behind(within: Folders | None = None) -> set[str]:
    """Return the folders of cgroups whose owner has ended, and which have no process of this process's namespace.

    The owner is in the name. Where another process took the sandbox over, bubblewrap's own process is in it, and that
    is of this namespace. What cannot be looked at is left alone.
    """
    own, found = here() if within is None else within, set()
    parents = {folder for name, (_, folder) in own.items() if name in {*WANTED, CPUSET, FREEZER}}
    parents |= set(_parents(*own[""])) if "" in own else set()
    for parent in parents:
        with contextlib.suppress(OSError):  # it is not to be seen from here
            for name in os.listdir(parent):  # noqa: PTH208 (names are enough)
                owner, folder = OwnerProcess.parse(name), f"{parent}/{name}"
                if owner is not None and not owner.alive() and all(map(_is_inside, processes(folder))):
                    found.add(folder)
    return found


def processes(folder: str) -> list[int]:
    """Return the processes of a cgroup, 0 for one of another namespace; none if it is gone."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(folder, "cgroup.procs").read_text(encoding="ascii").split()]
    return []


def _is_inside(pid: int) -> bool:
    """Return whether a process is seen to be in a namespace of processes below this process's own."""
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if row.startswith("NSpid:"):
                return len(row.split()) > 2
    return False


def remove(folders: list[str], seconds: float) -> bool:
    """Remove cgroups, children of theirs first, within so many seconds; return whether they are gone."""
    until = time.monotonic() + seconds
    left = list(folders)
    while True:
        left = [folder for folder in left if not _removed(folder)]
        if not left or time.monotonic() >= until:
            return not left
        time.sleep(0.002)


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)  # noqa: PTH106 (as above)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def new_folders(name: str, own: Folders, more: tuple[str, ...] = ()) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return the folders to be made for a cgroup of this name, and the version; `more` are controllers that it needs.

    Raises `NoCgroup`.
    """
    needed = (*NEEDED, *more)
    if all(controller in own for controller in NEEDED):
        if missing := [controller for controller in more if controller not in own]:
            raise NoCgroup(f"controllers are missing: {', '.join(missing)}")
        folders = {}
        for controller in (*WANTED, *more):
            if controller in own:
                mount, folder = own[controller]
                folders[mount.rpartition("/")[2]] = f"{folder}/{name}"
        for folder in folders.values():
            _writable(folder.rpartition("/")[0])
        mount, folder = own.get(FREEZER, ("", ""))
        if mount and os.access(folder, os.W_OK):
            folders.setdefault(mount.rpartition("/")[2], f"{folder}/{name}")
        return tuple(folders.items()), 1
    if "" not in own:
        raise NoCgroup("no cgroups with memory, pids and cpu are mounted")
    mount, folder = own[""]
    for parent in reversed(list(_parents(mount, folder))):
        if _controls(parent) >= set(needed):
            return (("", f"{parent}/{name}"),), 2
    delegated = _delegated(folder, needed)
    return (("", f"{delegated}/{name}"),), 2


def _writable(folder: str) -> None:
    if not os.access(folder, os.W_OK):
        raise NoCgroup(f"{folder} may not be written to by this user")


def _parents(mount: str, folder: str) -> Iterator[str]:
    """Yield the cgroups of version 2, from this process's own upwards, in which it may make others and go there."""
    while folder.startswith(mount):
        if all(os.access(path, os.W_OK) for path in (folder, f"{folder}/cgroup.procs")):
            yield folder
        if folder == mount:
            return
        folder = folder.rpartition("/")[0]


def _controls(folder: str) -> set[str]:
    """Return what a cgroup of version 2 lets its children have."""
    with contextlib.suppress(OSError):
        return set(Path(folder, "cgroup.subtree_control").read_text(encoding="ascii").split())
    return set()


def _delegated(folder: str, needed: tuple[str, ...]) -> str:
    """Make this process's own cgroup of version 2 one that can have children, if it was given to its user."""
    there = Path(folder)
    _writable(folder)
    try:
        if not set((there / "cgroup.controllers").read_text(encoding="ascii").split()) >= set(needed):
            raise NoCgroup(f"{folder} has not all of {', '.join(needed[:-1])} and {needed[-1]}")
        pids = (there / "cgroup.procs").read_text(encoding="ascii").split()
        if any(os.stat(f"/proc/{pid}").st_uid != os.geteuid() for pid in pids):  # noqa: PTH116 (as above)
            raise NoCgroup(f"{folder} has processes of other users")
        (there / LEAF).mkdir(exist_ok=True)
        for pid in pids:
            _write(there / LEAF / "cgroup.procs", int(pid))
        _write(there / "cgroup.subtree_control", " ".join(f"+{name}" for name in needed))
    except OSError as error:
        raise NoCgroup(f"{error.filename or folder}: {error.strerror}") from error
    return folder


def _limits(place: CgroupPlace, controller: str) -> bool:
    one = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max",) * 2}
    names = one.get(controller, ("cpu.cfs_quota_us", "cpu.max"))
    return Path(place.folder, names[place.version - 1]).exists()


def _write(path: Path, value: object) -> None:
    path.write_text(f"{value}\n", encoding="ascii")
