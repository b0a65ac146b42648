"""The one list of our plugins, and how those of other packages are found.

A plugin of ours is the folder of its name with a module `plugin`, which has a `PLUGIN`. One whose folder was deleted is
left out of help and pages, and an error when it is named. Another package names its `PLUGIN` in an entry point of the
group `sandbox_kernel.plugins`. Entry points are read for a name that is unknown here and for the list of codes, and
never for the start of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from ..core.codes import Code, UsageCode
from ..core.errors import ConfigurationError
from .api import Plugin

COMMANDS: dict[str, tuple[str, ...]] = {
    "batch": ("run",),
    "frameworks": (),
    "mcp": ("mcp",),
    "qemu": (),
    "screen": ("screen",),
    "verify": ("verify",),
}
"""Our plugins, each with its commands."""
ENGINES: dict[str, tuple[str, ...]] = {"qemu": ("qemu",)}
"""Those of our plugins that bring engines, each with their names."""
ENTRY_POINTS = "sandbox_kernel.plugins"


def is_here(name: str) -> bool:
    """Return whether one of our plugins is a part of this installation."""
    return Path(__file__).with_name(name).joinpath("plugin.py").is_file()


def plugins() -> Iterator[Plugin]:
    """Yield those of our plugins that are a part of this installation."""
    for name in COMMANDS:
        if is_here(name):
            yield _ours(name)


def codes() -> dict[str, type[Code]]:
    """Return the tables of codes that our plugins have, by their titles."""
    return {title: table for plugin in plugins() for title, table in plugin.codes.items()}


def codes_of_others() -> dict[str, type[Code]]:
    """Return the tables of codes of other packages' plugins, by their titles; those that cannot be used have none."""
    return {title: table for plugin in _others()[0] for title, table in plugin.codes.items()}


def with_command(word: str) -> Plugin | None:
    """Return the plugin that has a command, None if there is none.

    Raises `ConfigurationError` if it is one of ours that is not here, or one of another package that cannot be used.
    """
    for name, commands in COMMANDS.items():
        if word in commands:
            if is_here(name):
                return _ours(name)
            words = f"{word}: the plugin {name} is not a part of this installation"
            raise ConfigurationError(UsageCode.PLUGIN_MISSING, words, value=word)
    return _of_another_package("command", word, lambda plugin: [command.name for command in plugin.commands])


def with_engine(word: str) -> Plugin | None:
    """Return the plugin that brings an engine, None if there is none.

    Raises `ConfigurationError` if it is one of ours that is not here, or one of another package that cannot be used.
    """
    for name, engines in ENGINES.items():
        if word in engines:
            if is_here(name):
                return _ours(name)
            words = f"the engine {word}: the plugin {name} is not a part of this installation"
            raise ConfigurationError(UsageCode.PLUGIN_MISSING, words, value=word, setting="engine")
    return _of_another_package("engine", word, lambda plugin: [getattr(one, "name", None) for one in plugin.engines])


def engines() -> tuple[str, ...]:
    """Return the names of the engines of our plugins that are a part of this installation."""
    return tuple(engine for name, engines in ENGINES.items() if is_here(name) for engine in engines)


def _ours(name: str) -> Plugin:
    found: Plugin = import_module(f"{__package__}.{name}.plugin").PLUGIN
    return found


def _of_another_package(what: str, word: str, names: Callable[[Plugin], Sequence[object]]) -> Plugin | None:
    others, unusable = _others()
    found = [plugin for plugin in others if word in names(plugin)]
    if len(found) > 1:
        unusable.append(f"several plugins have the {what} {word}: {', '.join(one.name for one in found)}")
    elif found:
        return found[0]
    if unusable:
        raise ConfigurationError(UsageCode.PLUGIN_UNUSABLE, "; ".join(unusable))
    return None


def _others() -> tuple[list[Plugin], list[str]]:
    """Return the plugins of other packages, and what is wrong with those that cannot be used."""
    from importlib.metadata import entry_points

    found: list[Plugin] = []
    unusable: list[str] = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            plugin = entry.load()
        except Exception as error:  # code of others: one of them may be broken, and another one meant
            unusable.append(f"the plugin {entry.name} cannot be loaded: {error!r}")
            continue
        if isinstance(plugin, Plugin):
            found.append(plugin)
        else:
            unusable.append(f"the plugin {entry.name} is no Plugin: {entry.value} is something else")
    return found, unusable
