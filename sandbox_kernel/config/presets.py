"""Presets: values of several settings by what a sandbox is for. Somebody outside names one; no code in a cell can.

A value that is given beside a preset counts. Beside the value of a config file, the stricter of both counts: so a
preset loosens nothing that a file has set, and what it closes stays closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .table import SETTINGS

_STRICT: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "outputs": ("trusted", "safe", "strict"),
        "screen": ("off", "warn", "ask", "block"),
        "screen_overrides": ("allow", "forbid"),
    }
)
"""Settings whose values are words, from the loosest to the strictest. Of numbers, the smaller one is stricter, and of
lists the empty one."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What one need asks for."""

    need: str
    values: Mapping[str, tuple[object, str]]
    """By the name of a setting: its value, and why it is that."""

    @property
    def here(self) -> dict[str, Any]:
        """Its values, without those of plugins that are not a part of this installation."""
        return {name: value for name, (value, _) in self.values.items() if name in SETTINGS}


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "untrusted": Preset(
            "code of a stranger, looked at once",
            {
                "memory": ("256M", "enough for Python with pandas, and for nothing that presses the machine"),
                "cpus": (0.5, "half a processor: mining pays nothing, and neighbours notice nothing"),
                "pids": (64, "a kernel has some ten threads; a fork bomb ends early"),
                "cell_timeout": (5, "what shows what it does in seconds; raise it for what computes"),
                "idle_timeout": ("5m", "nobody comes back to it"),
                "output_limit": ("1M", "more than anybody reads"),
                "outputs": ("strict", "nothing active comes near a browser"),
                "network": ("none", "no way out"),
                "packages": ("none", "no way in for more code"),
                "screen": ("block", "what looks like an attack is not even started"),
                "screen_overrides": ("forbid", "who wrote the code has no say in that"),
            },
        ),
        "analysis": Preset(
            "a person's own data, with the usual packages",
            {
                "memory": ("8G", "tables of a few gigabytes, in /mnt/data and in pandas"),
                "pids": (512, "threads of numpy, polars and joblib"),
                "cell_timeout": ("30m", "a model is fitted in one cell"),
                "idle_timeout": ("4h", "variables survive a lunch and a meeting"),
            },
        ),
        "interview": Preset(
            "a candidate who writes code while others watch",
            {
                "memory": ("512M", "exercises, and tables that fit on a slide"),
                "cpus": (1, "one processor: the same for each candidate"),
                "pids": (128, "enough for threads and tests"),
                "cell_timeout": (30, "an endless loop ends while everybody still watches"),
                "idle_timeout": ("2h", "people talk for long, and variables should be there then"),
                "network": ("none", "no answers from elsewhere"),
            },
        ),
        "agent": Preset(
            "a language model that runs many small cells",
            {
                "memory": ("1G", "many sessions at once on one machine"),
                "cpus": (1, "the same"),
                "cell_timeout": ("2m", "a model waits for the answer, and pays for the time"),
                "idle_timeout": ("15m", "a conversation that has ended says no goodbye"),
                "output_limit": ("4M", "a model reads far less"),
                "outputs": ("strict", "a model reads text and pictures, and no scripts"),
                "screen": ("warn", "findings are in the record, and stop nobody's work"),
            },
        ),
    }
)


def merged(files: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of files and those that are given, unchecked; of a preset that is given, the stricter ones."""
    preset = _preset(given)
    if preset is None:
        return {**files, **given}
    found = filled(files)  # a preset that a file names is not loosened either
    for name, value in preset.here.items():
        if name not in found or not _is_stricter(name, found[name], value):
            found[name] = value
    return {**found, **given}


def filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those of their preset for all that they do not name."""
    preset = _preset(values)
    return dict(values) if preset is None else {**preset.here, **values}


def _preset(values: Mapping[str, Any]) -> Preset | None:
    name = values.get("preset")
    return PRESETS.get(name.strip().lower()) if isinstance(name, str) else None  # else refused where it is read


def _is_stricter(name: str, value: object, than: object) -> bool:
    """Return whether a value is at least as strict. One that cannot be read is kept: it is an error when it is read."""
    form = SETTINGS[name].form
    try:
        one, other = form(name, value), form(name, than)
    except Exception:  # whatever it is, it comes again where it is told to somebody
        return True
    if name in _STRICT:
        return _STRICT[name].index(one) >= _STRICT[name].index(other)
    return bool(one <= other) if isinstance(one, int | float) else not one
