"""What this plugin adds: the command `doctor`, and its look at the machine when `setup` ends."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from ..api import Command, Plugin


def add_options(parser: argparse.ArgumentParser) -> None:
    from ...setup.install import NAME

    parser.add_argument("--name", default=NAME, help="the kernel to check, with its settings (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--details", action="store_true", help="list every protection, not only missing ones")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--walls", action="store_true", help="show each engine and runtime instead, and whether it is installed"
    )
    instead.add_argument(
        "--matrix",
        action="store_true",
        help="start a sandbox of each engine instead, and show which serve here, what stops the others, what changes "
        "that, and the protections that each lacks",
    )


def run(options: argparse.Namespace) -> int:
    """Check everything that a session needs, including a real start, and say how to repair what is wrong.

    It uses the settings of the installed kernel. Settings given here replace them.
    """
    from ...setup.install import check, settings_in_order
    from . import doctor, matrix, walls

    if options.walls:
        seen = asyncio.run(walls.survey(check(options.values)))
        print(walls.as_json(seen) if options.json else walls.as_text(seen))
        return 0 if any(one.here for one in seen) else 1
    if options.matrix:
        settings = check(options.values)
        tried = asyncio.run(matrix.survey(settings))
        print(matrix.as_json(tried) if options.json else matrix.as_text(tried, settings))
        return 0 if any(row.serves for row in tried) else 1
    settings = settings_in_order(options.name, options.values)
    rows = doctor.diagnose(settings, name=options.name, given=options.values)
    print(doctor.as_json(rows) if options.json else doctor.table(rows, details=options.details))
    return 0 if all(row.ok for row in rows) else 1


def look(options: argparse.Namespace, folder: Path) -> int:
    """Print the rows of what `setup` has prepared."""
    from ...setup.install import check
    from .doctor import diagnose, table

    rows = diagnose(check(options.values), name=options.name, folder=folder, line_by_line=False)
    print("\n" + table(rows))
    return 0 if all(row.ok for row in rows) else 1


PLUGIN = Plugin(
    name="doctor",
    page="docs/install.md",
    after_setup=look,
    commands=(
        Command(
            name="doctor",
            run=run,
            add_options=add_options,
            group="Getting ready",
            examples={
                "sandbox-kernel doctor": "what is wrong, and how to repair it",
                "sandbox-kernel doctor --json --runtime runsc": "with gVisor, for a program",
                "sandbox-kernel doctor --walls": "compare engines and runtimes, and show which are installed",
                "sandbox-kernel doctor --matrix": "which engines serve on this machine, and what stops the others",
            },
        ),
    ),
)
