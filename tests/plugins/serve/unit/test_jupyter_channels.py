"""One WebSocket of Jupyter's wire, without a sandbox: what it is sent, and what ends it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.serve.jupyter import channels as jupyter_channels
from sandbox_kernel.plugins.serve.jupyter import front as jupyter_front
from sandbox_kernel.plugins.serve.jupyter.channels import Channels
from sandbox_kernel.plugins.serve.jupyter.messages import REFUSED, V1, Closed, Outgoing
from sandbox_kernel.plugins.serve.tenants import ServeLimits, Tenants
from tests.plugins.serve.stand_ins import MINE, Served, running
from tests.support.patience import until, within


class Socket:
    """A `WebSocket` of a client that says nothing, and reads while `reads` is set."""

    def __init__(self, agent: str = "", subprotocols: tuple[str, ...] = ()) -> None:
        self.scope = {"subprotocols": subprotocols}
        self.headers = {"user-agent": agent}
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()

    async def accept(self, subprotocol: str | None) -> None:
        self.subprotocol = subprotocol

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send(self, message: dict[str, Any]) -> None:
        await self.reads.wait()
        self.sent.append(message)


class Front:
    """The sandbox's."""

    def __init__(self) -> None:
        self.server = self

    def add(self, client: object) -> None: ...
    def remove(self, client: object) -> None: ...
    def say_busy(self) -> None: ...


def channels(monkeypatch: pytest.MonkeyPatch, socket: Socket) -> Channels:
    monkeypatch.setattr(jupyter_front, "front_of", lambda lease: Front())
    tenants = Tenants({}, ServeLimits())
    lease: Any = SimpleNamespace(tenant=SimpleNamespace(name="ann"), is_there=True)
    return Channels(socket, tenants, lease)  # type: ignore[arg-type]


def message(size: int = 1, *buffers: bytes) -> Outgoing:
    header = {"msg_id": "m", "msg_type": "comm_msg"}
    return Outgoing(Message(channel="iopub", header=header, content={"x": "y" * size}, buffers=buffers))


async def sent(monkeypatch: pytest.MonkeyPatch, socket: Socket, *messages: Outgoing) -> list[Any]:
    """Return what a client is sent of messages, in which form."""
    one = channels(monkeypatch, socket)
    socket.reads.set()
    serving = asyncio.create_task(one.serve())
    for each in messages:
        one.send(each)
    await until(lambda: socket.sent, 10)
    serving.cancel()
    await asyncio.wait({serving})
    return [found.get("text") or found.get("bytes") for found in socket.sent]


async def test_a_jupyter_server_between_gets_no_bytes_which_it_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    both = message(1, b"buffer"), message()
    assert [type(one) for one in await sent(monkeypatch, Socket("Tornado/6.5"), *both)] == [str]
    assert [type(one) for one in await sent(monkeypatch, Socket("Mozilla"), *both)] == [bytes, str]
    for agent in ("Tornado/6.5", "Mozilla"):
        socket = Socket(agent, (V1,))
        assert [type(one) for one in await sent(monkeypatch, socket, *both)] == [bytes, bytes]
        assert socket.subprotocol == V1


@pytest.mark.parametrize(("number", "size"), [(100, 1 << 20), (jupyter_channels.MAX_UNSENT_MESSAGES + 2, 1)])
async def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch, number: int, size: int) -> None:
    one = channels(monkeypatch, Socket())
    serving = asyncio.create_task(one.serve())
    large = message(size)
    for _ in range(number):
        one.send(large)
    async with within(10):
        with pytest.raises(Closed, match="reads too slowly"):
            await serving


async def test_a_message_larger_than_what_may_wait_is_sent_to_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = await sent(monkeypatch, Socket(), message(jupyter_channels.MAX_UNSENT + 1))
    assert len(text) > jupyter_channels.MAX_UNSENT


async def test_one_message_that_is_not_taken_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyter_channels, "READER_SECONDS", 0.05)
    one = channels(monkeypatch, Socket())
    serving = asyncio.create_task(one.serve())
    one.send(message())
    async with within(10):
        with pytest.raises(Closed, match="reads too slowly"):
            await serving


async def test_a_reason_of_wide_letters_is_cut_to_the_room_that_a_close_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyter_front, "front_of", lambda lease: Front())
    header = {"msg_id": "1", "msg_type": "execute_request"}
    improper = orjson.dumps({"channel": "😀" * 40, "header": header}).decode()
    async with running(Served().app) as (port, _), within(10):
        address = f"ws://127.0.0.1:{port}/jupyter/api/kernels/s1/channels"
        async with connect(address, additional_headers={"X-API-Key": MINE}) as client:
            await client.send(improper)
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == REFUSED
    assert closed.value.rcvd.reason == "no channel for clients: " + "😀" * 24
