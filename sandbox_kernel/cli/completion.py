"""Scripts that complete commands, options and values in a shell, made by shtab from the parser.

A script is made once and completes without this program: a key press must not wait for a Python.
"""

from __future__ import annotations

from ..config.sources import SETTINGS
from .help_parser import Parser

SHELLS = ("bash", "zsh", "fish")


def script(parser: Parser, shell: str) -> str:
    """Return the script for `shell`. It changes `parser`, which then knows the settings as options too."""
    import shtab

    places = {"FILE": shtab.FILE, "FOLDER": shtab.DIRECTORY, "PATH": shtab.FILE, "SOURCE": shtab.FILE}
    for command in parser.commands.values():
        if command.takes_settings:
            known = {flag: action for action in command.actions for flag in action.option_strings}
            for setting in SETTINGS.values():
                own = known.get(setting.flag) or command.add_argument(setting.flag, metavar=setting.form.metavar)
                own.option_strings = [setting.flag]  # `run` takes another spelling too
                own.help = setting.help.replace("%", "%%")  # argparse fills it in
                own.choices = setting.form.choices or None
        for action in command.actions:
            if isinstance(action.metavar, str) and action.metavar in places:
                action.complete = places[action.metavar]  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell)) + "\n"
