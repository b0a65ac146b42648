"""What this plugin adds: the commands `run`, `submit` and `result`, a setting, and its codes."""

from __future__ import annotations

from ..api import Command, Plugin
from . import background_command, command
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
        Command(
            name="submit",
            run=background_command.submit,
            add_options=command.add_options,
            group="Running code without a front end",
            examples={"sandbox-kernel submit analysis.ipynb --input sales.csv": "in the background; it prints an id"},
        ),
        Command(
            name="result",
            run=background_command.result,
            add_options=background_command.add_result_options,
            settings=False,
            exit_codes=background_command.EXIT_CODES,
            group="Running code without a front end",
            examples={
                "sandbox-kernel result": "all runs in the background",
                "sandbox-kernel result 0123456789ab --json": "what became of one",
            },
        ),
    ),
)
