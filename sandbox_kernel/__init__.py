"""A Jupyter kernel whose cells run in a hardened container: safe to hand to a language model.

`Sandbox` and `AsyncSandbox` run code from Python; they and their values are imported when they are asked for. Importing
the package is free of side effects and imports nothing else, because the kernel's start-up time begins here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .core.errors import CallbackFailed as CallbackFailed
    from .core.errors import ConfigurationError as ConfigurationError
    from .core.errors import EngineError as EngineError
    from .core.errors import FileRefused as FileRefused
    from .core.errors import SandboxClosed as SandboxClosed
    from .core.errors import SandboxDied as SandboxDied
    from .core.errors import SandboxError as SandboxError
    from .sdk.blocking import Sandbox as Sandbox
    from .sdk.callbacks import Prompt as Prompt
    from .sdk.client import AsyncSandbox as AsyncSandbox
    from .sdk.execution import Execution as Execution
    from .sdk.execution import ExecutionError as ExecutionError
    from .sdk.execution import Logs as Logs
    from .sdk.execution import Result as Result
    from .sdk.files import FileInfo as FileInfo
    from .sdk.values import CellUsage as CellUsage
    from .sdk.values import NetworkDenial as NetworkDenial
    from .sdk.values import NetworkUsage as NetworkUsage
    from .sdk.values import SandboxInfo as SandboxInfo
    from .sdk.values import SandboxUsage as SandboxUsage

_PLACES = {
    "sdk.blocking": ("Sandbox",),
    "sdk.callbacks": ("Prompt",),
    "sdk.client": ("AsyncSandbox",),
    "sdk.files": ("FileInfo",),
    "sdk.values": ("CellUsage", "NetworkDenial", "NetworkUsage", "SandboxInfo", "SandboxUsage"),
    "core.errors": (
        "CallbackFailed",
        "ConfigurationError",
        "EngineError",
        "FileRefused",
        "SandboxClosed",
        "SandboxDied",
        "SandboxError",
    ),
    "sdk.execution": ("Execution", "ExecutionError", "Logs", "Result"),
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
