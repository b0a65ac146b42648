"""Where the owner of a shared sandbox listens, and what it and a kernel say there. Both are processes of one user.

The socket lies in a folder that is this user's alone, so whoever listens or connects is this user; the system says so,
too. A kernel sends one line of JSON, and the owner answers with one; from then on the socket is the pipe of an agent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigurationError, EngineUnavailable
from ...core.model import Settings
from ...core.package_files import installation
from ...engines import broker_sockets
from .codes import SharedCode

DEFAULT = "notebooks"
"""The name of the sandbox that is meant by "shared" alone."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
MAX_PATH = 107
"""Bytes of the path of a socket, see unix(7)."""
MAX_LINE = 1 << 20
"""Bytes of a line: a request holds a kernel's start."""
_CREDENTIALS = struct.Struct("3i")


class MeetingPoint(NamedTuple):
    """Where the owner of one shared sandbox listens."""

    name: str
    socket: Path


def meeting_point(address: str) -> MeetingPoint:
    """Return that of an address, "shared" or "shared:///NAME". Raises `ConfigurationError`, `EngineUnavailable`."""
    name = address.partition(":///")[2] or DEFAULT
    if not NAME.fullmatch(name):
        code = SharedCode.SHARED_NOT_STARTED.note(name=name[:40], why="that is no name")
        raise ConfigurationError(code, value=name[:100], setting="engine")
    folder = Path(broker_sockets.own_folder(), "shared")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise EngineUnavailable(SharedCode.SHARED_NOT_OURS.note(folder=folder))
    # Another version of this package would have another agent.
    path = folder / f"{name}-{installation()[:8]}.sock"
    if len(os.fsencode(path)) > MAX_PATH:
        code = SharedCode.SHARED_NOT_STARTED.note(name=name, why="its socket would have too long a path")
        raise ConfigurationError(code, limit=f"{MAX_PATH} bytes", value=str(path), setting="engine")
    return MeetingPoint(name, path)


DATA = ("datasets", "volumes")
"""Settings of a plugin that are of the sandbox."""


def tried(point: MeetingPoint) -> socket.socket | None:
    """Return a connection to the owner of a sandbox; None if there is none of this user's."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(str(point.socket))
    except OSError:
        sock.close()
        return None
    if not is_own(sock):
        sock.close()
        return None
    return sock


def is_own(sock: socket.socket) -> bool:
    """Return whether a process of this user is at the other end."""
    said = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(said)[1] == os.geteuid())


def described(settings: Settings, engine: str) -> dict[str, Any]:
    """Return what a shared sandbox is made of, as plain JSON: of a kernel's settings all that is of the sandbox."""
    return {
        "engine": engine,
        "runtime": settings.runtime,
        "image": settings.image,
        "limits": asdict(settings.limits),
        "limits_kept": settings.limits_kept,
        "time_zone": settings.time_zone,
        "data": {name: list(settings.get(name, ())) for name in DATA if settings.get(name, ())},
    }


def digest(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
