"""What the host writes down beside a snapshot, as plain data with a version, and what must fit where it is begun from.

Of a session little is the host's: variables, files, the counter of cells, history and commands are in the sandbox
itself. Policies are not among it: who begins from a snapshot has those of the own settings, and the displays and comms
of the session before are unknown to them, so that nothing of them is changed. Ids and keys are new.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from ....config.sources import SETTINGS
from ....core.codes import EndCode, UsageCode
from ....core.errors import AbilityMissing, ConfigurationError, EngineError, FileRefused
from ....core.model import PYTHON_KERNEL, Limits, SandboxSpec, Settings
from ....core.tasks import Tasks
from ....engines.abilities import Ability, Restorer
from ....engines.abilities import demand as require
from ....engines.attestation import demand
from ....engines.base import Container
from ....engines.select import chosen
from ....engines.shipping import new_spec
from ... import index
from ..codes import SnapshotCode

VERSION = 2


def require_whole(settings: Settings, given: Mapping[str, object]) -> None:
    """Raise `FileRefused` if the snapshot would lack a part of the sandbox.

    Args:
        settings: Of the sandbox.
        given: What its caller gives to plugins, by their names.
    """
    why = None
    if settings.uploads is not None or settings.downloads is not None:
        why = "it has folders of the host"
    elif settings.kernel != PYTHON_KERNEL:
        why = f"its kernel is {settings.kernel}, whose random numbers a copy would share"
    else:
        plugins = index.services(settings, given)
        parts = (one.no_snapshot(settings) for one in plugins if one.no_snapshot is not None)
        why = next(filter(None, parts), None)
    if why is not None:
        raise FileRefused(SnapshotCode.SNAPSHOT_NOT_WHOLE.note(why=why))


def about(settings: Settings, session: str, kernel_info: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be known of a snapshot; `facts` are its engine's."""
    spec = new_spec(settings, session)
    given = {name: getattr(settings, name) for name in _of_the_snapshot()} | {"engine": chosen(settings)}
    given |= {"limits": dataclasses.asdict(settings.limits), "environment": [list(one) for one in settings.environment]}
    state = {"handshake": kernel_info}
    return {"version": VERSION, "spec": given, "fits": digest(spec), "facts": dict(facts), "state": state}


def settings_of(name: str, said: Mapping[str, Any], own: Settings, given: Mapping[str, object]) -> Settings:
    """Return the settings of who begins from a snapshot: its own, but for what the sandbox was made with.

    Raises `ConfigurationError` for a setting that was `given` and is the snapshot's, `FileRefused` for what cannot be.
    """
    try:
        if said["version"] != VERSION:
            why = f"what is known of it has version {str(said['version'])[:20]}, and this is {VERSION}"
            raise FileRefused(SnapshotCode.SNAPSHOT_UNFIT.note(name=name, why=why))
        spec = dict(said["spec"])
        limits = Limits(**spec.pop("limits"))
        environment = tuple((str(key), str(value)) for key, value in spec.pop("environment"))
        made = replace(own, **{one: spec[one] for one in _of_the_snapshot()}, limits=limits, environment=environment)
    except (LookupError, TypeError, ValueError):
        why = "what is known of it is not in order"
        raise FileRefused(SnapshotCode.SNAPSHOT_UNFIT.note(name=name, why=why)) from None
    differing = [one for one in given if given[one] is not None and _value(made, one) != _value(own, one)]
    if differing:
        why = f"{differing[0]} is the snapshot's own: leave it out"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, why, setting=differing[0])
    return made


def require_fitting(name: str, said: Mapping[str, Any], spec: SandboxSpec) -> None:
    """Raise `FileRefused` unless a sandbox that began now would be made of the same."""
    if said.get("fits") != digest(spec):
        why = "its image, limits or agent are others here, or this is another version of sandbox_kernel"
        raise FileRefused(SnapshotCode.SNAPSHOT_UNFIT.note(name=name, why=why))


def start_options(
    engine: object, name: str, said: Mapping[str, Any], fd: int
) -> Callable[[SandboxSpec], Awaitable[Container]]:
    """Return what starts a sandbox that goes on from `fd`, an open file; what it says of itself counts for nothing.

    The engine's own word on it counts: it raises `AttestationFailed` for one that lacks a protection.
    """

    async def opens(spec: SandboxSpec) -> Container:
        require_fitting(name, said, spec)
        require(Ability.SNAPSHOT, engine)
        if not isinstance(engine, Restorer):
            raise AbilityMissing(EndCode.ENGINE_CANNOT_SNAPSHOT)
        try:
            container = await engine.restore(spec, fd, said["facts"])
        except EngineError as error:
            if error.code is EndCode.ENGINE_FAILED:
                raise FileRefused(SnapshotCode.SNAPSHOT_UNFIT.note(name=name, why=error.message)) from error
            raise
        try:
            demand((await container.look(spec)).lines)
        except BaseException:
            await asyncio.shield(_undoing.hold(container.kill(), "undo a copy"))
            raise
        return container

    return opens


_undoing = Tasks()


def digest(spec: SandboxSpec) -> str:
    """Return what tells one kind of sandbox from another: all of its spec, but for whose it is."""
    parts = [spec.image, spec.runtime, dataclasses.asdict(spec.limits), list(spec.command), spec.program.decode()]
    parts += [dataclasses.asdict(one) for one in spec.attached]
    return hashlib.sha256(json.dumps([*parts, spec.limits_kept], sort_keys=True).encode()).hexdigest()


def _of_the_snapshot() -> list[str]:
    """Return the fields of `Settings` that a sandbox was made with; so are its limits and its variables.

    Those of plugins are not among them: a plugin of which a snapshot would lack something refuses it.
    """
    mine = (one for one in SETTINGS.values() if one.scope == "sandbox" and one.owner is Settings and not one.is_limit)
    return [*(one.field for one in mine), "charts", "home"]


def _value(settings: Settings, name: str) -> object:
    """Return the value of a setting by the name that callers have for it."""
    if name == "envs":
        return settings.environment
    setting = SETTINGS.get(name)
    if setting is None:
        return None
    return setting.value(settings)
