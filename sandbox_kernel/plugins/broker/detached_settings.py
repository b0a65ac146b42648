"""The settings of a sandbox that outlives its caller: what goes with it, and what is the next owner's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...config.sources import SETTINGS, changed, from_keywords
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, EngineError
from ...core.model import Settings, format_bytes
from ...engines.select import AUTO, BROKER, is_service
from .client import packets
from .codes import BrokerCode

NOTHING: Mapping[str, Any] = MappingProxyType({})
KEPT = [one for one in SETTINGS.values() if one.scope in ("sandbox", "session") and one.name != "engine"]
"""Settings that go with a sandbox."""
OF_ANOTHER_USER = {one.name for one in KEPT if one.scope == "sandbox" or one.is_limit}
"""Those that count if another user made it. What leaves it is decided by whoever takes it over."""
OF_THE_CALLER = [one for one in SETTINGS.values() if one.scope == "caller"]
"""What a process would do for the cells, which are to outlive it."""


def address_of(engine: str) -> str:
    """Return the address of the broker that is meant. Raises `ConfigurationError` for another engine."""
    if engine == AUTO:
        return BROKER
    if is_service(engine):
        return engine
    raise ConfigurationError(
        UsageCode.NOT_TOGETHER,
        'a detached sandbox is kept by a broker: engine="broker"',
        setting="engine",
        value=engine,
    )


def check(settings: Settings) -> None:
    """Raise `ConfigurationError` for what no sandbox can have that outlives this process."""
    for one in OF_THE_CALLER:
        if one.value(settings) != one.default:
            raise ConfigurationError(UsageCode.OF_THE_CALLER, setting=one.name)


def dumped(settings: Settings) -> str:
    said = {one.name: one.form.kept(one.value(settings)) for one in KEPT}
    longest = max(said, key=lambda name: packets.size(said[name]))
    text = json.dumps({**said, "charts": settings.charts})
    if (size := packets.size(text)) > packets.MAX_SETTINGS:
        limit, value = format_bytes(packets.MAX_SETTINGS), format_bytes(size)
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER,
            "the settings of a detached sandbox are too long to be kept",
            limit=limit,
            value=value,
            setting=longest,
        )
    return text


def restored(text: object, engine: str, *, own: bool, given: Mapping[str, Any] = NOTHING) -> Settings:
    """Return the settings that a sandbox was made with, and of this process those that are a process's own.

    `given` are those that a caller gives; others than a process's own count for nothing.
    """
    mine = {name: value for name, value in given.items() if name in SETTINGS and SETTINGS[name].scope == "process"}
    base = changed(from_keywords(**mine), {one.name: one.default for one in OF_THE_CALLER})
    try:
        said = json.loads(packets.text(text, packets.MAX_SETTINGS))
        if set(said) != {"charts", *(one.name for one in KEPT)}:
            raise ValueError("they have other names")
        found = {one.name: one.form.restore(one.name, said[one.name]) for one in KEPT}
        found = {name: value for name, value in found.items() if own or name in OF_ANOTHER_USER}
        return replace(changed(base, found), engine=engine, charts=said["charts"] is True)
    except (ConfigurationError, TypeError, ValueError, RecursionError, OverflowError) as error:
        why = error.message if isinstance(error, ConfigurationError) else error
        raise EngineError(BrokerCode.BROKER_IMPROPER, f"the settings of the sandbox are not proper: {why}") from error
