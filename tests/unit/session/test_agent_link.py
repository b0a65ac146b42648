"""The host's end of the wire: what it says when a container goes, is silent, or meets a defect of ours."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ConfigurationError, WireError
from sandbox_kernel.plugins import index
from sandbox_kernel.session import agent_link as module
from sandbox_kernel.session.agent_link import Link
from tests.support.patience import within


class Container:
    """Takes what is sent, and says nothing until its end."""

    id = "c"
    image_id = None
    held = True
    introduced = None

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()
        self.killed = asyncio.Event()
        self.fault: Exception | None = None

    def offer(self, data: bytes) -> int:
        self.asked.set()
        return 0 if self.fault is not None else len(data)

    async def send(self, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault

    async def receive(self, minimum: int = 1) -> bytes:
        await self.ended.wait()
        return b""

    async def kill(self) -> None:
        self.killed.set()
        self.ended.set()


@contextlib.asynccontextmanager
async def linked(container: Any) -> Any:
    link = Link(container, 4 << 20)

    async def read() -> None:
        async for _ in link.frames():
            pass

    reading = asyncio.create_task(read())
    try:
        async with within(20):
            await container.asked.wait()
            yield link, reading
    finally:
        await link.close()
        reading.cancel()


async def test_a_question_that_the_container_s_end_leaves_open_is_not_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads asks the engine for the reason; the question whether it is there would hide that."""
    monkeypatch.setattr(module, "PING_SECONDS", 0.0)
    container = Container()
    async with linked(container) as (link, reading):
        container.ended.set()
        await reading
        await asyncio.sleep(0)
        await link.close()
    assert (link.failure, container.killed.is_set()) == (None, False)


async def test_control_a_container_that_does_not_answer_is_ended_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_SECONDS", 0.0)
    monkeypatch.setattr(Link.ask, "__kwdefaults__", {"timeout": 0.05})
    container = Container()
    async with linked(container) as (link, reading):
        await container.killed.wait()
        await reading
    assert link.failure == (EndCode.SANDBOX_SILENT, "the sandbox did not answer 'ping'")


async def test_a_defect_of_ours_in_the_link_ends_the_container_and_is_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container = Container()
    container.fault = ValueError("something that nobody thought of")
    monkeypatch.setattr(module, "PING_SECONDS", 0.0)
    async with linked(container) as (link, reading):
        await container.killed.wait()
        await reading
    assert "ValueError" in str(link.failure)


async def test_without_their_plugin_a_container_has_no_further_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "is_here", lambda name: name != "contexts")
    monkeypatch.setattr(module, "PING_SECONDS", 0.0)
    async with linked(Container()) as (link, _):
        with pytest.raises(WireError, match="a further agent, and has none"):
            link.take_nested([b"x"])
        with pytest.raises(ConfigurationError, match="the plugin contexts is not a part of this installation"):
            link.nested()
