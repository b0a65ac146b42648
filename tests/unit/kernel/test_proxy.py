"""The entry point of a Jupyter kernel: whatever fails behind it, who asked is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Message
from sandbox_kernel.kernel.proxy import Proxy, StartupGate
from sandbox_kernel.plugins.api import SessionEvent
from tests.support.patience import within

QUESTIONS = [
    ("usage_request", "session", "usage"),
    ("interrupt_request", "session", "interrupt"),
    ("kernel_info_request", "session", "settled"),
    ("sandbox_file_list_request", "files", "answer"),
]


class Wire:
    """What the sockets would have sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.idle = asyncio.Event()
        self.replied = asyncio.Event()

    def send(self, message: Message, client: bytes | None) -> None:
        self.sent.append(message)
        if message.content.get("execution_state") == "idle":
            self.idle.set()
        if message.type.endswith("_reply"):
            self.replied.set()

    def said(self) -> list[tuple[str, Any]]:
        return [(one.type, one.content.get("execution_state") or one.content["status"]) for one in self.sent]


def request(kind: str) -> Message:
    header = {"msg_id": "1", "msg_type": kind, "session": "s", "username": "", "date": "", "version": "5.4"}
    return Message(channel="control", header=header)


@dataclass
class Listener:
    hear: Callable[[SessionEvent], None]


@pytest.mark.parametrize(("kind", "part", "method"), QUESTIONS)
async def test_a_request_whose_handling_fails_gets_its_reply_and_idle(
    kind: str, part: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, wire = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, ConfigurationError("no sandbox")), Wire()
    proxy.sockets = wire  # type: ignore[assignment]
    noted: list[str] = []
    proxy.session.services.listen(Listener(lambda event: noted.append(event.name)))

    async def fails(*arguments: object) -> object:
        raise RuntimeError("something that nobody thought of")

    monkeypatch.setattr(getattr(proxy, part), method, fails)
    proxy.receive(request(kind), b"client")
    async with within(20):
        await wire.idle.wait()
    reply = kind.replace("_request", "_reply")
    assert wire.said() == [("status", "busy"), (reply, "error"), ("status", "idle")]
    assert "RuntimeError" in wire.sent[1].content["ename"]
    assert noted == ["defect"]
    await proxy.session.close()


async def test_control_the_same_request_that_does_not_fail_is_ok(tmp_path: Path) -> None:
    proxy, wire = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, ConfigurationError("no sandbox")), Wire()
    proxy.sockets = wire  # type: ignore[assignment]
    proxy.receive(request("usage_request"), b"client")
    async with within(20):
        await wire.idle.wait()
    assert wire.said() == [("status", "busy"), ("usage_reply", "ok"), ("status", "idle")]
    await proxy.session.close()


async def test_how_the_sandbox_stands_is_said_without_statuses_and_starts_nothing(tmp_path: Path) -> None:
    """A page asks it every few seconds: the kernel is not busy for that, and its server may cull it."""
    proxy, wire = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, ConfigurationError("no sandbox")), Wire()
    proxy.sockets = wire  # type: ignore[assignment]
    proxy.receive(request("sandbox_state_request"), b"client")
    async with within(20):
        await wire.replied.wait()
    proxy.receive(request("usage_request"), b"client")
    async with within(20):
        await wire.idle.wait()
    assert wire.said()[0] == ("sandbox_state_reply", "ok")
    assert wire.said()[1:] == [("status", "busy"), ("usage_reply", "ok"), ("status", "idle")]
    content = wire.sent[0].content
    assert (content["state"], content["idle_seconds"], content["memory_bytes"]) == ("none", None, None)
    assert proxy.session.is_new
    await proxy.session.close()


def broken(request: Message, client: bytes, seconds: float | None = None) -> None:
    raise RuntimeError("something that nobody thought of")


async def test_a_cell_that_the_session_cannot_even_take_is_answered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, wire = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, ConfigurationError("no sandbox")), Wire()
    proxy.sockets = wire  # type: ignore[assignment]
    proxy.gate.open()
    monkeypatch.setattr(proxy.session, "submit", broken)
    proxy.receive(replace(request("execute_request"), channel="shell"), b"client")
    assert wire.said() == [("execute_reply", "error"), ("status", "idle")]
    assert "RuntimeError" in wire.sent[0].content["ename"]
    await proxy.session.close()


async def test_an_early_request_waits_for_those_who_listened_before() -> None:
    taken: list[bytes] = []
    heard, asked = asyncio.Event(), asyncio.Event()
    gate = StartupGate(lambda _, client: taken.append(client))
    gate.listeners = 2

    async def until_heard_by(listeners: int) -> None:
        assert listeners == 2
        asked.set()
        await heard.wait()

    waiting = asyncio.create_task(gate.open_once_heard(until_heard_by))
    await asked.wait()
    assert gate.holds(request("execute_request"), b"first")
    assert gate.holds(request("execute_request"), b"second")
    assert taken == []
    heard.set()
    await waiting
    assert taken == [b"first", b"second"]
    assert not gate.holds(request("execute_request"), b"third")


async def test_who_does_not_come_again_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.kernel.proxy.LISTENERS_SECONDS", 0.05)
    taken: list[bytes] = []
    gate = StartupGate(lambda _, client: taken.append(client))
    assert gate.holds(request("execute_request"), b"client")
    never = asyncio.Event()
    async with within(20):
        await gate.open_once_heard(lambda _: never.wait())  # type: ignore[arg-type,return-value]
    assert taken == [b"client"]


@pytest.mark.parametrize(("kind", "channel"), [("execute_request", "control"), ("usage_request", "shell")])
async def test_a_request_on_a_channel_that_is_not_for_it_is_answered(kind: str, channel: Any, tmp_path: Path) -> None:
    """Ipykernel's own suite sends an execute_request on control, and waits."""
    proxy, wire = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, ConfigurationError("no sandbox")), Wire()
    proxy.sockets = wire  # type: ignore[assignment]
    noted: list[Any] = []
    proxy.session.services.listen(Listener(lambda event: noted.append(event.fields.get("code"))))
    proxy.receive(replace(request(kind), channel=channel), b"client")
    async with within(20):
        await wire.idle.wait()
    reply = kind.replace("request", "reply")
    assert wire.said() == [("status", "busy"), (reply, "error"), ("status", "idle")]
    assert wire.sent[1].channel == channel
    assert f"{kind} is not taken on {channel}" in wire.sent[1].content["evalue"]
    assert noted == ["wrong-channel"]
    await proxy.session.close()
