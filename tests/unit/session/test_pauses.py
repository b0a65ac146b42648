"""Writing a sandbox down between two messages: the pauses are real, and the container and its link are made."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.abilities import Ability, Ask
from sandbox_kernel.plugins.api import NotStill, NotWhole
from sandbox_kernel.session.pauses import MAX_TRIES, Pauses


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

    async def save(self, fd: int, ask: Ask) -> dict[str, Any]:
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

    async def ask_held(self, op: str) -> Any: ...


def pauses_of(link: Link, *beside: Link) -> Pauses:
    """Return those of a session with no cell; `beside` are the agents beside its kernel's."""
    requests: Any = SimpleNamespace(queue=SimpleNamespace(active=False, listeners=[]), thaw=lambda: None)
    return Pauses(
        Settings(),
        link.container,  # type: ignore[arg-type]
        requests,
        lambda event: None,
        link=lambda: link,  # type: ignore[arg-type,return-value]
        ready=lambda: True,
        touch=lambda: None,
        beside=lambda: [(requests, one) for one in beside],  # type: ignore[misc]
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state"


async def saved(pauses: Pauses, file: Path) -> tuple[dict[str, Any], bytes]:
    """Return what is to be known of it, and what was written."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        return await pauses.save(fd), os.pread(fd, 100, 0)
    finally:
        os.close(fd)


async def test_one_that_met_a_message_is_begun_again_from_an_empty_file(file: Path) -> None:
    link = Link(cut=MAX_TRIES - 1)
    pauses = pauses_of(link)
    assert await saved(pauses, file) == ({"saved": MAX_TRIES}, b"state")
    assert (link.is_held, link.container.paused, pauses.is_saving) == (False, False, False)


async def test_one_that_does_not_stop_to_speak_is_refused(file: Path) -> None:
    with pytest.raises(NotStill, match="does not stop to speak"):
        await saved(pauses_of(Link(cut=100)), file)


async def test_what_failed_goes_on(file: Path) -> None:
    link = Link()
    link.container.fails = True
    pauses = pauses_of(link)
    with pytest.raises(EngineError, match="the disk is gone"):
        await saved(pauses, file)
    assert (link.is_held, link.container.paused, pauses.is_saving) == (False, False, False)


async def test_another_kernel_beside_it_is_a_part_that_would_be_missing(file: Path) -> None:
    await saved(pauses_of(Link()), file)
    with pytest.raises(NotWhole, match="contexts besides its own kernel"):
        await saved(pauses_of(Link(), Link()), file)
