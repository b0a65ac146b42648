"""Whose container it is: a process, told apart from a later one with the same number by its start time.

The owner stands in the container's name, which can be changed in one atomic step; labels cannot. A name is used once: a
container that does not end is in no other's way.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

_NAME = re.compile(r"/?sandbox-kernel-([^/]+?)-(\d+)-(\d+)(?:-[0-9a-f]{8})?")

UNKNOWN_HOST = "unknown"
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905 (a line)
TOLD_SECONDS = 5.0
_PLAIN = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C", "TZ": "UTC0"}


@dataclass(frozen=True, slots=True)
class OwnerProcess:
    """A process of this host. `started` is what `start_ticks` says, 0 when that cannot be said."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> OwnerProcess:
        return cls(pid, start_ticks(pid) or 0)

    @classmethod
    def parse(cls, container_name: str) -> OwnerProcess | None:
        """Return the owner that a container's name tells, None for a name that is not one of ours."""
        found = _NAME.fullmatch(container_name)
        return cls(int(found[2]), int(found[3])) if found else None

    def container_name(self, session_id: str) -> str:
        """Return a name that no other container has or will have."""
        safe = re.sub(r"[^a-zA-Z0-9]", "", session_id)[:12] or "session"
        return f"sandbox-kernel-{safe}-{self.pid}-{self.started}-{os.urandom(4).hex()}"

    def alive(self) -> bool:
        """Return whether this very process runs; a zombie does not.

        Some machines hide the processes of other users (hidepid): one that is there and cannot be looked at is alive.
        """
        ticks = start_ticks(self.pid)
        return ticks is None or (ticks > 0 and self.started in {0, ticks})


@lru_cache(maxsize=4096)
def account_name(uid: int) -> str:
    """Return the name of an account of this machine; of a user id without one, the number.

    A name is looked up once: the table may be another machine's, and whoever asks for many would wait for each.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; on macOS its date, to the second, as one number.

    macOS gives the number of a process again only after some 99,000 others, which takes longer than a second. 0 when
    there is none, or only its remains; None when there is one that this process may not look at.
    """
    if sys.platform != "linux":
        words = told("ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)).split()
        if words and words[0][0] == "Z":
            return 0
        if len(words) != 6 or words[2] not in MONTHS:
            return None if _exists(pid) else 0
        _, _, month, day, clock, year = words
        return int(f"{year}{MONTHS.index(month) + 1:02}{int(day):02}{clock.replace(':', '')}")
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None if _exists(pid) else 0
    # The command stands in brackets and may hold anything; the fields after it are numbered from 3 (proc(5)).
    fields = stat[stat.rindex(b")") + 2 :].split()
    return 0 if fields[0] in {b"Z", b"X"} else int(fields[19])


def _exists(pid: int) -> bool:
    """Return whether the number is a process's; no mount option hides that."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def told(*command: str) -> str:
    """Return what a program of the system's own says, in English and in UTC; nothing where it fails."""
    import subprocess

    try:
        done = subprocess.run(command, env=_PLAIN, capture_output=True, text=True, timeout=TOLD_SECONDS, check=False)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout


@cache
def host_name() -> str:
    """Return what tells this machine, this boot and this PID namespace from others that share an engine."""
    if sys.platform != "linux":
        return told("sysctl", "-n", "kern.bootsessionuuid").strip() or UNKNOWN_HOST
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 (a magic link, never resolved)
    except OSError:
        return UNKNOWN_HOST
