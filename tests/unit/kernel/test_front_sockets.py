"""What a kernel's sockets take from clients, and hold for them: no more than is bounded, whoever does not read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session

from sandbox_kernel.core.model import Message
from sandbox_kernel.kernel import front_sockets
from tests.support.kernels import eventually
from tests.support.patience import within

MIB = 1 << 20
MANY, LARGE = 256, MIB // 4
"""So many messages of so many bytes: more than the system's own buffers hold. Of those that a client has read, pyzmq
says so a little later, so the bound is many of them."""
STATUS = Message(channel="iopub", header={"msg_type": "status"}, content={"execution_state": "idle"})


def stream(text: str, *buffers: bytes) -> Message:
    content = {"name": "stdout", "text": text}
    return Message(channel="iopub", header={"msg_type": "stream"}, content=content, buffers=buffers)


FLOODS = {
    "large": (MANY, stream("x" * LARGE)),
    "large, with a small end": (MANY, stream("x" * LARGE, b"x")),
    "large, with an empty end": (MANY, stream("x" * LARGE, b"")),
    "large at the end": (MANY, stream("x", b"x" * LARGE)),
    "just not large": (MANY * 4, stream("x" * (LARGE // 4 - 1_000))),
    "small": (MANY * 16, stream("x" * (LARGE // 16))),
}


def connection_file(folder: Path) -> dict[str, Any]:
    connection: dict[str, Any] = {"transport": "ipc", "ip": str(folder / "k"), "key": "secret"}
    ports = {f"{name}_port": number for number, name in enumerate(("shell", "control", "stdin", "iopub", "hb"), 1)}
    return connection | ports


def front_at(folder: Path, noted: list[str]) -> front_sockets.FrontSockets:
    front = front_sockets.FrontSockets(
        connection_file(folder),
        lambda *_: None,
        lambda event: noted.append(event.name),
        message_bytes=MIB,
        anybody=True,
    )
    front.listen()
    return front


async def publish(folder: Path, flood: str, *, reads: bool) -> tuple[list[str], int]:
    """Return what was noted while many messages were sent to one client, and how many statuses it got then."""
    many, message = FLOODS[flood]
    noted: list[str] = []
    front = front_at(folder, noted)
    context = zmq.asyncio.Context()
    client = context.socket(zmq.SUB)
    client.rcvhwm = 1
    client.subscribe(b"")
    client.connect(f"ipc://{folder / 'k'}-4")
    try:
        await client.recv_multipart()  # the welcome
        for number in range(many):
            front.send(message, None)
            if reads:
                await client.recv_multipart()
                # What it has read counts as read when pyzmq's own thread has had its turn.
                if number % 16 == 0 and front._published:  # noqa: SLF001
                    await asyncio.to_thread(front._published[-1][0].wait, 60)  # noqa: SLF001
        front.send(STATUS, None)
        small = 0
        while not small:
            small += b"idle" in (await client.recv_multipart())[-1]
        return noted, small
    finally:
        client.close(linger=0)
        context.term()
        front.close()
        await asyncio.to_thread(front.destroy)


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_client_that_does_not_read_costs_a_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    """Every message counts, of whatever size and in whatever parts. Statuses and replies still wait for the client."""
    monkeypatch.setattr(front_sockets, "WAITING_BYTES", 8 * MIB)
    noted, statuses = await publish(tmp_path, flood, reads=False)
    many, _ = FLOODS[flood]
    assert set(noted) == {"lost"}
    assert min(many // 2, front_sockets.MAX_NOTED - 1) < len(noted) < many
    assert statuses == 1


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
async def test_control_a_client_that_reads_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    monkeypatch.setattr(front_sockets, "WAITING_BYTES", 8 * MIB)
    assert await publish(tmp_path, flood, reads=True) == ([], 1)


async def test_a_request_passes_once_and_with_the_key_only(tmp_path: Path) -> None:
    """It is said by a code why the others do not."""
    came: list[str] = []
    noted: list[str] = []
    all_came = asyncio.Event()

    def take(message: Message, _client: bytes) -> None:
        came.append(message.id)
        if message.id == "last":
            all_came.set()

    front = front_sockets.FrontSockets(
        connection_file(tmp_path),
        take,
        lambda event: noted.append(event.line()["code"]),
        message_bytes=MIB,
        anybody=True,
    )
    front.listen()
    context = zmq.asyncio.Context()
    client = context.socket(zmq.DEALER)
    client.connect(f"ipc://{tmp_path / 'k'}-1")
    signing = Session(key=b"secret")

    try:
        for parts in (
            request("first", signing),
            request("first", signing),
            request("forged", Session(key=b"another key")),
            [*request("nested", signing)[:2], b"[" * 5000],
            [b"garbage"],
            request("last", signing),
        ):
            await client.send_multipart(parts)
        async with within(30):
            await all_came.wait()
        assert came == ["first", "last"]
        assert noted == ["sent-twice", "wrong-signature", "not-a-request", "not-a-request"]
    finally:
        client.close(linger=0)
        context.term()
        front.close()
        await asyncio.to_thread(front.destroy)


READY = b"\x05READY" + b"\x0bSocket-Type" + b"\0\0\0\x06DEALER"


def greeting(
    mechanism: bytes = b"NULL", version: bytes = b"\x03\x00", signature: bytes = b"\xff" + b"\0" * 8 + b"\x7f"
) -> bytes:
    return signature + version + mechanism.ljust(20, b"\0") + b"\0" * 32


def ready(identity: bytes = b"") -> bytes:
    named = READY + (b"\x08Identity" + len(identity).to_bytes(4, "big") + identity if identity else b"")
    return (b"\x04" + bytes([len(named)]) if len(named) < 256 else b"\x06" + len(named).to_bytes(8, "big")) + named


STRANGE = {
    "nothing": b"",
    "half a greeting": greeting()[:20],
    "another mechanism": greeting(b"CURVE") + ready(),
    "no mechanism": greeting(b"") + ready(),
    "another protocol": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n" * 3,
    "no end of its hello": greeting() + b"\x06" + (1 << 62).to_bytes(8, "big") + READY,
    "a name without an end": greeting() + ready(b"x" * 60_000),
    "a name of the socket's own": greeting() + ready(b"\0abcd"),
    "a message before its hello": greeting() + b"\0\x04spam" * 100,
    "half a message": greeting() + ready() + b"\x01\x04spam",
    "empty parts": greeting() + ready() + b"\x01\0" * 10_000 + b"\0\0",
}


def request(name: str, session: Session) -> list[bytes]:
    header = {"msg_id": name, "msg_type": "execute_request"}
    body = [json.dumps(part).encode() for part in (header, {}, {}, {"code": "1"})]
    return [b"<IDS|MSG>", session.sign(body), *body]


def frames(parts: list[bytes]) -> bytes:
    last = len(parts) - 1
    return b"".join(bytes([number < last, len(part)]) + part for number, part in enumerate(parts))


async def test_peers_that_say_anything_keep_nobody_out(tmp_path: Path) -> None:
    """Five of each kind stay connected to each socket that takes requests, while a client sends one to each.

    The control is the client: it says its hello and its request over the same kind of connection, word for word.
    """
    came: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    front = front_sockets.FrontSockets(
        connection_file(tmp_path),
        lambda message, client: came.put_nowait((message.id, client)),
        lambda _: None,
        message_bytes=MIB,
        anybody=True,
    )
    front.listen()
    with contextlib.ExitStack() as peers:
        try:
            for channel in (1, 2, 3):
                for data in STRANGE.values():
                    for _ in range(5):
                        peer = peers.enter_context(socket.socket(socket.AF_UNIX))
                        peer.settimeout(10)
                        await asyncio.to_thread(peer.connect, str(tmp_path / f"k-{channel}"))
                        with contextlib.suppress(ConnectionError):
                            await asyncio.to_thread(peer.sendall, data)
                client = peers.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(str(tmp_path / f"k-{channel}"))
                body = frames(request(f"on {channel}", Session(key=b"secret")))
                await asyncio.to_thread(client.sendall, greeting() + ready(b"client"))
                client.settimeout(30)
                heard = b""
                while b"READY" not in heard:
                    piece = await asyncio.to_thread(client.recv, 1000)
                    assert piece, "it was ended"
                    heard += piece
                await asyncio.to_thread(client.sendall, body)
                async with within(30):
                    assert await came.get() == (f"on {channel}", b"client")
            assert came.empty()
        finally:
            front.close()
            await asyncio.to_thread(front.destroy)


async def test_it_knows_how_many_listen(tmp_path: Path) -> None:
    """Each subscription counts, also the second to the same, until its client is gone."""
    front = front_at(tmp_path, [])
    context = zmq.asyncio.Context()
    clients = [context.socket(zmq.SUB) for _ in range(3)]
    try:
        for client in clients:
            client.subscribe(b"")
            client.connect(f"ipc://{tmp_path / 'k'}-4")
        async with within(30):
            await front.until_heard_by(3)
            assert front.listeners == 3
            clients[0].close(linger=0)
            await asyncio.to_thread(eventually, lambda: front.listeners == 2, 10, "the client that left is not counted")
    finally:
        for client in clients:
            client.close(linger=0)
        context.term()
        front.close()
        await asyncio.to_thread(front.destroy)
