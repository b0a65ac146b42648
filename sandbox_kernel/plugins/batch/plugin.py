"""What this plugin adds: the command `run`, and its codes."""

from __future__ import annotations

from ..api import Command, Plugin
from . import command
from .codes import BatchCode
from .exit_codes import HELP

PLUGIN = Plugin(
    name="batch",
    page="docs/batch.md",
    extra="run",
    codes={"Batch runs": BatchCode},
    commands=(
        Command(
            name="run",
            run=command.run,
            add_options=command.add_options,
            exit_codes=HELP,
            group="Running code without a front end",
            examples={
                "sandbox-kernel run analysis.ipynb --input sales.csv --output results": "a notebook and its data",
                "sandbox-kernel run analysis.ipynb -p region north --report report.json": (
                    "with a parameter and a report"
                ),
                "sandbox-kernel run reports/ --jobs 4 --report all.json": "all notebooks of a folder, four at a time",
                "sandbox-kernel run script.py --cell-timeout 30 --quiet": (
                    "a script whose cells may run for half a minute each"
                ),
            },
        ),
    ),
)
