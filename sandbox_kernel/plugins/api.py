"""What a plugin says of itself, ours or that of another package."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.code import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of `sandbox-kernel`. The first line of its `run`'s docstring is its line in the help."""

    name: str
    run: Callable[[argparse.Namespace], int]
    """Take the options, with settings in `values`, unchecked. Return the exit code."""
    examples: Mapping[str, str]
    """Command lines, and what each is for. The help shows all of them; it needs at least one."""
    add_options: Callable[[argparse.ArgumentParser], object] | None = None
    settings: bool = True
    """Whether the command takes settings as options."""
    exit_codes: Mapping[str, str] | None = None
    """What each exit code means, if they are not those of the other commands."""
    group: str = "Plugins"
    """The title below which the help lists it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One plugin. To make it imports nothing large: a plugin's own modules are imported when they are used."""

    name: str
    page: str
    """Where people read about it: a path in this project, or an address."""
    extra: str | None = None
    """The extra of this project that has the packages it needs; None if it needs none."""
    commands: tuple[Command, ...] = ()
    engines: Sequence[object] = ()
    """Engines that it brings, each a `sandbox_kernel.engines.select.EngineProvider`."""
    codes: Mapping[str, type[Code]] = field(default_factory=dict)
    """Tables of its own codes, by title. A table's docstring says what they are about."""
