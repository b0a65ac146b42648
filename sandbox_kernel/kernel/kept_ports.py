"""The sockets on which a kernel's clients knock: they stay open from one kernel process to the next.

ZMQ's clients try again 0.1 to 0.2 s after a port was closed to them, and so on: a kernel that comes in between waits
for them as long. At an open port they wait themselves, and are let in at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Mapping
from typing import Any

NO_PORTS: Mapping[str, int] = {}
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


def open_ports(connection: Mapping[str, Any]) -> dict[str, int]:
    """Return copies of this process's sockets that listen on the ports of a connection file, by channel.

    None for a connection by files, which end with the process that made them; and none on macOS, which does not say
    of a socket whether it listens.
    """
    if sys.platform != "linux" or connection.get("transport", "tcp") != "tcp":
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
