"""A Jupyter kernel whose cells run in a hardened container: safe to hand to a language model.

`Sandbox` and `AsyncSandbox` run code from Python; they and their values are imported when they are asked for. Importing
the package is free of side effects and imports nothing else, because the kernel's start-up time begins here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .blocking import Sandbox as Sandbox
    from .callbacks import Prompt as Prompt
    from .client import AsyncSandbox as AsyncSandbox
    from .client_files import FileInfo as FileInfo
    from .client_values import SandboxInfo as SandboxInfo
    from .client_values import SandboxUsage as SandboxUsage
    from .errors import CallbackFailed as CallbackFailed
    from .errors import ConfigurationError as ConfigurationError
    from .errors import EngineError as EngineError
    from .errors import FileRefused as FileRefused
    from .errors import SandboxClosed as SandboxClosed
    from .errors import SandboxDied as SandboxDied
    from .errors import SandboxError as SandboxError
    from .execution import CellUsage as CellUsage
    from .execution import Execution as Execution
    from .execution import ExecutionError as ExecutionError
    from .execution import Logs as Logs
    from .execution import Result as Result

_PLACES = {
    "blocking": ("Sandbox",),
    "callbacks": ("Prompt",),
    "client": ("AsyncSandbox",),
    "client_files": ("FileInfo",),
    "client_values": ("SandboxInfo", "SandboxUsage"),
    "errors": (
        "CallbackFailed",
        "ConfigurationError",
        "EngineError",
        "FileRefused",
        "SandboxClosed",
        "SandboxDied",
        "SandboxError",
    ),
    "execution": ("CellUsage", "Execution", "ExecutionError", "Logs", "Result"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = ["__version__"]
__all__ += list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
