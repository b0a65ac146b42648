"""What a kernel's sockets hold for clients: no more than is bounded, whoever does not read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from sandbox_kernel.core.model import Message
from sandbox_kernel.kernel import sockets

MIB = 1 << 20
MANY = 64
"""Messages of a megabyte: more than the system's own buffers hold."""


def stream(text: str) -> Message:
    return Message(channel="iopub", header={"msg_type": "stream"}, content={"name": "stdout", "text": text})


async def publish(folder: Path, *, reads: bool) -> tuple[list[str], int]:
    """Return what was noted while many large messages were sent to one client, and how many small ones it got then."""
    connection: dict[str, Any] = {"transport": "ipc", "ip": str(folder / "k"), "key": "secret"}
    connection |= {
        f"{name}_port": number for number, name in enumerate(("shell", "control", "stdin", "iopub", "hb"), 1)
    }
    noted: list[str] = []
    front = sockets.FrontSockets(
        connection, lambda *_: None, lambda event, **_: noted.append(event), message_bytes=MIB, anybody=True
    )
    front.listen()
    context = zmq.asyncio.Context()
    client = context.socket(zmq.SUB)
    client.rcvhwm = 1
    client.subscribe(b"")
    client.connect(f"ipc://{folder / 'k'}-4")
    try:
        await client.recv_multipart()  # the welcome
        for _ in range(MANY):
            front.send(stream("x" * MIB), None)
            if reads:
                await client.recv_multipart()
        front.send(stream("small"), None)
        small = 0
        while not small:
            small += b"small" in (await client.recv_multipart())[-1]
        return noted, small
    finally:
        client.close(linger=0)
        context.term()
        front.close()
        await asyncio.to_thread(front.destroy)


async def test_a_client_that_does_not_read_costs_a_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statuses and replies still wait for it, and it gets them when it reads again."""
    monkeypatch.setattr(sockets, "WAITING_BYTES", 8 * MIB)
    noted, small = await publish(tmp_path, reads=False)
    assert set(noted) == {"lost"}
    assert MANY // 2 < len(noted) < MANY
    assert small == 1


async def test_control_a_client_that_reads_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "WAITING_BYTES", 8 * MIB)
    assert await publish(tmp_path, reads=True) == ([], 1)
