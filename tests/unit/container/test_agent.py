"""The loop of the agent: what a kernel says leaves in turns, and nothing that has come waits for what may not come."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.container import agent, kernel_messages, process, wire
from sandbox_kernel.container.kernel import Kernel

HEADER = b'{"msg_type":"stream"}'


class Flood:
    """A channel that always has another message, or a number of them."""

    def __init__(self, left: float = float("inf"), size: int = 100_000) -> None:
        self.file, self.left, self.size, self.taken = -1, left, size, 0

    @property
    def ahead(self) -> int:
        return int(self.left > 0)

    def take(self) -> tuple[list[bytes], int] | None:
        if self.left <= 0:
            return None
        self.left -= 1
        self.taken += 1
        return [b"<IDS|MSG>", b"", HEADER, b"{}", b"{}", bytes(self.size)], self.size


def one_with(**channels: Flood) -> agent.Agent:
    sockets = {wire.CHANNELS[name]: channels.get(name, Flood(0)) for name in wire.CHANNELS}
    kernel: Any = SimpleNamespace(sockets=sockets, stderr=None, ready=True, number=1, spec=None)
    kernel.has_more = lambda: Kernel.has_more(kernel)
    return agent.Agent({"max_frame": 97 << 20}, cast("Kernel", kernel))


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
def test_a_flood_of_what_is_published_leaves_room_for_the_others(channel: str) -> None:
    published, reply = Flood(), Flood(1)
    one = one_with(iopub=published, **{channel: reply})
    assert one.kernel is not None
    one.hear(one.kernel, {})
    assert one.pending_bytes > agent.MAX_PENDING
    assert reply.taken == 1


def test_no_channel_has_room_without_end() -> None:
    one = one_with(iopub=Flood(), shell=Flood(), control=Flood(), stdin=Flood())
    assert one.kernel is not None
    for _ in range(10):
        one.hear(one.kernel, {})
    assert one.pending_bytes < 2 * agent.MAX_PENDING + 4 * 100_100


@pytest.mark.parametrize(
    ("left", "pending", "waits"),
    [(0, 0, True), (1, 0, False), (1, agent.MAX_PENDING + 1, True)],
    ids=["nothing has come", "something has come", "the host has no room for it"],
)
def test_it_waits_for_a_kernel_only_that_has_said_all(
    left: int, pending: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = one_with(iopub=Flood(left))
    one.pending_bytes, one.blocked = pending, pending > 0
    monkeypatch.setattr(process, "let_engine_read", lambda *_: None)
    pauses: list[float] = []

    def poll(pause: float) -> list[tuple[int, int]]:
        pauses.append(pause)
        raise InterruptedError

    never: Callable[..., None] = lambda *_: None  # noqa: E731
    one.poller = cast("Any", SimpleNamespace(poll=poll, register=never, unregister=never))
    with pytest.raises(InterruptedError):
        one.run(0, never)
    assert [pause > 0 for pause in pauses] == [waits]


def test_what_has_come_leaves_when_its_kernel_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    last = Flood(1000)
    one = one_with(iopub=last)
    kernel: Any = one.kernel
    kernel.close, kernel.tail = lambda: None, b""
    monkeypatch.setattr(os, "kill", lambda *_: None)
    one.release(kernel, 0)
    assert last.left == 0


@pytest.mark.parametrize(
    ("status", "asked", "waits"),
    [(signal.SIGKILL, False, True), (signal.SIGKILL, True, False), (11, False, False), (768, False, False)],
    ids=["killed by something else", "killed for the host", "a crash", "its own end"],
)
def test_a_kernel_is_said_to_be_killed_if_the_sandbox_is_not(
    status: int, asked: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends a sandbox process by process, the kernel first, is told as the end of the sandbox alone."""
    one = one_with()
    kernel: Any = one.kernel
    kernel.close, kernel.tail, kernel.pid, kernel.sockets = lambda: None, b"", 2, {}
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr(os, "waitpid", lambda *_: (2, status))

    def end_comes(_: float) -> None:
        raise SystemExit

    monkeypatch.setattr(time, "sleep", end_comes)
    if asked:
        one.command("stop_kernel", {}, b"")
    with pytest.raises(SystemExit) if waits else contextlib.nullcontext():
        one.reap()
    assert bool(one.pending) is not waits


def test_a_long_header_is_looked_through_by_nobody() -> None:
    """Item by item, as of a memory view, it took a second for 50 MB."""
    long: Any = memoryview(b'"execute_input"' + bytes(5000))
    assert not kernel_messages.precedes(wire.IOPUB, [long, b"{}", b"{}", b"{}"])
    assert kernel_messages.precedes(wire.IOPUB, [long[:100], b"{}", b"{}", b"{}"])
