"""How a kernel's process becomes ipykernel, without what no cell has asked for yet.

ipykernel loads all of the debugger at its start, and with jupyter_client all that a client is made of: a quarter of its
time, and of its memory. Here both come when something of them is wanted. Where an image's versions are others than this
is made for, they are loaded as they would be.
Runs inside the container, as the program of a kernel: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

CLIENT = "jupyter_client"
CLIENT_HAS = {
    "find_connection_file": "jupyter_client.connect",
    "write_connection_file": "jupyter_client.connect",
    "BlockingKernelClient": "jupyter_client.blocking",
}
"""What ipykernel takes from the package itself, and the module that has it."""
WANTS_ALL = {"__version__", "__all__"}
"""Of the names that the import system asks a module for, those that are answered with all of it."""

DEBUGGER = "ipykernel.debugger"
PROMISED = {
    "debugpy": (),
    "debugpy.server": ("api",),
    "_pydevd_bundle": ("pydevd_frame_utils",),
    "_pydevd_bundle.pydevd_suspended_frames": ("SuspendedFramesManager", "_FramesTracker"),
}
"""What ipykernel's debugger takes from debugpy as it is imported, by module."""


def main() -> None:
    """Run a kernel as `python -m ipykernel_launcher` does."""
    if sys.path[0] == "":
        del sys.path[0]  # nothing is loaded from the current folder; the kernel puts it back
    launcher = importlib.util.find_spec("ipykernel_launcher")
    if launcher is not None and launcher.origin is not None:
        sys.argv[0] = launcher.origin  # by which programs see where they run
    gc.disable()  # all that is loaded stays, so looking through it finds nothing
    load_later(CLIENT, CLIENT_HAS)
    load_debugger()
    from ipykernel import kernelapp

    application: Any = kernelapp.IPKernelApp
    application.initialize = collecting(application.initialize)
    kernelapp.launch_new_instance()


def collecting(initialize: Callable[..., None]) -> Callable[..., None]:
    """Return a method that does the same, and has garbage collected from then on."""

    def initialized(self: Any, *arguments: Any, **named: Any) -> None:
        type(self).initialize = initialize
        initialize(self, *arguments, **named)
        gc.enable()

    return initialized


def load_later(name: str, has: dict[str, str]) -> None:
    """Import a package when something is wanted of it that is neither in `has` nor a module of its own."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or name in sys.modules:
        return
    module, loader = importlib.util.module_from_spec(spec), spec.loader

    def load() -> None:
        for own in ("__getattr__", "__dir__"):
            module.__dict__.pop(own, None)
        loader.exec_module(module)

    def attribute(wanted: str) -> Any:
        if wanted in has:
            return getattr(importlib.import_module(has[wanted]), wanted)
        if wanted.startswith("__") and wanted not in WANTS_ALL:
            raise AttributeError(wanted)
        load()
        return getattr(module, wanted)

    def names() -> list[str]:
        load()
        return dir(module)

    module.__dict__.update(__getattr__=attribute, __dir__=names)
    sys.modules[name] = module


class Explorer:
    """The debugger's view of variables, which is made when somebody looks."""

    def __init__(self) -> None:
        self._real: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._real is None:
            self._real = complete(sys.modules[DEBUGGER]).VariableExplorer()
        return getattr(self._real, name)


def load_debugger() -> None:
    """Import ipykernel's debugger, with stand-ins for what it takes from debugpy."""
    if importlib.util.find_spec("debugpy") is None or not PROMISED.keys().isdisjoint(sys.modules):
        return
    try:
        for name, attributes in PROMISED.items():
            stand_in = type(sys)(name)
            stand_in.__dict__.update(dict.fromkeys(attributes), __path__=[])
            sys.modules[name] = stand_in
        try:
            module: Any = importlib.import_module(DEBUGGER)
        finally:
            for name in PROMISED:
                del sys.modules[name]
        if module.__dict__["_is_debugpy_available"]:
            module.__dict__.update(_explorer=module.VariableExplorer, VariableExplorer=Explorer)
        else:
            del sys.modules[DEBUGGER]
    except Exception:
        sys.modules.pop(DEBUGGER, None)  # another version's: it is imported with all that it takes


def complete(module: ModuleType) -> Any:
    """Give ipykernel's debugger what it takes from debugpy, and return it."""
    for name, attributes in PROMISED.items():
        taken: Any = __import__(name, fromlist=attributes or ("",))
        module.__dict__.update({each: getattr(taken, each) for each in attributes})
    module.__dict__["VariableExplorer"] = module.__dict__["_explorer"]
    return module
