"""The one list of our plugins, and how those of other packages are found.

A plugin of ours is the folder of its name with a module `plugin`, which has a `PLUGIN`. One whose folder was deleted is
left out of help and pages, and an error when it is named. Another package names its `PLUGIN` in an entry point of the
group `sandbox_kernel.plugins`. Entry points are read for a name that is unknown here and for the list of codes, and
never for the start of a kernel that names none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.codes import Code, UsageCode, find
from ..core.errors import ConfigurationError
from ..core.model import PYTHON_KERNEL, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from .api import Plugin

COMMANDS: dict[str, tuple[str, ...]] = {
    "batch": ("run", "submit", "result"),
    "broker": ("broker",),
    "browser_policy": (),
    "bubblewrap": (),
    "charts": (),
    "commands": (),
    "contexts": (),
    "data": ("volumes",),
    "doctor": ("doctor",),
    "file_messages": (),
    "frameworks": (),
    "hints": (),
    "inlining": (),
    "kubernetes": ("warm-pool",),
    "mcp": ("mcp",),
    "monitor": (),
    "network": (),
    "packages": (),
    "podman": (),
    "provisioner": (),
    "qemu": ("snapshots",),
    "record": ("receipt", "gate", "audit"),
    "requirements": (),
    "screen": ("screen", "lsp"),
    "serve": ("serve", "dashboard"),
    "shared": (),
    "streams": (),
    "tools": (),
    "verify": ("verify",),
    "wasm": (),
    "widgets": (),
}
"""Our plugins, each with its commands."""
ENGINES: dict[str, tuple[str, ...]] = {
    "bubblewrap": ("bubblewrap",),
    "broker": ("broker",),
    "kubernetes": ("kubernetes",),
    "podman": ("podman",),
    "qemu": ("qemu",),
    "shared": ("shared",),
    "wasm": ("wasm",),
}
"""Those of our plugins that bring engines, each with their names, in the order of lists."""
SETTINGS: dict[str, tuple[str, ...]] = {
    "batch": ("engine_by_risk",),
    "broker": ("pool", "preload"),
    "data": ("datasets", "volumes"),
    "kubernetes": ("kubernetes_context", "kubernetes_namespace", "kubernetes_lifetime", "kubernetes_warm_pool"),
    "qemu": ("snapshots_size", "snapshots_age", "pause_memory"),
    "screen": (
        "screen",
        "screen_threshold",
        "screen_rules",
        "screen_overrides",
        "screen_override_needs",
        "screen_judges",
        "screen_command",
        "screen_judge_seconds",
        "screen_judge_fails",
    ),
    "monitor": ("monitor", "monitor_webhook", "monitor_command", "trace"),
    "record": ("audit", "audit_key", "audit_size", "audit_source"),
    "network": (
        "network",
        "secrets",
        "network_connections",
        "network_bytes",
        "network_timeout",
        "network_proxy",
        "network_certificates",
    ),
    "packages": ("packages", "packages_index", "packages_size"),
    "wasm": ("undo", "fuel"),
}
"""Those that have settings, each with the names of these; its module `settings` has their `SETTINGS`, the title of
their `GROUP`, and `check`, if they have to fit to others. It is loaded where one of them is given."""
SERVICES: dict[str, dict[str, object]] = {
    "screen": {"screen": "off"},
    "monitor": {"monitor": None, "trace": None},
    "record": {"audit": None},
    "network": {"network": (), "secrets": ()},
    "packages": {"packages": ()},
    "data": {"datasets": (), "volumes": ()},
    "tools": {},
}
"""Those that take part in sessions, in order: the settings that ask for it, each with the value that does not.

One without settings takes part where a caller gives it something.
"""
REQUIRES: dict[str, tuple[str, ...]] = {
    "frameworks": ("charts", "commands", "streams", "tools"),
    "network": ("streams",),
    "packages": ("requirements", "streams", "tools"),
    "qemu": ("bubblewrap",),
    "serve": ("mcp", "streams", "tools"),
    "shared": ("broker", "contexts"),
    "tools": ("streams",),
}
"""Those that need others, each with these."""
LINUX = ("broker", "bubblewrap", "data", "qemu", "wasm")
"""Those that need Linux on this machine itself; Docker, elsewhere, has a machine with Linux of its own."""
INSIDE: dict[str, str] = {
    "output_inlining": "inlining",
    "figure_data": "charts",
    "call_watch": "monitor",
    "secret_watch": "monitor",
    "nested_agents": "contexts",
    "stream_relay": "streams",
}
"""Modules that the nucleus ships to kernels and agents, each with the plugin whose `inside` has it."""
CHART = "application/vnd.sandbox-kernel.chart+json"
OUTPUTS: dict[str, str] = {CHART: "charts"}
"""Types of outputs, each with the plugin that has its rule."""
SNAPSHOTS = "qemu"
"""The one that writes sandboxes down."""
ENTRY_POINTS = "sandbox_kernel.plugins"
_HERE = os.path.dirname(__file__)  # noqa: PTH120 (as below)


def is_here(name: str) -> bool:
    """Return whether one of our plugins is a part of this installation, with those that it needs."""
    needed = (name, *REQUIRES.get(name, ()))
    if _needs_linux(needed):
        return False
    return all(os.path.isfile(f"{_HERE}/{one}/plugin.py") for one in needed)  # noqa: PTH113 (each command asks often)


def _needs_linux(names: Sequence[str]) -> bool:
    return sys.platform != "linux" and any(name in LINUX for name in names)


def plugins() -> Iterator[Plugin]:
    """Yield those of our plugins that are a part of this installation."""
    for name in COMMANDS:
        if is_here(name):
            yield _ours(name)


def codes() -> dict[str, type[Code]]:
    """Return the tables of codes that our plugins have, by their titles."""
    return {title: table for plugin in plugins() for title, table in plugin.codes.items()}


def code(name: str) -> Code:
    """Return the row of a code, of ours or of our plugins. Raises KeyError for an unknown code."""
    try:
        return find(name)
    except KeyError:
        return {one.code: one for table in codes().values() for one in table}[name]


def codes_of_others() -> dict[str, type[Code]]:
    """Return the tables of codes of other packages' plugins, by their titles; those that cannot be used have none."""
    return {title: table for plugin in _others()[0] for title, table in plugin.codes.items()}


def with_command(word: str) -> Plugin | None:
    """Return the plugin that has a command, None if there is none.

    Raises `ConfigurationError` if it is one of ours that is not here, or one of another package that cannot be used.
    """
    for name, commands in COMMANDS.items():
        if word in commands:
            return plugin(name)
    return _of_another_package("command", word, lambda plugin: [command.name for command in plugin.commands])


def with_engine(word: str) -> Plugin | None:
    """Return the plugin that brings an engine, None if there is none.

    Raises `ConfigurationError` if it is one of ours that is not here, or one of another package that cannot be used.
    """
    for name, engines in ENGINES.items():
        if word in engines:
            return plugin(name, setting="engine")
    return _of_another_package("engine", word, lambda plugin: [getattr(one, "name", None) for one in plugin.engines])


def engines() -> tuple[str, ...]:
    """Return the names of the engines of our plugins that are a part of this installation."""
    return tuple(engine for name, engines in ENGINES.items() if is_here(name) for engine in engines)


def settings_of(title: str | None = None) -> Iterator[Any]:
    """Yield the modules `settings` of our plugins: all, or those whose settings are listed below `title`."""
    for name in SETTINGS:
        if is_here(name):
            module = import_module(f"{__package__}.{name}.settings")
            if title in (None, module.GROUP):
                yield module


def settings_with(names: Iterable[str]) -> Iterator[Any]:
    """Yield the modules `settings` of those of our plugins that have one of these settings."""
    for name in {with_setting(each) for each in names}:
        if name is not None and is_here(name):
            yield import_module(f"{__package__}.{name}.settings")


def with_setting(name: str) -> str | None:
    """Return the plugin of ours that has a setting, be it here or not."""
    return next((plugin for plugin, names in SETTINGS.items() if name in names), None)


def services(settings: Settings, given: Container[str] = ()) -> Iterator[Plugin]:
    """Yield the plugins that take part in a session.

    Args:
        settings: Of the session.
        given: The names of those that a caller gives something.

    Raises:
        ConfigurationError: One of them is not here, or cannot be used.
    """
    for name, asking in SERVICES.items():
        asked = [setting for setting, off in asking.items() if settings.get(setting, off) != off]
        if asked or (not asking and name in given):
            yield fitting(plugin(name, setting=asked[0] if asked else name), settings, asked[0] if asked else name)
    for name in settings.plugins:
        found = _of_another_package("service", name, lambda one: [one.name] if one.service or one.prepare else [])
        if found is None:
            words = f"no plugin of another package has the name {name!r} and a part in sessions"
            raise ConfigurationError(UsageCode.PLUGIN_MISSING, words, value=name, setting="plugins")
        yield fitting(found, settings, "plugins")


def fitting(found: Plugin, settings: Settings, setting: str) -> Plugin:
    """Return a plugin that a session is to have. Raises `ConfigurationError` if it is for another language."""
    if found.python_alone and settings.kernel != PYTHON_KERNEL:
        code = UsageCode.PYTHON_ALONE.note(what=setting, kernel=settings.kernel)
        raise ConfigurationError(code, value=settings.kernel, setting="kernel")
    return found


def signer(setting: str) -> Plugin:
    """Return the plugin that signs statements, for `setting`. Raises `ConfigurationError` if it is not here."""
    return plugin("record", setting)


def plugin(name: str, setting: str | None = None) -> Plugin:
    """Return one of our plugins. Raises `ConfigurationError` if it is not here."""
    if is_here(name):
        return _ours(name)
    needs = _needs_linux((name, *REQUIRES.get(name, ())))
    words = f"the plugin {name} {'needs a machine with Linux' if needs else 'is not a part of this installation'}"
    raise ConfigurationError(UsageCode.PLUGIN_MISSING, words, value=name, setting=setting)


def attachments(setting: str | None = None) -> Plugin:
    """Return the plugin that opens what is mounted into sandboxes. Raises `ConfigurationError` if it is not here."""
    return plugin("data", setting)


def comms() -> Callable[..., Any] | None:
    """Return what makes the comms of a kernel that may pass; None if the plugin that says so is not here."""
    made: Any = _ours("widgets").comms if is_here("widgets") else None
    found: Callable[..., Any] | None = None if made is None else made()
    return found


def file_requests() -> Any:
    """Return the `FileRequests` of the plugin that answers them. Raises `ConfigurationError` if it is not here."""
    return plugin("file_messages").file_requests


def hints() -> Any:
    """Return what makes the hints of a session; None if the plugin that does is not here."""
    return _ours("hints").hints if is_here("hints") else None


def cell_reader() -> Callable[[str], str] | None:
    """Return what turns a cell into Python, line for line; None if the plugin that does is not here."""
    made: Any = _ours("screen").cell_reader if is_here("screen") else None
    found: Callable[[str], str] | None = None if made is None else made()
    return found


def requirements(path: Path) -> tuple[str, Callable[..., Any]]:
    """Return what stands for a file of requirements, and what fetches their wheels. Raises `ConfigurationError`."""
    read: Any = plugin("requirements", "requirements").requirements
    found: tuple[str, Callable[..., Any]] = read(path)
    return found


def nested(link: object) -> Any:
    """Return what has further agents of the container behind `link`. Raises `ConfigurationError` if none can be had."""
    made: Any = plugin("contexts").nested
    return made(link)


def streams() -> Any:
    """Return the class of what carries connections of cells. Raises `ConfigurationError` if its plugin is not here."""
    made: Any = plugin("streams").streams
    return made()


def rule_of(output: str) -> Callable[[Any], Any] | None:
    """Return what builds a value of a type of outputs again; None if the plugin that does is not here."""
    name = OUTPUTS[output]
    return _ours(name).outputs[output] if is_here(name) else None


def inside(module: str) -> str:
    """Return the source of a module of `INSIDE`. Raises `ConfigurationError` if its plugin is not here."""
    name = INSIDE[module]
    if not is_here(name):
        plugin(name)
    with open(f"{_HERE}/{name}/inside/{module}.py", encoding="utf-8") as file:  # noqa: PTH123 (as below)
        return file.read()


def attaching(settings: Settings) -> str | None:
    """Return the first setting that names something for `attachments` to open; None if none does."""
    return next((name for name, off in SERVICES["data"].items() if settings.get(name, off) != off), None)


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

    from .api import Plugin

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
