"""The settings of a sandbox that outlives its caller: what goes with it, and what is the next owner's own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from ...config.sources import SETTINGS, from_keywords
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, EngineError
from ...core.model import Limits, Monitoring, MonitorRule, OutputMode, Settings, format_bytes
from ...engines.select import AUTO, BROKER, is_service
from .client import packets
from .codes import BrokerCode

TEXTS = ("image", "limits_kept", "outputs", "screen", "screen_overrides")
TEXTS_OR_NONE = ("runtime", "time_zone", "screen_rules")
NUMBERS = ("display_lines", "display_size", "screen_threshold")
NOTHING: Mapping[str, Any] = MappingProxyType({})
OF_THIS_PROCESS = frozenset(name for name, setting in SETTINGS.items() if setting.scope == "process")
"""Settings of whoever takes a sandbox over, as keywords."""
OF_ANOTHER_USER = frozenset(one.field for one in SETTINGS.values() if one.scope == "sandbox") | {"limits", "charts"}
"""What a sandbox is made of. What leaves it is decided by whoever takes it over."""


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
    """Raise `ConfigurationError` for what this process would do for the cells, which are to outlive it."""
    for name in ("network", "secrets", "packages", "uploads", "downloads"):
        if getattr(settings, name):
            raise ConfigurationError(UsageCode.OF_THE_CALLER, setting=name)


def dumped(settings: Settings) -> str:
    names = (*TEXTS, *TEXTS_OR_NONE, *NUMBERS, "charts")
    said: dict[str, Any] = {name: getattr(settings, name) for name in names}
    said["limits"] = asdict(settings.limits)
    said["plugins"] = list(settings.plugins)
    said["monitor"] = None if settings.monitor is None else asdict(settings.monitor)
    text = json.dumps(said)
    if (size := packets.size(text)) > packets.MAX_SETTINGS:
        limit, value = format_bytes(packets.MAX_SETTINGS), format_bytes(size)
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER,
            "the settings of a detached sandbox are too long to be kept",
            limit=limit,
            value=value,
            setting="screen_rules",
        )
    return text


def restored(text: object, engine: str, *, own: bool, given: Mapping[str, Any] = NOTHING) -> Settings:
    """Return the settings that a sandbox was made with, and of this process those that say where things are.

    `given` are those that a caller gives; others than `OF_THIS_PROCESS` count for nothing.
    """
    mine = {name: value for name, value in given.items() if name in OF_THIS_PROCESS}
    base = replace(
        from_keywords(**mine), engine=engine, network=(), secrets=(), packages=(), uploads=None, downloads=None
    )
    try:
        said = json.loads(packets.text(text, packets.MAX_SETTINGS))
        found: dict[str, Any] = {name: packets.text(said[name]) for name in TEXTS}
        found |= {name: None if said[name] is None else packets.text(said[name], 1 << 20) for name in TEXTS_OR_NONE}
        found |= {name: _whole(said[name]) for name in NUMBERS}
        found |= {"charts": said["charts"] is True, "limits": _limits(said["limits"])}
        found["plugins"] = tuple(packets.text(name) for name in said["plugins"])
        found["monitor"] = None if said["monitor"] is None else _monitoring(said["monitor"])
        allowed = {"outputs": get_args(OutputMode), "screen": ("off", "warn", "block")}
        allowed |= {"screen_overrides": ("allow", "forbid"), "limits_kept": ("enforced", "best-effort")}
        if not all(found[name] in values for name, values in allowed.items()):
            raise ValueError("that is no choice")
    except (LookupError, TypeError, ValueError, RecursionError, AttributeError, OverflowError) as error:
        raise EngineError(BrokerCode.BROKER_IMPROPER, f"the settings of the sandbox are not proper: {error}") from error
    if not own:
        found = {name: value for name, value in found.items() if name in OF_ANOTHER_USER}
    return replace(base, **found)


def _limits(said: Mapping[str, Any]) -> Limits:
    if not all(type(value) in {int, float} and math.isfinite(value) for value in said.values()):
        raise ValueError("that is no limit")
    return Limits(**said)


def _whole(said: object) -> int:
    if type(said) is not int or said < 0:
        raise ValueError("that is no number")
    return said


def _monitoring(said: Mapping[str, Any]) -> Monitoring:
    levels = cast("Any", Literal["note", "alert", "kill"])
    rules = []
    for one in said["rules"]:
        if one["level"] not in get_args(levels):
            raise ValueError("that is no level")
        rules.append(MonitorRule(packets.text(one["code"]), one["level"], _whole(one["count"]), float(one["seconds"])))
    return Monitoring(tuple(rules))
