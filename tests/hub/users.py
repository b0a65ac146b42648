"""System users for a while, and programs that run as they do: with their own groups, and none that means the engine.

What runs is in a mount namespace of the test's own, in which /run/sandbox-kernel is empty: the machine may have an
operator's broker already, and this one must not serve anybody else.
"""

from __future__ import annotations

import contextlib
import grp
import pwd
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.kernels import eventually

RUN = Path("/run/sandbox-kernel")
"""Where the operator's broker listens."""
HOLD = f'mount -t tmpfs -o mode=0755,size=1m none {RUN} && chown "$1" {RUN} && echo up && exec sleep infinity'
GONE_SECONDS = 10.0
PATH = "/usr/bin:/bin"


class User:
    """One of the system's users."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home
        self.password = secrets.token_urlsafe(12)
        found = pwd.getpwnam(name)
        self.uid, self.gid = found.pw_uid, found.pw_gid

    def processes(self) -> list[psutil.Process]:
        """Return what runs as this user; what has ended, and whose parent has not asked for its end yet, does not."""
        found = psutil.process_iter(["uids", "status"])
        return [one for one in found if self._is_mine(one.info) and one.info["status"] != psutil.STATUS_ZOMBIE]

    def _is_mine(self, info: dict[str, Any]) -> bool:
        return info["uids"] is not None and bool(info["uids"].real == self.uid)


class Machine:
    """Its users, and the namespace in which they are."""

    def __init__(self, holder: subprocess.Popen[bytes]) -> None:
        self._enter = ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt"]
        self.root = Path(f"/proc/{holder.pid}/root")
        """By which whoever is not in the namespace sees its files."""

    def command(self, words: Sequence[str], user: User | None = None, groups: Sequence[str] = ()) -> list[str]:
        """Return the command that runs `words` here; as a user, with further groups only if they are named."""
        if user is None:
            return [*self._enter, *words]
        gids = ",".join(str(grp.getgrnam(name).gr_gid) for name in groups)
        more = ["--groups", gids] if gids else ["--init-groups"]
        return [*self._enter, "setpriv", "--reuid", str(user.uid), "--regid", str(user.gid), *more, *words]

    def run(self, words: Sequence[str], user: User | None = None, *, seconds: float = 120) -> str:
        """Return what a command printed, which must succeed; that of `run_as` may end as it likes."""
        done = self.run_as(words, user, seconds=seconds)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def run_as(
        self, words: Sequence[str], user: User | None = None, *, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        home = user.home if user is not None else Path("/nonexistent")
        there = ["env", "-C", str(home), *words] if user is not None else words  # to enter a namespace leads to /
        return subprocess.run(
            self.command(there, user), cwd="/", env={"PATH": PATH, "HOME": str(home)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip


@contextlib.contextmanager
def users(folder: Path, names: Sequence[str], group: str) -> Iterator[list[User]]:
    """Make users with homes in a folder and a group of their own; they are gone after the block, with all of theirs."""
    _remove(names, group)  # of a run that was killed
    try:
        _do("groupadd", group)
        made = []
        for name in names:
            _do("useradd", "--create-home", "--home-dir", str(folder / name), "--shell", "/bin/bash", "-G", group, name)
            (folder / name).chmod(0o700)
            made.append(User(name, folder / name))
            subprocess.run(["chpasswd"], input=f"{name}:{made[-1].password}\n", text=True, check=True, timeout=30)
        yield made
    finally:
        _remove(names, group)


def _remove(names: Sequence[str], group: str) -> None:
    for name in names:
        try:
            user = User(name, Path("/nonexistent"))
        except KeyError:
            continue
        for process in user.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        eventually(lambda user=user: not user.processes(), GONE_SECONDS, f"no process of {name} is left")  # type: ignore[misc]
        _do("userdel", name)
    with contextlib.suppress(KeyError):
        grp.getgrnam(group)
        _do("groupdel", group)


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def machine(owner: User) -> Iterator[Machine]:
    """Open a mount namespace whose /run/sandbox-kernel is `owner`'s, as the tmpfiles entry makes it."""
    mine = not RUN.exists()
    RUN.mkdir(mode=0o755, exist_ok=True)
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "/bin/sh",
        "-c",
        HOLD,
        "sh",
        f"{owner.uid}:{owner.gid}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"up\n"
            yield Machine(holder)
        finally:
            holder.kill()
            if mine:
                with contextlib.suppress(OSError):  # not empty: it is somebody's by now
                    RUN.rmdir()
