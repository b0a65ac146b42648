"""What this plugin adds: the command `screen`."""

from __future__ import annotations

from ..api import Command, Plugin
from . import command

PLUGIN = Plugin(
    name="screen",
    page="docs/screen.md",
    commands=(
        Command(
            name="screen",
            run=command.screen,
            add_options=command.add_options,
            settings=False,
            exit_codes=command.EXIT_CODES,
            group="Running code without a front end",
            examples={
                "sandbox-kernel screen analysis.ipynb": "findings for each cell, without running it",
                "sandbox-kernel screen --format sarif notebooks/report.ipynb > screen.sarif": "for a code host",
            },
        ),
    ),
)
