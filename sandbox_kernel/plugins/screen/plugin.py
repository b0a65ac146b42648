"""What this plugin adds: a guard of cells, and the commands `screen` and `lsp`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from ...core.model import Settings
from ..api import Command, Plugin, SandboxHandle, SessionHandle, SessionService
from .codes import ScreenCode
from .settings import ScreenSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `screen`."""
    from . import command

    command.add_options(parser)


def screen(options: argparse.Namespace) -> int:
    """Check notebooks and scripts without running them, and report code that looks like an attack.

    Code without findings can still be harmful.
    """
    from . import command

    return command.screen(options)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lsp`."""
    from . import command

    command.add_settings(parser)


def lsp(options: argparse.Namespace) -> int:
    """Show what the screen finds in an editor: a language server on stdio.

    It needs the packages of the extra [lsp]. It runs no code of a document.
    """
    from . import command

    return command.lsp(options)


def jupyter_lsp(_manager: object) -> dict[str, Any]:
    """Return how jupyter-lsp starts the language server, if its packages are there."""
    from importlib.util import find_spec

    if find_spec("pygls") is None:
        return {}
    return {
        "sandbox-kernel-screen": {
            "version": 2,
            "argv": [sys.executable, "-m", "sandbox_kernel", "lsp"],
            "languages": ["python"],
            "mime_types": ["text/x-python", "text/x-ipython"],
            "display_name": "sandbox-kernel screen",
        }
    }


def service(settings: Settings, session: SessionHandle) -> SessionService:
    """Return the guard of one session."""
    from .request_guard import ScreenGuard

    return ScreenGuard(settings, session)


def sdk(sandbox: SandboxHandle) -> Any:
    """Return what says what would be found in a cell that ran next: the guard of the session, if it has one."""
    from .request_guard import ScreenGuard

    return sandbox.session.part("screen") or ScreenGuard(sandbox.settings, sandbox.session)


def cell_reader() -> Callable[[str], str]:
    """Return what turns a cell into Python."""
    from . import ipython_syntax

    return ipython_syntax.python_of


def no_snapshot(settings: Settings) -> str | None:
    """Return why a screen that may block has to have read all cells."""
    if settings.of(ScreenSettings).screen not in {"ask", "block"}:
        return None
    return "the screen knows what names mean in it, and would have to read all of its cells again"


EXIT_CODES = {
    "0": "no cell reaches the threshold",
    "1": "a cell does, or with --strict anything was found; with --overrides --strict, one is over or without effect",
    "2": "a wrong argument or setting, or a file that cannot be read; with --hook, the agent takes it for a refusal",
}
PLUGIN = Plugin(
    name="screen",
    page="docs/screen.md",
    codes={"Screen": ScreenCode},
    service=service,
    sdk=sdk,
    cell_reader=cell_reader,
    no_snapshot=no_snapshot,
    python_alone=True,
    commands=(
        Command(
            name="screen",
            run=screen,
            add_options=add_options,
            settings=False,
            exit_codes=EXIT_CODES,
            group="Running code without a front end",
            examples={
                "sandbox-kernel screen analysis.ipynb": "findings for each cell, without running it",
                "sandbox-kernel screen --format sarif notebooks/report.ipynb > screen.sarif": "for a code host",
                "sandbox-kernel screen --overrides analysis.ipynb": "what its comments allow, in force or not",
                "sandbox-kernel screen --hook --screen block": "as the hook of a coding agent, which denies",
            },
        ),
        Command(
            name="lsp",
            run=lsp,
            add_options=add_settings,
            settings=False,
            group="Running code without a front end",
            examples={"sandbox-kernel lsp": "as the language server that an editor starts for Python"},
        ),
    ),
)
