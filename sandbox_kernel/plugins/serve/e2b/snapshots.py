"""E2B's wire outside of a sandbox: sandboxes that are written down, and copies of them.

A snapshot is a file in the data folder of the server's user. Its name there says whose it is and of which sandbox; a
tenant finds its own. What the engine cannot do is refused by the SDK, before anything is written.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from ....config.sources import SETTINGS
from ....core.codes import UsageCode
from ....core.model import Settings
from ....sdk.client import AsyncSandbox
from ....sdk.values import Snapshot
from ... import index
from ..codes import ServeCode
from ..requests import Refusal, answer, improper, page_of
from ..tenants import Lease, Tenant, Tenants
from .bodies import NewSnapshot

MAX_SNAPSHOTS = 64
"""Of one tenant."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_STORED = re.compile(r"serve-([0-9a-f]{12})-([0-9a-f]{12})-(.+)")
_TAKING = "snapshots"
"""The lock of a tenant that takes one."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


async def _of(tenant: Tenant, settings: Settings) -> dict[str, tuple[str, str]]:
    """Return the snapshots of a tenant by their ids, each with its sandbox and its name in the store, newest first."""
    return {match[3]: (match[2], one.name) for one, match in await _stored(tenant, settings)}


async def _stored(tenant: Tenant, settings: Settings) -> list[tuple[Snapshot, re.Match[str]]]:
    found = await AsyncSandbox.snapshots(settings)
    matches = [(one, match) for one in found if (match := _STORED.fullmatch(one.name)) is not None]
    return [(one, match) for one, match in matches if match[1] == _digest(tenant.name)]


def _settings(tenants: Tenants) -> Settings:
    return next(iter(tenants.templates.values()))


async def take(request: Request, tenants: Tenants, lease: Lease, body: NewSnapshot) -> Response:
    """Write a sandbox down; it goes on."""
    tenant = lease.tenant
    name = body.name or f"snapshot-{secrets.token_hex(6)}"
    if not _NAME.fullmatch(name):
        raise improper("name", 'is up to 32 letters, digits, ".", "-" and "_"')
    async with tenant.making.setdefault(_TAKING, asyncio.Lock()):  # else two would find the same name free
        there = await _stored(tenant, lease.sandbox.settings)
        if name in tenants.templates or name in {match[3] for _, match in there}:
            raise Refusal(409, UsageCode.WRONG_ARGUMENT, f"The name {name!r} is taken")
        _check_room(tenants, lease, [one for one, _ in there])
        await lease.sandbox.snapshot(f"serve-{_digest(tenant.name)}-{_digest(lease.id)}-{name}")
    return answer({"snapshotID": name, "names": [name]}, 201)


def _check_room(tenants: Tenants, lease: Lease, there: Sequence[Snapshot]) -> None:
    """Raise `Refusal` if a tenant has its share: the store is one for all tenants, each of whom may fill an equal part.

    The last one may go beyond it, so that a small part is enough for one.
    """
    if not there:
        return  # nor the setting, where the plugin is not here that has it
    share = SETTINGS["snapshots_size"].value(lease.sandbox.settings) // max(1, len(tenants.names))
    used = sum(one.bytes for one in there)
    if used >= share:
        words = f"Your snapshots have {used:,} bytes, and your part of snapshots_size is {share:,}. Delete one"
    elif len(there) >= MAX_SNAPSHOTS:
        words = f"You have {len(there)} snapshots, and the limit is {MAX_SNAPSHOTS}. Delete one"
    else:
        return
    raise Refusal(429, index.code("snapshot-no-room"), words)


async def every(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """List the snapshots of the tenant."""
    asked = request.query_params
    sandbox, name = asked.get("sandboxID"), asked.get("name")
    found = [
        identity
        for identity, (of, _) in (await _of(tenant, _settings(tenants))).items()
        if (not sandbox or of == _digest(sandbox)) and (not name or identity == name)
    ]
    shown, more = page_of(request, found)
    return answer([{"snapshotID": one, "names": [one]} for one in shown], headers=more)


async def remove(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Remove a snapshot. Templates are the operator's."""
    identity = request.path_params["template_id"]
    settings = _settings(tenants)
    found = (await _of(tenant, settings)).get(identity)
    if found is None or not await AsyncSandbox.delete_snapshot(found[1]):
        raise Refusal(404, ServeCode.TEMPLATE_UNKNOWN, f"You have no snapshot {identity[:100]!r}")
    return Response(status_code=204)


async def begun_from(
    tenants: Tenants, tenant: Tenant, identity: str, lifetime: float, *, pauses: bool, **given: object
) -> Lease | None:
    """Return a new sandbox that goes on from a snapshot of the tenant, None if it has none of this id.

    With `pauses` it is paused when its time is up. Policies are the operator's of today. Raises as `Tenants.create`.
    """
    settings = _settings(tenants)
    if identity in tenants.templates or (found := (await _of(tenant, settings)).get(identity)) is None:
        return None
    _, stored = found

    async def make() -> AsyncSandbox:
        rest = {name: value for name, value in given.items() if value}
        lasts = tenants.lasting(lifetime, pauses)
        return await asyncio.to_thread(AsyncSandbox.prepared, stored, settings, timeout=lasts, **rest)

    return await tenants.create(tenant, identity, settings, lifetime, make=make, pauses=pauses)
