"""Writing a sandbox down between two messages: the pauses are real, and the container and its link are made."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.core.errors import EngineError, FileRefused
from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.abilities import Ability
from sandbox_kernel.plugins.qemu.snapshots import capture
from sandbox_kernel.session.pauses import Pauses


class Machine:
    """A container that is written down as a few bytes."""

    abilities = frozenset(Ability)
    paused = False

    def __init__(self, link: Link) -> None:
        self._link = link
        self.saved = 0
        self.fails = False

    async def pause(self) -> None:
        self.paused = True

    async def resume(self) -> None:
        self.paused = False

    async def save(self, fd: int) -> dict[str, Any]:
        assert self._link.is_held
        self.paused, self.saved = True, self.saved + 1
        os.write(fd, b"state")
        if self.fails:
            raise EngineError("the disk is gone")
        return {"saved": self.saved}


class Link:
    """The way to it; `cut` is how often what came ended in the middle of a message."""

    is_held = False

    def __init__(self, cut: int = 0) -> None:
        self.container = Machine(self)
        self._cut = cut

    @property
    def pending(self) -> bool:
        self._cut -= 1
        return self._cut >= 0

    def hold(self) -> None:
        self.is_held = True

    def let_go_on(self) -> None:
        self.is_held = False

    async def quiet(self) -> None: ...


def session_with(link: Link) -> Any:
    """Return a session with no cell and nothing beside its kernel."""
    events: list[str] = []

    def emit(event: SessionEvent) -> None:
        events.append(event.name)

    requests: Any = SimpleNamespace(queue=SimpleNamespace(active=False, listeners=[]), thaw=lambda: None)
    made = Pauses(
        Settings(),
        link.container,  # type: ignore[arg-type]
        requests,
        emit,
        link=lambda: link,  # type: ignore[arg-type,return-value]
        ready=lambda: True,
        touch=lambda: None,
        beside=list,
    )
    return SimpleNamespace(pauses=made, requests=requests, beside=[], ready=True, emit=emit, events=events)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def saved(session: Any, file: Path) -> tuple[dict[str, Any], bytes]:
    """Return what is to be known of it, and what was written."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        return await capture.save(session, fd), os.pread(fd, 100, 0)
    finally:
        os.close(fd)


async def test_one_that_met_a_message_is_begun_again_from_an_empty_file(file: Path) -> None:
    link = Link(cut=capture.MAX_TRIES - 1)
    session = session_with(link)
    assert await saved(session, file) == ({"saved": capture.MAX_TRIES}, b"state")
    assert session.events == ["snapshot"]
    assert (link.is_held, link.container.paused, session.pauses.is_saving) == (False, False, False)


async def test_one_that_does_not_stop_to_speak_is_refused(file: Path) -> None:
    session = session_with(Link(cut=100))
    with pytest.raises(FileRefused, match="does not stop to speak"):
        await saved(session, file)
    assert session.events == []


async def test_what_failed_goes_on(file: Path) -> None:
    link = Link()
    link.container.fails = True
    session = session_with(link)
    with pytest.raises(EngineError, match="the disk is gone"):
        await saved(session, file)
    assert (link.is_held, link.container.paused, session.pauses.is_saving) == (False, False, False)


async def test_another_kernel_beside_it_is_a_part_that_would_be_missing(file: Path) -> None:
    session = session_with(Link())
    session.beside.append(SimpleNamespace(link=None, is_starting=False))  # it has ended
    await saved(session, file)
    session.beside.append(SimpleNamespace(link=Link(), is_starting=False))
    with pytest.raises(FileRefused, match="contexts besides its own kernel"):
        await saved(session, file)
