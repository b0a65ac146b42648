"""All routes behind the checks that they share: where a request comes from, whose it is, how many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...core.errors import SandboxError
from ..mcp.web_server import Names, RequestFilter
from . import e2b_cells, e2b_control, e2b_files, e2b_folders, e2b_processes
from .codes import ServeCode
from .requests import Refusal, answer, error, one_header, refusal_of
from .tenants import Lease, Tenant, Tenants
from .token_file import Tokens


class Guarded:
    """One route: finds out whose the request is, counts it, and tells what refuses it."""

    def __init__(self, tenants: Tenants, who: Callable[[Request], Any], handler: Callable[..., Awaitable[Any]]) -> None:
        self._tenants = tenants
        self._who = who
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            who = self._who(request)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
            return
        tenant: Tenant = who.tenant if isinstance(who, Lease) else who
        if tenant.requests >= self._tenants.limits.requests_per_tenant:
            words = f"You have {tenant.requests} requests under way, which is the limit"
            await error(429, ServeCode.REQUESTS_OF_TENANT, words)(scope, receive, send)
            return
        tenant.requests += 1
        try:
            response = await self._answer(request, who)
            await response(scope, receive, send)
        finally:
            tenant.requests -= 1

    async def _answer(self, request: Request, who: Any) -> Any:
        try:
            return await self._handler(request, self._tenants, who)
        except Refusal as refusal:
            return refusal.response()
        except SandboxError as found:
            return refusal_of(found).response()


def application(tenants: Tenants, tokens: Tokens, known: Names) -> Starlette:
    """Return the web application. `known` are the names under which it is reached."""

    def tenant(request: Request) -> Tenant:
        key = one_header(request, "X-API-Key")
        if key is None:
            scheme, _, key = (one_header(request, "Authorization") or "").partition(" ")
            key = key if scheme.lower() == "bearer" else ""
        name = tokens.name_of(key)
        if name is None:
            raise Refusal(401, ServeCode.TOKEN_UNKNOWN)
        return tenants.tenant(name)

    def in_sandbox(port: str, header: str, kind: str) -> Callable[[Request], Lease]:
        def lease(request: Request) -> Lease:
            identity, token = one_header(request, "E2b-Sandbox-Id"), one_header(request, header)
            if identity is None:
                raise Refusal(400, ServeCode.REQUEST_IMPROPER, "E2b-Sandbox-Id says which sandbox is meant")
            if token is None:
                raise Refusal(401, ServeCode.TOKEN_UNKNOWN)
            found = tenants.find_by_token(identity, kind, token)
            if one_header(request, "E2b-Sandbox-Port") != port:
                raise Refusal(502, ServeCode.PORT_NOT_SERVED)
            return found

        return lease

    agent = in_sandbox(e2b_files.PORT, "X-Access-Token", "access_token")
    interpreter = in_sandbox(e2b_cells.PORT, "E2B-Traffic-Access-Token", "traffic_token")
    routes = [Route("/healthz", _healthz)]

    def of_files(request: Request) -> Lease:
        return e2b_files.signed_for(request, tenants) if e2b_files.is_signed(request) else agent(request)

    for who, table in (
        (tenant, e2b_control.ROUTES),
        (interpreter, e2b_cells.ROUTES),
        (of_files, e2b_files.ROUTES),
        (agent, (*e2b_folders.ROUTES, *e2b_processes.ROUTES)),
    ):
        for method, path, handler in table:
            routes.append(Route(path, Guarded(tenants, who, handler), methods=[method]))
    return Starlette(
        routes=routes,
        middleware=[Middleware(RequestFilter, known=known)],
        exception_handlers={HTTPException: _refused},
    )


async def _healthz(request: Request) -> Response:
    """Say that the server runs, to everybody who asks."""
    return answer({"status": "ok"})


async def _refused(request: Request, found: Exception) -> Response:
    status = found.status_code if isinstance(found, HTTPException) else 500
    words = "There is no such path" if status == 404 else "The path does not take this method"
    return error(status, ServeCode.REQUEST_IMPROPER, words)
