"""E2B's wire, at the root: its control plane, and the two ports of a sandbox that clients know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import wraps

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ..bodies import reading
from ..codes import ServeCode
from ..guard import RouteGuard, Who
from ..replicas import Locus
from ..requests import Refusal, one_header
from ..tenants import Lease, Tenant, Tenants
from . import cells as e2b_cells
from . import control as e2b_control
from . import files as e2b_files
from . import folders as e2b_folders
from . import processes as e2b_processes


def routes(guard: RouteGuard) -> Iterable[BaseRoute]:
    def where(request: HTTPConnection, tenant: Tenant) -> Locus | None:
        identity = request.path_params.get("sandbox_id")
        return None if identity is None else Locus(is_here=guard.tenants.has(tenant, identity))

    for method, path, handler in e2b_control.ROUTES:
        yield guard.route(
            method, path, _of_sandbox(handler) if "{sandbox_id}" in path else reading(handler), where=where
        )
    yield from in_sandboxes(guard)


def in_sandboxes(guard: RouteGuard) -> Iterable[BaseRoute]:
    """Yield those of sandboxes, which the names of sandboxes have too."""
    tenants = guard.tenants
    agent = _in_sandbox(tenants, e2b_files.PORT, "X-Access-Token", "access_token")
    interpreter = _in_sandbox(tenants, e2b_cells.PORT, "E2B-Traffic-Access-Token", "traffic_token")

    def of_files(request: Request) -> Lease:
        return e2b_files.signed_for(request, tenants) if e2b_files.is_signed(request) else agent(request)

    for who, scheme, table in (
        (interpreter, "traffic", e2b_cells.ROUTES),
        (of_files, "access", e2b_files.ROUTES),
        (agent, "access", (*e2b_folders.ROUTES, *e2b_processes.ROUTES)),
    ):
        for method, path, handler in table:
            yield guard.route(method, path, reading(handler), who, scheme=scheme)


def _of_sandbox(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """Have a handler take the sandbox of the tenant that a path names, before what its request carries."""
    whole = reading(handler)

    @wraps(whole)
    async def found(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
        return await whole(request, tenants, tenants.find(tenant, request.path_params["sandbox_id"]))

    return found


def _in_sandbox(tenants: Tenants, port: str, header: str, kind: str) -> Who:
    """Return what finds the sandbox of a request to one of its ports, by a token of its own."""

    def lease(request: HTTPConnection) -> Lease:
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
