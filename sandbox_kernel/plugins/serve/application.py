"""All wires behind the checks that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...core.prometheus_text import CONTENT_TYPE
from ..mcp.clients import ServerLimits
from . import dashboard, metrics, openapi
from .address_token import AddressToken
from .codes import ServeCode
from .domain import SandboxHosts
from .e2b import wire as e2b
from .guard import RouteGuard
from .jupyter import wire as jupyter
from .librechat import wire as librechat
from .mcp_wire import McpWire
from .open_terminal import wire as open_terminal
from .replicas import Questions
from .requests import answer, error
from .tenants import Tenant, Tenants
from .token_file import METRICS, Tokens
from .web_server import Names, RequestFilter

WIRES: tuple[Callable[[RouteGuard], Iterable[BaseRoute]], ...] = (
    e2b.routes,
    jupyter.routes,
    librechat.routes,
    open_terminal.routes,
)
"""What the server speaks, each with its routes."""


def application(tenants: Tenants, tokens: Tokens, known: Names, mcp_limits: ServerLimits | None = None) -> Starlette:
    """Return the web application. `known` are the names under which it is reached."""
    tenants.names = set(tokens.names) - {METRICS}
    guard, mcp = RouteGuard(tenants, tokens), McpWire(tenants, mcp_limits)
    refused: Any = {HTTPException: _refused}
    inside = Starlette(routes=list(e2b.in_sandboxes(guard)), exception_handlers=refused)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with mcp.run():
            try:
                yield
            finally:
                await mcp.close()

    routes = [
        guard.route("GET", "/metrics", _metrics, guard.observer),
        *dashboard.routes(guard, dashboard.OfTenants(tenants)),
        *(route for wire in (*WIRES, mcp.routes) for route in wire(guard)),
    ]
    asked = [] if tenants.replicas is None else [Middleware(Questions)]
    ours = answer(openapi.page(routes))

    async def described(request: Request) -> Response:
        """Give our page, to everybody who asks."""
        return ours

    return Starlette(
        routes=[Route("/", _front), Route("/healthz", _healthz), Route("/openapi.json", described), *routes],
        middleware=[
            Middleware(AddressToken),
            Middleware(RequestFilter, known=known),
            *asked,
            Middleware(SandboxHosts, known=known, inside=inside),
        ],
        exception_handlers=refused,
        lifespan=lifespan,
    )


async def _front(request: Request) -> Response:
    """Lead a person who looks at the address to the page that is for people."""
    return RedirectResponse("/dashboard", 307)


async def _healthz(request: Request) -> Response:
    """Say that the server runs, to everybody who asks."""
    return answer({"status": "ok"})


async def _metrics(request: Request, tenants: Tenants, observer: Tenant) -> Response:
    """Give the figures of whoever asks, or of all to whom the operator lets see them."""
    is_operator = observer.name == METRICS
    found = metrics.page(
        tenants.now(None if is_operator else [observer.name]), tenants.strangers if is_operator else None
    )
    return Response(found, media_type=CONTENT_TYPE)


async def _refused(request: Request, found: Exception) -> Response:
    status = found.status_code if isinstance(found, HTTPException) else 500
    words = "There is no such path" if status == 404 else "The path does not take this method"
    return error(status, ServeCode.REQUEST_IMPROPER, words)
