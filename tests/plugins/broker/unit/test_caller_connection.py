"""One connection to a broker, on a real socket: how long it may be there for nothing, and what it is there for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.plugins.broker import caller_connection
from sandbox_kernel.plugins.broker.caller_connection import CallerProcess
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.daemon import Broker
from tests.support.patience import within

SOON = 0.05


@contextlib.asynccontextmanager
async def a_caller(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[socket.socket]:
    """A connection that ends when it is used for nothing for a moment."""
    monkeypatch.setattr(caller_connection, "NEXT_SECONDS", SOON)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # as what listens has it
    theirs.setblocking(False)
    broker = Broker(cast("Any", SimpleNamespace(address="an engine")), Policy(everybody=Ceiling(own=True)))
    one = CallerProcess(broker, ours)
    try:
        yield theirs
    finally:
        one.hang_up()
        theirs.close()
        await broker.tasks.close()


async def heard(sock: socket.socket) -> Any:
    """Return what comes next, None at the end."""
    async with within(10):
        data = await asyncio.get_running_loop().sock_recv(sock, packets.MAX_BYTES)
    return json.loads(data) if data else None


async def is_quiet(sock: socket.socket, seconds: float) -> bool:
    """Return whether nothing comes within this time, nor the end."""
    reading = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(sock, packets.MAX_BYTES))
    done, _ = await asyncio.wait({reading}, timeout=seconds)
    reading.cancel()
    return not done


def say(sock: socket.socket, **said: Any) -> None:
    sock.send(json.dumps(said).encode())


class Slow:
    """An answer that takes as long as the test wants."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, *_: object) -> dict[str, Any]:
        self.asked.set()
        await self.go.wait()
        return {"slow": True}


async def test_a_connection_with_a_question_under_way_is_not_ended_for_another_that_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start can take longer than a connection may be idle: what was asked besides must not end it."""
    slow = Slow()
    monkeypatch.setitem(caller_connection.ANSWERS, "slow", slow)
    async with a_caller(monkeypatch) as sock:
        say(sock, op="slow", n=1)
        await slow.asked.wait()
        for number in (2, 3):
            say(sock, op="status", n=number)
            assert (await heard(sock))["n"] == number
        assert await is_quiet(sock, 4 * SOON)
        slow.go.set()
        assert await heard(sock) == {"slow": True, "n": 1}
        assert await heard(sock) is None  # and then nothing more is asked


@pytest.mark.parametrize(
    "said",
    [
        {"op": "status", "n": 1},
        {"op": "shown", "n": 1},
        {"op": "look", "n": 1},
        {"op": "connect", "n": 1, "name": "0" * 32, "take": False},
        {"op": "start", "n": 1},
        {"op": "start", "n": 1, "protocol": packets.VERSION, "spec": {}, "agent": ""},
        {"op": "adopt", "n": 1},
    ],
    ids=lambda said: f"{said['op']}-{len(said)}",
)
async def test_whatever_was_said_a_connection_for_nothing_has_an_end(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    """Answered, refused, improper or without an answer: it takes one of the places of its user."""
    async with a_caller(monkeypatch) as sock:
        say(sock, **said)
        if "n" in said:
            assert (await heard(sock))["n"] == 1
        assert await heard(sock) is None


async def test_each_answer_begins_the_time_for_the_next_question_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two questions at once begin it once: what the first of them set would end what comes later."""
    slow = Slow()
    async with a_caller(monkeypatch) as sock:
        say(sock, op="status", n=1)
        say(sock, op="status", n=2)
        assert {(await heard(sock))["n"] for _ in range(2)} == {1, 2}
        monkeypatch.setitem(caller_connection.ANSWERS, "slow", slow)
        say(sock, op="slow", n=3)
        await slow.asked.wait()
        assert await is_quiet(sock, 4 * SOON)
        slow.go.set()
        assert (await heard(sock))["n"] == 3
