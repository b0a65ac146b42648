"""Joins a shared sandbox, after starting its owner where there is none."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import time
from dataclasses import replace
from typing import Any

from ...core.errors import EngineError, EngineUnavailable
from ...core.helper_processes import start_apart
from ...core.model import SCRATCH, SandboxSpec, Settings
from ...engines.inspectable import EngineInfo, ImageInfo, Inspectable, Listed, MachineCondition, Shown
from ...engines.pipe import Pipe
from ...engines.select import AUTO, chosen, make_engine, of_session
from ...engines.shipping import nested_config
from .codes import SharedCode
from .container import SharedContainer
from .meeting_point import MAX_LINE, MeetingPoint, described, digest, meeting_point, tried

OWNER = f"{__package__}.owner"
START_SECONDS = 20.0
"""How long a new owner may take to listen."""
MARGIN_SECONDS = 10.0
"""What an owner may take longer than its sandbox to start."""
LOOK_SECONDS = 0.05
TRIES = 3
"""An owner may end in the moment in which it is asked."""


class SharedEngine:
    """See the module. What asks after engines asks the one beneath."""

    def __init__(self, address: str, settings: Settings) -> None:
        self._address = address
        self._settings = replace(settings, engine=AUTO)
        self._beneath: Inspectable | None = None

    @property
    def address(self) -> str:
        return self._address

    @property
    def beneath(self) -> Inspectable:
        """The engine whose sandbox it is."""
        if self._beneath is None:
            self._beneath = make_engine(of_session(self._settings))
        return self._beneath

    async def start(self, spec: SandboxSpec) -> SharedContainer:
        """Start one more kernel in the sandbox. Raises `EngineError`."""
        watched = self._settings.get("monitor", None) is not None
        if spec.made_of is None or spec.made_of.inside is not None or watched:
            raise EngineError(SharedCode.SHARED_SERVES_NOTHING)
        own = self._settings
        if (spec.image, spec.runtime, spec.limits) != (own.image, own.runtime, own.limits):
            raise EngineError(SharedCode.SHARED_OTHER_SETTINGS.note(name=self._address), setting="engine")
        point = await asyncio.to_thread(meeting_point, self._address)
        said = described(self._settings, chosen(self._settings))
        request = {"digest": digest(said), "config": nested_config(spec, SCRATCH)}
        for _ in range(TRIES):
            sock = await asyncio.to_thread(_connected, point, said)
            if (found := await self._joined(sock, request, point)) is not None:
                return found
        raise EngineUnavailable(SharedCode.SHARED_NOT_STARTED.note(name=point.name, why="it ends again and again"))

    async def _joined(
        self, sock: socket.socket, request: dict[str, Any], point: MeetingPoint
    ) -> SharedContainer | None:
        """Return the pipe of a new kernel; None if its owner was about to end. Raises `EngineError`."""
        loop = asyncio.get_running_loop()
        try:
            sock.setblocking(False)
            async with asyncio.timeout(self._settings.limits.start_timeout + MARGIN_SECONDS):
                await loop.sock_sendall(sock, json.dumps(request).encode() + b"\n")
                line = bytearray()
                while not line.endswith(b"\n"):
                    piece = await loop.sock_recv(sock, 1)  # what follows the line is the pipe's
                    if not piece or len(line) > MAX_LINE:
                        sock.close()
                        return None
                    line += piece
            answer = json.loads(line)
            if answer["ok"] is not True:
                name = self._address.partition(":///")[2]
                if answer["code"] == SharedCode.SHARED_OTHER_SETTINGS.code:
                    raise EngineError(SharedCode.SHARED_OTHER_SETTINGS.note(name=name or "shared"), setting="engine")
                why = str(answer["message"])[:1000]
                raise EngineUnavailable(SharedCode.SHARED_NOT_STARTED.note(name=name or "shared", why=why))
            return SharedContainer(str(answer["id"]), Pipe(sock), point, held=answer["held"] is True)
        except OSError:
            sock.close()
            return None
        except BaseException:
            sock.close()
            raise

    async def adopt(self, fd: int, state: dict[str, Any]) -> SharedContainer:
        """Go on with a kernel that another process of this user gave up."""
        point = await asyncio.to_thread(meeting_point, self._address)
        return SharedContainer(str(state["id"]), Pipe.attach(fd, state["pipe"]), point, held=state["held"] is True)

    async def reap(self) -> int:
        return await self.beneath.reap()

    # --- what is asked after ---

    async def info(self) -> EngineInfo:
        return await self.beneath.info()

    async def conditions(self) -> tuple[MachineCondition, ...]:
        return await self.beneath.conditions()

    async def list(self) -> tuple[Listed, ...]:
        return await self.beneath.list()

    async def shown(self, container: str) -> Shown:
        return await self.beneath.shown(container)

    async def image(self, name: str) -> ImageInfo:
        return await self.beneath.image(name)


def _connected(point: MeetingPoint, said: dict[str, Any]) -> socket.socket:
    """Return a connection to the owner of a sandbox; start one if there is none. Raises `EngineUnavailable`."""
    if (found := tried(point)) is not None:
        return found
    folder = os.open(point.socket.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # whoever holds it is bounded by START_SECONDS
        if (found := tried(point)) is not None:
            return found
        try:
            start_apart(OWNER, str(point.socket), json.dumps(said), seconds=START_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineUnavailable(SharedCode.SHARED_NOT_STARTED.note(name=point.name, why=error)) from None
        return _awaited(point)
    finally:
        os.close(folder)


def _awaited(point: MeetingPoint) -> socket.socket:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if (found := tried(point)) is not None:
            return found
        time.sleep(LOOK_SECONDS)
    raise EngineUnavailable(SharedCode.SHARED_NOT_STARTED.note(name=point.name, why="it does not listen"))
