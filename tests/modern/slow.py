"""Runs in the machine, in each of its Pythons: the product's bounds on what a machine does are longer there.

An emulated processor takes ten to forty times as long, and others use the real one besides. A bound of 4 s for the
removal of a container says nothing there; that it is removed does. Nothing else of the product is changed. Standard
library only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

SLOWNESS = 12
"""The real processor's speed, by that of the emulated one with its share of the real."""

BOUNDS = {
    "core.tasks": ("END_SECONDS",),
    "engines.docker.container": (
        *("KILL_SECONDS", "BY_HAND_SECONDS", "LATE_OOM_SECONDS", "JUST_BEFORE_SECONDS", "ENGINE_BACK_SECONDS"),
        "LAST_WORDS_SECONDS",
    ),
    "engines.docker.discovery": ("ANSWER_SECONDS",),
    "engines.docker.api_client": ("REQUEST_SECONDS",),
    "engines.docker.engine": ("REAP_SECONDS",),
    "engines.container_reaper": ("REQUEST_SECONDS", "SILENT_SECONDS"),
    "plugins.bubblewrap.container": ("KILL_SECONDS", "START_SECONDS", "JUST_BEFORE_SECONDS"),
    "plugins.bubblewrap.engine": ("TRY_SECONDS", "REAP_SECONDS"),
    "plugins.bubblewrap.cgroups": ("REMOVE_SECONDS",),
    "kernel.proxy": ("SHUTDOWN_SECONDS",),
    "session.requests.machine": ("PATIENCE_SECONDS", "KILL_SECONDS"),
    "session.lifecycle": ("EXIT_SECONDS",),
    "session.agent_link": ("PING_SECONDS", "ANSWER_SECONDS"),
    "plugins.doctor.doctor": ("TOTAL_SECONDS",),
    "setup.engine_setup": ("FIND_SECONDS",),
}


class _Slowly(Loader):
    """Loads a module as it is, and then makes its bounds longer."""

    def __init__(self, loader: Loader, names: Sequence[str]) -> None:
        self._loader, self._names = loader, names

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for name in self._names:
            setattr(module, name, getattr(module, name) * SLOWNESS)  # one that is no longer there is an error


class Finder:
    """Finds the modules that have such bounds."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        if package != "sandbox_kernel" or rest not in BOUNDS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Slowly(spec.loader, BOUNDS[rest])
        return spec


sys.meta_path.insert(0, Finder)
