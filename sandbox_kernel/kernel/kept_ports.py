"""The sockets on which a kernel's clients knock: open before all else, and from one kernel process to the next.

ZMQ's clients try again 0.1 to 0.2 s after a port was closed to them, and so on: a kernel that comes in between waits
for them as long. At an open port they wait themselves, and are let in at once.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

NO_PORTS: Mapping[str, int] = {}
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")


BACKLOG = 100
"""Clients that wait to be let in, as with ZMQ's own sockets."""


def listen(connection: Mapping[str, Any]) -> dict[str, int]:
    """Listen on the ports of a connection file, and return the sockets by channel.

    None if one cannot be had: ZMQ says why, or finds the one that the process before has left. And none for names in
    place of an address: which of their addresses counts is ZMQ's to choose.
    """
    made: list[socket.socket] = []
    try:
        if connection.get("transport", "tcp") != "tcp":
            return {}
        for channel in CHANNELS:
            socket.inet_aton(connection["ip"])
            made.append(one := socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((connection["ip"], connection[f"{channel}_port"]))
            one.listen(BACKLOG)
    except (OSError, LookupError, TypeError, ValueError, OverflowError):
        for one in made:
            one.close()
        return {}
    return {channel: one.detach() for channel, one in zip(CHANNELS, made, strict=True)}
