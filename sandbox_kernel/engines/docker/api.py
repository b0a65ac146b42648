"""The calls of the Engine API that an engine and its containers share: over one unix socket, each with a time limit."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

from .. import container_reaper
from ..multiplexed import Demultiplexer
from ..owner import Owner
from ..pipe import Pipe
from .arguments import LABEL
from .errors import BeingRemoved, NoSuchContainer, refusal, silent
from .http import Connection

REQUEST_SECONDS = 30.0
"""One answer of the engine; a create took 0.1 s here, and takes seconds on a machine that is out of breath."""


class DockerApi:
    """An engine's API behind a unix socket. Methods raise `EngineError`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.guard = container_reaper.of(path)

    async def request(self, method: str, target: str, body: object = None) -> Any:
        """Return the engine's answer, decoded."""
        return await self.decoded(await self._ask(method, target, body), target)

    async def subscribe(self, session_id: str, since: float) -> Connection:
        """Return the stream of what happens to a session's container, from the time `since` on (seconds)."""
        filters = {
            "type": ["container"],
            "label": [f"{LABEL}.session={session_id}"],
            "event": ["oom", "die", "destroy", "pause"],
        }
        return await self._ask("GET", f"/events?since={since:.9f}&filters={quote(json.dumps(filters), safe='')}")

    async def attach(self, identity: str) -> Pipe:
        """Return the pipe into a container that was created and is not started yet."""
        target = f"/containers/{identity}/attach?stream=1&stdin=1&stdout=1&stderr=1"
        return Pipe(*(await self._ask("POST", target, upgrade=True)).release(), Demultiplexer())

    async def inspect(self, identity: str) -> dict[str, Any] | None:
        """Return the engine's document on a container, None when there is none of that name."""
        try:
            found: dict[str, Any] = await self.request("GET", f"/containers/{identity}/json")
        except NoSuchContainer:
            return None
        return found

    async def rename(self, identity: str, session_id: str, owner_pid: int) -> str:
        """Write a new owner into a container's name and return it. Raises `EngineError` when the container is gone."""
        name = Owner.of(owner_pid).container_name(session_id)
        await self.request("POST", f"/containers/{identity}/rename?name={name}")
        return name

    async def remove(self, identity: str) -> bool:
        """End and remove a container; return whether this call did. Returns when it is gone."""
        try:
            await self.request("DELETE", f"/containers/{identity}?force=1&v=1")
        except NoSuchContainer:
            return False
        except BeingRemoved:
            deadline = time.monotonic() + REQUEST_SECONDS
            while await self.inspect(identity) is not None:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
            return False
        return True

    async def _ask(self, method: str, target: str, body: object = None, *, upgrade: bool = False) -> Connection:
        """Send a request and return its reply, the body unread."""
        connection = Connection(self.path)
        return await self.answered(connection, connection.ask(method, target, body, upgrade=upgrade), target, body)

    async def answered(self, connection: Connection, asking: Awaitable[int], target: str, body: object) -> Connection:
        """Return the connection once its status is there."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                status = await asking
                if status < 400:
                    return connection
                answer = await connection.json()
        except TimeoutError as error:
            connection.close()
            raise silent(target, REQUEST_SECONDS) from error
        except BaseException:
            connection.close()
            raise
        raise refusal(status, str(answer.get("message", "")) if isinstance(answer, dict) else "", body)

    async def decoded(self, connection: Connection, target: str) -> Any:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await connection.json()
        except TimeoutError as error:
            raise silent(target, REQUEST_SECONDS) from error
