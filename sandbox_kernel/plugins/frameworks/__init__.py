"""Adapters for the frameworks of language models: each is one module, and imports its framework when it is imported.

There is one for a framework whose executor, workspace or environment is replaced. `as_text` and `pictures` are for one
that takes a function as a tool; most take `sandbox-kernel mcp` as well.

- `plugin`: What this plugin adds: modules that programs import, and no command.
- `answers`: Values that code in the sandbox answers with: tagged JSON, read without trusting it.
- `smolagents`: An executor for smolagents' code agents.
- `mcp_tools`: The tools of MCP servers, as functions of cells.
- `openai_agents`: A sandbox client for the OpenAI Agents SDK.
- `deepagents`: A backend for Deep Agents.
- `e2b_arguments`: E2B's arguments as those of this package.
- `e2b_commands`: Commands and shells with E2B's arguments.
- `e2b_files`: Files as E2B's SDK has them.
- `e2b_lists`: Sandboxes as E2B lists them.
- `e2b`: E2B's SDK by its own names.
- `inspect_commands`: Commands and files as the kernel serves them for inspect_ai. Shipped into the kernel.
- `inspect_ai`: A sandbox environment for inspect_ai.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...policy.safe_text import plain

if TYPE_CHECKING:
    from ...sdk.execution import Execution, Result


def missing(package: str, error: ImportError) -> ImportError:
    """Return the error for a framework that is not there, or not in a version that its adapter knows."""
    return ImportError(f"this adapter needs {package}: `pip install {package}` ({error})", name=error.name)


def printed(execution: Execution) -> str:
    """Return what a cell printed: stdout, then stderr, for a model to read."""
    return plain("".join((*execution.logs.stdout, *execution.logs.stderr)))


def told(result: Result) -> str:
    """Return the text of a result, for a model to read; empty if it has none."""
    text = result.text or result.markdown or result.latex
    if not text and result.json is not None:
        text = json.dumps(result.json)
    return plain(text or "")


def pictures(execution: Execution) -> list[tuple[str, str]]:
    """Return the images that a cell showed, each as its MIME type and base64."""
    return [picture for result in execution.results for picture in result.pictures]


def as_text(execution: Execution, max_characters: int = 20_000) -> str:
    """Return what a cell brought, for a model to read: what it printed, its results, and why it failed.

    An image is a word in its place ("[image 1]"), behind the text of what shows it; `pictures` has them.
    What is too long lacks its middle.
    """
    parts, images = [printed(execution).rstrip("\n")], 0
    for result in execution.results:
        if not result.is_picture:
            parts.append(told(result))
        for _ in result.pictures:
            images += 1
            parts.append(f"[image {images}]")
    parts.append(failure(execution) or "")
    text = "\n".join(filter(None, parts)) or "(no output)"
    left_out, half = len(text) - max_characters, max_characters // 2
    if left_out <= 0:
        return text
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[-half:]}"


def failure(execution: Execution) -> str | None:
    """Return why a cell failed, for a model to read: the traceback, or which limit it met and what is left."""
    error = execution.error
    return None if error is None else plain(error.traceback or str(error))


def code_of(execution: Execution) -> str | None:
    """Return why the sandbox ended a cell, for programs: a row of docs/codes.md; None for what the cell raised."""
    return None if execution.error is None else execution.error.code
