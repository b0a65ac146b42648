"""A parser that shows the pages of help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from . import manual


class Lines(argparse.RawDescriptionHelpFormatter):
    """Lines as they were written, and options in columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=manual.WIDTH)


class Parser(argparse.ArgumentParser):
    """A parser of the whole program, or of one command, with what the pages of help need."""

    commands: Mapping[str, Parser] = {}
    """Of the whole program."""
    summary = ""
    takes_settings = False
    shown: tuple[str, ...] = ()
    """The settings that its page explains; empty for all."""

    @property
    def actions(self) -> list[argparse.Action]:
        return self._actions

    def format_help(self) -> str:
        """Return the page of the whole program, or that of a command."""
        if not self.commands:
            return super().format_help()
        return manual.first_page({name: command.summary for name, command in self.commands.items()})
