"""Jupyter's wire, under `/jupyter`: kernels, kernelspecs, and the WebSocket of each kernel."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from ..bodies import reading
from ..codes import ServeCode
from ..guard import RouteGuard
from ..requests import Refusal
from ..tenants import Lease, Tenant
from . import rest as jupyter_rest
from .channels import channels
from .rest import PREFIX


def routes(guard: RouteGuard) -> Iterable[BaseRoute]:
    def tenant(request: HTTPConnection) -> Tenant:
        """Take a token in the address as well: some clients, and no browser's page, can send it only so."""
        given = request.query_params.getlist("token")
        if len(given) > 1:
            raise Refusal(400, ServeCode.REQUEST_IMPROPER, f"token is there {len(given)} times")
        return guard.tenant(request, *given)

    def lease(request: HTTPConnection) -> Lease:
        return jupyter_rest.find(guard.tenants, tenant(request), request.path_params["kernel_id"])

    for method, path, handler in jupyter_rest.ROUTES:
        yield guard.route(
            method, PREFIX + path, reading(handler), tenant, where=partial(jupyter_rest.where, guard.tenants)
        )
    yield guard.socket(f"{PREFIX}/api/kernels/{{kernel_id}}/channels", channels, lease)
