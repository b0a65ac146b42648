"""Whether this process is what another one would have become, but for what it can be given: limits, umask and the like.

A kernel that is forked must have no right, no namespace and no group of control that its launcher has not, and lack
none. What cannot be made alike is an ordinary start.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

STATUS = (
    *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Seccomp_filters"),
)
"""Lines of /proc/PID/status that must be the same."""
SAME = ("attr/current", "loginuid", "personality")
"""Files of /proc/PID that must be the same, where there are any."""
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
AT_THE_START = (b"GLIBC_TUNABLES", b"LD_", b"MALLOC_")
"""Variables, or how they begin, which the system's libraries read once."""
LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))

BEGAN_WITH = {name: value for name, value in os.environb.items() if name.startswith(AT_THE_START)}


class AlikeError(Exception):
    """It is another process than this one could be."""


def require_alike(pid: int, environment: Mapping[bytes, bytes]) -> None:
    """Become like process `pid`, whose variables are given. Raises `AlikeError`, and OSError for what is not seen."""
    if {name: value for name, value in environment.items() if name.startswith(AT_THE_START)} != BEGAN_WITH:
        raise AlikeError("libraries would have read other variables")
    other, own = f"/proc/{pid}", "/proc/self"
    theirs, ours = _status(other), _status(own)
    if any(theirs.get(name) != ours.get(name) for name in STATUS):
        raise AlikeError("it has other rights")
    if any(_read(f"{other}/{name}") != _read(f"{own}/{name}") for name in SAME):
        raise AlikeError("it is labelled otherwise")
    if any(_link(f"{other}/ns/{name}") != _link(f"{own}/ns/{name}") for name in NAMESPACES):
        raise AlikeError("it is in another namespace")
    if _identity(f"{other}/root") != _identity(f"{own}/root"):
        raise AlikeError("it has another root")
    _join(_read(f"{other}/cgroup"), _read(f"{own}/cgroup"))
    os.umask(int(theirs["Umask"], 8))
    if (mine := os.getpriority(os.PRIO_PROCESS, 0)) != (nice := os.getpriority(os.PRIO_PROCESS, pid)):
        os.nice(nice - mine)
    if (there := os.sched_getaffinity(pid)) != os.sched_getaffinity(0):
        os.sched_setaffinity(0, there)
    if (score := _read(f"{other}/oom_score_adj")) != _read(f"{own}/oom_score_adj"):
        with open(f"{own}/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 (a short way)
            file.write(score)
    try:
        for limit in LIMITS:
            if (wanted := resource.prlimit(pid, limit)) != resource.getrlimit(limit):
                resource.setrlimit(limit, wanted)
    except ValueError as error:  # one is higher than this process may have
        raise AlikeError(str(error)) from error


def _join(theirs: str, ours: str) -> None:
    """Go into the group of control of another process. Raises `AlikeError`, and OSError."""
    if theirs == ours:
        return
    differ = set(theirs.splitlines()) - set(ours.splitlines())
    if len(differ) != 1 or not (line := differ.pop()).startswith("0::/"):
        raise AlikeError("it is in other groups of control")
    # The mount of the second version; with the first beside it, what is there is none of these folders.
    with open(f"/sys/fs/cgroup{line[3:]}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123 (as above)
        file.write("0")


def _status(place: str) -> dict[str, str]:
    lines = (line.partition(":") for line in _read(f"{place}/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="surrogateescape") as file:  # noqa: PTH123 (as above)
            return file.read()
    except (FileNotFoundError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        return ""  # this system has no such label


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 (as above)
    except FileNotFoundError:
        return ""


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 (as above)
    return status.st_dev, status.st_ino
