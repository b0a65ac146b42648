"""The name that `sandbox_kernel.plugins.frameworks` had before: it and its modules are found by both names.

The modules are the same ones, so a class is one class by either name. The old name stands in programs that people have,
and in components that AutoGen wrote down. Type checkers know the new name only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

_NOW = "sandbox_kernel.plugins.frameworks"


class _Renamed(MetaPathFinder, Loader):
    """Finds a module by its name of before, and loads it by its name of today."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_NOW + spec.name.removeprefix(__name__))
        self._spec = module.__spec__  # the import system writes the spec of the old name over it
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it ran when it was imported by its name of today."""
        module.__spec__ = self._spec


sys.meta_path.insert(0, _Renamed())
sys.modules[__name__] = import_module(_NOW)
