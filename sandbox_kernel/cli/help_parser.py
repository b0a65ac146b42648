"""A parser that shows the pages of help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from . import help_text


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Lines as they were written, and options in columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=help_text.WIDTH)


class Parser(argparse.ArgumentParser):
    """A parser of the whole program, or of one command, with what the pages of help need."""

    commands: Mapping[str, Parser] = {}
    """Of the whole program."""
    summary = ""
    group = ""
    examples: Mapping[str, str] = {}
    takes_settings = False
    shown: tuple[str, ...] = ()
    """The settings that its page explains; empty for all."""
    below: Callable[[], str] = staticmethod(lambda: "")
    """Returns what stands below the options: made for its page alone, as every command would wait for it."""

    @property
    def actions(self) -> list[argparse.Action]:
        return self._actions

    def format_help(self) -> str:
        """Return the page of the whole program, or that of a command."""
        if not self.commands:
            self.epilog = self.below()
            return super().format_help()
        summaries = {name: command.summary for name, command in self.commands.items()}
        first = {name: self.commands[name].examples for name in help_text.FIRST_STEPS if name in self.commands}
        return help_text.first_page(self.groups, summaries, first)

    @property
    def groups(self) -> Mapping[str, list[str]]:
        """The titles of the help, each with its commands."""
        found: dict[str, list[str]] = {title: [] for title in help_text.GROUPS}
        for name, command in self.commands.items():
            found.setdefault(command.group, []).append(name)
        return {title: names for title, names in found.items() if names}
