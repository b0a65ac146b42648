"""The server of sandboxes without a sandbox: stand-ins, the application that has them, and a port that serves it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
from starlette.applications import Starlette

from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.serve.application import application
from sandbox_kernel.plugins.serve.e2b import cells as e2b_cells
from sandbox_kernel.plugins.serve.e2b import files as e2b_files
from sandbox_kernel.plugins.serve.lease_files import LeaseFiles
from sandbox_kernel.plugins.serve.tenants import Lease, ServeLimits, Tenants
from sandbox_kernel.plugins.serve.token_file import Tokens
from sandbox_kernel.plugins.serve.web_server import Names, WebServer
from sandbox_kernel.sdk.values import SandboxInfo
from sandbox_kernel.session.serving.server import KernelServer

MINE, THEIRS = "e2b_" + "a" * 40, "e2b_" + "b" * 40


class StandIn:
    """A sandbox that runs, and notes what is asked of it."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.settings = Settings()
        self.is_paused = False
        self.state: Any = "running"
        self.files = self.commands = self
        self.written: list[bytes] = []
        self.cells: list[str] = []
        """That run now."""

    @property
    def _instance(self) -> Any:
        is_there = self.state in {"running", "paused"}
        starts = self.state == "not running"
        session: Any = SimpleNamespace(
            is_closed=False, is_open=is_there, is_starting=starts, emit=lambda *_, **__: None
        )
        session.running_cells = lambda: iter(self.cells)
        return SimpleNamespace(
            session=session, serve=lambda transport, engine: KernelServer(session, transport, engine)
        )

    @property
    def info(self) -> SandboxInfo:
        return SandboxInfo(
            id=self.id,
            image="i",
            engine="e",
            runtime="default",
            outputs="safe",
            network="none",
            secrets=(),
            limits=self.settings.limits,
            python=None,
            state=self.state,
        )

    async def close_stdin(self, pid: int) -> None:
        raise AssertionError("it is refused before")

    async def list_contexts(self, *, offered: bool) -> list[Any]:
        return []

    async def write(self, path: str, file: Any) -> Any:
        self.written.append(file.read())
        return SimpleNamespace(path=path)


class Served:
    """The application, with a sandbox of each of two tenants."""

    def __init__(
        self,
        *,
        known: Any = None,
        settings: Settings | None = None,
        files: LeaseFiles | None = None,
        tokens: Tokens | None = None,
        is_empty: bool = False,
        **limits: Any,
    ) -> None:
        self.tenants = Tenants({"base": settings or Settings()}, ServeLimits(**limits), files)
        if not is_empty:
            self.mine, self.theirs = self._lease("mine", "s1"), self._lease("theirs", "s2")
        tokens = tokens or Tokens([("mine", MINE), ("theirs", THEIRS)])
        self.app = application(self.tenants, tokens, known or Names())

    def _lease(self, name: str, identity: str) -> Lease:
        tenant = self.tenants.tenant(name)
        lease = Lease(sandbox=StandIn(identity), tenant=tenant, template="base")  # type: ignore[arg-type]
        tenant.leases[identity] = lease
        return lease

    async def ask(self, method: str, path: str, *, url: str = "http://localhost:8809", **given: Any) -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=url) as client:
            return await client.request(method, path, **given)


def files_of(lease: Lease, identity: str | None = None, **headers: str) -> dict[str, str]:
    return {
        "E2b-Sandbox-Id": identity or lease.id,
        "E2b-Sandbox-Port": e2b_files.PORT,
        "X-Access-Token": lease.access_token,
        **headers,
    }


def cells_of(lease: Lease, identity: str | None = None) -> dict[str, str]:
    return {
        "E2b-Sandbox-Id": identity or lease.id,
        "E2b-Sandbox-Port": e2b_cells.PORT,
        "E2B-Traffic-Access-Token": lease.traffic_token,
    }


@asynccontextmanager
async def running(app: Starlette) -> AsyncIterator[tuple[int, WebServer]]:
    """Serve an application by the server's own class on the loopback; the port comes first."""
    listener = socket.create_server(("127.0.0.1", 0))
    web = WebServer(app, sockets=True)
    task = asyncio.create_task(web.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1], web
    finally:
        web.should_exit = True
        await task
