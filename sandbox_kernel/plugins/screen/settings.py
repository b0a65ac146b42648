"""The settings of the screen. Its rules are a TOML file of the host, read by the rule by which its files are opened."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from ...config.forms import Form, choice, command, is_nothing, listed, number, path_from_root, refuse, seconds
from ...config.setting import rows, setting
from ...core.codes import EndCode
from ...core.errors import ConfigurationError, FileRefused
from ...core.model import Settings
from ...files.host_paths import open_file

MAX_FILE = 256 << 10
"""Bytes of a file of rules."""


def _rules(name: str, raw: object) -> str | None:
    if is_nothing(raw, "off"):
        return None
    if not isinstance(raw, str | os.PathLike):
        raise refuse(name, raw, f"{name} is not a file")
    path = path_from_root(raw)
    if path is None:
        raise refuse(name, raw, f"{name} is not the path of a file from the root, or from ~, on")
    return _checked(name, _text(name, path), path)


def _reread(name: str, kept: object) -> str | None:
    if kept is None:
        return None
    if not isinstance(kept, str) or len(kept.encode()) > MAX_FILE:
        raise refuse(name, "a text", f"{name} is no text of at most {MAX_FILE} bytes")
    return _checked(name, kept, "a text")


def _checked(name: str, text: str, where: str) -> str:
    from .operator_rules import BadRules, changes

    try:
        changes(text)
    except BadRules as error:
        raise refuse(name, where, f"{name} {error}") from None
    return text


def _text(name: str, path: str) -> str:
    try:
        with os.fdopen(open_file(path), "rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise refuse(name, path, f"{name} is a file of more than {MAX_FILE} bytes")
        return data.decode()
    except OSError as error:
        raise refuse(name, path, f"{name} cannot be read: {error.strerror}") from None
    except FileRefused as error:
        raise refuse(name, path, f"{name} is not opened: {error.message}") from None
    except UnicodeDecodeError:
        raise refuse(name, path, f"{name} is no text") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSettings:
    """Whether cells are read before they run, and what comes of what is found."""

    screen: Literal["off", "warn", "ask", "block"] = setting(
        "off",
        choice("off", "warn", "ask", "block"),
        "Whether the code of a cell is checked before it runs. warn: findings are shown in one line and written to"
        " the audit. block: a cell that reaches screen_threshold ends with ScreenBlocked and never reaches the "
        "sandbox. ask: the person in front of the notebook is asked before such a cell runs; without a yes it is "
        "blocked. The screen is not a security boundary (docs/screen.md).",
    )
    screen_threshold: int = setting(
        60,
        number(int, 1, 100),
        "Points at which a cell is blocked, or asked about. A finding has 20, 40, 60 or 80 points. They add up to at "
        "most 100.",
    )
    screen_rules: str | None = setting(
        None,
        Form(_rules, "a TOML file", "FILE", reread=_reread),
        "A TOML file that adds rules to the screen, changes their weights, switches them off, or lists the modules"
        " that may be imported.",
    )
    """The text of the file."""
    screen_overrides: Literal["allow", "forbid"] = setting(
        "allow",
        choice("allow", "forbid"),
        "Whether a comment in a cell can allow a finding: `# sandbox: allow CODE — REASON`. Choose forbid if the "
        "author of the code is not trusted.",
    )
    screen_override_needs: Literal["off", "owner", "end", "owner-and-end"] = setting(
        "off",
        choice("off", "owner", "end", "owner-and-end"),
        "What such a comment has to name besides its reason: an owner (`by=NAME`), an end (`until=YYYY-MM-DD`), or "
        "both. One that does not allows nothing.",
    )
    screen_judges: tuple[str, ...] = setting(
        (),
        listed(
            re.compile(r"(?:/[^\0:,]+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*"),
            "Python functions of the host",
            "package.module:function",
            "FUNCTIONS",
        ),
        "Functions that give each cell points, from 0 to 100, before it runs, in a process of their own with your "
        "rights: `module:function` of an installed module, or `/PATH.py:function`. They are asked in addition "
        "to the rules (docs/screen.md).",
        scope="process",
    )
    screen_command: tuple[str, ...] = setting(
        (),
        command,
        "A program of the host that gives each cell points before it runs. It receives the code and the findings as "
        "JSON on stdin, and answers with JSON on stdout.",
        scope="process",
    )
    screen_judge_seconds: float = setting(
        10.0,
        seconds(0.1, 120),
        "The time in which one of screen_judges, or screen_command, has to answer about one cell.",
        scope="process",
    )
    screen_judge_fails: Literal["block", "warn"] = setting(
        "block",
        choice("block", "warn"),
        "What a judge counts for that gives no answer: 100 points, or 20 points.",
        scope="process",
    )


def check(settings: Settings) -> None:
    """Raise `ConfigurationError` if there are judges, and nothing that would ask them."""
    chosen = settings.of(ScreenSettings)
    for name in ("screen_judges", "screen_command"):
        if getattr(chosen, name) and chosen.screen == "off":
            what = f"{name} is set, and the screen is off"
            raise ConfigurationError(EndCode.WRONG_SETTING, what, limit="warn", value="off", setting="screen")


GROUP = "Screen and monitor"
SETTINGS = rows(ScreenSettings)
