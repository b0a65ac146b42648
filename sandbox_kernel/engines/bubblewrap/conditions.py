"""What bubblewrap needs of the machine, tried with bubblewrap itself: each condition with what was found and a remedy.

The machine's own switches say why a try failed; they decide nothing. Imports about and errors; starts processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from .. import cgroups
from ..about import Condition
from . import errors, users
from .launch import drops

TRY_SECONDS = 10.0
NAMESPACES = ("--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
NOBODY = 65534

ONE_USER = "the sandboxes share counts of pipes, watches of epoll and descriptors in flight"
WITHOUT_LAYERS = "sandboxes see each other's locks on files of the root; bubblewrap 0.11 and Linux 5.11 are needed"

SWITCHES = (
    ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=65536"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "a profile for bwrap in /etc/apparmor.d that allows `userns`, or sysctl -w "
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""Below /proc/sys: what forbids an ordinary user a namespace, and how it is allowed."""


def conditions(program: str, switches: str = "/proc/sys") -> tuple[Condition, ...]:
    """Return all conditions; `switches` is where the machine's own are."""
    spaces = _tried(program, *NAMESPACES, "--ro-bind", "/", "/")
    rows = [_namespaces(spaces, switches)]
    if spaces is None:
        proc = _tried(program, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc")
        rows.append(
            Condition("own /proc", met=True, found="can be mounted")
            if proc is None
            else Condition("own /proc", met=False, found=f"cannot be mounted: {proc}", remedy=errors.NO_PROC)
        )
        bare = no_layers(program)
        found = "one of its own above the root" if bare is None else f"none ({bare}): {WITHOUT_LAYERS}"
        rows.append(Condition("layer", met=True, found=found))
        rows.append(Condition("user", met=True, found=_user()))
    why = cgroups.available()
    if why is None:
        rows.append(Condition("cgroup", met=True, found=f"version {cgroups.version()}, made for each sandbox"))
    else:
        remedy = "start it in a cgroup that is yours (systemd-run --user --scope -p Delegate=yes COMMAND), or accept "
        rows.append(
            Condition("cgroup", met=False, found=f"none can be made: {why}", remedy=f"{remedy}limits = best-effort")
        )
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


def _namespaces(said: str | None, switches: str) -> Condition:
    if said is None:
        return Condition("namespaces", met=True, found="an ordinary user may have them, and none within")
    for name, value, remedy in SWITCHES:
        if _read(f"{switches}/{name}") == value:
            found = f"refused ({said}); {name.replace('/', '.')} is {value}"
            return Condition("namespaces", met=False, found=found, remedy=remedy)
    remedy = "within a container, its engine's options decide: use the machine itself, or another engine"
    return Condition("namespaces", met=False, found=f"refused: {said}", remedy=remedy)


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
    said = done.stderr.decode("utf-8", "replace").strip().removeprefix(errors.PREFIX)
    return said.replace("\n", " ")[:200] or f"it ended with {done.returncode}"


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="ascii").strip()
    return ""
