"""The host's end of further agents in one container, against a container that says what it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.container import flow, wire
from sandbox_kernel.core.errors import EngineError, SandboxDied, WireError
from sandbox_kernel.core.model import ExitReason
from sandbox_kernel.plugins.contexts.nested_agents import MAX_NESTED, NestedAgentLinks, NestedPipe


class Link:
    """A link that keeps what is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.asked: list[str] = []
        self.killed = 0
        self.answers: dict[str, dict[str, Any]] = {}
        self.container: Any = SimpleNamespace(id="c", held=True, kill=self.kill, wait=self.wait)

    def send(self, kind: int, parts: Sequence[bytes]) -> None:
        assert kind == wire.NESTED
        self.sent.append(list(parts))

    def tell(self, op: str, **fields: Any) -> None:
        self.asked.append(op)

    async def ask(
        self, op: str, data: bytes = b"", *, timeout: float = 30, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        self.asked.append(op)
        return self.answers.get(op, {"ok": True}), b""

    async def kill(self) -> None:
        self.killed += 1

    async def wait(self) -> ExitReason:
        return ExitReason(kind="out_of_memory")


async def opened() -> tuple[Link, NestedAgentLinks, NestedPipe]:
    link = Link()
    agents = NestedAgentLinks(link)
    return link, agents, await agents.open({})


HOSTILE: dict[str, Sequence[list[bytes]]] = {
    "of none": [flow.data_frame(2, b"x")],
    "over its window": [flow.data_frame(1, b"x" * flow.CHUNK)] * 3,
    "credit that nobody took": [flow.frame(flow.CREDIT, 1, 1)],
    "after its end": [flow.frame(flow.END, 1), flow.data_frame(1, b"x")],
    "opened from inside": [flow.frame(flow.OPEN, 1)],
    "a word of connections": [flow.frame(flow.ALLOW, 0, 1)],
    "no head": [[b"x"]],
    "nothing": [[]],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_no_agent_sends_ends_the_container(case: str) -> None:
    async def take() -> None:
        _, agents, _ = await opened()
        for parts in HOSTILE[case]:
            agents.take(parts)

    with pytest.raises(WireError):
        asyncio.run(take())


def test_what_an_agent_sends_arrives_and_is_given_credit_for() -> None:
    async def receive() -> None:
        link, agents, pipe = await opened()
        for _ in range(8):
            for piece in (b"a" * flow.CHUNK, b"b"):
                agents.take(flow.data_frame(1, piece))
            assert await pipe.receive() == b"a" * flow.CHUNK + b"b"
        given = sum(flow.parse(parts)[2] for parts in link.sent)
        assert given > 7 * flow.CHUNK

    asyncio.run(receive())


def test_no_more_is_sent_than_there_is_credit_for() -> None:
    async def send() -> None:
        link, agents, pipe = await opened()
        sending = asyncio.create_task(pipe.send(b"x" * 2 * flow.WINDOW))
        await asyncio.sleep(0)
        sent = sum(len(parts[1]) for parts in link.sent)
        assert sent == flow.WINDOW
        assert pipe.offer(b"y") == 0, "another one is sending"
        agents.take(flow.frame(flow.CREDIT, 1, flow.WINDOW))
        await sending
        assert sum(len(parts[1]) for parts in link.sent) == 2 * flow.WINDOW

    asyncio.run(send())


def test_little_pieces_take_little_memory() -> None:
    async def receive() -> None:
        _, agents, pipe = await opened()
        for _ in range(20_000):
            agents.take(flow.data_frame(1, b"x"))
        assert len(pipe._came) < 20  # noqa: SLF001
        assert await pipe.receive() == b"x" * 20_000

    asyncio.run(receive())


def test_its_end_is_told_apart_from_the_container_s() -> None:
    async def ends() -> tuple[str, str]:
        link, agents, pipe = await opened()
        other = await agents.open({})
        agents.take(flow.frame(flow.END, 1))
        assert await pipe.receive() == b""
        with pytest.raises(EngineError):
            await pipe.send(b"x")
        agents.abandon()
        assert await other.receive() == b""
        assert link.killed == 0
        return (await pipe.wait()).kind, (await other.wait()).kind

    assert asyncio.run(ends()) == ("nested_ended", "out_of_memory")


def test_one_whose_processes_stay_ends_its_container() -> None:
    async def kill(answer: dict[str, Any]) -> int:
        link, _, pipe = await opened()
        link.answers["nested.close"] = answer
        await pipe.kill()
        await pipe.kill()
        return link.killed

    assert asyncio.run(kill({"ok": False})) == 1
    assert asyncio.run(kill({"ok": "yes"})) == 1
    assert asyncio.run(kill({"ok": True})) == 0


def test_there_are_so_many_and_no_more() -> None:
    async def many() -> None:
        link = Link()
        agents = NestedAgentLinks(link)
        for _ in range(MAX_NESTED):
            await agents.open({})
        with pytest.raises(SandboxDied):
            await agents.open({})
        assert link.asked.count("ship") == 1

    asyncio.run(many())


def test_one_that_does_not_start_says_why() -> None:
    async def refused() -> None:
        link = Link()
        link.answers["nested.open"] = {"ok": False, "message": "no \x1b[31mroom"}
        with pytest.raises(SandboxDied, match=r"more kernel: no .*room") as caught:
            await NestedAgentLinks(link).open({})
        assert "\x1b" not in str(caught.value)

    asyncio.run(refused())


@pytest.mark.parametrize("said", [None, 5, {"a": 1}, "deep"], ids=repr)
async def test_an_agent_that_does_not_start_may_say_anything_of_it(said: Any) -> None:
    """A tree of a thousand levels parses, and does not end when it is written out as text."""
    deep: Any = []
    for _ in range(1_100):
        deep = [deep]
    link = Link()
    link.answers["nested.open"] = {"ok": False, "message": deep if said == "deep" else said}
    with pytest.raises(SandboxDied, match="did not say why"):
        await NestedAgentLinks(link).open({})
