"""MCP at `/mcp`, as `sandbox-kernel mcp --http` has it, for the tenants of this server and with their sandboxes.

A session of a client is a sandbox of its tenant, and counts as one. It ends with the client's connection.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from ...sdk.client import AsyncSandbox
from ..mcp.clients import Clients, RefusedCall, ServerLimits
from ..mcp.http_server import PATH, connections
from ..mcp.server import make_server
from .guard import RouteGuard
from .replicas import asking
from .requests import Refusal
from .tenants import TEMPLATE, Tenant, Tenants


class McpWire:
    """Its connections, which run in `run` and end with `close`."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._last: dict[str, Request] = {}
        """By tenant: a request with its credentials, with which peers are asked."""
        # What a model is told of datasets is told to all, so those of some tenants alone are not in it.
        settings, most = tenants.settings_for(None, tenants.templates[TEMPLATE]), tenants.limits
        limits = ServerLimits(sessions=most.sandboxes, sessions_per_client=most.sandboxes_per_tenant)
        self._clients = Clients(settings, limits, self._make)
        self._app, self.run = connections(make_server(settings, limits, self._clients, http=True), self._clients)

    def routes(self, guard: RouteGuard) -> Iterable[BaseRoute]:
        for method in ("GET", "POST", "DELETE"):
            yield guard.route(method, PATH, self._answer)

    async def _answer(self, request: Request, tenants: Tenants, tenant: Tenant) -> ASGIApp:
        """Answer a client of MCP."""
        self._last[tenant.name] = request
        request.scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=tenant.name, scopes=[]))
        return self._app

    async def _make(self, owner: str, name: str) -> AsyncSandbox:
        tenants = self._tenants
        settings, lifetime = tenants.settings_for(owner, tenants.templates[TEMPLATE]), tenants.limits.lifetime

        async def make() -> AsyncSandbox:
            return AsyncSandbox(settings, timeout=lifetime)  # which does not outlive this process, as its connection

        try:
            with asking(self._last[owner], owner):  # what runs here is no request's
                return (await tenants.named(tenants.tenant(owner), f"mcp/{name}", lifetime, make=make)).sandbox
        except Refusal as refusal:
            raise RefusedCall(refusal.code, str(refusal)) from None

    async def close(self) -> None:
        """End the sessions of all clients. Idempotent."""
        await self._clients.close()
