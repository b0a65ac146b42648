"""Starting one sandbox: the files that bubblewrap reads, the process, its limits, and the gate that holds it meanwhile.

A shell waits for one line before it becomes bubblewrap. By then its cgroup, its limits and its reaper are there, so
nothing of a sandbox ever runs without them; should this process end in between, the line never comes and nothing
starts. It does not wait for anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import socket
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SCRATCH, CoreScheduling, SandboxSpec
from ...core.version import __version__
from ...engines import neighbours, seccomp
from ...engines import seccomp_program as system_calls
from ...engines.attachment import Attachment
from ...engines.hardening import MASKED_PATHS, OF_A_USER, READONLY_PATHS, Protections, protections
from ...engines.owner_process import OwnerProcess
from . import engine_errors, private_mounts, scratch_folder, users
from .arguments import NOT_OPENED, PROC, Descriptors, SandboxFacts, arguments, etc
from .cgroups import CgroupSet
from .discovery import reachable
from .process_labels import MARK
from .reaper import kill, reaper
from .root_lookup import Root, locate
from .root_lookup import program as program_of
from .users import Space

GATE = 'read -r line && ulimit -n "$1" && ulimit -c "$2" && shift 2 && exec "$@"'
GATE_OF_A_PIPE = 'read -r line <&1 && ulimit -n "$1" && ulimit -c "$2" && shift 2 && exec "$@" >&0'
"""The same for one whose pipe is there already, with bytes in it: its line comes by a way of its own."""
SHELL = "/bin/sh"
BUFFER_BYTES = 1 << 20
ALWAYS_EMPTY = frozenset({"/proc/fs/nfsd", "/proc/sys/fs/binfmt_misc", "/proc/xen"})
"""Folders of /proc that are there to be mounted upon: a mount on one covers nothing."""
CAP_SYS_PTRACE = 19
ROOT_INODE = 2
"""Of the root of each ext4 file system."""

Way = tuple[socket.socket, socket.socket]
"""Our end, and the sandbox's."""


@dataclass(slots=True)
class Launched:
    """A sandbox that was started, or another process's that was taken over, and what this process holds of it."""

    name: str
    session: str
    pid: int
    """Of bubblewrap's own process, which stays outside."""
    monitor: int
    """Its pidfd."""
    errors: int
    status: int
    group: CgroupSet | None
    descriptors: Descriptors
    host_uid: int
    """Whom the machine takes its processes for."""
    layers: frozenset[str] = frozenset()
    """Where it has a layer of its own above the root."""
    space: int | None = None
    """The descriptor that bubblewrap was given of a namespace of users, if it was given one."""
    opened: Mapping[str, str] = field(default_factory=dict)
    """What it was started with of the host's by an exception, by its paths."""
    held: Attachment = field(default_factory=Attachment)
    """The same as it was opened; nothing for a sandbox that was taken over."""
    disks: Mapping[str, str] = field(default_factory=dict)
    """Where it has a disk, and the numbers of its root's device and inode."""
    said: bytes = b""
    """What was read already of what bubblewrap says of its state."""

    @property
    def folder(self) -> str | None:
        """What is to be removed with it: the folder that takes the place of a disk for its scratch, if one does."""
        return scratch_folder.of(self.opened, SCRATCH)


class Guest(NamedTuple):
    """Another program than a spec's, in the same walls."""

    wanted: Protections
    files: tuple[int, ...]
    """Of this process's open ones, those that it has, too."""
    mark: str
    """The variable by which it is found."""
    niceness: int = 0
    """How much less of the processors it gets than others, where they compete."""
    pipe: Way | None = None
    """Both ends of a pipe that is there already, and is not closed here."""
    gate: int | None = None
    """Where the gate waits for its line, if not at its pipe; the holder of the other end lets it go on."""


def way() -> Way:
    mine, theirs = socket.socketpair()
    for end in (mine, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return mine, theirs


def await_end(pid: int) -> None:
    """Wait for the end of a child, also where this process's parent ignores SIGCHLD."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def launch(
    program: str,
    spec: SandboxSpec,
    root: Root,
    group: CgroupSet | None,
    guest: Guest | None = None,
    *,
    layers: bool = False,
    attached: Attachment | None = None,
    name: str | None = None,
) -> tuple[Launched, socket.socket]:
    """Start bubblewrap for `spec`; return what is known of it, and the owner's end of the pipe.

    `guest` marks a program that is not a sandbox's. With `layers`, each folder of the root gets one of the
    sandbox's own. `attached` is what it has of the host's, `name` what `new_name` returned. Raises `EngineError`.
    """
    wanted, more, variable, niceness, pipe, gate = guest or Guest(walls(spec), (), MARK)
    above = frozenset(target for source, target in root.binds if layers and os.path.isdir(source))  # noqa: PTH112 (a string)
    name = name or new_name(spec, group)
    opened, devices, disks = _given(attached or Attachment())
    folder = scratch_folder.of(opened, SCRATCH)
    mine, theirs = pipe or way()
    held: list[int] = []
    try:
        with contextlib.nullcontext() if pipe is not None else theirs:
            status, errors_end, descriptors = _files(wanted, held)
            # What another user has written to a folder, this one could not remove.
            own = _space(spec, root) if guest is None and folder is None else Space(None, _uid(spec))
            spaces = () if own.descriptor is None else (own.descriptor,)
            held += spaces
            given = machine(group, above, own.descriptor, opened)
            words = arguments(wanted, root, given, descriptors, spec.command)
            says = _mark(name, spec, mine)
            whom = spec.uid if drops() else None

            start = partial(
                subprocess.Popen[bytes],
                [
                    *(SHELL, "-c", GATE if gate is None else GATE_OF_A_PIPE, "sh"),
                    *(str(wanted.open_files), str(wanted.core_bytes), program, *words),
                ],
                stdin=theirs.fileno(),
                stdout=theirs.fileno() if gate is None else gate,
                stderr=errors_end[1],
                pass_fds=[descriptors.filter, descriptors.status, *descriptors.etc.values(), *spaces, *more],
                cwd="/",
                env={"PATH": "/usr/bin:/bin", variable: says},
                start_new_session=True,
                user=whom,
                group=whom,
                extra_groups=None if whom is None else [],
            )
            try:
                process = private_mounts.start_with(devices, start) if devices else start()
            except (OSError, subprocess.SubprocessError) as error:
                raise engine_errors.refusal(f"{SHELL} does not start: {error}") from error
            process.returncode = 0  # its end is awaited by its pidfd
            monitor = os.pidfd_open(process.pid)
            held.append(monitor)
            try:
                cgroups = tuple(folder for _, folder in group.folders) if group is not None else ()
                reaper().watch(name, cgroups, theirs.fileno(), monitor, folder or "")
                confine(process.pid, wanted, group, spec.limits.scratch_size if folder else None, spec.core_scheduling)
                if niceness:
                    os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
                    if group is not None:  # a niceness counts among the processes of one cgroup
                        group.give_way()
                if gate is None:
                    mine.send(b"\n")
            except BaseException as error:
                kill([monitor])
                await_end(process.pid)
                reaper().forget(name)
                if isinstance(error, OSError):
                    raise engine_errors.refusal(
                        f"the limits of process {process.pid} cannot be set: {error}"
                    ) from error
                raise
    except BaseException:
        if pipe is None:
            mine.close()
        for fd in held:
            os.close(fd)
        raise
    for fd in (descriptors.filter, descriptors.status, errors_end[1], *descriptors.etc.values(), *spaces):
        os.close(fd)
    known = (name, spec.session_id, process.pid, monitor, errors_end[0], status, group, descriptors)
    return Launched(*known, own.host_uid, above, own.descriptor, opened, attached or Attachment(), disks), mine


def walls(spec: SandboxSpec) -> Protections:
    """Return a sandbox's protections: its device nodes at least are those of others, so files cannot be watched."""
    return protections(spec)._replace(system_calls=seccomp.rules(shared=True, watched=spec.watched))


def confine_user(first: int) -> None:
    """Let a sandbox use up little of what the machine counts by user; `first` is its first process.

    The kernel compares the count of a namespace of users with a process's own limit, and the sum of all of them with
    the limit of who made the namespace. So this is done when the namespace is there. Raises OSError.
    """
    for name, most in OF_A_USER.items():
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        least = min(each for each in (most, *resource.prlimit(first, number)) if each >= 0)
        resource.prlimit(first, number, (least, least))


def confine(
    pid: int,
    wanted: Protections,
    group: CgroupSet | None,
    largest_file: int | None = None,
    core_scheduling: CoreScheduling = "off",
) -> None:
    """Set those limits of a process and its children that it cannot set itself.

    Raises OSError, and `EngineError` where there is no core scheduling.
    """
    if core_scheduling == "on":
        neighbours.keep_core(pid)
    if group is not None:
        group.enter(pid)
    if largest_file is not None:
        least = min(each for each in (largest_file, *resource.prlimit(pid, resource.RLIMIT_FSIZE)) if each >= 0)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (least, least))
    Path(f"/proc/{pid}/oom_score_adj").write_text(str(wanted.oom_score), encoding="ascii")


def new_name(spec: SandboxSpec, group: CgroupSet | None) -> str:
    """Return the name of a new sandbox, which is its cgroup's."""
    return OwnerProcess.of(os.getpid()).container_name(spec.session_id) if group is None else name_of(group)


def name_of(group: CgroupSet) -> str:
    return group.folders[0][1].rpartition("/")[2]


def drops() -> bool:
    """Return whether each sandbox gets a user of its own, which takes root."""
    return os.geteuid() == 0


def may_look() -> bool:
    """Return whether this process may look at those of other users: the capability CAP_SYS_PTRACE."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 (at every start)
        held = next((line for line in file if line.startswith("CapEff:")), ":0")
    return bool(int(held.partition(":")[2], 16) >> CAP_SYS_PTRACE & 1)


@cache
def machine_paths() -> SandboxFacts:
    """Return which of the paths that are masked or read-only this machine has."""
    wanted = [Path(path) for path in (*MASKED_PATHS, *READONLY_PATHS) if path.startswith("/proc/")]
    return SandboxFacts(
        frozenset(str(path) for path in wanted if path.is_file()),
        frozenset(str(path) for path in wanted if path.is_dir()),
    )


def machine(
    group: CgroupSet | None,
    layers: frozenset[str] = frozenset(),
    space: int | None = None,
    opened: Mapping[str, str] = NOT_OPENED,
) -> SandboxFacts:
    seen, below = group.seen() if group is not None else (), _below_proc()
    mounted = tuple(place for place in below if place.startswith(tuple(f"{path}/" for path in READONLY_PATHS)))
    facts = machine_paths()._replace(cgroup=seen, mounted=mounted, space=space, layers=layers, opened=opened)
    return facts._replace(own_proc=ALWAYS_EMPTY.issuperset(below))


def _space(spec: SandboxSpec, root: Root) -> Space:
    """Return what a sandbox's user is: one of its own where there is one who can read the root, which is for others."""
    started = locate(root, program_of(root, spec.command[0]) or "")
    sources = [source for source, _ in root.binds]
    readable = started is not None and all(_for_others(path) for path in (started, *sources))
    own = users.space(spec.uid) if readable and not drops() else None
    return own or Space(None, _uid(spec))


def _for_others(path: str) -> bool:
    mode = os.stat(path).st_mode  # noqa: PTH116 (at every start)
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def has_own_proc() -> bool:
    """Return whether Linux mounts a new /proc for an ordinary user here: nothing covers a part of the machine's."""
    return ALWAYS_EMPTY.issuperset(_below_proc())


def _below_proc() -> tuple[str, ...]:
    """Return where this machine has mounted something below /proc, each place once."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:  # noqa: PTH123 (at every start)
        return tuple(sorted({place for line in file if (place := line.split(" ", 5)[4]).startswith(PROC)}))


def _given(held: Attachment) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return where bubblewrap finds what was opened, which of it are devices, and what tells the root of disks apart.

    bubblewrap would leave descriptors to the sandbox, so it looks a path up again, and the attestation compares what it
    has found with what was opened. Raises `EngineError` for what the sandbox's user cannot get to.
    """
    devices = {place: name for place, name in held.names.items() if name.startswith("/dev/")}
    numbers = {place: f"{os.fstat(held.descriptors[place]).st_rdev}:{ROOT_INODE}" for place in devices}
    found = private_mounts.places(devices)
    if SCRATCH in held.names and SCRATCH not in devices:
        seen = os.fstat(held.descriptors[SCRATCH])
        numbers[SCRATCH] = f"{seen.st_dev}:{seen.st_ino}"
    for place in held.names.keys() - devices.keys():
        found[place] = os.readlink(f"/proc/self/fd/{held.descriptors[place]}")  # noqa: PTH115 (a magic link)
        if drops() and not reachable(found[place]):
            raise engine_errors.unreachable(found[place])
    return found, devices, numbers


def digest(words: list[str]) -> str:
    """Return a name for arguments: equal ones have equal names."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()


def _files(wanted: Protections, held: list[int]) -> tuple[int, tuple[int, int], Descriptors]:
    """Open what bubblewrap reads and writes; `held` gets what has to be closed if it does not start."""
    status = os.pipe()
    held += status
    said = os.pipe()
    held += said
    for fd in (status[0], said[0]):
        os.set_blocking(fd, False)
    try:
        program = system_calls.program(wanted.system_calls, os.uname().machine)
    except LookupError as error:
        raise EngineError(
            EndCode.ENGINE_LACKS_PROTECTION, f"the system calls of {error} are not known, so they cannot be filtered"
        ) from error
    contents: dict[str, bytes] = {name: text.encode() for name, text in etc(wanted).items()}
    opened: dict[str, int] = {}
    for name, data in {"": program, **contents}.items():
        opened[name] = os.memfd_create(name or "filter", os.MFD_CLOEXEC)
        held.append(opened[name])
        os.write(opened[name], data)
        os.lseek(opened[name], 0, os.SEEK_SET)
    return status[0], said, Descriptors(opened.pop(""), status[1], opened)


def _mark(name: str, spec: SandboxSpec, mine: socket.socket) -> str:
    """Return what is known of a sandbox by looking at its process from outside; `pipe` is the owner's end."""
    said: Mapping[str, Any] = {
        "name": name,
        "session": spec.session_id,
        "image": spec.image,
        "memory": spec.limits.memory,
        "version": __version__,
        "pipe": os.fstat(mine.fileno()).st_ino,
        "hosts": spec.reaches_hosts,
    }
    return json.dumps(said, separators=(",", ":"))


def _uid(spec: SandboxSpec) -> int:
    return spec.uid if drops() else os.geteuid()
