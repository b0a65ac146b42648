"""A user of its own for each sandbox that an ordinary user starts, where the user has subordinate ids (subuid(5)).

The machine's kernel then counts what the sandbox uses up for that user: nothing of it is taken from another sandbox, or
from the owner. A namespace of users is made in which two ids are known, that of the sandbox and the owner's, who looks
for the root's folder until the sandbox's program starts. The owner has all rights over it, for it is the owner's.

An id is in use for as long as a process has it, whatever became of the process that chose it; so what is chosen is an
id that no process has, and nothing is written down. Starts processes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import select
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

PLACES = "/usr/bin:/bin:/usr/local/bin"
"""Where the programs are looked for, whatever PATH says: they have rights over ids."""
HOLD = "echo; read -r _ && echo 0 > /proc/sys/user/max_user_namespaces && echo; read -r _"
"""Waits for the map, forbids further namespaces of users, and is the namespace's only process until it is used."""
SECONDS = 5.0
OWNER = 1
"""What the owner is called in the namespace. Not 0: a process that was 0 loses its rights when it becomes another."""
FEWEST = 1000
"""Subordinate ids. With fewer, a free id may have been another sandbox's a moment ago."""


class Space(NamedTuple):
    descriptor: int | None
    """None for one that is still to be made, with no other user."""
    host_uid: int
    """Whom the machine takes the sandbox's processes for."""


class UserPrograms(NamedTuple):
    """What makes one."""

    unshare: str
    uids: str
    gids: str


@cache
def programs() -> UserPrograms | None:
    """Return where the programs are, None where one is missing."""
    found = [shutil.which(name, path=PLACES) for name in ("unshare", "newuidmap", "newgidmap")]
    return UserPrograms(*map(str, found)) if all(found) else None


def absent(folder: str = "/etc") -> str | None:
    """Return why this user's sandboxes have no user of their own, None if they may have; `folder` has the tables."""
    if programs() is None:
        return "newuidmap and newgidmap are missing (package uidmap or shadow-utils)"
    if len(ids(folder)) < FEWEST:
        return f"{folder}/subuid and subgid have no {FEWEST} numbers in common for this user (subuid(5))"
    return None


def space(inside: int) -> Space | None:
    """Return a namespace in which a user of this one's subordinate ids is called `inside`; None if none can be made.

    The caller closes its descriptor.
    """
    if absent() is not None or (made := programs()) is None:
        return None
    other = free(ids())
    if other is None or inside <= OWNER:
        return None
    try:
        holder = subprocess.Popen(
            [made.unshare, "--user", "--keep-caps", "/bin/sh", "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"PATH": PLACES},
        )
    except OSError:
        return None
    with holder:
        try:
            return _space(holder, made, inside, other)
        except (OSError, subprocess.SubprocessError):
            return None
        finally:
            holder.kill()


def _space(holder: subprocess.Popen[bytes], made: UserPrograms, inside: int, other: int) -> Space | None:
    if holder.stdin is None or not _answers(holder):
        return None
    for program, own in ((made.uids, os.getuid()), (made.gids, os.getgid())):
        numbers = [str(number) for number in (OWNER, own, 1, inside, other, 1)]
        done = subprocess.run(
            [program, str(holder.pid), *numbers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": PLACES},
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            return None
    holder.stdin.write(b"\n")
    if not _answers(holder):
        return None
    return Space(os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC), other)


def _answers(holder: subprocess.Popen[bytes]) -> bool:
    if holder.stdout is None:
        return False
    poll = select.poll()
    poll.register(holder.stdout, select.POLLIN)
    return bool(poll.poll(SECONDS * 1000)) and holder.stdout.read(1) == b"\n"


def ids(folder: str = "/etc") -> range:
    """Return the numbers that are subordinate to this user, as users and as groups; an empty range if there are none.

    Of several ranges the longest of each table counts.
    """
    users, groups = (_longest(Path(folder, name)) for name in ("subuid", "subgid"))
    return range(max(users.start, groups.start), min(users.stop, groups.stop))


def _longest(table: Path) -> range:
    """Return the longest range that a table gives to this user, by name or by number."""
    names = {str(os.getuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    found = []
    with contextlib.suppress(OSError, ValueError):
        for row in table.read_text(encoding="utf-8").splitlines():
            name, _, numbers = row.partition(":")
            if name in names:
                first, count = map(int, numbers.split(":"))
                found.append(range(first, first + count))
    return max(found, key=len, default=range(0))


def free(ids: range) -> int | None:
    """Return one that no process has; None if there is none to be found in a few tries."""
    used = set()
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 (names are enough)
        with contextlib.suppress(OSError):
            used.add(os.stat(f"/proc/{name}").st_uid)  # noqa: PTH116 (at every start)
    return next((one for one in (secrets.choice(ids) for _ in range(100)) if one not in used), None)
