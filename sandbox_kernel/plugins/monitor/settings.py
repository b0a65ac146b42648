"""The settings of the monitor: a level or a file of rules, and where alerts are sent.

Imports the rules when there are some to read: a start without a monitor does not wait for them. No error repeats the
address of a webhook, which may hold a token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.forms import Form, command, is_nothing, log_file, path_from_root, refuse, written_path
from ...config.setting import rows, setting
from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.model import Settings

if TYPE_CHECKING:
    from .behaviour_rules import Monitoring

MAX_FILE = 64 << 10
"""Bytes of a file of rules."""
_LEVELS = ("note", "alert", "kill")
_URL = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?][\x21-\x7e]*)?")


def _monitor(name: str, raw: object) -> Monitoring | None:
    if raw is None:
        return None
    if isinstance(raw, Mapping):
        return _table(name, raw, "the table")
    word = os.fspath(raw) if isinstance(raw, str | os.PathLike) else None
    if not isinstance(word, str):
        raise refuse(name, raw, f"{name} is neither a level nor a file of rules")
    word = word.strip()
    if is_nothing(word, "off"):
        return None
    if word.lower() in _LEVELS:
        return _table(name, {"level": word.lower()}, "the level")
    path = path_from_root(word)
    if path is None:
        raise refuse(name, raw, f"{name} is none of off, {', '.join(_LEVELS)}, and no path from the root or ~ on")
    import tomllib

    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_FILE + 1)
        if len(text) > MAX_FILE:
            raise refuse(name, path, f"{name} is a file of more than {MAX_FILE} bytes")
        table = tomllib.loads(text.decode())
    except (OSError, ValueError, RecursionError) as error:  # no text and no TOML are the second, or nests too deep
        why = (error.strerror or "it cannot be read") if isinstance(error, OSError) else f"no TOML: {error}"
        raise refuse(name, path, f"{name} is a file that cannot be taken: {why}") from None
    return _table(name, table, path)


def _table(name: str, table: Mapping[str, object], where: str) -> Monitoring | None:
    from .behaviour_rules import BadTable, of_table

    try:
        found = of_table(table)
    except BadTable as error:
        raise refuse(name, where, f"{name} {error}") from None
    return found if found.rules else None


def _kept(value: Monitoring | None) -> object:
    """Return the table of the rules."""
    if value is None:
        return None
    from .behaviour_rules import RULES

    rules: dict[str, Mapping[str, object]] = {row.code.code: {"level": "off"} for row in RULES}
    rules |= {one.code: {"level": one.level, "count": one.count, "seconds": one.seconds} for one in value.rules}
    return {"level": "kill", "rules": rules}


def _reread(name: str, kept: object) -> Monitoring | None:
    return None if kept is None else _table(name, kept if isinstance(kept, Mapping) else {"rules": kept}, "a table")


def _written(name: str, raw: object) -> list[str]:
    """Return the setting as a command line has it. Raises `ConfigurationError` for a table, which it cannot hold."""
    _monitor(name, raw)
    if isinstance(raw, Mapping):
        raise refuse(name, "a table", f"{name} cannot be written into one argument; put its rules into a file")
    return [str(raw)]


def _webhook(name: str, raw: object) -> str | None:
    if is_nothing(raw, "off"):
        return None
    text = raw.strip() if isinstance(raw, str) else ""
    if not _URL.fullmatch(text):
        what = f"{name} is not the address of a server, https://HOST/PATH, without a user"
        raise ConfigurationError(EndCode.WRONG_SETTING, what, value="not shown", setting=name)
    return text


def _trace(name: str, raw: object) -> str | None:
    """A file in a folder that exists: a new one, or one that such lines were written into."""
    written = None if is_nothing(raw, "off") else written_path(name, raw)
    if written is None:
        return None
    from .call_trace import BEGINS

    return log_file(name, written, BEGINS)


def check(settings: Settings) -> None:
    """Raise `ConfigurationError` if alerts are to be sent and there can be none, or cells could reach the trace."""
    chosen = settings.of(MonitorSettings)
    if chosen.trace and settings.downloads and Path(chosen.trace).is_relative_to(settings.downloads):
        raise refuse("trace", chosen.trace, "trace lies in the downloads folder, where a cell could overwrite it")
    for name in ("monitor_webhook", "monitor_command"):
        if getattr(chosen, name) and chosen.monitor is None:
            what = f"{name} is set, and the monitor is off"
            raise ConfigurationError(EndCode.WRONG_SETTING, what, limit="a level", value="off", setting="monitor")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """What is noticed while code runs, and what comes of it."""

    monitor: Monitoring | None = setting(
        None,
        Form(
            _monitor,
            "`off`, `note`, `alert`, `kill`, or a TOML file of rules",
            "LEVEL|FILE",
            written=_written,
            kept=_kept,
            reread=_reread,
            types="str | Mapping[str, object]",
        ),
        "What is done at most when running code behaves like an attack: a note in the audit, an alert, or the end "
        "of the kernel with all its processes (`BehaviourBlocked`). A TOML file changes single rules. It is not a "
        "security boundary (docs/monitor.md).",
        "off",
    )
    monitor_webhook: str | None = setting(
        None,
        Form(_webhook, "`https://HOST/PATH`", "URL"),
        "An address to which each alert is posted as JSON. If it contains a token, set it in a config file.",
        scope="process",
    )
    """It may hold a token: nothing says it."""
    monitor_command: tuple[str, ...] = setting(
        (),
        command,
        "A program of the host that is started for each alert. It receives the alert as JSON on stdin.",
        scope="process",
    )
    trace: str | None = setting(
        None,
        Form(_trace, "a file in a folder that exists", "FILE", from_notebook=True),
        "A host file that receives one line of JSON for each kind of system call that was tried and that honest code "
        "does not make, for each address that was connected to, and for each secret that was sought.",
        scope="process",
    )


GROUP = "Screen and monitor"
SETTINGS = rows(MonitorSettings)
