"""A sandbox that a broker is asked for before there is an event loop: it takes the time of the imports that follow."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from ....core.errors import EngineError
from ....core.model import SandboxSpec
from ..codes import BrokerCode
from . import packets
from .listener_trust import connected

SEND_SECONDS = 1.0
"""For a broker to take a request in. A slower broker is asked again by a caller that can wait."""
NUMBER = 1
"""Of the request."""


@dataclass(frozen=True, slots=True)
class PendingCreate:
    """A request on its way. Whoever takes it up reads the answer from the socket, or gives it up."""

    spec: SandboxSpec
    path: str
    """Of the broker's socket."""
    socket: socket.socket

    @property
    def engine(self) -> str:
        return f"broker://{self.path}"

    def give_up(self) -> None:
        """Hang up: the broker ends what it makes for this connection."""
        self.socket.close()


def ask_ahead(path: str, spec: SandboxSpec) -> PendingCreate:
    """Ask the broker at `path` for a sandbox. Raises OSError if that cannot be done at once, and `EngineError`."""
    sock = connected(path, SEND_SECONDS)
    try:
        sock.send(packets.packed({"op": "start", "n": NUMBER, **packets.request(spec), "spec": asked(spec)}))
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return PendingCreate(spec, path, sock)


def asked(spec: SandboxSpec) -> dict[str, Any]:
    """Return how a sandbox is asked for. Raises `EngineError` for one that is not our agent's."""
    if spec.made_of is None:
        raise EngineError(BrokerCode.BROKER_IMPROPER, "a broker starts our own agent, and nothing else")
    return packets.asked(spec)
