"""What a start asks of the engine, and asking it before there is an event loop.

The engine takes as long for a create as a kernel process for the imports that it needs next, so that process asks
first.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from ...core.model import SandboxSpec
from ...core.version import __version__
from .. import attachment, container_reaper
from ..attachment import Attachment
from ..owner_process import OwnerProcess, host_name
from ..user_ids import is_few
from . import api_version, few_users
from .arguments import LABEL, container_arguments, digest

SEND_SECONDS = 1.0
"""For an engine to take a request in; one that is slower is asked again by those who can wait."""


@dataclass(frozen=True, slots=True)
class PendingContainer:
    """A create that the engine works on. Its taker reads the answer from the socket, or gives it up."""

    spec: SandboxSpec
    path: str
    """Of the engine's socket."""
    name: str
    version: str
    """What the path of the request began with."""
    since: float
    """When the engine was asked, in seconds since 1970: what happens to the container is told from then on."""
    body: dict[str, Any]
    held: Attachment
    """What the container is started with."""
    socket: socket.socket

    @property
    def engine(self) -> str:
        return f"unix://{self.path}"

    def give_up(self) -> None:
        """Have the container removed as soon as it is there."""
        self.held.close()
        self.socket.close()
        container_reaper.of(self.path).remove(self.name)


def ask_ahead(path: str, spec: SandboxSpec) -> PendingContainer:
    """Ask the engine at `path` to create a container. Raises OSError if that cannot be done at once."""
    if few_users.may_be(path):
        raise OSError("it is to be asked first which user ids it has")
    body, held = creation(spec)
    engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    engine.settimeout(SEND_SECONDS)
    try:
        version = api_version.known(path) or api_version.ask(path, SEND_SECONDS)
        engine.connect(path)
    except OSError:
        held.close()
        engine.close()
        raise
    name, since = OwnerProcess.of(os.getpid()).container_name(spec.session_id), time.time()
    ahead = PendingContainer(spec, path, name, version, since, body, held, engine)
    container_reaper.of(path).expect(name)  # should this process end now, the engine creates it all the same
    try:
        engine.sendall(encode("POST", version + create_target(name), ahead.body))
        engine.setblocking(False)
    except OSError:
        ahead.give_up()
        raise
    return ahead


def create_target(name: str) -> str:
    return f"/containers/create?name={name}"


def creation(spec: SandboxSpec) -> tuple[dict[str, Any], Attachment]:
    """Return the body of the request that creates a container for `spec`, and what has to be open until it runs.

    Raises `ConfigurationError` and `EngineError` for what cannot be opened.
    """
    held = attachment.hold(spec)
    body = container_arguments(spec, held.names)
    body["Labels"] |= {
        f"{LABEL}.spec": digest(spec),
        f"{LABEL}.host": host_name(),
        f"{LABEL}.uid": str(os.getuid()),
        f"{LABEL}.version": __version__,
        f"{LABEL}.hosts": "yes" if spec.reaches_hosts else "no",
        f"{LABEL}.created": str(int(time.time())),
        **({few_users.USER: str(spec.uid)} if is_few(spec.uid) else {}),
    }
    return body, held


def encode(method: str, target: str, body: object = None, *, upgrade: bool = False) -> bytes:
    """Return an HTTP request; there is one on each connection."""
    content = b"" if body is None else json.dumps(body).encode()
    head = [
        f"{method} {target} HTTP/1.1",
        "Host: engine",
        "User-Agent: sandbox-kernel",
        "Connection: Upgrade\r\nUpgrade: tcp" if upgrade else "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content
