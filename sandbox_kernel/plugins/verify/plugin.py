"""What this plugin adds: the command `verify`."""

from __future__ import annotations

import argparse
import asyncio

from ..api import Command, Plugin


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="an installed kernel whose settings are used")
    parser.add_argument(
        "--format", choices=("table", "json", "html"), default="table", help="what to print (default: %(default)s)"
    )


def verify(options: argparse.Namespace) -> int:
    """Try to get out of a sandbox on this machine, with over eighty probes, and say what stopped each.

    The sandboxes are real and end with the command. Your folders are not changed. The exit code is 1 if a probe failed.
    """
    from ...setup.install import check, values_of
    from .examination import examine
    from .examination_report import as_json, exit_code, page, table

    taken = values_of(options.name) if options.name else {}
    done = asyncio.run(examine(check(taken | options.values)))
    print({"table": table, "json": as_json, "html": page}[options.format](done))
    return exit_code(done)


PLUGIN = Plugin(
    name="verify",
    page="docs/verify.md",
    commands=(
        Command(
            name="verify",
            run=verify,
            add_options=add_options,
            group="Checking and maintaining",
            examples={
                "sandbox-kernel verify --runtime runsc": "test the isolation with gVisor",
                "sandbox-kernel verify --name sandbox-python --format html > verify.html": (
                    "an installed kernel; a web page"
                ),
            },
        ),
    ),
)
