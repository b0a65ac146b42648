"""What callers may ask besides a sandbox: each sees its own, and what an engine says of itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.codes import EndCode
from ..core.errors import ImageMissing, SandboxError
from ..core.resources import installation
from ..engines.about import Condition, Shown
from ..engines.broker import words

if TYPE_CHECKING:
    from .caller import Caller
    from .daemon import Broker

MOST_ROWS = 300
"""That fit in one answer."""

Answer = dict[str, Any]


async def status(broker: Broker, caller: Caller, said: Answer) -> Answer:
    """What the broker is, how many it has ready, and what this user may have."""
    ceiling = broker.policy.of(caller.peer.uid)
    return {
        "version": __version__,
        "package": installation(),
        "engine": broker.engine.address,
        "ready": broker.pool.ready,
        "pool": broker.pool.size,
        "yours": broker.tally.running[caller.peer.uid],
        "all": broker.tally.total,
        "set_by": broker.policy.source,
        "sessions": ceiling.sessions,
    }


async def list_own(broker: Broker, caller: Caller, said: Answer) -> Answer:
    """The sandboxes of this user; root sees all."""
    rows: list[Answer] = []
    for lent in list(broker.lent.values())[:MOST_ROWS]:
        if caller.peer.uid not in {0, lent.uid}:
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
                "memory_bytes": lent.spec.limits.memory_bytes,
                "version": __version__,
            }
        )
    if caller.peer.uid in {0, os.geteuid()}:
        rows += broker.pool.rows()
    return {"rows": rows[:MOST_ROWS]}


async def info(broker: Broker, caller: Caller, said: Answer) -> Answer:
    found = asdict(await broker.engine.info())
    return {"info": {**found, "runtimes": sorted(found["runtimes"]), "limited": sorted(found["limited"])}}


async def conditions(broker: Broker, caller: Caller, said: Answer) -> Answer:
    detached = Condition("detached", met=True, found=broker.keeping.allows(caller.peer))
    return {"rows": [asdict(row) for row in (*await broker.engine.conditions(), detached)]}


async def shown(broker: Broker, caller: Caller, said: Answer) -> Answer:
    """How the machine shows one of this user's sandboxes; of others, and of those that are gone, nothing."""
    container = words.text(said["container"])
    own = any(one.container.id == container and one.uid == caller.peer.uid for one in broker.lent.values())
    found = asdict(await broker.engine.shown(container) if own else Shown())
    return {"shown": {**found, **{name: sorted(found[name]) for name in ("inside", "own", "mounts")}}}


async def image(broker: Broker, caller: Caller, said: Answer) -> Answer:
    """What the engine says of an image that this user may have; of no other whether it is there."""
    name, ceiling = words.text(said["image"]), broker.policy.of(caller.peer.uid)
    allowed = name in ceiling.images if ceiling.images is not None else ceiling.own or not name.startswith("/")
    if ceiling.denied or not allowed:
        raise ImageMissing(EndCode.IMAGE_MISSING, f"the broker has no image {name[:100]!r} for this user")
    found = asdict(await broker.engine.image(name))
    return {"image": {**found, "variables": [list(pair) for pair in found["variables"]]}}


async def reap(broker: Broker, caller: Caller, said: Answer) -> Answer:
    """Remove what lost owners left; all who ask meanwhile get the same answer."""
    return {"count": await broker.reap()}


async def pass_on(broker: Broker, caller: Caller, said: Answer) -> Answer:
    """Note that a sandbox on its way to the next owner is with a process of the same user."""
    lent, pid = broker.with_ticket(said["ticket"], caller.peer), said["pid"]
    if type(pid) is not int or pid <= 0:
        raise ValueError("no process")
    with contextlib.suppress(OSError, SandboxError):
        if os.stat(f"/proc/{pid}").st_uid == caller.peer.uid:  # noqa: PTH116 (a process, and not a file)
            await broker.rename(lent, pid)
    return {}


ANSWERS: dict[str, Callable[[Broker, Caller, Answer], Awaitable[Answer]]] = {
    "status": status,
    "list": list_own,
    "info": info,
    "conditions": conditions,
    "shown": shown,
    "image": image,
    "reap": reap,
    "pass_on": pass_on,
}
