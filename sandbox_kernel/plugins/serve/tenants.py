"""Who uses the server, and the sandboxes of each.

A sandbox is found through its tenant, or by a token of its own: to everybody else it is not there.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from ...core.errors import SandboxError
from ...core.model import Settings
from ...core.tasks import Tasks
from ...sdk.client import AsyncSandbox, session_of
from .codes import ServeCode
from .metrics import Figures, Now, wire_of
from .requests import Refusal
from .token_file import METRICS

CLOSE_SECONDS = 6.0
"""For the ends of sandboxes that are under way when the server stops."""

MAX_UPLOADS = 4
"""Files of one tenant that come at once, or forms of several; others wait, with their bytes at the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """What tenants may have of one server."""

    sandboxes_per_tenant: int = 8
    sandboxes: int = 32
    """Of all tenants together."""
    requests_per_tenant: int = 128
    calls_per_sandbox: int = 32
    lifetime: float = 86400.0
    """Seconds that a sandbox may be asked to last from now on."""


@dataclass(slots=True, kw_only=True, eq=False)
class Lease:
    """One sandbox of a tenant."""

    sandbox: AsyncSandbox
    tenant: Tenant
    template: str
    name: str = ""
    """By which a wire finds it again; empty for one that is known by its id alone."""
    access_token: str = field(default_factory=lambda: secrets.token_hex(24))
    """For its files."""
    traffic_token: str = field(default_factory=lambda: secrets.token_hex(24))
    """For its cells."""
    calls: int = 0
    """Cells and streams that run or wait."""
    used: float = field(default_factory=time.monotonic)
    """When somebody last asked for it by its name."""
    watchers: dict[str, Any] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    """Kernels that say the names of folders that E2B's clients know."""
    terminals: set[int] = field(default_factory=set)
    """Processes that have one."""

    @property
    def id(self) -> str:
        return self.sandbox.id

    @property
    def wire(self) -> str:
        """Which wire made it."""
        return wire_of(f"/{self.name}")

    @property
    def is_there(self) -> bool:
        """Whether it runs or is paused, also while a kernel of it starts again; one that is lost does not come back."""
        session = session_of(self.sandbox)
        return not session.is_closed and (session.is_open or session.is_starting)

    @property
    def state(self) -> str:
        """What E2B calls it while it is there."""
        return "paused" if self.sandbox.is_paused else "running"


@dataclass(slots=True, eq=False)
class Tenant:
    """One name of the token file."""

    name: str
    leases: dict[str, Lease] = field(default_factory=dict)
    starting: int = 0
    uploads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_UPLOADS))
    """Held by a file that comes: it lies on the disk of this machine meanwhile."""
    requests: int = 0
    figures: Figures = field(default_factory=Figures)
    making: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Held by whoever looks for a sandbox of a name, and makes it."""


class Tenants:
    """All tenants of a server."""

    def __init__(self, templates: Mapping[str, Settings], limits: ServeLimits) -> None:
        """`templates` are the settings of sandboxes by the names that clients have for them."""
        self.templates = templates
        self.limits = limits
        self._tenants: dict[str, Tenant] = {}
        self.on_lease: list[Callable[[Lease], object]] = []
        """Called with each new one."""
        self.tasks = Tasks()
        """Cells, and ends of sandboxes."""
        self.strangers = 0
        """Requests without a token that is known."""
        self._closed = False

    def tenant(self, name: str) -> Tenant:
        return self._tenants.setdefault(name, Tenant(name))

    def all_of(self, tenant: Tenant) -> list[Lease]:
        """Return the sandboxes of a tenant that are there."""
        for lease in list(tenant.leases.values()):
            if not lease.is_there:
                self.tasks.start(self.end(lease), "the end of a sandbox that was lost")
        return [lease for lease in tenant.leases.values() if lease.is_there]

    def find(self, tenant: Tenant, identity: str) -> Lease:
        """Return a sandbox of a tenant. Raises `Refusal`."""
        lease = tenant.leases.get(identity)
        if lease is None or not lease.is_there:
            raise Refusal(404, ServeCode.NO_SUCH_SANDBOX, f"Sandbox {identity[:64]!r} was not found")
        return lease

    def find_by_token(self, identity: str, kind: str, token: str) -> Lease:
        """Return the sandbox whose token of a kind this is.

        Raises `Refusal`, alike for no sandbox, one that is paused and another's.
        """
        for tenant in self._tenants.values():
            lease = tenant.leases.get(identity)
            if lease is not None and lease.is_there and not lease.sandbox.is_paused:
                own: str = getattr(lease, kind)
                if hmac.compare_digest(own.encode(), token.encode(errors="backslashreplace")):
                    return lease
        raise Refusal(502, ServeCode.NO_SUCH_SANDBOX)

    def now(self, names: Iterable[str] | None = None) -> list[Now]:
        """Return what tenants have now: those of these names, or all that have come."""
        everybody = (one for one in self._tenants.values() if one.name != METRICS)
        found = everybody if names is None else [self.tenant(name) for name in names]
        return [
            Now(one.name, one.figures, (lease.state for lease in self.all_of(one)), one.requests)
            for one in sorted(found, key=lambda one: one.name)
        ]

    def running(self) -> Iterator[Lease]:
        """Yield the sandboxes of all tenants that run, for what proves itself without naming one."""
        for tenant in self._tenants.values():
            yield from (one for one in tenant.leases.values() if one.is_there and not one.sandbox.is_paused)

    async def named(
        self,
        tenant: Tenant,
        name: str,
        lifetime: float,
        *,
        template: str = "base",
        settings: Settings | None = None,
        makes_room: float | None = None,
        **given: Any,
    ) -> Lease:
        """Return the sandbox of a tenant by its name; make it if there is none, one at a time of a name.

        It lasts for `lifetime` seconds from now on, at least. One that is paused goes on. Two wires have names of their
        own: the first part, up to a slash, is the wire's. Where the tenant has as many as it may have, that of the same
        wire which was not used for the longest time ends, if nobody has used it for `makes_room` seconds; None ends
        none. Raises what `create` raises.
        """
        async with tenant.making.setdefault(name, asyncio.Lock()):
            found = next((lease for lease in self.all_of(tenant) if lease.name == name), None)
            if found is None:
                wanted = self.templates[template] if settings is None else settings
                if makes_room is not None:
                    await self.make_room(tenant, name.partition("/")[0], makes_room)
                return await self.create(tenant, template, wanted, lifetime, name, **given)
            found.used = time.monotonic()
            if found.sandbox.is_paused:
                await found.sandbox.resume()
            await self.stay(found, lifetime)
            return found

    async def stay(self, lease: Lease, seconds: float) -> None:
        """Have a sandbox last for so many seconds from now on, or longer if it does already."""
        ends = lease.sandbox.info.end_at
        if ends is None or (ends - datetime.now(UTC)).total_seconds() < seconds:
            await lease.sandbox.set_timeout(seconds)

    async def create(
        self,
        tenant: Tenant,
        template: str,
        settings: Settings,
        lifetime: float,
        name: str = "",
        *,
        make: Callable[[], Awaitable[AsyncSandbox]] | None = None,
        **given: Any,
    ) -> Lease:
        """Return a new sandbox, which `make` makes if it is given.

        `given` are keywords of `AsyncSandbox`: `metadata`, `envs`, `tools`. Raises `Refusal`, and `SandboxError` if
        none can be started.
        """
        self._check_room(tenant)
        tenant.starting += 1
        began = time.monotonic()
        try:
            if make is not None:
                sandbox = await make()
            else:
                sandbox = AsyncSandbox(settings, timeout=lifetime, **given)
            try:
                await sandbox.start()
                if self._closed:
                    raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, "The server stops")
            except BaseException:
                await asyncio.shield(self.tasks.hold(sandbox.kill(), "the end of a sandbox that did not start"))
                raise
        finally:
            tenant.starting -= 1
        tenant.figures.created.add(time.monotonic() - began)
        return self._leased(Lease(sandbox=sandbox, tenant=tenant, template=template, name=name))

    def _leased(self, lease: Lease) -> Lease:
        """Have a sandbox be its tenant's, and say so in its audit."""
        lease.tenant.leases[lease.id] = lease
        about = {"tenant": lease.tenant.name, "wire": lease.wire, "template": lease.template}
        session_of(lease.sandbox).emit("leased", **about)
        for told in self.on_lease:
            told(lease)
        return lease

    async def fork(self, lease: Lease, count: int, lifetime: float) -> list[Lease]:
        """Return copies of a sandbox, which are its tenant's: all, or it raises `Refusal` or `SandboxError`."""
        tenant = lease.tenant
        self._check_room(tenant, count)
        tenant.starting += count
        try:
            made = await lease.sandbox.fork(count, timeout=lifetime)
            if self._closed:
                for one in made:
                    self.tasks.start(one.kill(), "the end of a copy")
                raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, "The server stops")
        finally:
            tenant.starting -= count
        return [self._leased(Lease(sandbox=one, tenant=tenant, template=lease.template)) for one in made]

    async def make_room(self, tenant: Tenant, wire: str, seconds: float) -> None:
        """End the sandbox of a wire that was not used for the longest time, if there is no room for one more."""
        try:
            self._check_room(tenant)
        except Refusal:
            before = time.monotonic() - seconds
            idle = [
                lease
                for lease in self.all_of(tenant)
                if lease.name.startswith(f"{wire}/") and not lease.calls and lease.used <= before
            ]
            if idle:
                await self.end(min(idle, key=lambda lease: lease.used))

    async def end(self, lease: Lease) -> None:
        """End a sandbox. Idempotent."""
        lease.tenant.leases.pop(lease.id, None)
        with suppress(SandboxError):  # its pipe is closed then, and with it the container
            await lease.sandbox.kill()

    async def close(self) -> None:
        """End all sandboxes. Idempotent."""
        self._closed = True
        leases = [lease for tenant in self._tenants.values() for lease in tenant.leases.values()]
        await asyncio.gather(*(self.end(lease) for lease in leases), return_exceptions=True)
        await self.tasks.close(CLOSE_SECONDS)

    def _check_room(self, tenant: Tenant, count: int = 1) -> None:
        if self._closed:
            raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, "The server stops")
        counts = {one.name: len(self.all_of(one)) + one.starting for one in self._tenants.values()}
        if counts.get(tenant.name, 0) + count > self.limits.sandboxes_per_tenant:
            limit = self.limits.sandboxes_per_tenant
            words = f"You have {counts.get(tenant.name, 0)} sandboxes, and the limit is {limit}. Kill one of them"
            raise Refusal(429, ServeCode.SANDBOXES_OF_TENANT, words)
        if sum(counts.values()) + count > self.limits.sandboxes:
            words = f"The server has {self.limits.sandboxes} sandboxes, which is its limit, all users taken together"
            raise Refusal(429, ServeCode.SANDBOXES_OF_TENANT, words)
