"""Podman as a Fedora desktop has it: no Docker's socket, and its own where it always is; with root and without.

Its service has a mount namespace of its own, in which the tests run as well.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.support import ROOT

NAMES = ("podman", "podman-rootless")
USER, UID = "sandbox-tests", 4242
MOUNTS = """
mount --make-rprivate /
for name in passwd group subuid subgid; do
    [ -e /etc/$name ] || touch /etc/$name
    mount --bind $0/etc/$name /etc/$name
done
mkdir $0/python && mount --bind $PYTHON $0/python
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && chmod 1777 /dev/shm
mkdir -p $(dirname $SOCKET) && chown -R $OWNER $SOCKETS
# Another user can reach neither the home of root nor a Python in it.
case $PYTHON in /root/*) mount -t tmpfs -o mode=755 tmpfs /root; mkdir -p $PYTHON; mount --bind $0/python $PYTHON;; esac
cd / && exec "$@"
"""
"""`SOCKETS` is the folder that the service's user has, and `PYTHON` what this interpreter is of."""


def absent() -> str | None:
    """Return why it is not to be had here."""
    missing = [name for name in ("podman", "newuidmap", "slirp4netns") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed (apt-get install podman uidmap slirp4netns)" if missing else None


def is_rootless(name: str) -> bool:
    return name == "podman-rootless"


def socket(name: str) -> str:
    """Return where it listens, within the namespace."""
    return f"/run/user/{UID}/podman/podman.sock" if is_rootless(name) else "/run/podman/podman.sock"


def variables(name: str, folder: Path) -> dict[str, str]:
    """Return the environment of the service, and of all that is started beside it."""
    own = {
        "PYTHON": sys.base_prefix,
        "SOCKET": socket(name),
        "SOCKETS": str(Path(socket(name)).parents[1] if is_rootless(name) else Path(socket(name)).parent),
        "OWNER": f"{UID}:{UID}" if is_rootless(name) else "0:0",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/home/hypothesis",
        "HOME": f"{folder}/home",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    return own | ({"XDG_RUNTIME_DIR": f"/run/user/{UID}"} if is_rootless(name) else {})


def as_its_user(name: str) -> list[str]:
    user = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
    return user if is_rootless(name) else []


def command(name: str, folder: Path) -> list[str]:
    """Return how the service is started."""
    for place in ("data", "home", "state"):
        (folder / place).mkdir(mode=0o700)
        if is_rootless(name):
            os.chown(folder / place, UID, UID)
    service = ["podman", "--root", f"{folder}/data", "--runroot", f"{folder}/state/run", "--storage-driver", "overlay"]
    service += ["--cgroup-manager", "cgroupfs", "system", "service", "--time", "0", f"unix://{socket(name)}"]
    return ["unshare", "--mount", "sh", "-c", MOUNTS, str(folder), *as_its_user(name), *service]


def pause_process(pid: int) -> int | None:
    """Return the process that keeps the namespaces of a user's Podman when its service, of this number, has ended."""
    try:
        return int(Path(f"/proc/{pid}/root/run/user/{UID}/libpod/tmp/pause.pid").read_text())
    except (OSError, ValueError):
        return None


def beside(name: str, pid: int) -> list[str]:
    """Return how a program is started where the service is, and as its user."""
    return ["nsenter", "--mount", f"--target={pid}", "env", f"--chdir={ROOT}", *as_its_user(name)]
