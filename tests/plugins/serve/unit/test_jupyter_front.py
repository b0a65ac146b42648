"""A sandbox as a kernel of Jupyter's wire: it says of itself what the kernel of a notebook says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.model import Message, Settings
from sandbox_kernel.plugins.serve.application import application
from sandbox_kernel.plugins.serve.jupyter.front import JupyterFront, front_of
from sandbox_kernel.plugins.serve.jupyter.messages import REFUSED
from sandbox_kernel.plugins.serve.tenants import Lease, ServeLimits, Tenants
from sandbox_kernel.plugins.serve.token_file import Tokens
from sandbox_kernel.plugins.serve.web_server import Names
from sandbox_kernel.session.serving.server import KernelServer
from sandbox_kernel.session.session import Session
from tests.plugins.serve.container.jupyter_client import Client, request
from tests.plugins.serve.stand_ins import MINE, running
from tests.support.kernel_checks import KernelChecks, Wired
from tests.support.patience import within

NOWHERE = Settings(engine="unix:///nobody/listens")


def session_of(sandbox: AsyncSandbox) -> Session:
    return sandbox._instance.session  # noqa: SLF001


class NotStarted(Lease):
    """A lease whose sandbox counts as there before it starts."""

    is_there = True


class WebSocket(Wired):
    def __init__(self, lease: Lease, client: Client) -> None:
        front = front_of(lease)
        server = cast("KernelServer", front.server)
        super().__init__(session_of(lease.sandbox), server, front, NOWHERE.engine, front.deliver)
        self._client, self.lease, self.front = client, lease, front

    async def ask(self, kind: str, channel: str, content: dict[str, Any] | None = None) -> str:
        return await self._client.send(request(kind, content, channel))

    async def next(self) -> tuple[str, dict[str, Any]]:
        message = await self._client.next()
        return str(message["channel"]), message

    def break_interrupt(self, monkeypatch: pytest.MonkeyPatch, broken: Callable[..., Any]) -> None:
        monkeypatch.setattr(self.lease.sandbox, "interrupt", broken)


class TestWebSocket(KernelChecks):
    @pytest.fixture
    async def wired(self) -> AsyncIterator[Wired]:
        tenants = Tenants({"base": NOWHERE}, ServeLimits())
        tenant = tenants.tenant("mine")
        lease = NotStarted(sandbox=AsyncSandbox(NOWHERE), tenant=tenant, template="base")
        tenant.leases[lease.id] = lease
        async with running(application(tenants, Tokens([("mine", MINE)]), Names())) as (port, _):
            address = f"ws://127.0.0.1:{port}/jupyter/api/kernels/{lease.id}/channels?token={MINE}"
            async with within(20):
                connection = await connect(address, max_size=None)
            async with connection:
                yield WebSocket(lease, Client(connection))
        await lease.sandbox.kill()
        await tenants.close()

    async def test_it_listens_at_no_port(self, wired: Wired) -> None:
        assert (await wired.answer("connect_request"))["ename"] == "ProtocolError"

    async def test_cells_that_cannot_be_measured_wait_one_at_a_time(
        self, wired: WebSocket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the sandbox busy, each would be held until its turn."""
        monkeypatch.setattr(wired.session, "launch", lambda: None)
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        for _ in range(2):
            await wired.ask("execute_request", "shell", {"code": "1", "deep": deep})
        with pytest.raises(ConnectionClosed) as closed:
            await wired.next()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "is the limit" in closed.value.rcvd.reason) == (REFUSED, True)

    async def test_what_is_for_a_client_that_has_gone_is_not_even_written(
        self, wired: WebSocket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The replies to calls of other wires come here, too."""
        written: list[str] = []

        def of(kind: str) -> dict[str, str]:
            written.append(kind)
            return {}

        front: JupyterFront = wired.front
        monkeypatch.setattr(front.server.headers, "of", of)
        front.deliver(Message(channel="shell", header={"msg_type": "execute_reply"}), b"another wire's")
        assert written == []
