"""`sandbox-kernel`: setting up, looking after and checking the kernel from a shell.

Exit codes: 0 fine, 1 something was found wrong, 2 a wrong argument or setting, 3 the container engine fails.
Imports config; each command imports what it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import __version__
from .batch import command as run
from .config.sources import SETTINGS, from_files, read_argv
from .core.errors import ConfigurationError, EngineError, EngineUnavailable, SandboxError
from .core.model import format_bytes
from .mcp_server import command as mcp
from .policy.shown import LogLines, ours
from .setup.install import NAME, check, install

FINE, WRONG, USAGE, PLATFORM = 0, 1, 2, 3
SECONDS_FOR_LISTS = 90.0
"""How long `ps` and `reap` wait for the engine."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors made on purpose are one paragraph, others a traceback."""
    try:
        options = _parse(sys.argv[1:] if argv is None else list(argv))
        return int(options.run(options))
    except SandboxError as error:
        text = textwrap.fill(ours(f"sandbox-kernel: {error}"), 110, break_long_words=False)
        print(LogLines().feed(text), file=sys.stderr)
        return PLATFORM if isinstance(error, EngineError) else USAGE if isinstance(error, ConfigurationError) else WRONG
    except KeyboardInterrupt:
        return 130


# --- commands --------------------------------------------------------------------------------------------------------


def setup(options: argparse.Namespace) -> int:
    """Make this machine ready: engine, image, kernelspec, and where there is a Jupyter Server the wall in the browser.

    What is there already is left alone.

    Both go into the virtual environment, or else to the user, unless a flag says where.
    """
    from .setup import browser_wall, image, machine
    from .setup.doctor import diagnose, table

    settings = check(options.values)
    status = machine.find_engine(None if settings.engine == "docker" else settings.engine)
    if not status.available and settings.engine == "docker" and not os.environ.get("DOCKER_HOST") and os.geteuid() == 0:
        print(f"engine      {status.problem}")
        if not options.yes and not _agreed("Install the distribution's engine, if there is none, and start it?"):
            raise EngineUnavailable(f"{status.problem}. With --yes, setup installs and starts one. {status.remedy}")
        status = machine.install_engine(_progress)
    machine.require_engine(status)
    print(f"engine      {status.product} {status.server_version} at {status.host}")
    if options.gvisor and "runsc" not in status.runtimes:
        machine.install_gvisor(_progress)
    if settings.image == SETTINGS["image"].default:
        print(f"image       {image.build('data', progress=_progress)}")
    folder = _install(options)
    print(f"kernelspec  {folder}")
    if browser_wall.is_needed():
        user, prefix = _place(options)
        print(f"browser     {browser_wall.switch_on(user=user, prefix=prefix)}")
    rows = diagnose(settings, name=options.name, folder=folder, line_by_line=False)
    print("\n" + table(rows))
    return FINE if all(row.ok for row in rows) else WRONG


def build(options: argparse.Namespace) -> int:
    """Build an image that cells run in."""
    from .setup import image

    print(
        image.build(
            options.kind, tag=options.tag, requirements=options.requirements, force=options.force, progress=_progress
        )
    )
    return FINE


def install_command(options: argparse.Namespace) -> int:
    """Install the kernelspec."""
    print(f"Installed kernelspec {options.name} in {_install(options)}")
    return FINE


def doctor(options: argparse.Namespace) -> int:
    """Check everything that a session needs, up to a real start, and say how to repair what is wrong."""
    from .setup.doctor import as_json, diagnose, table

    rows = diagnose(check(options.values), name=options.name)
    print(as_json(rows) if options.json else table(rows, details=True))
    return FINE if all(row.ok for row in rows) else WRONG


def ps(options: argparse.Namespace) -> int:
    """List the sandboxes that run now."""
    rows = _engine_call(options, "list")
    print(json.dumps(rows, indent=2) if options.json else columns([for_people(row) for row in rows]))
    return FINE


def reap(options: argparse.Namespace) -> int:
    """Remove sandboxes whose owner is gone."""
    count = _engine_call(options, "reap")
    print("nothing to remove" if not count else f"removed {count} {'sandbox' if count == 1 else 'sandboxes'}")
    return FINE


def show_settings(options: argparse.Namespace) -> int:
    """Show every setting: the value that a kernel on this machine would start with, and what it means."""
    files, given = from_files(), options.values
    check(given)
    rows: list[dict[str, Any]] = []
    for name, setting in SETTINGS.items():
        source = "argument" if name in given else "config file" if name in files else "default"
        value = (files | given).get(name, setting.default_for_people)
        rows.append({"name": name, "value": value, "from": source, "help": setting.help})
    if options.json:
        print(json.dumps(rows, indent=2, default=str))
    elif options.markdown:
        from .setup.reference import page

        print(page(), end="")
    else:
        for row in rows:
            print(f"{row['name']} = {row['value']}  ({row['from']})")
            print(textwrap.indent(textwrap.fill(row["help"], 96), "    "))
    return FINE


# --- what the commands share -----------------------------------------------------------------------------------------


def _place(options: argparse.Namespace) -> tuple[bool, str | None]:
    """Return whether it is for the user alone, and else beneath which folder."""
    user, prefix = options.user, sys.prefix if options.sys_prefix else options.prefix
    if options.near and not user and prefix is None:
        user, prefix = (False, sys.prefix) if sys.prefix != sys.base_prefix else (True, None)
    return user, prefix


def _install(options: argparse.Namespace) -> Path:
    user, prefix = _place(options)
    return install(options.values, name=options.name, user=user, prefix=prefix)


def _engine_call(options: argparse.Namespace, method: str) -> Any:
    from .engines.select import make_engine

    async def call() -> Any:
        engine = make_engine(check(options.values))
        try:
            async with asyncio.timeout(SECONDS_FOR_LISTS):
                return await getattr(engine, method)()
        except TimeoutError:
            raise EngineUnavailable("the container engine does not answer", limit=f"{SECONDS_FOR_LISTS:g} s") from None

    return asyncio.run(call())


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def for_people(row: dict[str, Any]) -> dict[str, str]:
    alive = {True: "", False: " (gone)", None: " (elsewhere)"}[row["owner_alive"]]
    return {
        "session": row["session"][:12],
        "owner": f"{row['owner_pid'] or 'unknown'}{alive}",
        "state": row["state"],
        "age": _duration(row["age_seconds"]),
        "image": row["image"],
        "memory": format_bytes(row["memory_bytes"]),
    }


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def columns(rows: list[dict[str, str]]) -> str:
    if not rows:
        return "no sandbox is running"
    header = list(rows[0])
    cells = [
        [name.upper().replace("_", " ") for name in header],
        *([ours(str(row[name])) for name in header] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)


# --- the command line ------------------------------------------------------------------------------------------------


class _Refuse(argparse.Action):
    """An option of ipykernel's that a sandbox cannot honour: an error with its reason, not a surprise later."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise ConfigurationError(f"{self.option_strings[0]} has no place here: {self.const}")


def _parse(argv: list[str]) -> argparse.Namespace:
    options, rest = _parser().parse_known_args(argv)
    if rest and not options.takes_settings:
        raise ConfigurationError(f"{options.command} does not know the argument {rest[0]!r}")
    connection_file, options.values = read_argv(rest)
    if connection_file is not None:
        raise ConfigurationError(f"{options.command} has no use for a connection file", value=connection_file)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandbox-kernel",
        description="A Jupyter kernel whose cells run in a hardened container.",
        epilog="exit codes: 0 fine, 1 something was found wrong, 2 a wrong argument or setting, 3 the engine fails",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, *, settings: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=run.__doc__.partition("\n")[0].rstrip("."),
            description=inspect.cleandoc(run.__doc__),
            epilog=_settings_help() if settings else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=run, takes_settings=settings)
        return sub

    one = command("setup", setup)
    _where(one)
    one.set_defaults(near=True)
    one.add_argument("--yes", "-y", action="store_true", help="install an engine without asking, where there is none")
    one.add_argument("--gvisor", action="store_true", help="also install gVisor and make it a runtime of the engine")
    one = command("build", build, settings=False)
    one.add_argument(
        "--kind",
        choices=("base", "data"),
        default="data",
        help="base: Python and ipykernel. data: with the data-analysis packages (default)",
    )
    one.add_argument("--requirements", type=Path, metavar="FILE", help="a requirements file of more packages")
    one.add_argument("--tag", help="a name for the image")
    one.add_argument("--force", action="store_true", help="build even if the image is there and current")
    one = command("install", install_command)
    _where(one)
    one.set_defaults(near=False)
    one = command("doctor", doctor)
    one.add_argument("--name", default=NAME, help="the kernelspec to check (default: %(default)s)")
    one.add_argument("--json", action="store_true", help="print JSON")
    one = command("run", run.run)
    run.add_options(one)
    one = command("mcp", mcp.serve)
    mcp.add_options(one)
    command("ps", ps).add_argument("--json", action="store_true", help="print JSON")
    command("reap", reap)
    one = command("settings", show_settings)
    one.add_argument("--json", action="store_true", help="print JSON")
    one.add_argument("--markdown", action="store_true", help="print the page of all settings, docs/settings.md")
    return parser


def _where(parser: argparse.ArgumentParser) -> None:
    """Add ipykernel's flags for a kernelspec."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--user", action="store_true", help="install for the current user")
    place.add_argument("--sys-prefix", action="store_true", help=f"install into this Python environment, {sys.prefix}")
    place.add_argument("--prefix", metavar="FOLDER", help="install beneath this folder")
    parser.add_argument("--name", default=NAME, help="the name of the kernel (default: %(default)s)")
    parser.add_argument("--frozen_modules", "--frozen-modules", action="store_true", help=argparse.SUPPRESS)
    why = "cells see nothing of the host's environment, and the kernel reads no variable"
    parser.add_argument("--env", nargs=2, action=_Refuse, const=why, help=argparse.SUPPRESS)
    why = "an IPython profile is code of the host, and cells run in a container"
    parser.add_argument("--profile", action=_Refuse, const=why, help=argparse.SUPPRESS)


def _settings_help() -> str:
    lines = ["settings (also in jupyter_sandbox_kernel_config.py, as c.SandboxKernel.memory = '2G'):"]
    for setting in SETTINGS.values():
        default = setting.default_for_people
        lines.append(f"  {setting.flag} VALUE")
        lines += textwrap.wrap(
            f"{setting.help} (default: {default})", 100, initial_indent=" " * 8, subsequent_indent=" " * 8
        )
    return "\n".join(lines)
