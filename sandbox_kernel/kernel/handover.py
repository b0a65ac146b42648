"""A session's container given to the kernel process that follows this one, through a pipe holder, and taken from it.

What is handed over is the session's to say.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..core.helper_processes import start_helper
from ..engines.select import AUTO, make_engine, of_session
from . import pipe_holder
from .kept_ports import CHANNELS, NO_PORTS

if TYPE_CHECKING:
    from ..core.model import Settings
    from ..engines.inspectable import Inspectable
    from ..session.session import Session


PIPE = "pipe"


class Left(NamedTuple):
    """What a kernel process left for the next one."""

    files: dict[str, int]
    """Descriptors by name: the container's, and sockets on which the front end's clients knock."""
    container: dict[str, Any]
    plugins: dict[str, Any]
    """What plugins prepared for the container: it was made with that."""
    listeners: int
    """Subscriptions to what the process published; they come again in a moment."""
    engine: str = ""
    """The address of the container's engine."""

    @property
    def ports(self) -> dict[str, int]:
        """Sockets that listen, by channel: whoever connects meanwhile waits there, and finds no port closed."""
        return {channel: fd for channel, fd in self.files.items() if channel in CHANNELS}

    def adopted(self, session: Session) -> None:
        """Have a session go on with the container."""
        beside = {name: fd for name, fd in self.files.items() if name not in {PIPE, *CHANNELS}}
        session.adopt(self.files[PIPE], {**self.container, **beside})

    def close(self) -> None:
        """End the container, which nobody can serve."""
        for fd in self.files.values():
            os.close(fd)


def collect(settings: Settings, place: pipe_holder.MeetingPlace, *, wanted: bool = True) -> Left | None:
    """Return what was left at `place`. A container that is not `wanted`, or has other settings, ends."""
    left = pipe_holder.collect(place)
    if left is None:
        return None
    files, state = left
    listeners, engine = int(state.get("listeners", 0)), str(state.get("engine", ""))
    found = Left(files, state.get("container", {}), state.get("plugins", {}), listeners, engine)
    if wanted and PIPE in files and state.get("settings") == _digest(settings):
        return found
    found.close()
    return None


def engine_of(settings: Settings, left: Left | None) -> Inspectable:
    """Return the engine of what was left, which no other can go on with: "auto" may take another one by now."""
    if left is not None and left.engine and settings.engine == AUTO:
        settings = replace(settings, engine=left.engine)
    return make_engine(of_session(settings))


async def leave(
    session: Session,
    place: pipe_holder.MeetingPlace,
    plugins: Mapping[str, Any],
    *,
    listeners: int = 0,
    ports: Mapping[str, int] = NO_PORTS,
) -> int:
    """Leave the session's container at `place`, with a pipe holder, and return the number of its process.

    `plugins` is what only the two processes and the pipe holder get to know, in memory; `ports` are sockets that
    listen, and stay the caller's. Raises `SandboxError` or `OSError` if it cannot be left: it ends, then.
    """
    listener, path = pipe_holder.listen(place)
    with listener, contextlib.ExitStack() as undo:
        undo.callback(pipe_holder.forget, path)
        given = await session.park()
        try:
            known = {"settings": _digest(session.settings), "container": given.state, "plugins": dict(plugins)}
            engine = getattr(session.engine, "address", "")
            files = {PIPE: given.fd, **given.beside, **ports}
            state = json.dumps({**known, "listeners": listeners, "engine": engine}).encode()
            arguments = (str(listener.fileno()), path, *(f"{name}={fd}" for name, fd in files.items()))
            with _unnamed(private=any(plugins.values())) as memory:
                memory.write(state)
                kept = (listener.fileno(), *files.values())
                process = start_helper(pipe_holder.__file__, *arguments, stdin=memory.fileno(), files=kept)
            undo.pop_all()
        finally:
            given.close()
    return process.pid


def _unnamed(*, private: bool) -> IO[bytes]:
    """Return a file without a name: in memory, and on macOS on a disk. Raises `OSError` for `private` words there."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("state"), "wb", buffering=0)
    if private:
        raise OSError("here no file can be in memory alone, and keys of a session are written to no disk")
    import tempfile

    return tempfile.TemporaryFile(buffering=0)


def _digest(settings: Settings) -> str:
    return hashlib.sha256(repr(settings).encode()).hexdigest()
