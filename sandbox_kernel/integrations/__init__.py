"""Adapters for the frameworks of language models: each is one module, and imports its framework when it is imported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..execution import Execution

_COLOURS = re.compile(r"\x1b\[[0-9;:]*[mK]")


def missing(package: str, error: ImportError) -> ImportError:
    """Return the error for a framework that is not there, or not in a version that its adapter knows."""
    return ImportError(f"this adapter needs {package}: pip install {package} ({error})", name=error.name)


def printed(execution: Execution) -> str:
    """Return what a cell printed: stdout, then stderr, for a model to read."""
    return _COLOURS.sub("", "".join((*execution.logs.stdout, *execution.logs.stderr)))


def failure(execution: Execution) -> str | None:
    """Return why a cell failed, for a model to read: the traceback, or which limit it met and what is left."""
    error = execution.error
    return None if error is None else error.traceback or str(error)


def timed_out(execution: Execution) -> bool:
    """Return whether the sandbox ended a cell because its time was up; a cell can only raise what is called so."""
    error = execution.error
    return error is not None and error.from_sandbox and error.name == "CellTimeout"
