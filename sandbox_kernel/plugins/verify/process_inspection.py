"""What is made of what this machine's kernel says of a sandbox. Pure: processes in, findings out.

None of it rests on a word of the sandbox. What cannot be read here is not applicable, with the reason, and no pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...core.model import Limits, format_bytes
from ...engines.attestation import FALLBACK_TUNNELS, known_mount
from ...engines.hardening import OOM_SCORE, PAGE_BYTES, cpu_quota
from ...engines.inspectable import Shown
from .host_view import UNLIMITED, Process
from .verdicts import Finding, decided, not_applicable

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

    processes: Sequence[Process]
    interfaces: Sequence[str] | None = None
    routes: Sequence[str] | None = None
    mounts: Sequence[Mapping[str, object]] | None = None
    limits: Mapping[str, int | None] | None = None
    shown: Shown = field(default_factory=Shown)
    """What its engine knows of it."""


def judge(
    seen: ProcessInspection,
    beside: ProcessInspection,
    own: Process | None,
    limits: Limits,
    *,
    gvisor: bool,
    runtime: str | None,
) -> Iterator[Finding]:
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


def _rights(processes: Sequence[Process], own: Process, *, gvisor: bool, one_user: bool) -> Iterator[Finding]:
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
    if one_user and users <= own.users and 0 not in users:
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
    processes: Sequence[Process], beside: Sequence[Process], own: Process, *, gvisor: bool, one_user: bool
) -> Iterator[Finding]:
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


def _shared(processes: Sequence[Process], own: Process) -> set[str]:
    return {kind for kind in SHARED for process in processes if _same(process, own, kind)}


def _same(one: Process, other: Process, kind: str) -> bool:
    return kind in one.namespaces and one.namespaces[kind] == other.namespaces.get(kind)


def _place(seen: ProcessInspection, *, gvisor: bool) -> Iterator[Finding]:
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


def _limits(seen: ProcessInspection, limits: Limits, *, gvisor: bool) -> Iterator[Finding]:
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


def _kernel(processes: Sequence[Process], *, gvisor: bool, runtime: str | None) -> Finding:
    programs = {process.program or process.command.partition(" ")[0] for process in processes}
    if gvisor and any("runsc" in program or program == "exe" for program in programs):
        return decided("technology-kernel", True, "gVisor's kernel stands between the code and the machine's")
    if gvisor:
        return decided("technology-kernel", False, "the runtime is called runsc, and no process of gVisor's is there")
    why = (
        "the code meets the kernel of this machine: namespaces, a filter and limits stand between, and no second kernel"
    )
    return not_applicable("technology-kernel", f"{why}. For code that you expect to attack, choose runtime runsc")
