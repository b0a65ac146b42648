"""What this machine's kernel says of a sandbox: its processes, their rights and namespaces, the limits that are held.

Read from the host's own /proc and control groups, in which nothing inside has a say. Where these cannot be read, as
with an engine in a virtual machine, nothing is found, and nothing is guessed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...engines.inspectable import Shown

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
_IDENTITY = re.compile(r"[0-9a-f]{64}|sandbox-kernel-[0-9A-Za-z]+-\d+-\d+-[0-9a-f]{8}")
"""Docker's, and the name that bubblewrap's sandboxes have; their cgroups are called so."""
UNLIMITED = 1 << 60
"""What control groups of version 1 say for no limit is more than this."""


@dataclass(frozen=True, slots=True)
class Process:
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


def processes(container: str, shown: Shown) -> list[Process]:
    """Return the processes of a container; `shown` is what its engine knows of them."""
    return [seen for pid in sorted(members(container, shown)) if (seen := _process(pid)) is not None]


def members(container: str, shown: Shown) -> set[int]:
    """Return the numbers of its processes, found by its identity in their control groups, and by its engine."""
    found = set(shown.inside)
    if _IDENTITY.fullmatch(container):  # one that is none has no members
        found |= {pid for pid, groups in _everybody() if container in groups}
    return found - shown.own


def called(word: str) -> list[int]:
    """Return the processes of this machine with `word` in their command."""
    return [pid for pid, _ in _everybody() if word in _command(pid)]


def own() -> Process | None:
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
    """Return the mounts that a process has, with `path`, `type`, `root` and `options`."""
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
    return found


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


def _process(pid: int) -> Process | None:
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
    return Process(pid, lines, spaces, int(score) if score else None, program, _command(pid))


def _everybody() -> Iterator[tuple[int, str]]:
    for name in os.listdir(PROC):  # noqa: PTH208 (names, and many of them)
        if name.isdigit() and (groups := _text(PROC / name / "cgroup")) is not None:
            yield int(name), groups


def _command(pid: int) -> str:
    return (_text(PROC / str(pid) / "cmdline") or "").replace("\0", " ").strip()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
