"""A Jupyter kernel whose cells run in a hardened container: safe to hand to a language model.

`Sandbox` and `AsyncSandbox` run code from Python; they and their values are imported when they are asked for. Importing
the package is free of side effects and imports nothing else, because the kernel's start-up time begins here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("sandbox_kernel runs on Linux and macOS: on Windows, install it and your front end within WSL2")

if TYPE_CHECKING:
    from .core.behaviour import Behaviour as Behaviour
    from .core.behaviour import BehaviourRow as BehaviourRow
    from .core.errors import AbilityMissing as AbilityMissing
    from .core.errors import CallbackFailed as CallbackFailed
    from .core.errors import CellTimeout as CellTimeout
    from .core.errors import CommandError as CommandError
    from .core.errors import CommandExitException as CommandExitException
    from .core.errors import ConfigurationError as ConfigurationError
    from .core.errors import EngineError as EngineError
    from .core.errors import FileNotThere as FileNotThere
    from .core.errors import FileRefused as FileRefused
    from .core.errors import QuotaExceeded as QuotaExceeded
    from .core.errors import SandboxClosed as SandboxClosed
    from .core.errors import SandboxDied as SandboxDied
    from .core.errors import SandboxError as SandboxError
    from .core.errors import SandboxPaused as SandboxPaused
    from .core.version import __version__ as __version__
    from .plugins.charts.charts import BarChart as BarChart
    from .plugins.charts.charts import BoxAndWhiskerChart as BoxAndWhiskerChart
    from .plugins.charts.charts import Chart as Chart
    from .plugins.charts.charts import ChartType as ChartType
    from .plugins.charts.charts import LineChart as LineChart
    from .plugins.charts.charts import PieChart as PieChart
    from .plugins.charts.charts import ScaleType as ScaleType
    from .plugins.charts.charts import ScatterChart as ScatterChart
    from .plugins.charts.charts import SuperChart as SuperChart
    from .plugins.tools.tools import Tool as Tool
    from .plugins.tools.tools import Tools as Tools
    from .sdk.blocking import Sandbox as Sandbox
    from .sdk.callbacks import Prompt as Prompt
    from .sdk.client import AsyncSandbox as AsyncSandbox
    from .sdk.execution import Execution as Execution
    from .sdk.execution import ExecutionError as ExecutionError
    from .sdk.execution import Logs as Logs
    from .sdk.file_copies import Progress as Progress
    from .sdk.folder_entries import EntryInfo as EntryInfo
    from .sdk.folder_entries import FileInfo as FileInfo
    from .sdk.folder_entries import FilesystemEvent as FilesystemEvent
    from .sdk.folder_entries import FilesystemEventType as FilesystemEventType
    from .sdk.folder_entries import FileType as FileType
    from .sdk.output_text import OutputMessage as OutputMessage
    from .sdk.result import Result as Result
    from .sdk.values import CellUsage as CellUsage
    from .sdk.values import CommandResult as CommandResult
    from .sdk.values import Context as Context
    from .sdk.values import NetworkDenial as NetworkDenial
    from .sdk.values import NetworkUsage as NetworkUsage
    from .sdk.values import ProcessInfo as ProcessInfo
    from .sdk.values import PtySize as PtySize
    from .sdk.values import SandboxInfo as SandboxInfo
    from .sdk.values import SandboxMetrics as SandboxMetrics
    from .sdk.values import SandboxQuery as SandboxQuery
    from .session.agent_messages import SandboxUsage as SandboxUsage

_PLACES = {
    "core.errors": (
        "AbilityMissing",
        "CallbackFailed",
        "CellTimeout",
        "CommandError",
        "CommandExitException",
        "ConfigurationError",
        "EngineError",
        "FileNotThere",
        "FileRefused",
        "QuotaExceeded",
        "SandboxClosed",
        "SandboxDied",
        "SandboxError",
        "SandboxPaused",
    ),
    "core.version": ("__version__",),
    "plugins.charts.charts": (
        "BarChart",
        "BoxAndWhiskerChart",
        "Chart",
        "ChartType",
        "LineChart",
        "PieChart",
        "ScaleType",
        "ScatterChart",
        "SuperChart",
    ),
    "plugins.tools.tools": ("Tool", "Tools"),
    "core.behaviour": ("Behaviour", "BehaviourRow"),
    "sdk.blocking": ("Sandbox",),
    "sdk.callbacks": ("Prompt",),
    "sdk.client": ("AsyncSandbox",),
    "sdk.file_copies": ("Progress",),
    "sdk.folder_entries": ("EntryInfo", "FileInfo", "FileType", "FilesystemEvent", "FilesystemEventType"),
    "sdk.execution": ("Execution", "ExecutionError", "Logs"),
    "sdk.result": ("Result",),
    "sdk.output_text": ("OutputMessage",),
    "sdk.values": (
        "CellUsage",
        "CommandResult",
        "Context",
        "NetworkDenial",
        "NetworkUsage",
        "ProcessInfo",
        "PtySize",
        "SandboxInfo",
        "SandboxMetrics",
        "SandboxQuery",
    ),
    "session.agent_messages": ("SandboxUsage",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f".{_MODULES[name]}", __name__)
    except AttributeError as error:  # which `from sandbox_kernel import ...` would take for a name that is not there
        raise ImportError(f"{__name__}.{_MODULES[name]} cannot be imported here: {error}") from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
