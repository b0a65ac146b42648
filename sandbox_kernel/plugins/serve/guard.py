"""What all wires share before a request is served: whose it is, how many of them there are, and what refuses it.

A wire is a function that takes the `RouteGuard` and returns its routes (`application.WIRES`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ...core.call_context import caller
from ...core.errors import SandboxError
from .codes import ServeCode
from .metrics import wire_of
from .replicas import Locus, asking, is_question
from .requests import Refusal, one_header, refusal_of
from .signed_tokens import Signers
from .tenants import Lease, Tenant, Tenants
from .token_file import METRICS, Tokens
from .turns import paced
from .web_server import admitted, close, refuse

WhereIs = Callable[[Any, Any], "Locus | None"]
"""Says where the sandbox of a request is that `who` found somebody for; None if the request is for none."""
Who = Callable[[Any], Any]
"""Finds out whose a request is: a `Tenant`, or a `Lease` of one. Raises `Refusal`."""
Form = Callable[[Refusal], ASGIApp]
"""Makes a refusal an answer in the form of a wire."""
SCHEMES = ("bearer", "token")


def tokens_in(request: HTTPConnection) -> list[str]:
    """Return the tokens of a request: `X-API-Key`, and what is in `Authorization`. Raises `Refusal`."""
    key = one_header(request, "X-API-Key")
    scheme, _, token = (one_header(request, "Authorization") or "").partition(" ")
    return [*([] if key is None else [key]), *([token.strip()] if scheme.lower() in SCHEMES else [])]


class RouteGuard:
    """Stands before every route of every wire."""

    def __init__(self, tenants: Tenants, tokens: Tokens) -> None:
        self.tenants = tenants
        self._tokens = tokens

    def tenant(self, request: HTTPConnection, *more: str) -> Tenant:
        """Return whose request it is, by its tokens: `more`, `X-API-Key` and `Authorization`. Raises `Refusal`."""
        return self.tenant_of(*more, *tokens_in(request))

    def signed(self, request: HTTPConnection) -> Tenant:
        """Do what `tenant` does, and take a token that LibreChat signed, too. Raises `Refusal`."""
        return self._user(self._owner(tokens_in(request), self._tokens.signers))

    def tenant_of(self, *tokens: str) -> Tenant:
        """Return whose tokens these are. Raises `Refusal`, also for the token that opens figures alone."""
        return self._user(self._owner(tokens))

    def _user(self, found: Tenant) -> Tenant:
        if found.name == METRICS:
            raise Refusal(403, ServeCode.TOKEN_UNKNOWN, f"The token of {METRICS!r} opens /metrics alone")
        return found

    def observer(self, request: HTTPConnection) -> Tenant:
        """Return whose request for figures it is; whose is `METRICS` sees those of all. Raises `Refusal`."""
        return self._owner(tokens_in(request))

    def _owner(self, tokens: Sequence[str], signers: Signers | None = None) -> Tenant:
        """Return whose the first token is, where no other is somebody else's. Raises `Refusal`."""
        names = [self._tokens.name_of(token) or (signers.name_of(token) if signers else None) for token in tokens]
        if not names or names[0] is None:
            self.tenants.strangers += 1
            raise Refusal(401, ServeCode.TOKEN_UNKNOWN)
        if set(names) - {names[0], None}:
            raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The request has tokens of two users")
        return self.tenants.tenant(names[0])

    def route(
        self,
        method: str,
        path: str,
        handler: Callable[..., Awaitable[Any]],
        who: Who | None = None,
        *,
        scheme: str = "token",
        where: WhereIs | None = None,
        form: Form = Refusal.response,
    ) -> Route:
        """Return a route whose handler takes the request, all tenants, and what `who` found: the tenant by default.

        `where` says which sandbox a tenant's request is for, which another replica may have.

        The handler returns a response, or raises `Refusal` or `SandboxError`, which `form` makes an answer. `scheme`
        says on our page what opens it.
        """
        return Route(
            path, Guarded(self.tenants, who or self.tenant, handler, where, scheme=scheme, form=form), methods=[method]
        )

    def socket(
        self,
        path: str,
        handler: Callable[..., Awaitable[None]],
        who: Who | None = None,
        *,
        where: WhereIs | None = None,
    ) -> WebSocketRoute:
        """Return a route of a WebSocket, whose handler takes it, all tenants, and what `who` found.

        The handler accepts it. What it raises before is an answer of HTTP, and after that the reason of the close. It
        counts as a request under way until the handler returns.
        """
        return WebSocketRoute(path, _GuardedSocket(self.tenants, who or self.tenant, handler, where))


class _Shared:
    def __init__(
        self, tenants: Tenants, who: Who, handler: Callable[..., Awaitable[Any]], where: WhereIs | None
    ) -> None:
        self._tenants = tenants
        self._who = who
        self._handler = handler
        self._where = where

    def _found(self, request: HTTPConnection) -> tuple[Any, Refusal | None]:
        """Return what `who` finds, or why it finds nothing here that a peer may have. Raises `Refusal`."""
        try:
            return self._who(request), None
        except Refusal as refusal:
            if not refusal.elsewhere or self._tenants.replicas is None:
                raise
            return None, refusal

    async def _of_stranger(self, request: HTTPConnection, refusal: Refusal) -> tuple[Tenant, ASGIApp]:
        """Return whose sandbox a peer has, as it says, and what passes the request to it. Raises the refusal."""
        replicas = self._tenants.replicas
        other = None if replicas is None else await replicas.other(request.scope, Locus(is_here=False), proven=False)
        if other is None:
            raise refusal
        name = getattr(other, "owner", "")
        return self._tenants.tenant(name) if name in self._tenants.names else Tenant(""), other

    async def _other(self, request: HTTPConnection, found: Any) -> ASGIApp | None:
        """Return what answers in this replica's place."""
        replicas = self._tenants.replicas
        if replicas is None:
            return None
        owner = _owner_of(found)
        if isinstance(found, Lease):
            locus: Locus | None = Locus(is_here=True)
        else:
            locus = None if self._where is None else self._where(request, found)
        has = len(owner.leases) + owner.starting
        return await replicas.other(request.scope, locus, widen=bool(owner.name), owner=owner.name, has=has)

    @contextmanager
    def _counted(self, found: Any, request: HTTPConnection) -> Iterator[Tenant]:
        """Count a request, from before it waits for anything. That of a stranger is counted as all of theirs are.

        Raises `Refusal` if the tenant has as many requests under way as it may have.
        """
        tenant = _owner_of(found)
        if tenant.name in self._tenants.gone:  # a sandbox's own token opens it no more
            raise Refusal(401, ServeCode.TOKEN_UNKNOWN)
        if not tenant.name or is_question(request.scope):
            yield tenant
            return
        wire = wire_of(request.url.path)
        tenant.figures.requests[wire] += 1
        if tenant.requests >= self._tenants.limits.requests_per_tenant:
            words = f"You have {tenant.requests} requests under way, which is the limit"
            tenant.figures.refused[ServeCode.REQUESTS_OF_TENANT.code] += 1
            raise Refusal(429, ServeCode.REQUESTS_OF_TENANT, words)
        tenant.requests += 1
        admitted(request.scope)
        token = caller.set(f"{wire} {tenant.name}")
        try:
            yield tenant
        finally:
            caller.reset(token)
            tenant.requests -= 1

    def _refused(self, error: Refusal | SandboxError, tenant: Tenant) -> Refusal:
        refusal = error if isinstance(error, Refusal) else refusal_of(error)
        tenant.figures.refused[refusal.code.code] += 1
        return refusal


def _owner_of(found: Any) -> Tenant:
    tenant: Tenant = found.tenant if isinstance(found, Lease) else found
    return tenant


class Guarded(_Shared):
    def __init__(
        self,
        tenants: Tenants,
        who: Who,
        handler: Callable[..., Awaitable[Any]],
        where: WhereIs | None = None,
        *,
        scheme: str = "token",
        form: Form = Refusal.response,
    ) -> None:
        super().__init__(tenants, who, handler, where)
        self.handler = handler
        self.scheme = scheme
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            found, refusal = self._found(request)
            other = None
            if refusal is not None:
                found, other = await self._of_stranger(request, refusal)
            with self._counted(found, request) as tenant, asking(request, tenant.name):
                other = other or await self._other(request, found)
                if other is not None:
                    await other(scope, receive, send)
                    return
                await paced(self._whole(request, found, tenant, send), tenant.turns)
        except Refusal as refused:
            await refused.response()(scope, receive, send)

    async def _whole(self, request: Request, found: Any, tenant: Tenant, send: Send) -> None:
        response = await self._answer(request, found, tenant)
        await response(request.scope, request.receive, send)

    async def _answer(self, request: Request, found: Any, tenant: Tenant) -> Any:
        try:
            return await self._handler(request, self._tenants, found)
        except (Refusal, SandboxError) as error:
            return self._form(self._refused(error, tenant))


class _GuardedSocket(_Shared):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            found, refusal = self._found(socket)
            other = None
            if refusal is not None:
                found, other = await self._of_stranger(socket, refusal)
            with self._counted(found, socket) as tenant:
                other = other or await self._other(socket, found)
                if other is not None:
                    await other(scope, receive, send)
                    return
                refusal = await paced(self._refusal(socket, found, tenant), tenant.turns)
        except Refusal as error:
            refusal = error
        if refusal is not None:
            if socket.application_state.name == "CONNECTING":
                await refuse(refusal.response(), scope, receive, send)
            elif socket.client_state.name == "CONNECTED":
                await close(socket, 1008 if refusal.status < 500 else 1011, str(refusal))

    async def _refusal(self, socket: WebSocket, found: Any, tenant: Tenant) -> Refusal | None:
        try:
            await self._handler(socket, self._tenants, found)
        except WebSocketDisconnect:
            pass
        except (Refusal, SandboxError) as error:
            return self._refused(error, tenant)
        return None
