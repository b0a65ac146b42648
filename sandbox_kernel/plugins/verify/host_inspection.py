"""What this machine's kernel says of a sandbox, and what is made of that: rights, namespaces, mounts and limits.

Read from the host's own /proc and control groups, in which nothing inside has a say: none of it rests on a word of the
sandbox. Where these cannot be read, as with an engine in a virtual machine, nothing is guessed: that is not applicable,
with the reason, and no pass.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core.model import Limits, format_bytes
from ...engines.attestation import FALLBACK_TUNNELS, is_writable_group, known_mount
from ...engines.hardening import OOM_SCORE, PAGE_BYTES, cpu_quota
from ...engines.inspectable import Shown
from .verdicts import ProbeFinding, decided, not_applicable

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
_IDENTITY = re.compile(r"[0-9a-f]{64}|sandbox-kernel-[0-9A-Za-z]+-\d+-\d+-[0-9a-f]{8}")
"""Docker's, and the name that bubblewrap's sandboxes have; their cgroups are called so."""
UNLIMITED = 1 << 60
"""What control groups of version 1 say for no limit is more than this."""


@dataclass(frozen=True, slots=True)
class SandboxProcess:
    """One process of a sandbox, as the host's kernel shows it. None where it does not."""

    pid: int
    status: Mapping[str, str]
    """The lines of its /proc/PID/status."""
    namespaces: Mapping[str, str]
    """Which one of each kind: net:[4026531840]. What may not be read is missing."""
    oom_score: int | None
    program: str | None
    command: str

    @property
    def users(self) -> set[int]:
        return {int(word) for name in ("Uid", "Gid") for word in self.status.get(name, "").split()}

    @property
    def capabilities(self) -> int:
        """All sets together."""
        found = 0
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            found |= int(self.status.get(name, "ffffffffffffffff"), 16)
        return found


def processes(container: str, shown: Shown) -> list[SandboxProcess]:
    """Return the processes of a container; `shown` is what its engine knows of them."""
    return [seen for pid in sorted(members(container, shown)) if (seen := _process(pid)) is not None]


def members(container: str, shown: Shown) -> set[int]:
    """Return the numbers of its processes, found by its identity in their control groups, and by its engine."""
    found = set(shown.inside)
    if _IDENTITY.fullmatch(container):  # a name that is no container id has no members
        found |= {pid for pid, groups in _everybody() if container in groups}
    return found - shown.own


def called(word: str) -> list[int]:
    """Return the processes of this machine with `word` in their command."""
    return [pid for pid, _ in _everybody() if word in _command(pid)]


def own() -> SandboxProcess | None:
    """Return this process, which shares its namespaces with the host's programs."""
    return _process(os.getpid())


def interfaces(pid: int) -> list[str] | None:
    """Return the network interfaces that a process has."""
    text = _text(PROC / str(pid) / "net/dev")
    return None if text is None else [line.partition(":")[0].strip() for line in text.splitlines() if ":" in line]


def routes(pid: int) -> list[str] | None:
    """Return the routes of IPv4 that a process has, as /proc shows them."""
    text = _text(PROC / str(pid) / "net/route")
    return None if text is None else [line.strip() for line in text.splitlines()[1:] if line.strip()]


def mounts(pid: int) -> list[dict[str, object]] | None:
    """Return the mounts that a process has, with `path`, `type`, `root` and `options`, but for groups of root's."""
    text = _text(PROC / str(pid) / "mountinfo")
    if text is None:
        return None
    found: list[dict[str, object]] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(rest) < 3:
            return None
        found.append({"path": fields[4], "type": rest[0], "root": fields[3], "options": fields[5].split(",")})
    return [one for one in found if not (is_writable_group(one) and _is_roots(pid, str(one["path"])))]


def _is_roots(pid: int, path: str) -> bool:
    """Return whether root alone may write to a folder: Docker with userns-remap has such control groups in view."""
    try:
        status = (PROC / str(pid) / "root" / path.lstrip("/")).stat()
    except OSError:
        return False
    return status.st_uid == 0 and not status.st_mode & 0o022


def limit(pid: int, name: str) -> int | None:
    """Return what the control groups of a process hold it to: "memory" in bytes, "pids", "cpu" in µs a period.

    `UNLIMITED` if there is no limit; None if that cannot be read here.
    """
    files = {
        "memory": ("memory", "memory.limit_in_bytes", "memory.max"),
        "pids": ("pids", "pids.max", "pids.max"),
        "cpu": ("cpu", "cpu.cfs_quota_us", "cpu.max"),
    }
    controller, first, second = files[name]
    for line in (_text(PROC / str(pid) / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            folders = [CGROUPS / each for each in (controllers, controller)]
            found = next((text for each in folders if (text := _text(each / path.lstrip("/") / first))), None)
        elif not controllers:
            found = _text(CGROUPS / path.lstrip("/") / second)
        else:
            continue
        if found:
            word = found.split()[0]
            number = int(word) if word.lstrip("-").isdigit() else -1
            return number if 0 <= number < UNLIMITED else UNLIMITED
    return None


def _process(pid: int) -> SandboxProcess | None:
    folder = PROC / str(pid)
    status = _text(folder / "status")
    if status is None:
        return None
    spaces = {}
    for name in NAMESPACES:
        with contextlib.suppress(OSError):
            spaces[name] = os.readlink(folder / "ns" / name)  # noqa: PTH115 (a magic link is no path)
    program = None
    with contextlib.suppress(OSError):
        program = os.readlink(folder / "exe")  # noqa: PTH115 (as above)
    score = _text(folder / "oom_score_adj")
    lines = {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}
    return SandboxProcess(pid, lines, spaces, int(score) if score else None, program, _command(pid))


def _everybody() -> Iterator[tuple[int, str]]:
    for name in os.listdir(PROC) if PROC.is_dir() else ():  # noqa: PTH208 (names, and many of them)
        if name.isdigit() and (groups := _text(PROC / name / "cgroup")) is not None:
            yield int(name), groups


def _command(pid: int) -> str:
    return (_text(PROC / str(pid) / "cmdline") or "").replace("\0", " ").strip()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


MIN_USER = 100_000
"""User ids below this may be those of people and services of the machine."""
HIDDEN = "the processes of this engine cannot be seen from here"
GVISOR = "the cells are processes of gVisor's own kernel, and the host sees that kernel only"
ONE_USER = (
    "a sandbox that an ordinary user starts has that user, whom a namespace of users keeps from all that is theirs"
)
NOT_HELD = "no control group holds it, which limits = best-effort accepts: the host looks at what it uses"
SHARED = ("ipc", "mnt", "net", "pid", "uts", "cgroup")
OF_PROCESSES = (
    *("rights-user-of-processes", "rights-capabilities-of-processes", "rights-new-privileges", "technology-filter"),
    *("technology-namespaces", "technology-writable", "technology-kernel", "network-interfaces"),
    *("limit-memory-set", "limit-processes-set", "limit-processors-set", "limit-first-to-go", "neighbour-namespaces"),
)


@dataclass(frozen=True, slots=True)
class ProcessInspection:
    """One sandbox as the host's kernel shows it."""

    processes: Sequence[SandboxProcess]
    interfaces: Sequence[str] | None = None
    routes: Sequence[str] | None = None
    mounts: Sequence[Mapping[str, object]] | None = None
    limits: Mapping[str, int | None] | None = None
    shown: Shown = field(default_factory=Shown)
    """What its engine knows of it."""


def inspect(container: str, shown: Shown) -> ProcessInspection:
    """Return how the host's kernel shows a container; `shown` is what its engine knows of that."""
    found = processes(container, shown)
    if not found:
        return ProcessInspection(())
    pid = found[0].pid
    limits = {name: limit(pid, name) for name in ("memory", "pids", "cpu")}
    return ProcessInspection(
        found,
        interfaces(pid),
        routes(pid),
        mounts(pid),
        limits,
        shown,
    )


def judge(
    seen: ProcessInspection,
    beside: ProcessInspection,
    own: SandboxProcess | None,
    limits: Limits,
    *,
    gvisor: bool,
    runtime: str | None,
) -> Iterator[ProbeFinding]:
    """Judge a sandbox, the one beside it, and this process, which stands for the host's."""
    if not seen.processes or own is None:
        for code in OF_PROCESSES:
            yield not_applicable(code, HIDDEN)
        return
    yield from _rights(seen.processes, own, gvisor=gvisor, one_user=seen.shown.one_user)
    yield from _spaces(seen.processes, beside.processes, own, gvisor=gvisor, one_user=seen.shown.one_user)
    yield from _place(seen, gvisor=gvisor)
    yield from _limits(seen, limits, gvisor=gvisor)
    yield _kernel(seen.processes, gvisor=gvisor, runtime=runtime)


def _rights(
    processes: Sequence[SandboxProcess], own: SandboxProcess, *, gvisor: bool, one_user: bool
) -> Iterator[ProbeFinding]:
    count = f"{len(processes)} processes"
    filtered = all(process.status.get("Seccomp") == "2" for process in processes)
    modes = sorted({process.status.get("Seccomp", "?") for process in processes})
    yield decided("technology-filter", filtered, f"{count}, in mode {', '.join(modes)} (2 is a filter)")
    if gvisor:
        for code in ("rights-user-of-processes", "rights-capabilities-of-processes", "rights-new-privileges"):
            yield not_applicable(code, GVISOR)
        return
    users = set[int]().union(*(process.users for process in processes))
    fine = len(users) == 1 and min(users) >= MIN_USER
    found = f"{count} of user {', '.join(map(str, sorted(users)))}"
    of_root = any("0" in process.status.get("Uid", "0").split() for process in processes)
    if one_user and users <= own.users and not of_root:
        yield not_applicable("rights-user-of-processes", f"{found}: {ONE_USER}")
    else:
        yield decided("rights-user-of-processes", fine, found)
    capabilities = 0
    for process in processes:
        capabilities |= process.capabilities
    found = f"{count} with capabilities {capabilities:#x}" if capabilities else f"{count} without any"
    yield decided("rights-capabilities-of-processes", not capabilities, found)
    without = [process.pid for process in processes if process.status.get("NoNewPrivs") != "1"]
    found = f"{len(without)} of {count} may gain some" if without else f"{count} that cannot gain any"
    yield decided("rights-new-privileges", not without, found)


def _spaces(
    processes: Sequence[SandboxProcess],
    beside: Sequence[SandboxProcess],
    own: SandboxProcess,
    *,
    gvisor: bool,
    one_user: bool,
) -> Iterator[ProbeFinding]:
    shown = [process for process in processes if process.namespaces]
    if not shown or not own.namespaces:
        for code in ("technology-namespaces", "neighbour-namespaces"):
            yield not_applicable(code, "the namespaces of another user's processes are not shown to this one")
        return
    shared = _shared(shown, own) - ({"cgroup"} if gvisor else set())  # its own kernel has groups of its own
    kinds = [kind for kind in SHARED if any(kind in process.namespaces for process in shown)]
    if gvisor:  # one process of gVisor's serves files from outside, and may share what the sandbox does not
        shared &= {kind for kind in shared if all(kind in _shared([process], own) for process in shown)}
    found = f"shared with the host: {', '.join(sorted(shared))}" if shared else f"its own: {', '.join(kinds)}"
    yield decided("technology-namespaces", not shared, found)
    others = [process for process in beside if process.namespaces]
    both = {kind for kind in SHARED for one in shown for other in others if _same(one, other, kind)}
    users = set[int]().union(*(one.users for one in processes)) & set[int]().union(*(one.users for one in beside))
    if one_user:
        users -= own.users  # there is no other; that it gives no power over another is for the attacks
    if gvisor:
        users, both = set(), {kind for kind in both if kind == "net"}
    problems = [*sorted(both | shared), *(f"user {user}" for user in sorted(users))]
    if not others:
        yield not_applicable("neighbour-namespaces", "there was no sandbox beside it")
    else:
        found = f"shared: {', '.join(problems)}" if problems else "no namespace and no user is shared"
        yield decided("neighbour-namespaces", not problems, found)


def _shared(processes: Sequence[SandboxProcess], own: SandboxProcess) -> set[str]:
    return {kind for kind in SHARED for process in processes if _same(process, own, kind)}


def _same(one: SandboxProcess, other: SandboxProcess, kind: str) -> bool:
    return kind in one.namespaces and one.namespaces[kind] == other.namespaces.get(kind)


def _place(seen: ProcessInspection, *, gvisor: bool) -> Iterator[ProbeFinding]:
    if seen.interfaces is None:
        yield not_applicable("network-interfaces", HIDDEN)
    else:
        more = sorted(set(seen.interfaces) - {"lo", *FALLBACK_TUNNELS})
        routes = len(seen.routes or ())
        found = f"interfaces besides lo: {', '.join(more) or 'none'}; routes: {routes or 'none'}"
        yield decided("network-interfaces", not more and not routes, found)
    if gvisor or seen.mounts is None:
        yield not_applicable("technology-writable", GVISOR if gvisor else HIDDEN)
        return
    strange = [str(mount.get("path")) for mount in seen.mounts if not known_mount(mount, seen.shown.mounts)]
    root = [mount for mount in seen.mounts if mount.get("path") == "/"]
    fixed = bool(root) and "ro" in (root[-1].get("options") or ())  # type: ignore[operator]
    found = (
        f"root {'read-only' if fixed else 'writable'}; mounts besides a sandbox's own: {', '.join(strange) or 'none'}"
    )
    yield decided("technology-writable", fixed and not strange, found)


def _limits(seen: ProcessInspection, limits: Limits, *, gvisor: bool) -> Iterator[ProbeFinding]:
    wanted = {
        "limit-memory-set": ("memory", _memory(limits.memory, seen.shown) // PAGE_BYTES * PAGE_BYTES),
        "limit-processes-set": ("pids", limits.pids),
        "limit-processors-set": ("cpu", cpu_quota(limits)),
    }
    for code, (name, most) in wanted.items():
        held = (seen.limits or {}).get(name)
        if not seen.shown.held:
            yield not_applicable(code, NOT_HELD)
            continue
        if held is None:
            yield not_applicable(code, "its control groups cannot be read from here")
            continue
        shown = "nothing" if held >= UNLIMITED else format_bytes(held) if name == "memory" else str(held)
        asked = format_bytes(most) if name == "memory" else str(most)
        unit = " microseconds of each 100,000" if name == "cpu" else ""
        yield decided(code, held <= most, f"held to {shown}{unit}, asked for {asked}")
    scores = [process.oom_score for process in seen.processes if process.oom_score is not None]
    if not scores:
        yield not_applicable("limit-first-to-go", HIDDEN)
    else:
        found = f"its processes have {min(scores)} to {max(scores)}, asked for {OOM_SCORE}; those of the host 0"
        # An engine gives its own processes one more than it has, which is no rank.
        yield decided("limit-first-to-go", (max if gvisor else min)(scores) >= OOM_SCORE, found)


def _memory(limit: int, shown: Shown) -> int:
    """Return the memory that a control group may allow: a machine's kernel counts its pages, and takes some itself."""
    return limit + (limit // 64 + shown.around_bytes if shown.is_machine else 0)


def _kernel(processes: Sequence[SandboxProcess], *, gvisor: bool, runtime: str | None) -> ProbeFinding:
    programs = {process.program or process.command.partition(" ")[0] for process in processes}
    if gvisor and any("runsc" in program or program == "exe" for program in programs):
        return decided("technology-kernel", True, "gVisor's kernel stands between the code and the machine's")
    if gvisor:
        return decided("technology-kernel", False, "the runtime is called runsc, and no process of gVisor's is there")
    why = (
        "the code meets the kernel of this machine: namespaces, a filter and limits stand between, and no second kernel"
    )
    return not_applicable("technology-kernel", f"{why}. For code that you expect to attack, choose runtime runsc")
