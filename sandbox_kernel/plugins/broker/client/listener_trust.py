"""Whether whoever listens in a broker's place may be believed. Imports no engine.

The operator's is in a folder that root made; the user's own in one of this user's that is closed to others. So nobody
else can have put a socket there; and the system says whose process is at the other end. Each installation of this
package has an own broker of its own: one of another checkout, or from before an update, would make other sandboxes, and
kernels that it prepared are not taken.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from typing import Any, NamedTuple

from ....core.errors import EngineUnavailable
from ....core.package_files import installation
from ....engines import broker_sockets
from ..codes import BrokerCode

SCHEME = "broker"
ANSWER_SECONDS = 1.0
OWN_SECONDS = 0.25
"""For a process of this user's to say what it is. Who has not by then is not waited for at each start."""
CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """Whose process is at the other end of a socket, as the system says."""

    pid: int
    """0 if it is in a PID namespace that this process does not see."""
    uid: int
    gid: int


def peer(sock: socket.socket) -> Peer:
    return Peer(*CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)))


def connected(path: str, seconds: float) -> socket.socket:
    """Return a connection to who listens at `path` and may be believed. Raises OSError and `EngineUnavailable`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(seconds)
        sock.connect(path)
        require_own_ground(path, peer(sock).uid)
    except BaseException:
        sock.close()
        raise
    return sock


def others() -> list[str]:
    """Return where brokers of this user's listen that other installations started, and that are not taken."""
    begin, end = broker_sockets.FILE.split("{}")
    folder, mine = broker_sockets.own_folder(), broker_sockets.own()
    try:
        names = os.listdir(folder)  # noqa: PTH208 (pathlib is slow to import)
    except OSError:
        return []
    paths = [f"{folder}/{name}" for name in sorted(names) if name.startswith(begin.rstrip("-")) and name.endswith(end)]
    return [path for path in paths if path != mine and _asked(path) is not None]


def path_of(address: str) -> str:
    """Return the path in "broker:///path"; for "broker" the operator's if there is one, else the user's own."""
    _, named, path = address.partition("://")
    if named:
        return path
    return broker_sockets.OPERATORS if os.path.lexists(broker_sockets.OPERATORS) else broker_sockets.own()


def operators_answers() -> bool:
    """Return whether the operator's broker takes connections of this user."""
    if not os.path.lexists(broker_sockets.OPERATORS):
        return False
    try:
        connected(broker_sockets.OPERATORS, ANSWER_SECONDS).close()
    except (OSError, EngineUnavailable):
        return False
    return True


def is_own(path: str) -> bool:
    """Return whether this user's own broker listens at `path`, or would."""
    return path == broker_sockets.own()


def own_has(engine: str) -> bool:
    """Return whether this user's own broker listens, is of this installation, and has the engine with this address.

    It is there since somebody named it, maybe for another engine, or before the package was changed.
    """
    from ....core.version import __version__

    said = _asked(broker_sockets.own())
    # What says no installation is of a version that listens elsewhere.
    return (
        said is not None
        and said.get("engine") == engine
        and said.get("version") == __version__
        and (said.get("package", installation()) == installation())
    )


def _asked(path: str) -> dict[str, Any] | None:
    """Return what a broker of this user's own says of itself, None if none that may be believed does at once."""
    from . import packets

    try:
        with connected(path, OWN_SECONDS) as sock:
            sock.send(packets.packed({"op": "status", "n": 1}))
            said = packets.unpacked(sock.recv(packets.MAX_BYTES))
            return said if peer(sock).uid == os.geteuid() else None
    except (OSError, ValueError, EngineUnavailable):
        return None


def require_own_ground(path: str, uid: int) -> None:
    """Raise `EngineUnavailable` if others than root, this user and the listener `uid` can have put a socket there.

    A user may listen for others only in a folder of its own that root made, such as /run/sandbox-kernel.
    """
    folder = os.path.dirname(path) or "/"  # noqa: PTH120 (pathlib is slow to import)
    status = os.stat(folder)  # noqa: PTH116 (as above)
    mine = {0, os.geteuid()}
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EngineUnavailable(BrokerCode.BROKER_STRANGER, f"others may write in the folder of the broker, {folder}")
    if uid not in mine and (uid != status.st_uid or os.stat(os.path.dirname(folder)).st_uid != 0):  # noqa: PTH116, PTH120
        raise EngineUnavailable(BrokerCode.BROKER_STRANGER, value=f"a process of user {uid}")
    if status.st_uid not in {*mine, uid}:
        raise EngineUnavailable(BrokerCode.BROKER_STRANGER, f"the folder of the broker, {folder}, is another user's")
