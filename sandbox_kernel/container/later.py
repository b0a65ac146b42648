"""Modules that are loaded when something is wanted of them, and are there before for whoever only imports them.

A stand-in has the name, the place and the spec of its module, and becomes it: nobody who has it has to look again.
Runs inside the container, in a kernel's process: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import importlib
import sys
from _thread import get_ident
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    Things = Mapping[str, Callable[[], Any]]

QUIET = {"__warningregistry__", "__wrapped__", "__getattr__", "__dir__"}
"""Names that Python itself asks a module for, which tell nothing of it; `__path__` is another, in its first moment."""

waiting: dict[str, Later] = {}
finders: list[Any] = [PathFinder]
imports: Any = importlib._bootstrap  # noqa: SLF001 (its locks see who waits for whom)
dictionary: Any = vars(ModuleType)["__dict__"].__get__
"""Returns what a module has so far."""


class Later:
    """What is known of a module that waits."""

    def __init__(self, spec: Any, has: Things, promised: Things, then: Callable[[], object]) -> None:
        self.name, self.loader, self.has, self.promised, self.then = spec.name, spec.loader, has, promised, then
        self.module = module_from_spec(spec)
        self.module.__class__ = Waiting
        self.begun, self.by = False, 0

    def load(self) -> None:
        """Make the stand-in what it stands for. One thread does it, and others wait, as for an import."""
        lock = imports._ModuleLockManager(self.name)  # noqa: SLF001
        try:
            lock.__enter__()
        except imports._DeadlockError:  # noqa: SLF001
            return  # modules that import each other in two threads see each other half loaded
        try:
            if self.begun:
                return
            self.begun, self.by = True, get_ident()
            has = dictionary(self.module)
            before = dict(has)
            try:
                self.loader.exec_module(self.module)
            except BaseException:
                self.begun, self.by = False, 0
                has.clear()  # a half of it is nobody's
                has.update(before)
                raise
            self.module.__class__ = ModuleType
            waiting.pop(self.name, None)
        finally:
            lock.__exit__()
        self.then()


class Waiting(ModuleType):
    """A stand-in: whoever looks at it, or sets something of it, has it loaded; to all others it is a module."""

    def __getattribute__(self, wanted: str) -> Any:
        if not wanted.startswith("__"):
            later = waiting.get(ModuleType.__getattribute__(self, "__name__"))
            if later is not None and later.by and later.by != get_ident():
                later.load()  # which waits for who loads it: nobody else sees half of it
        return ModuleType.__getattribute__(self, wanted)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__") and not isinstance(value, ModuleType):  # what an import sets does not count
            _ = self.__dict__
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _ = self.__dict__
        ModuleType.__delattr__(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return importlib.import_module, (self.__name__,)  # what pickles modules knows those of Python's own type only

    def __getattr__(self, wanted: str) -> Any:
        later = waiting.get(self.__name__)
        if later is not None:
            thing = later.has.get(wanted) or later.promised.get(wanted)
            if thing is not None:
                return thing()
            if wanted not in QUIET and not (wanted == "__path__" and (later.has or later.promised)):
                later.load()
        if type(self) is not Waiting:
            return getattr(self, wanted)
        if wanted in dictionary(self):
            return dictionary(self)[wanted]
        raise AttributeError(f"module {self.__name__!r} has no attribute {wanted!r}")

    def __dir__(self) -> list[str]:
        names = self.__dict__
        return sorted(names) if type(self) is Waiting else dir(self)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        doc: str | None = self.__dict__.get("__doc__")
        return doc

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        later = waiting.get(self.__name__)
        if later is not None:
            later.load()
        found: dict[str, Any] = dictionary(self)
        return found


Waiting.__name__ = Waiting.__qualname__ = ModuleType.__name__  # which lists of variables show


def load_later(
    name: str,
    has: Things | None = None,
    *,
    promised: Things | None = None,
    needs: Iterable[str] = (),
    then: Callable[[], object] = lambda: None,
) -> None:
    """Import a module when something is wanted of it that is not in `has`, and then call `then`.

    What is `promised` is had by what the kernel's start imports, and by nobody after it. A module that `needs` another
    which is not there is left to whoever imports it.
    """
    spec = None if name in sys.modules else spec_of(name)
    if spec is not None and spec.loader is not None and all(map(find_spec, needs)):
        waiting[name] = Later(spec, has or {}, promised or {}, then)
        sys.modules[name] = waiting[name].module


def settle() -> None:
    """End the kernel's start: what waits is had through its package, too, and keeps no more promises.

    Packages are loaded for it. An import of a module that is there asks nobody for its package, and would load one
    later that has never heard of it.
    """
    for name, later in list(waiting.items()):
        later.promised = {}
        package, _, last = name.rpartition(".")
        if package:
            try:
                dictionary(importlib.import_module(package)).setdefault(last, later.module)
            except Exception:
                waiting.pop(name, None)  # left to whoever imports it, who is told why its package does not load
                if sys.modules.get(name) is later.module:
                    del sys.modules[name]


def spec_of(name: str) -> Any:
    """Return where a module is, without loading the packages that it is in; None where it is not."""
    package, path = name.rpartition(".")[0], None
    if package:
        within = spec_of(package)
        path = within and within.submodule_search_locations
        if path is None:
            return None
    return next(filter(None, (finder.find_spec(name, path) for finder in finders)), None)
