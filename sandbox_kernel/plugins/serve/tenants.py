"""Who uses the server, and the sandboxes of each.

A sandbox is found through its tenant, or by a token of its own: to everybody else it is not there. Sandboxes that a
broker keeps outlive the server, and the next one takes them over.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from ...config.sources import changed
from ...core.errors import AbilityMissing, QuotaExceeded, SandboxDied, SandboxError, SandboxPaused
from ...core.events import SessionEvent
from ...core.model import Settings
from ...core.tasks import Tasks
from ...sdk.client import AsyncSandbox, handle_of
from ...sdk.ownership import keeper
from ...sdk.values import SandboxInfo
from .codes import ServeCode
from .lease_files import KeptLease, LeaseFiles
from .metrics import Now, TenantFigures, wire_of
from .replicas import Replicas
from .requests import Refusal
from .token_file import METRICS
from .turns import Turns

CLOSE_SECONDS = 6.0
"""For the ends of sandboxes that are under way when the server stops."""

TEMPLATE = "base"
"""What a sandbox is made of if nobody says: the image of the settings."""
MARK = "sandbox-kernel-serve"
"""Metadata of a sandbox that outlives its server, for the broker: whose it is. It has none of its client's."""
TAKEN_AT_ONCE = 16
"""Sandboxes of the server before that are taken over at the same time."""
TAKE_SECONDS = 30.0
"""For one of them; one that does not answer for so long is ended."""
FIRST_SECONDS = 10.0
"""For all of them, before clients are served; the others are found once they are taken over."""

OUTSIDE = ("network", "packages")
"""Settings that give cells something of a network."""
DEFAULT_SECONDS = 300.0
"""Default lifetime of a sandbox of E2B's clients, and of a sandbox that was paused at its time, from its resume on."""
PAUSE_AGAIN_SECONDS = 2.0
"""Until the next try where a kernel that starts, or a cell that is being ended, is in the way of a pause."""
PAUSE_MARGIN_SECONDS = 5.0
"""By which a pause comes before the end that whatever keeps the sandbox has for it."""

MAX_SENT = 100
"""Files of one sandbox whose senders are known."""
MAX_UPLOADS = 4
"""Files of one tenant that come at once, or forms of several; others wait, with their bytes at the client."""


class SandboxLeased(SessionEvent):
    """A sandbox is a tenant's from now on."""

    name = "leased"
    tenant: str
    wire: str
    template: str


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
    idle_makes_room: float | None = None
    """Seconds after which the sandbox of a user of Open WebUI may end for that of another; None is never."""


def narrowed(settings: Settings, hosts: Sequence[str]) -> Settings:
    """Return settings whose cells reach these hosts alone. Raises `LookupError` with one that none allows to reach."""
    narrow = settings.get("narrowed", None)
    if narrow is None:
        raise LookupError(hosts[0])
    return settings.without("packages").having(narrow(hosts))


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
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    """What clients noted of files, by their paths."""
    sent: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_SENT))
    """Files that clients sent, the last ones: E2B's watchers tell of them as of no other's."""
    settled: set[str] = field(default_factory=set)
    """Kernels that say the names of folders that E2B's clients know."""
    terminals: set[int] = field(default_factory=set)
    """Processes that have one."""
    hosts: tuple[str, ...] = ()
    """What its client narrowed the network to that the operator allows; nothing if it did not."""
    pauses_at: float | None = None
    """When it is paused, in seconds since 1970, for a client that wants that in place of its end; None ends it."""
    pausing: asyncio.TimerHandle | None = None
    """Rings then."""

    @property
    def id(self) -> str:
        return self.sandbox.id

    def check_calls(self, most: int) -> None:
        """Raise `Refusal` if as many calls run or wait in it as may."""
        if self.calls >= most:
            words = f"{self.calls} calls run or wait in the sandbox, which is the limit. Wait for one of them"
            raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, words)

    @contextmanager
    def calling(self, most: int) -> Iterator[None]:
        """Count a call of it. Raises `Refusal`."""
        self.check_calls(most)
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    @property
    def wire(self) -> str:
        return wire_of(f"/{self.name}")

    @property
    def is_there(self) -> bool:
        """Whether it runs or is paused, also while a kernel of it starts again; one that is lost does not come back."""
        session = handle_of(self.sandbox).session
        return not session.is_closed and (session.is_open or session.is_starting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs in it or waits, whoever asked for it."""
        return not self.calls and not any(handle_of(self.sandbox).session.running_cells())

    @property
    def ends(self) -> datetime | None:
        """When its time is up."""
        if self.pauses_at is None:
            return self.sandbox.info.end_at
        return datetime.fromtimestamp(self.pauses_at, UTC)

    def let_be(self) -> None:
        """Have it not be paused any more: it is ended, or another server's."""
        if self.pausing is not None:
            self.pausing.cancel()

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
    turns: Turns = field(default_factory=Turns)
    figures: TenantFigures = field(default_factory=TenantFigures)
    making: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Held by whoever looks for a sandbox of a name, and makes it."""


class Tenants:
    def __init__(
        self,
        templates: Mapping[str, Settings],
        limits: ServeLimits,
        kept: LeaseFiles | None = None,
        datasets: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Have none yet.

        Args:
            templates: The settings of sandboxes by the names that clients have for them.
            limits: What each may have.
            kept: Where sandboxes are written down, which a broker keeps then. Without it, they end with this process.
            datasets: Those of the settings that are of some tenants alone, with the names of these.
        """
        self.templates = templates
        self.limits = limits
        self._kept = kept
        self._datasets = datasets
        self.names: Collection[str] = ()
        """Of all tenants there may be."""
        self.gone: frozenset[str] = frozenset()
        """Names that were taken out of the token file since the start: their sandboxes are nobody's."""
        self.tools: dict[str, Callable[[Tenant, str], Any]] = {}
        """By wire: the tools for a sandbox of a tenant's by its name, which each server serves anew."""
        self._tenants: dict[str, Tenant] = {}
        self.on_lease: list[Callable[[Lease], object]] = []
        """Called with each new one."""
        self.tasks = Tasks()
        """Cells, and ends of sandboxes."""
        self.strangers = 0
        """Requests without a token that is known."""
        self.replicas: Replicas | None = None
        """The other servers, where there are some."""
        self._closed = False

    def settings_for(self, name: str | None, settings: Settings) -> Settings:
        """Return settings without the datasets that are other tenants' alone; None is no tenant."""
        given = settings.get("datasets", ())
        owners = [(text, self._datasets.get(text.partition("=")[0])) for text in given]
        mine = tuple(text for text, alone in owners if alone is None or name in alone)
        return settings if mine == given else changed(settings, {"datasets": mine})

    def tenant(self, name: str) -> Tenant:
        return self._tenants.setdefault(name, Tenant(name))

    def all_of(self, tenant: Tenant) -> list[Lease]:
        """Return the sandboxes of a tenant that are there."""
        for lease in list(tenant.leases.values()):
            if not lease.is_there:
                self.tasks.start(self.end(lease), "the end of a sandbox that was lost")
        return [lease for lease in tenant.leases.values() if lease.is_there]

    def has(self, tenant: Tenant, identity: str) -> bool:
        lease = tenant.leases.get(identity)
        return lease is not None and lease.is_there

    def find(self, tenant: Tenant, identity: str) -> Lease:
        """Return a sandbox of a tenant. Raises `Refusal`."""
        if not self.has(tenant, identity):
            raise Refusal(404, ServeCode.NO_SUCH_SANDBOX, f"Sandbox {identity[:64]!r} was not found")
        return tenant.leases[identity]

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
        raise Refusal(502, ServeCode.NO_SUCH_SANDBOX, elsewhere=True)

    def everybody(self) -> list[Tenant]:
        """Return all tenants that have come, by name; the token that opens figures is none's."""
        return sorted((one for one in self._tenants.values() if one.name != METRICS), key=lambda one: one.name)

    def now(self, names: Iterable[str] | None = None) -> list[Now]:
        """Return what tenants have now: those of these names, or all that have come."""
        found = self.everybody() if names is None else [self.tenant(name) for name in names]
        return [
            Now(one.name, one.figures, (lease.state for lease in self.all_of(one)), one.requests, one.turns.longest)
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
        template: str = TEMPLATE,
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
            await self.resume(found)
            await self.stay(found, lifetime)
            return found

    async def resume(self, lease: Lease) -> None:
        """Have a sandbox go on if it is paused, with new time if it is one that is paused when its time is up."""
        if lease.sandbox.is_paused and await lease.sandbox.resume() and lease.pauses_at is not None:
            await self.stay(lease, DEFAULT_SECONDS)

    async def stay(self, lease: Lease, seconds: float) -> None:
        """Have a sandbox last for so many seconds from now on, or longer if it does already."""
        if lease.ends is None or (lease.ends - datetime.now(UTC)).total_seconds() < seconds:
            await self.last(lease, seconds)

    async def last(self, lease: Lease, seconds: float) -> None:
        """Have the time of a sandbox be up in so many seconds: it ends, or is paused if its client wanted that.

        One that is paused then is kept for the operator's limit from now on. A broker counts its own from the start.
        """
        if lease.pauses_at is None:
            await lease.sandbox.set_timeout(seconds)
            return
        try:
            await lease.sandbox.set_timeout(self.limits.lifetime)
        except QuotaExceeded:
            ends = lease.sandbox.info.end_at
            if ends is None or ends < datetime.now(UTC) + timedelta(seconds=seconds):
                raise
        self._pause_in(lease, seconds)
        self._write(lease)

    def _pause_in(self, lease: Lease, seconds: float) -> None:
        ends = lease.sandbox.info.end_at
        if ends is not None:
            seconds = min(seconds, (ends - datetime.now(UTC)).total_seconds() - PAUSE_MARGIN_SECONDS)
        seconds = max(0.0, seconds)
        lease.let_be()
        lease.pauses_at = time.time() + seconds
        lease.pausing = asyncio.get_running_loop().call_later(seconds, self._time_is_up, lease)

    def _time_is_up(self, lease: Lease) -> None:
        lease.pausing = None
        self.tasks.start(self._pause(lease), "pausing a sandbox whose time is up")

    async def _pause(self, lease: Lease) -> None:
        """Pause a sandbox with whatever runs in it, as its client asked for; one that cannot be is ended."""
        if not lease.is_there or lease.sandbox.is_paused:
            return
        try:
            await lease.sandbox.pause()
            if lease.pausing is not None:  # it was given more time meanwhile
                await lease.sandbox.resume()
                return
            with suppress(QuotaExceeded):
                await lease.sandbox.set_timeout(self.limits.lifetime)
        except SandboxPaused:
            if lease.pausing is None:
                self._pause_in(lease, PAUSE_AGAIN_SECONDS)
        except SandboxError:
            await self.end(lease)

    async def create(
        self,
        tenant: Tenant,
        template: str,
        settings: Settings,
        lifetime: float,
        name: str = "",
        *,
        make: Callable[[], Awaitable[AsyncSandbox]] | None = None,
        pauses: bool = False,
        hosts: Sequence[str] = (),
        **given: Any,
    ) -> Lease:
        """Return a new sandbox, which `make` makes if it is given, with `lasting` as its lifetime.

        `hosts` are what its client `narrowed` the settings to. With `pauses` it is paused when its time is up. `given`
        are keywords of `AsyncSandbox`: `metadata`, `envs`, `tools`. Raises `Refusal`, and `SandboxError` if none can be
        started.
        """
        began = time.monotonic()
        with self._starting(tenant, 1):
            await self._check_elsewhere(tenant)
            if make is not None:
                sandbox = await make()
            else:
                settings = self.settings_for(tenant.name, settings)
                sandbox = self._new(settings, self.lasting(lifetime, pauses), **given)
            lease = Lease(sandbox=sandbox, tenant=tenant, template=template, name=name, hosts=tuple(hosts))
            try:
                await sandbox.start()
                if self._closed:
                    raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, "The server stops")
                if pauses:
                    _demand_pause(sandbox)
                    self._pause_in(lease, lifetime)
                self._write(lease)
            except BaseException as error:
                lease.let_be()
                await asyncio.shield(self.tasks.hold(sandbox.kill(), "the end of a sandbox that did not start"))
                if isinstance(error, SandboxDied):  # it was nobody's yet, so that it is not one that is gone
                    raise Refusal(503, error.code, str(error)) from error
                raise
        tenant.figures.created.add(time.monotonic() - began)
        return self._leased(lease)

    def lasting(self, lifetime: float, pauses: bool) -> float:
        """Return the lifetime of a sandbox whose time is up after `lifetime` seconds."""
        return self.limits.lifetime if pauses else lifetime

    def _leased(self, lease: Lease) -> Lease:
        """Have a sandbox be its tenant's, and say so in its audit."""
        lease.tenant.leases[lease.id] = lease
        event = SandboxLeased(tenant=lease.tenant.name, wire=lease.wire, template=lease.template)
        handle_of(lease.sandbox).session.emit(event)
        for told in self.on_lease:
            told(lease)
        return lease

    def _new(
        self, settings: Settings, lifetime: float, metadata: Mapping[str, str] | None = None, **given: Any
    ) -> AsyncSandbox:
        if self._kept is None:
            return AsyncSandbox(settings, timeout=lifetime, metadata=metadata, **given)
        mark = {MARK: self._kept.mark}
        sandbox = AsyncSandbox(settings, lifetime=lifetime, metadata=mark, detached=True, **given)
        sandbox.metadata = dict(metadata or {})
        return sandbox

    def _write(self, lease: Lease) -> None:
        """Write a sandbox down that outlives the server, before its client hears of it. Raises `Refusal`."""
        if self._kept is None or not lease.sandbox.is_detached:
            return
        template = self.templates.get(lease.template)
        kept = KeptLease(
            tenant=lease.tenant.name,
            template=lease.template,
            name=lease.name,
            access_token=lease.access_token,
            traffic_token=lease.traffic_token,
            metadata=lease.sandbox.metadata,
            offline=template is not None
            and not lease.hosts
            and any(template.get(one, ()) and not lease.sandbox.settings.get(one, ()) for one in OUTSIDE),
            pauses_at=lease.pauses_at,
            hosts=list(lease.hosts),
        )
        try:
            self._kept.write(lease.id, kept)
        except OSError as error:
            words = f"The sandbox could not be written down: {error.strerror}"
            raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, words) from None

    async def fork(self, lease: Lease, count: int, lifetime: float) -> list[Lease]:
        """Return copies of a sandbox, which are its tenant's: all, or it raises `Refusal` or `SandboxError`."""
        tenant = lease.tenant
        with self._starting(tenant, count):
            await self._check_elsewhere(tenant)
            made = await lease.sandbox.fork(count, timeout=lifetime)
            if self._closed:
                for one in made:
                    self.tasks.start(one.kill(), "the end of a copy")
                raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, "The server stops")
        return [
            self._leased(Lease(sandbox=one, tenant=tenant, template=lease.template, metadata=deepcopy(lease.metadata)))
            for one in made
        ]

    async def make_room(self, tenant: Tenant, wire: str, seconds: float) -> None:
        """End the sandbox of a wire that was not used for the longest time, if there is no room for one more."""
        try:
            self._check_room(tenant)
        except Refusal as full:
            if full.code is not ServeCode.SANDBOXES_OF_TENANT:
                raise
            before = time.monotonic() - seconds
            idle = [
                lease
                for lease in self.all_of(tenant)
                if lease.name.startswith(f"{wire}/") and lease.is_idle and lease.used <= before
            ]
            if idle:
                await self.end(min(idle, key=lambda lease: lease.used))

    async def end(self, lease: Lease) -> None:
        """End a sandbox. Idempotent."""
        lease.tenant.leases.pop(lease.id, None)
        lease.let_be()
        with suppress(SandboxError):  # its pipe is closed then, and with it the container
            await lease.sandbox.kill()
        if self._kept is not None and lease.sandbox.is_detached:
            self._kept.remove(lease.id)

    # --- from one server to the next ---

    async def take_over(self, names: Collection[str]) -> int:
        """Take over the sandboxes of the server before; return how many.

        A sandbox ends if no client was told of it, or if its tenant is not in `names` any more. Raises `SandboxError`
        if the broker cannot be asked.
        """
        if self._kept is None:
            return 0
        everything, engine = self._kept.all(), self.templates[TEMPLATE].engine
        kept = {identity: one for identity, one in everything.items() if one.tenant in names}
        there = {
            one.id: one
            for one in await keeper().listed({"engine": engine})
            if one.metadata.get(MARK) == self._kept.mark
        }
        for identity in everything.keys() - (kept.keys() & there.keys()):
            self._kept.remove(identity)
        for identity in there.keys() - kept.keys():
            self.tasks.start(keeper().ended(identity, {"engine": engine}), "the end of a sandbox nobody was told of")
        slots = asyncio.Semaphore(TAKEN_AT_ONCE)
        taking = [
            self.tasks.hold(self._take(info, kept[identity], slots), "taking over a sandbox")
            for identity, info in there.items()
            if identity in kept
        ]
        if taking:
            await asyncio.wait(taking, timeout=FIRST_SECONDS)
        return len(taking)

    async def _take(self, info: SandboxInfo, kept: KeptLease, slots: asyncio.Semaphore) -> None:
        """Take over one; one that cannot be is ended, and costs no other anything."""
        settings = self.templates.get(kept.template, self.templates[TEMPLATE])
        if kept.offline:
            settings = settings.without(*OUTSIDE)
        elif kept.hosts:
            try:
                settings = narrowed(settings, kept.hosts)
            except LookupError:  # the operator allows less than the one before
                settings = settings.without(*OUTSIDE)
        tenant = self.tenant(kept.tenant)
        tools_of = self.tools.get(kept.name.partition("/")[0])
        tools = None if tools_of is None else tools_of(tenant, kept.name)
        try:
            async with slots, asyncio.timeout(TAKE_SECONDS):
                sandbox = await AsyncSandbox.connect(
                    info.id, take=True, engine=settings.engine, settings=settings, tools=tools
                )
                if info.state == "paused":
                    await sandbox.pause()
        except (SandboxError, TimeoutError):
            with suppress(SandboxError):
                await keeper().ended(info.id, {"engine": settings.engine})
            if self._kept is not None:
                self._kept.remove(info.id)
            return
        sandbox.metadata = dict(kept.metadata)
        lease = Lease(
            sandbox=sandbox,
            tenant=tenant,
            template=kept.template,
            name=kept.name,
            access_token=kept.access_token,
            traffic_token=kept.traffic_token,
            hosts=tuple(kept.hosts),
        )
        if kept.pauses_at is not None:
            self._pause_in(lease, kept.pauses_at - time.time())
        self._leased(lease)

    async def close(self) -> datetime | None:
        """End all sandboxes, but leave those that outlive the server; return when the last one ends. Idempotent."""
        self._closed = True
        leases = [lease for tenant in self._tenants.values() for lease in tenant.leases.values()]
        for lease in leases:
            lease.let_be()
        left = [lease for lease in leases if lease.sandbox.is_detached and lease.is_there]
        ends = [end for lease in left if (end := lease.sandbox.info.end_at) is not None]
        await asyncio.gather(
            *(lease.sandbox.detach() if lease in left else self.end(lease) for lease in leases),
            return_exceptions=True,
        )
        await self.tasks.close(CLOSE_SECONDS)
        if self._kept is not None:
            self._kept.close()
        return max(ends, default=None)

    @contextmanager
    def _starting(self, tenant: Tenant, count: int) -> Iterator[None]:
        """Count sandboxes that start, also for replicas that ask meanwhile. Raises `Refusal`."""
        self._check_room(tenant, count)
        tenant.starting += count
        try:
            yield
        finally:
            tenant.starting -= count

    async def _check_elsewhere(self, tenant: Tenant) -> None:
        """Raise `Refusal` if a tenant has too many, those at other replicas and those that start counted.

        Each replica counts its own before it asks, so of two that ask in the same moment one is refused at least.
        """
        if self.replicas is not None and (elsewhere := await self.replicas.sandboxes()):
            self._check_room(tenant, 0, elsewhere)

    def _check_room(self, tenant: Tenant, count: int = 1, elsewhere: int = 0) -> None:
        if self._closed:
            raise Refusal(503, ServeCode.NO_SUCH_SANDBOX, "The server stops")
        counts = {one.name: len(self.all_of(one)) + one.starting for one in self._tenants.values()}
        if counts.get(tenant.name, 0) + elsewhere + count > self.limits.sandboxes_per_tenant:
            limit = self.limits.sandboxes_per_tenant
            has = counts.get(tenant.name, 0) + elsewhere
            words = f"You have {has} sandboxes, and the limit is {limit}. Kill one of them"
            raise Refusal(429, ServeCode.SANDBOXES_OF_TENANT, words)
        if sum(counts.values()) + count > self.limits.sandboxes:
            words = f"The server has {self.limits.sandboxes} sandboxes, which is its limit, all users taken together"
            raise Refusal(429, ServeCode.SANDBOXES_OF_TENANT, words)


def _demand_pause(sandbox: AsyncSandbox) -> None:
    """Raise `Refusal` for a sandbox that cannot be paused: some containers of an engine may not be."""
    try:
        handle_of(sandbox).session.demand_pause()
    except AbilityMissing as error:
        raise Refusal(400, ServeCode.NOT_OFFERED, f"This server does not offer autoPause: {error}") from None
