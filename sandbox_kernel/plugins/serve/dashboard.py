"""A page to look at: who has which sandboxes, since when, what they use, and what was refused. It changes nothing.

The page is for everybody and has no data; it asks for the data with a token, as `/metrics` is asked for. What it shows
comes from outside in part (names, templates), so the page sets text and never markup, and its own script is the only
one that may run.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...core.errors import SandboxError
from ...core.model import SandboxSample
from ...core.package_files import PACKAGE
from ...sdk.client import handle_of
from .guard import RouteGuard
from .requests import answer
from .tenants import Lease, Tenant, Tenants
from .token_file import METRICS

T = TypeVar("T")
LOOK_SECONDS = 1.0
"""For what all sandboxes use; of one that does not say it in time, nothing is known."""
KEEP_SECONDS = 1.0
"""For which one look is everybody's: a page more is no work more."""
HIGH = 0.9
"""Of a limit, from which on a sandbox is in trouble."""
MEMORY_HIGH, CPU_HIGH, OWNER_GONE = "memory-high", "cpu-high", "owner-gone"
"""What is told of a sandbox in trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow:
    """One user. Sizes in bytes; what is counted is counted from the server's start on."""

    name: str
    sandboxes: int
    most: int | None = None
    memory_used: int = 0
    memory_promised: int = 0
    cpu_seconds: float = 0.0
    started: int = 0
    refused: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    """By code, where that is known."""
    trouble: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRow:
    """One sandbox; None is what is not known."""

    id: str
    user: str
    work: str
    """What it is for."""
    state: str
    age_seconds: float
    memory_used: int | None
    memory_limit: int
    cpu_seconds: float | None
    cpu_percent: float | None
    """Of one processor, since the last look."""
    cells: int | None
    network: str
    trouble: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    title: str
    facts: tuple[tuple[str, str], ...]
    """Figures, each with its name before it."""
    users: tuple[UserRow, ...]
    sandboxes: tuple[SandboxRow, ...]
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


class DashboardSource(Protocol):
    async def read(self, observer: Tenant) -> Board:
        """Return what whoever asks may see. Raises `SandboxError`."""


class Shared(Generic[T]):
    """What is read for all who ask, and not again before it is `KEEP_SECONDS` old. Raises what `read` raises."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._reading = asyncio.Lock()
        self._last: tuple[float, T] | None = None

    async def get(self) -> T:
        async with self._reading:
            if self._last is None or time.monotonic() - self._last[0] >= KEEP_SECONDS:
                value = await self._read()
                self._last = (time.monotonic(), value)
            return self._last[1]


class Rates:
    """How busy sandboxes are, by their processor time at two looks."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def percent(self, identity: str, age: float, cpu: float | None) -> float | None:
        """Return how much of one processor a sandbox used since the last look, or since it began.

        None if that is not known, or was just now.
        """
        if cpu is None:
            return None
        now = time.monotonic()
        moment, before = self._before.get(identity, (now - age, 0.0))
        self._before[identity] = (now, cpu)
        if now - moment < KEEP_SECONDS:
            return None
        return round(100 * max(0.0, cpu - before) / (now - moment), 1)

    def forget(self, but: Iterable[str]) -> None:
        """Forget those that are gone."""
        there = set(but)
        self._before = {identity: one for identity, one in self._before.items() if identity in there}


def trouble(use: SandboxSample, memory: int, percent: float | None, cpus: float | None) -> tuple[str, ...]:
    """Return which limits a sandbox is near."""
    found = [MEMORY_HIGH] if (use.memory_bytes or 0) >= HIGH * memory > 0 else []
    return (*found, *((CPU_HIGH,) if cpus and (percent or 0) >= HIGH * 100 * cpus else ()))


async def within(seconds: float, work: Iterable[Awaitable[T]], otherwise: T) -> list[T]:
    """Return what each brings in time, or `otherwise`, also for one that raises `SandboxError`."""

    async def one(waited: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await waited
        except (SandboxError, TimeoutError):
            return otherwise

    return await asyncio.gather(*map(one, work))


class OfTenants:
    """The sandboxes of a server."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._rates = Rates()
        self._rows = Shared(self._look)

    async def read(self, observer: Tenant) -> Board:
        all_rows = await self._rows.get()
        is_operator = observer.name == METRICS
        limits = self._tenants.limits
        shown = [one for one in self._tenants.everybody() if is_operator or one is observer]
        users = tuple(self._user(one, all_rows.get(one.name, [])) for one in shown)
        rows = tuple(row for one in shown for row in all_rows.get(one.name, ()))
        facts = [("sandboxes", f"{len(rows)} of {limits.sandboxes if is_operator else limits.sandboxes_per_tenant}")]
        if is_operator:
            facts.append(("requests without a token", f"{self._tenants.strangers}"))
        facts.append(("longest turn", f"{max((one.turns.longest for one in shown), default=0):.2f} s"))
        where = " of this replica" if self._tenants.replicas is not None else ""
        return Board(title=f"Sandboxes{where}", facts=tuple(facts), users=users, sandboxes=rows)

    def _user(self, tenant: Tenant, rows: list[SandboxRow]) -> UserRow:
        refusals = tenant.figures.refused
        return UserRow(
            name=tenant.name,
            sandboxes=len(rows),
            most=self._tenants.limits.sandboxes_per_tenant,
            memory_used=sum(row.memory_used or 0 for row in rows),
            memory_promised=sum(row.memory_limit for row in rows),
            cpu_seconds=round(sum(row.cpu_seconds or 0 for row in rows), 1),
            started=tenant.figures.created.count,
            refused=refusals.total(),
            refusals=dict(refusals.most_common(4)),
            trouble=refusals.total() > 0 or any(row.trouble for row in rows),
        )

    async def _look(self) -> dict[str, list[SandboxRow]]:
        leases = [(one, lease) for one in self._tenants.everybody() for lease in self._tenants.all_of(one)]
        looks = (handle_of(lease.sandbox).session.sample() for _, lease in leases)
        uses = await within(LOOK_SECONDS, looks, SandboxSample())
        rows: dict[str, list[SandboxRow]] = {one.name: [] for one, _ in leases}
        for (tenant, lease), use in zip(leases, uses, strict=True):
            rows[tenant.name].append(self._row(tenant, lease, use))
        self._rates.forget(lease.id for _, lease in leases)
        return rows

    def _row(self, tenant: Tenant, lease: Lease, use: SandboxSample) -> SandboxRow:
        limits, started = lease.sandbox.settings.limits, lease.sandbox.info.started_at
        age = 0.0 if started is None else max(0.0, (datetime.now(UTC) - started).total_seconds())
        percent = self._rates.percent(lease.id, age, use.cpu_seconds)
        hosts = lease.hosts or lease.sandbox.settings.get("network", ())
        gone = (OWNER_GONE,) if tenant.name in self._tenants.gone else ()
        return SandboxRow(
            id=lease.id,
            user=tenant.name,
            work=f"{lease.wire}: {lease.name.partition('/')[2] or lease.template}",
            state=lease.state if lease.is_idle or lease.state == "paused" else "busy",
            age_seconds=round(age, 1),
            memory_used=use.memory_bytes,
            memory_limit=limits.memory,
            cpu_seconds=use.cpu_seconds,
            cpu_percent=percent,
            cells=handle_of(lease.sandbox).session.cells_begun,
            network=", ".join(map(str, hosts)) or "none",
            trouble=(*gone, *trouble(use, limits.memory, percent, limits.cpus)),
        )


# --- the page -------------------------------------------------------------------------------------------------------


def routes(guard: RouteGuard, source: DashboardSource) -> Iterable[BaseRoute]:
    """Return the page, for everybody, and its data, for whom a token opens it."""

    async def data(request: Request, tenants: Tenants, observer: Tenant) -> Response:
        """Give what the page shows: of whoever asks, or of all to whom the operator lets see them."""
        return answer(asdict(await source.read(observer)), headers={"Cache-Control": "no-store"})

    return Route("/dashboard", _page), guard.route("GET", "/dashboard/data", data, guard.observer)


async def _page(request: Request) -> Response:
    html, headers = page()
    return Response(html, headers=headers, media_type="text/html")


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the page, and the headers that let its own style and script work, and nothing else."""
    html = (PACKAGE / "plugins" / "serve" / "dashboard.html").read_bytes()
    script, style = (_digest(html, name) for name in (b"script", b"style"))
    rules = ("default-src 'none'", f"script-src {script}", f"style-src {style}", "connect-src 'self'")
    closed = ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return html, {
        "Content-Security-Policy": "; ".join((*rules, *closed)),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _digest(html: bytes, name: bytes) -> str:
    (found,) = re.findall(b"<%s>(.*?)</%s>" % (name, name), html, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(found).digest()).decode()}'"
