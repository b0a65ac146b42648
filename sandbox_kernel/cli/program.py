"""One run of the program: the parser of all commands with their options and settings, and the exit code."""

from __future__ import annotations

import argparse
import inspect
import os
import select
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..config.forms import did_you_mean
from ..config.sources import SETTINGS, read_argv
from ..core.codes import UsageCode
from ..core.errors import ConfigurationError, EngineError, SandboxError
from ..core.helper_processes import keep_ends_of_children
from ..core.remedies import for_stderr
from ..plugins import index
from ..plugins.api import Plugin
from . import help_text
from .completion import SHELLS
from .help_parser import HelpFormatter, Parser
from .help_text import INTERRUPTED, PLATFORM, USAGE, WRONG

READER_GONE = 141
"""128 + SIGPIPE, as shells say it."""


OF_AN_ENGINE = ("engine",)
"""The settings that a command which only asks an engine explains; it takes the others too, and has no use for them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors made on purpose are one paragraph, others a traceback."""
    _import_no_grammar()
    keep_ends_of_children()
    try:
        options = parse(sys.argv[1:] if argv is None else list(argv))
        code = int(options.run(options))
        sys.stdout.flush()  # here, where it is known what to do if nobody reads it
        return code  # noqa: TRY300 (what it raises is handled below)
    except SandboxError as error:
        from ..policy.safe_text import LogLines, ours

        print(LogLines().feed(for_stderr(ours(f"sandbox-kernel: {error}"))), file=sys.stderr)
        return PLATFORM if isinstance(error, EngineError) else USAGE if isinstance(error, ConfigurationError) else WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        return READER_GONE


def _reader_is_gone() -> bool:
    """Return whether the reader of stdout has gone, as behind `| head`; nothing is printed then."""
    look = select.poll()
    look.register(sys.stdout, 0)
    if not look.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would be tried again at the end
    return True


def _import_no_grammar() -> None:
    """Let jsonschema, which nbformat and mcp import, go without its check of the format `iri`; no schema here names it.

    Where the package of that check is installed, as JupyterLab has it, its import compiles a grammar for a second.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: as if it were not installed


class _Refuse(argparse.Action):
    """An option of ipykernel's that a sandbox cannot honour: an error with its reason, not a surprise later."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{self.option_strings[0]} has no place here: {self.const}")


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the options of a command, its settings in `values`, unchecked. Raises `ConfigurationError`."""
    word = argv[0] if argv else ""
    whole = parser(alone=next((name for name, words in index.COMMANDS.items() if word in words), None))
    if word and not word.startswith("-") and word not in whole.commands:
        named = index.with_command(word)
        whole = whole if named is None else parser(named)
    options, rest = whole.parse_known_args(argv)
    if rest and not options.takes_settings:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{options.command} does not know the argument {rest[0]!r}")
    try:
        connection_file, options.values = read_argv(rest)
    except ConfigurationError as error:
        if error.code is UsageCode.UNKNOWN_SETTING and error.setting:
            _check_option(whole.commands[options.command], options.command, error.setting)
        raise
    if connection_file is not None:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            f"{options.command} has no use for a connection file",
            value=connection_file,
        )
    return options


def _check_option(command: Parser, name: str, word: str) -> None:
    """Raise `ConfigurationError` for a word that is no setting, if it is nearer to an option of the command."""
    own = [option.removeprefix("--") for action in command.actions for option in action.option_strings]
    meant = did_you_mean(word, own)
    if meant and not did_you_mean(word, SETTINGS):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{name} has no option --{word}{meant}", setting=f"--{word}")


def parser(*others: Plugin, alone: str | None = None) -> Parser:
    """Return the parser of the whole program, with the commands of our plugins and of others that were found.

    With `alone`, the name of a plugin that is here, it has the commands of that one: no other is imported for them.
    """
    whole = Parser(prog="sandbox-kernel", formatter_class=HelpFormatter, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}", help="show the version")
    found: dict[str, Parser] = {}
    whole.commands = found
    subparsers = whole.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(
        name: str,
        run: Any,
        *,
        settings: bool = True,
        shown: tuple[str, ...] = (),
        exit_codes: Mapping[str, str] | None = None,
        group: str = "",
        examples: Mapping[str, str] | None = None,
        more: str = "",
    ) -> Parser:
        about = inspect.cleandoc(run.__doc__)
        summary = about.partition("\n")[0].rstrip(".")
        examples = help_text.EXAMPLES[name] if examples is None else examples
        codes = exit_codes or help_text.EXIT_CODES
        one: Parser = subparsers.add_parser(
            name, help=summary, description=about, formatter_class=HelpFormatter, allow_abbrev=False
        )
        one.below = partial(help_text.below, examples, settings=settings, shown=shown, exit_codes=codes, more=more)
        one.summary, one.takes_settings, one.shown = summary, settings, shown
        one.group, one.examples = group or help_text.group_of(name), examples
        one.set_defaults(run=run, takes_settings=settings)
        found[name] = one
        return one

    def of_a_plugin(plugin: Plugin) -> None:
        for given in plugin.commands:
            if given.name in found:
                continue  # another package does not replace a command
            one = command(
                given.name,
                given.run,
                settings=given.settings,
                shown=given.shown,
                exit_codes=given.exit_codes,
                group=given.group,
                examples=given.examples,
                more=help_text.more(plugin.page, plugin.extra),
            )
            if given.add_options is not None:
                given.add_options(one)

    if alone is not None and index.is_here(alone):
        of_a_plugin(index.plugin(alone))
        return whole
    from ..setup.install import NAME
    from . import subcommands

    one = command("setup", subcommands.set_up)
    _where(one, "install")
    one.add_argument("--yes", "-y", action="store_true", help="do not ask: install an engine, or accept weaker limits")
    one.add_argument("--gvisor", action="store_true", help="also install gVisor and make it a runtime of the engine")
    _build(command("build", subcommands.build, settings=False))
    one = command("install", subcommands.install_kernelspec)
    _where(one, "install")
    one.add_argument("--force", action="store_true", help="install the kernel even if it cannot work on this machine")
    one.add_argument(
        "--join",
        nargs="?",
        const="",
        metavar="NAME",
        help="have its notebooks run in one sandbox, that of this name; each has variables of its own",
    )
    _where(command("uninstall", subcommands.uninstall_kernelspec, settings=False), "remove it", NAME)
    command("ps", subcommands.ps, shown=OF_AN_ENGINE).add_argument("--json", action="store_true", help="print JSON")
    command("reap", subcommands.reap, shown=OF_AN_ENGINE).add_argument(
        "--follow", action="store_true", help="go on, and remove sandboxes as they end, until SIGTERM"
    )
    _pages(command("settings", subcommands.show_settings), "settings")
    _pages(command("codes", subcommands.codes, settings=False), "codes")
    one = command("docs", subcommands.docs, settings=False)
    one.add_argument("page", metavar="PAGE", nargs="?", help="its name, such as outputs (default: list all pages)")
    one.add_argument("--path", action="store_true", help="print where it is, in place of what it says")
    for plugin in (*index.plugins(), *others):
        of_a_plugin(plugin)
    one = command("completion", subcommands.completion, settings=False)
    one.set_defaults(parser=whole)
    one.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return whole


def _build(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--kind",
        choices=("base", "data", "full", "r", "deno", "all"),
        default="data",
        help="base: Python and ipykernel. data: with the data-analysis packages (default). full: data with packages "
        "and programs for most files that people upload. r: base with R. deno: base with Deno. all: data with R and "
        "Deno",
    )
    one.add_argument(
        "--engine",
        choices=("docker", *index.engines()),
        help="docker, podman: an image of that engine (default: of the first that answers). bubblewrap: a root, "
        "without Docker and without root. "
        "qemu: what machines start from, beside a root that is there",
    )
    one.add_argument("--requirements", type=Path, metavar="FILE", help="a requirements file with more packages")
    one.add_argument("--from-image", metavar="IMAGE", help="for bubblewrap: a root with the files of a Docker image")
    one.add_argument("--tag", help="a name for the image or the root")
    one.add_argument("--force", action="store_true", help="build even if it exists and is current")


def _pages(one: argparse.ArgumentParser, what: str) -> None:
    """Add the forms in which a table is printed."""
    one.add_argument("--json", action="store_true", help="print JSON")
    one.add_argument("--markdown", action="store_true", help=f"print the page of all {what}, docs/{what}.md")


def _where(one: argparse.ArgumentParser, verb: str, name: str | None = None) -> None:
    """Add ipykernel's flags for a kernelspec."""
    from ..setup.install import NAME

    one.set_defaults(near=True)
    place = one.add_mutually_exclusive_group()
    place.add_argument("--user", action="store_true", help=f"{verb} for the current user")
    place.add_argument("--sys-prefix", action="store_true", help=f"{verb} in this Python environment, {sys.prefix}")
    place.add_argument("--prefix", metavar="FOLDER", help=f"{verb} beneath this folder")
    usual = name or f"{NAME}, or sandbox-KERNEL with --kernel"
    one.add_argument("--name", default=name, help=f"the name of the kernel (default: {usual})")
    one.add_argument("--frozen_modules", "--frozen-modules", action="store_true", help=argparse.SUPPRESS)
    why = "cells see nothing of the host's environment, and the kernel reads no variable"
    one.add_argument("--env", nargs=2, action=_Refuse, const=why, help=argparse.SUPPRESS)
    why = "an IPython profile is code of the host, and cells run in a container"
    one.add_argument("--profile", action=_Refuse, const=why, help=argparse.SUPPRESS)
