"""What callers may ask besides a sandbox: each sees its own, and what an engine says of itself."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from ...core.codes import EndCode
from ...core.errors import ImageMissing, SandboxError
from ...core.package_files import installation
from ...core.version import __version__
from ...engines.inspectable import Condition, Shown
from .client import packets
from .client.listener_trust import Peer
from .service import Service

MAX_ROWS = 300
"""That fit in one answer."""
MAX_ANSWER = packets.MAX_BYTES - 4096
"""Bytes of the rows of one answer; the rest is asked for with the number of the last."""

Answer = dict[str, Any]


async def status(broker: Service, peer: Peer, said: Answer) -> Answer:
    """What the broker is, how many it has ready, and what this user may have."""
    ceiling = broker.policy.of(peer.uid)
    return {
        "version": __version__,
        "package": installation(),
        "engine": broker.engine.address,
        "ready": broker.pool.ready,
        "pool": broker.pool.size,
        "yours": broker.tally.running[peer.uid],
        "all": broker.tally.total,
        "set_by": broker.policy.source,
        "sessions": ceiling.sessions,
    }


async def list_own(broker: Service, peer: Peer, said: Answer) -> Answer:
    """The sandboxes of this user; root sees all."""
    rows: list[Answer] = []
    for lent in list(broker.lent.values())[:MAX_ROWS]:
        if peer.uid not in {0, lent.uid}:
            continue
        rows.append(
            {
                "session": lent.name,
                "container": lent.container.id,
                "owner_pid": lent.pid or None,
                "owner_alive": not lent.is_adrift,
                "state": lent.state,
                "age_seconds": int(time.monotonic() - lent.since),
                "image": lent.spec.image,
                "memory_bytes": lent.spec.limits.memory,
                "version": __version__,
            }
        )
    if peer.uid in {0, os.geteuid()}:
        rows += broker.pool.rows()
    return {"rows": rows[:MAX_ROWS]}


async def info(broker: Service, peer: Peer, said: Answer) -> Answer:
    found = asdict(await broker.engine.info())
    return {"info": {**found, "runtimes": sorted(found["runtimes"]), "limited": sorted(found["limited"])}}


async def conditions(broker: Service, peer: Peer, said: Answer) -> Answer:
    detached = Condition("detached", met=True, found=broker.keeping.allows(peer))
    return {"rows": [asdict(row) for row in (*await broker.engine.conditions(), detached)]}


async def shown(broker: Service, peer: Peer, said: Answer) -> Answer:
    """How the machine shows one of this user's sandboxes; of others, and of those that are gone, nothing."""
    container = packets.text(said["container"])
    own = any(one.container.id == container and one.uid == peer.uid for one in broker.lent.values())
    found = asdict(await broker.engine.shown(container) if own else Shown())
    return {"shown": {**found, **{name: sorted(found[name]) for name in ("inside", "own", "mounts")}}}


async def image(broker: Service, peer: Peer, said: Answer) -> Answer:
    """What the engine says of an image that this user may have; of no other whether it is there."""
    name, ceiling = packets.text(said["image"]), broker.policy.of(peer.uid)
    allowed = name in ceiling.images if ceiling.images is not None else ceiling.own or not name.startswith("/")
    if ceiling.denied or not allowed:
        raise ImageMissing(EndCode.IMAGE_MISSING, f"the broker has no image {name[:100]!r} for this user")
    found = asdict(await broker.engine.image(name))
    return {"image": {**found, "variables": [list(pair) for pair in found["variables"]]}}


async def reap(broker: Service, peer: Peer, said: Answer) -> Answer:
    """Remove what lost owners left; all who ask meanwhile get the same answer."""
    return {"count": await broker.reap()}


async def pass_on(broker: Service, peer: Peer, said: Answer) -> Answer:
    """Note that a sandbox on its way to the next owner is with a process of the same user."""
    lent, pid = broker.with_ticket(said["ticket"], peer), said["pid"]
    if type(pid) is not int or pid <= 0:
        raise ValueError("no process")
    with contextlib.suppress(OSError, SandboxError):
        if os.stat(f"/proc/{pid}").st_uid == peer.uid:  # noqa: PTH116 (a process, and not a file)
            await broker.rename(lent, pid)
    return {}


async def kept(broker: Service, peer: Peer, said: Answer) -> Answer:
    """List those that a user may have, the oldest first, from behind a row on."""
    after = said.get("after", 0)
    if type(after) is not int or after < 0:
        raise ValueError("no row")
    found = sorted(broker.keeping.of(peer), key=lambda one: one.since)
    rows: list[Answer] = []
    size = 0
    for one in found[after:]:
        limits = packets.asked(one.spec)["limits"]
        row = {**one.shown(), "image": one.spec.image, "runtime": one.spec.runtime, "limits": limits}
        size += len(json.dumps(row))
        if size > MAX_ANSWER:
            return {"rows": rows, "more": True}
        rows.append(row)
    return {"rows": rows, "more": False}


async def described(broker: Service, peer: Peer, said: Answer) -> Answer:
    one = broker.keeping.named(said, peer)
    return {"settings": one.wish.settings, "metadata": one.wish.metadata, "own": one.uid == peer.uid}


async def end(broker: Service, peer: Peer, said: Answer) -> Answer:
    await broker.keeping.named(said, peer).kill()
    return {}


async def extend(broker: Service, peer: Peer, said: Answer) -> Answer:
    one = broker.keeping.named(said, peer)
    one.extend(packets.seconds(said["lasts"]))
    return {"left": one.left}


ANSWERS: dict[str, Callable[[Service, Peer, Answer], Awaitable[Answer]]] = {
    "status": status,
    "list": list_own,
    "info": info,
    "conditions": conditions,
    "shown": shown,
    "image": image,
    "reap": reap,
    "pass_on": pass_on,
    "kept": kept,
    "described": described,
    "end": end,
    "extend": extend,
}
