"""A real cell for those who look at a machine, in a session of its own, which touches no folder of the user's."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from ..config.sources import changed
from ..config.table import SETTINGS
from ..core.codes import EndCode
from ..core.errors import SandboxDied
from ..core.model import Message, Settings
from ..engines.base import Engine
from ..session.session import Session


async def shown(settings: Settings, engine: Engine, code: str) -> str:
    """Run a cell in a session of its own and return what it displays. Raises why there was no answer."""
    front = _Front()
    made_with = [one for one in SETTINGS.values() if one.scope == "sandbox" and not one.is_limit]
    # No folders, and no plugin takes part.
    bare = changed(Settings(limits=settings.limits), {one.name: one.value(settings) for one in made_with})
    session = Session(bare, engine, front)
    header = {"msg_id": secrets.token_hex(16), "msg_type": "execute_request", "session": "doctor", "version": "5.4"}
    header |= {"username": "", "date": "2000-01-01T00:00:00Z"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    try:
        session.submit(Message(channel="shell", header=header, content=content), b"doctor")
        async with asyncio.timeout(settings.limits.start_timeout + 5):
            await front.done.wait()
    except TimeoutError as error:
        raise session.failure or SandboxDied(EndCode.NO_REPORT, "the first cell has no answer") from error
    finally:
        await session.close()
    if session.failure is not None and front.status != "ok":
        raise session.failure
    return front.shown if front.status == "ok" else f"{front.status}: {front.shown}"


class _Front:
    """A front end that waits for one reply and for idle, which come in either order."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.shown = ""
        self.status = ""
        self._idle = False

    def deliver(self, message: Message, client: bytes | None) -> None:
        content: dict[str, Any] = dict(message.content)
        if message.type == "execute_result":
            self.shown = str(content.get("data", {}).get("text/plain", ""))
        elif message.type == "execute_reply":
            self.status = str(content.get("status"))
            if self.status != "ok":
                self.shown = f"{content.get('ename')}: {content.get('evalue')}"
        elif message.type == "status":
            self._idle = content.get("execution_state") == "idle"
        if self.status and self._idle:
            self.done.set()

    def drain(self) -> None:
        """There is nothing to read from anyone."""
