"""What this plugin adds: the command `verify`."""

from __future__ import annotations

import argparse
import asyncio

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ..api import Command, Plugin


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="an installed kernel whose settings are used")
    parser.add_argument(
        "--against",
        action="append",
        metavar="NAME=COMMAND",
        help="compare products in place of that: COMMAND runs Python, from its stdin or in place of {code} or {file}",
    )
    parser.add_argument(
        "--format", choices=("table", "json", "html"), default="table", help="what to print (default: %(default)s)"
    )


def _compare(options: argparse.Namespace) -> int:
    from .against import Product, as_json, as_markdown, compared

    if options.format == "html" or options.name or options.values:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "--against takes no other option but --format table or json")
    found = compared([Product.of(text) for text in options.against])
    print((as_json if options.format == "json" else as_markdown)(found))
    return 0


def verify(options: argparse.Namespace) -> int:
    """Try to get out of a sandbox on this machine, with over eighty probes, and say what stopped each.

    The sandboxes are real and end with the command. Your folders are not changed. The exit code is 1 if a probe failed.
    With --against, commands that run Python are compared by seven criteria, and harmlessly.
    """
    if options.against:
        return _compare(options)
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
                "sandbox-kernel verify --against 'plain=python3 -'": "another product, by seven criteria",
                "sandbox-kernel verify --name sandbox-python --format html > verify.html": (
                    "an installed kernel; a web page"
                ),
            },
        ),
    ),
)
