"""The entry point of a Jupyter kernel: whatever fails behind it, who asked is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Message
from sandbox_kernel.kernel.front_sockets import FrontSockets
from sandbox_kernel.kernel.proxy import Proxy, StartupGate
from tests.support.kernel_checks import KernelChecks, Wired
from tests.support.patience import within
from tests.unit.kernel.test_front_sockets import MIB, connection_file


def request(kind: str, channel: Any = "shell") -> Message:
    header = {"msg_id": "1", "msg_type": kind, "session": "s", "username": "", "date": "", "version": "5.4"}
    return Message(channel=channel, header=header)


class Sockets(Wired):
    """A kernel process's own sockets, and a client of `jupyter_client`."""

    def __init__(self, proxy: Proxy, client: AsyncKernelClient) -> None:
        super().__init__(proxy.session, proxy.server, proxy.sockets, proxy.engine_address, proxy.deliver)
        self._client = client
        self._channels = {
            "shell": client.shell_channel,
            "control": client.control_channel,
            "iopub": client.iopub_channel,
        }
        self._coming: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def ask(self, kind: str, channel: str, content: dict[str, Any] | None = None) -> str:
        message = self._client.session.msg(kind, content or {})
        self._channels[channel].send(message)
        return str(message["header"]["msg_id"])

    async def next(self) -> tuple[str, dict[str, Any]]:
        for name, channel in self._channels.items():
            if name not in self._coming:
                self._coming[name] = asyncio.create_task(channel.get_msg())
        await asyncio.wait(self._coming.values(), return_when=asyncio.FIRST_COMPLETED)
        name = next(name for name, task in self._coming.items() if task.done())
        return name, self._coming.pop(name).result()

    def break_interrupt(self, monkeypatch: pytest.MonkeyPatch, broken: Callable[..., Any]) -> None:
        monkeypatch.setattr(self.session, "interrupt", broken)

    async def close(self) -> None:
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(*self._coming.values(), return_exceptions=True)


class TestSockets(KernelChecks):
    @pytest.fixture
    async def wired(self, tmp_path: Path) -> AsyncIterator[Wired]:
        connection = connection_file(tmp_path)
        proxy = Proxy(str(tmp_path / "connection.json"), connection, ConfigurationError("no sandbox"))
        sockets = FrontSockets(connection, proxy.receive, proxy.emit, message_bytes=MIB, anybody=True)
        proxy.serve(sockets)
        proxy.gate.open()
        sockets.listen()
        client = AsyncKernelClient()
        client.load_connection_info(cast("Any", connection))
        client.start_channels(hb=False)
        wired = Sockets(proxy, client)
        try:
            async with within(20):
                assert (await wired.next())[1]["msg_type"] == "iopub_welcome"
            yield wired
        finally:
            await wired.close()
            client.stop_channels()
            await proxy.server.close()
            await proxy.session.close()
            sockets.close()
            await asyncio.to_thread(sockets.destroy)

    async def test_it_says_where_it_listens(self, wired: Wired, tmp_path: Path) -> None:
        ports = {name: port for name, port in connection_file(tmp_path).items() if name.endswith("_port")}
        assert await wired.answer("connect_request") == {"status": "ok", **ports}


async def test_an_early_request_waits_for_those_who_listened_before() -> None:
    taken: list[bytes] = []
    heard = {1: asyncio.Event(), 2: asyncio.Event()}
    asked = {1: asyncio.Event(), 2: asyncio.Event()}
    gate = StartupGate(lambda _, client: taken.append(client))
    gate.listeners = 2

    async def until_heard_by(listeners: int) -> None:
        asked[listeners].set()
        await heard[listeners].wait()

    waiting = asyncio.create_task(gate.open_once_heard(until_heard_by))
    await asked[1].wait()
    assert gate.holds(request("execute_request"), b"first")
    assert gate.holds(request("kernel_info_request"), b"info"), "its idle is published, and nobody would hear that"
    assert not gate.holds(request("kernel_info_request", "control"), b"info")
    assert gate.holds(request("execute_request"), b"second")
    assert taken == []
    heard[1].set()
    await asked[2].wait()
    assert taken == [b"info"], "who waits until the kernel is ready asks it"
    assert not gate.holds(request("kernel_info_request"), b"info")
    heard[2].set()
    await waiting
    assert taken == [b"info", b"first", b"second"]
    assert not gate.holds(request("execute_request"), b"third")


async def test_what_the_host_is_asked_at_a_restart_does_not_wait() -> None:
    gate = StartupGate(lambda *_: None)
    gate.is_heard = True
    assert not gate.holds(request("kernel_info_request"), b"client")
    assert gate.holds(request("execute_request"), b"client")


async def test_who_does_not_come_again_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.kernel.proxy.FIRST_SECONDS", 0.05)
    monkeypatch.setattr("sandbox_kernel.kernel.proxy.LISTENERS_SECONDS", 0.05)
    taken: list[bytes] = []
    gate = StartupGate(lambda _, client: taken.append(client))
    assert gate.holds(request("execute_request"), b"client")
    never = asyncio.Event()
    async with within(20):
        await gate.open_once_heard(lambda _: never.wait())  # type: ignore[arg-type,return-value]
    assert taken == [b"client"]
