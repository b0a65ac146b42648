"""Who is told of what in a session, and in which order: what a part raises is nobody else's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.events import ReapFailed, SessionEvent
from sandbox_kernel.core.model import Message, Settings
from sandbox_kernel.engines.preparations import Preparations
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import EndedCell, Plugin, SessionHandle, SessionService
from sandbox_kernel.session.plugin_parts import Services
from sandbox_kernel.session.requests.queue import PendingRequest


class Listens(SessionService):
    """Hears events, and fails if it is to."""

    def __init__(self, said: list[str], name: str, *, fails: bool = False) -> None:
        self.said, self.name, self.fails = said, name, fails

    def hear(self, event: SessionEvent) -> None:
        self.said.append(f"{self.name} hears {event.name} {event.room} {event.line()}")
        if self.fails:
            raise RuntimeError

    async def close(self) -> None:
        self.said.append(f"{self.name} ends")


class Records(Listens):
    """Writes cells down."""

    head = None

    def cell_begun(self) -> None:
        self.said.append("a cell begins")

    def cell_done(self, cell: EndedCell) -> None:
        self.said.append(f"{cell.code} {cell.begun} {cell.output_bytes}")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def services(said: list[str], monkeypatch: pytest.MonkeyPatch) -> Services:
    parts = (Records(said, "record"), Listens(said, "first", fails=True), Listens(said, "second"))

    def plugin(part: SessionService, name: str) -> Plugin:
        def service(settings: Settings, session: SessionHandle) -> SessionService:
            return part

        return Plugin(name=name, page="", service=service)

    monkeypatch.setattr(index, "services", lambda *asked: [plugin(part, part.name) for part in parts])
    session = SimpleNamespace(settings=replace(Settings()), id="1")
    return Services(cast("Any", session), Preparations(Settings()))


class Serves(SessionService):
    """Serves connections."""

    preamble = b""

    async def serve(self, stream: object, cell: object) -> None: ...


def test_connections_are_refused_where_what_carries_them_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Plugin(name="serves", page="", service=lambda settings, session: Serves())
    monkeypatch.setattr(index, "services", lambda *asked: [made])
    session = cast("Any", SimpleNamespace(settings=Settings(), id="1"))
    monkeypatch.setattr(index, "is_here", lambda name: name != "streams")
    with pytest.raises(ConfigurationError, match="the plugin streams is not a part of this installation"):
        Services(session, Preparations(Settings()))
    monkeypatch.setattr(index, "services", lambda *asked: [])
    assert Services(session, Preparations(Settings())).carrier is None  # the control


def test_who_writes_down_hears_last_and_ends_last(services: Services, said: list[str]) -> None:
    services.emit(ReapFailed(reason="x"))
    heard = "hears reap_failed reap_failed {'reason': 'x'}"
    assert said == [f"first {heard}", f"second {heard}", f"record {heard}"]
    said.clear()
    asyncio.run(services.close())
    assert said == ["first ends", "second ends", "record ends"]


def test_a_cell_is_written_down_before_its_content_is_gone(services: Services, said: list[str]) -> None:
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "", "date": "", "version": "5"}
    request = PendingRequest(Message(channel="shell", header=header, content={"code": "6 * 7"}), b"client", "shell")
    services.cell_begun()
    services.cell_done(request, None)
    assert said == ["a cell begins", "6 * 7 False 0"]
