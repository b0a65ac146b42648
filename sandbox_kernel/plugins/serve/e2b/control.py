"""E2B's wire outside of a sandbox: made, found, listed, paused, given time, ended.

Clients find it by `E2B_API_URL`. Templates are the names that the operator gave to images.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request
from starlette.responses import Response

from ....core.codes import UsageCode
from ....core.model import Settings
from ....sdk.values import SandboxQuery
from ..codes import ServeCode
from ..replicas import is_forwarded
from ..requests import Refusal, answer, improper, number_of, page_of
from ..tenants import DEFAULT_SECONDS, OUTSIDE, TEMPLATE, Lease, Tenant, Tenants, narrowed
from . import snapshots as e2b_snapshots
from .bodies import Connect, Fork, NetworkChange, NewSandbox, Pause, SandboxNetwork, Stay, Timeout

ENVD_VERSION = "0.6.4"
"""Which of E2B's agents a sandbox is to clients: the newest that they ask for. No folder here is on a network."""
METRICS_SECONDS = 5.0
"""How old a row may be that is the one of now: clients ask in whole seconds, and E2B's rows are so far apart."""
CLIENT_ID = "sandbox-kernel"
COPY_SECONDS = 15.0
"""How long a copy lasts if its client does not say, as on E2B."""
EVERYTHING = ("0.0.0.0/0",)
"""What denying all destinations is to E2B."""


async def create(request: Request, tenants: Tenants, tenant: Tenant, body: NewSandbox) -> Response:
    """Make a sandbox. What is asked for and not offered is refused by its name."""
    if body.auto_pause and not body.auto_pause_memory:
        words = "This server does not offer autoPauseMemory: a paused sandbox keeps its memory"
        raise Refusal(400, ServeCode.NOT_OFFERED, words)
    lifetime, template = lasting(body.timeout, tenants), body.template
    given: dict[str, Any] = {"metadata": body.metadata, "envs": body.env_vars, "pauses": body.auto_pause}
    usual = tenants.templates.get(template)
    settings, hosts = _network(body, tenants.templates[TEMPLATE] if usual is None else usual)
    if usual is None:
        if body.network or settings != tenants.templates[TEMPLATE]:
            words = "This server does not offer network or allow_internet_access for a snapshot: its operator says"
            raise Refusal(400, ServeCode.NOT_OFFERED, words)
        if (copy := await e2b_snapshots.begun_from(tenants, tenant, template, lifetime, **given)) is not None:
            return answer(_credentials(copy), 201)
        words = f"Template {template[:100]!r} was not found; this server has {', '.join(tenants.templates)}"
        raise Refusal(404, ServeCode.TEMPLATE_UNKNOWN, words)
    settings = replace(settings, charts=True, home=True)
    lease = await tenants.create(tenant, template, settings, lifetime, hosts=hosts, **given)
    return answer(_credentials(lease), 201)


def _network(body: NewSandbox, settings: Settings) -> tuple[Settings, list[str]]:
    """Return settings with what a client asks of the network, and the hosts that it named, each of which is allowed.

    As on E2B, what it allows comes before what it denies. Here all else is denied then. That the internet is allowed is
    no wish: clients before 2.51 say it of every sandbox, and the operator says what of it there is. Nor is it one that
    its ports are open to all, which clients before 2.60 say of every network.
    """
    asked = body.network or SandboxNetwork()
    allowed, denied = asked.allow_out, asked.deny_out
    rest = {name for name, value in (asked.model_extra or {}).items() if value}
    off = not body.allow_internet_access or any(one in EVERYTHING for one in denied)
    if denied and not off and not allowed and settings.has_way_out:
        rest.add(f"denyOut ({denied[0][:100]!r}; name what is left in allowOut)")
    if not rest and allowed:
        try:
            return narrowed(settings, allowed), allowed
        except LookupError as missing:
            rest.add(f"allowOut ({str(missing.args[0])[:100]!r})")
    if rest:
        words = f"This server does not offer {', '.join(sorted(rest))}: its operator says which hosts cells may reach"
        raise Refusal(400, ServeCode.NOT_OFFERED, words)
    return (settings.without(*OUTSIDE) if off else settings), []


def _credentials(lease: Lease) -> dict[str, Any]:
    return {
        "templateID": lease.template,
        "sandboxID": lease.id,
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": lease.access_token,
        "trafficAccessToken": lease.traffic_token,
        "domain": None,
    }


def _described(lease: Lease) -> dict[str, Any]:
    info, ends = lease.sandbox.info, lease.ends
    started = info.started_at or datetime.now(UTC)
    return {
        "templateID": lease.template,
        "sandboxID": lease.id,
        "clientID": CLIENT_ID,
        "startedAt": started.isoformat(),
        "endAt": (ends or started).isoformat(),
        "envdVersion": ENVD_VERSION,
        "cpuCount": math.ceil(info.limits.cpus),
        "memoryMB": info.limits.memory >> 20,
        "diskSizeMB": info.limits.scratch_size >> 20,
        "state": lease.state,
        "metadata": dict(info.metadata),
        "lifecycle": {"autoResume": False, "onTimeout": "kill" if lease.pauses_at is None else "pause"},
    }


async def show(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Say what a sandbox is."""
    return answer(_described(lease))


async def every(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """List the sandboxes of the tenant, a page of them: the newest first, unless another order is asked for."""
    asked = request.query_params
    states = [one for value in asked.getlist("state") for one in value.split(",") if one]
    metadata = {unquote(name): unquote(value) for name, value in parse_qsl(asked.get("metadata", ""))}
    query = SandboxQuery(metadata=metadata, started_after=_before(asked.get("startedAfter")))
    template = asked.get("template")
    found = [
        _described(lease)
        for lease in tenants.all_of(tenant)
        if query.matches(lease.sandbox.info)
        and template in {None, "", lease.template}
        and (not states or lease.state in states)
    ]
    if tenants.replicas is not None:
        if is_forwarded(request):
            return answer(found)
        found = await tenants.replicas.united(request, found, "sandboxID")
    found.sort(key=lambda row: str(row.get("startedAt")), reverse=asked.get("order") != "asc")
    shown, more = page_of(request, found)
    return answer(shown, headers=more)


def _before(text: str | None) -> datetime | None:
    """Return the moment before one: what was started in that one itself is after it, as on E2B."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text) - timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise improper("startedAfter", "is a time as ISO 8601 has it") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def end(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """End a sandbox."""
    await tenants.end(lease)
    return Response(status_code=204)


async def connect(request: Request, tenants: Tenants, lease: Lease, body: Connect) -> Response:
    """Give the tokens of a sandbox again; one that is paused goes on. Its time is made longer, and not shorter."""
    return await _connected(lease, tenants, body)


async def _connected(lease: Lease, tenants: Tenants, body: Connect) -> Response:
    seconds = lasting(body.timeout, tenants)
    if body.auto_pause and lease.pauses_at is None:
        raise Refusal(400, ServeCode.NOT_OFFERED, "This server does not offer autoPause for a sandbox that is there")
    paused = lease.sandbox.is_paused and await lease.sandbox.resume()
    await tenants.stay(lease, seconds)
    return answer(_credentials(lease), 201 if paused else 200)


async def set_timeout(request: Request, tenants: Tenants, lease: Lease, body: Timeout) -> Response:
    """Have a sandbox end some seconds from now on, or be paused if that is what its client wanted."""
    lasting(body.timeout, tenants)
    if body.timeout < 1 and lease.pauses_at is None:
        await tenants.end(lease)
    else:
        await tenants.last(lease, body.timeout)
    return Response(status_code=204)


async def pause(request: Request, tenants: Tenants, lease: Lease, body: Pause) -> Response:
    """Freeze a sandbox, with its memory."""
    if not await lease.sandbox.pause():
        raise Refusal(409, UsageCode.WRONG_ARGUMENT, f"Sandbox {lease.id!r} is paused already")
    return Response(status_code=204)


async def metrics(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Say what a sandbox uses now: one row."""
    asked, now = request.query_params, datetime.now(UTC).timestamp()
    begin, end = number_of(asked.get("start"), 0), number_of(asked.get("end"), 0)
    if begin > now or 0 < end < now - METRICS_SECONDS:
        return answer([])
    rows = await lease.sandbox.get_metrics()
    return answer(
        [
            {
                "timestamp": row.timestamp.isoformat(),
                "timestampUnix": int(row.timestamp.timestamp()),
                "cpuCount": row.cpu_count,
                "cpuUsedPct": row.cpu_used_pct,
                "memUsed": row.mem_used,
                "memTotal": row.mem_total,
                "memCache": row.mem_cache,
                "diskUsed": row.disk_used,
                "diskTotal": row.disk_total,
            }
            for row in rows
        ]
    )


async def resume(request: Request, tenants: Tenants, lease: Lease, body: Connect) -> Response:
    """Have a sandbox go on that is paused. Raises `Refusal` for one that runs."""
    if not lease.sandbox.is_paused:
        raise Refusal(409, UsageCode.WRONG_ARGUMENT, f"Sandbox {lease.id!r} runs already")
    return await _connected(lease, tenants, body)


async def stay(request: Request, tenants: Tenants, lease: Lease, body: Stay) -> Response:
    """Have a sandbox last for some seconds from now on, or longer if it does already."""
    lasting(body.duration, tenants)
    if body.duration:
        await tenants.stay(lease, body.duration)
    return Response(status_code=204)


async def fork(request: Request, tenants: Tenants, lease: Lease, body: Fork) -> Response:
    """Make copies of a sandbox that go on from where it is: all of them, or none."""
    copies = await tenants.fork(lease, body.count, lasting(body.timeout, tenants, COPY_SECONDS))
    return answer([{"sandbox": _credentials(copy)} for copy in copies], 201)


async def network(request: Request, tenants: Tenants, lease: Lease, body: NetworkChange) -> Response:
    """Take what asks for less network than a sandbox has not: what it may reach is settled when it is made."""
    asked = {name for name, value in (body.model_extra or {}).items() if value}
    if lease.sandbox.settings.has_way_out:
        asked.add("network")
    if asked:
        words = f"This server does not offer {', '.join(sorted(asked))} for a sandbox that is there already"
        raise Refusal(400, ServeCode.NOT_OFFERED, words)
    return Response(status_code=204)


def lasting(seconds: float | None, tenants: Tenants, usual: float = DEFAULT_SECONDS) -> float:
    """Return for how many seconds a sandbox is to last, one at least. Raises `Refusal` for more than the limit."""
    if seconds is not None and seconds > tenants.limits.lifetime:
        raise improper("A sandbox", f"lasts for up to {tenants.limits.lifetime:g} seconds")
    return max(1.0, usual if seconds is None else seconds)


ROUTES: tuple[tuple[str, str, Callable[..., Awaitable[Response]]], ...] = (
    ("POST", "/sandboxes", create),
    ("POST", "/v2/sandboxes", create),
    ("GET", "/sandboxes", every),
    ("GET", "/v2/sandboxes", every),
    ("GET", "/sandboxes/{sandbox_id}", show),
    ("DELETE", "/sandboxes/{sandbox_id}", end),
    ("POST", "/sandboxes/{sandbox_id}/connect", connect),
    ("POST", "/v2/sandboxes/{sandbox_id}/connect", connect),
    ("POST", "/sandboxes/{sandbox_id}/resume", resume),
    ("POST", "/sandboxes/{sandbox_id}/refreshes", stay),
    ("POST", "/sandboxes/{sandbox_id}/snapshots", e2b_snapshots.take),
    ("POST", "/sandboxes/{sandbox_id}/fork", fork),
    ("PUT", "/sandboxes/{sandbox_id}/network", network),
    ("GET", "/snapshots", e2b_snapshots.every),
    ("DELETE", "/templates/{template_id}", e2b_snapshots.remove),
    ("POST", "/sandboxes/{sandbox_id}/timeout", set_timeout),
    ("POST", "/sandboxes/{sandbox_id}/pause", pause),
    ("GET", "/sandboxes/{sandbox_id}/metrics", metrics),
)
"""Each with what a tenant's token opens; one whose path names a sandbox takes that."""
