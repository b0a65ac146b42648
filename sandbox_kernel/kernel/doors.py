"""The sockets on which a kernel's clients knock: they stay open from one kernel process to the next.

ZMQ's clients try again 0.1 to 0.2 s after a port was closed to them, and so on: a kernel that comes in between waits
for them as long. At an open door they wait themselves, and are let in at once. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

NO_DOORS: Mapping[str, int] = {}
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


class Launched(NamedTuple):
    """Who started a kernel that was forked (`prepared.py`), and what it brought along."""

    pid: int
    """The process that the front end knows; it lives as long as the kernel."""
    doors: Mapping[str, int]
    """Sockets that listen already, by channel, as it says."""
    vain: str | None = None
    """Where it asked for a kernel that was prepared, and there was none: to be asked once there may be a broker."""
    left: tuple[int, dict[str, Any]] | None = None
    """The pipe and the state that the kernel process before left, if this one is its copy (`successor.py`)."""


def fitting(connection: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, int]:
    """Return those that listen at the addresses of a connection file, by channel; all others are closed."""
    found: dict[str, int] = {}
    for channel, descriptor in given.items():
        one = socket.socket(fileno=descriptor)
        wanted = (connection.get("ip"), connection.get(f"{channel}_port"))
        if connection.get("transport", "tcp") == "tcp" and one.getsockname() == wanted:
            found[channel] = one.detach()
        else:
            one.close()
    return found


def open_doors(connection: Mapping[str, Any]) -> dict[str, int]:
    """Return copies of this process's sockets that listen on the ports of a connection file, by channel.

    None for a connection by files, which end with the process that made them.
    """
    if connection.get("transport", "tcp") != "tcp":
        return {}
    ports = {int(connection[f"{channel}_port"]): channel for channel in CHANNELS}
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names are enough)
        with contextlib.suppress(OSError):  # the descriptor of the list itself is closed by now
            copy = os.dup(int(name))
            channel = ports.get(_port(copy))
            if channel is None or channel in found:
                os.close(copy)
            else:
                found[channel] = copy
    return found


def _port(descriptor: int) -> int:
    """Return the port on which a socket listens, 0 for any other file."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return 0
    one = socket.socket(fileno=descriptor)
    try:
        if one.family not in {socket.AF_INET, socket.AF_INET6}:
            return 0
        return int(one.getsockname()[1]) if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else 0
    finally:
        one.detach()
