"""How the screen's rules are written: a TOML file of the host, read by the rule by which all of its files are opened.

Imports the rules when there is a file to read: a start without one does not wait for them.
"""

from __future__ import annotations

import os

from ..core.errors import FileRefused
from ..files.host_paths import open_file
from .values import Form, home_folder, refuse

MOST_FILE = 256 << 10
"""Bytes of a file of rules."""
_NOTHING = ("", "none", "off")


def _rules(name: str, raw: object) -> str | None:
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in _NOTHING):
        return None
    path = os.fspath(raw) if isinstance(raw, str | os.PathLike) else None
    if not isinstance(path, str):
        raise refuse(name, raw, f"{name} is not a file")
    if path.startswith("~"):
        user, _, rest = path[1:].partition("/")
        path = f"{home_folder(user) or ''}/{rest}"
    if not path.startswith("/") or not path.isprintable():
        raise refuse(name, raw, f"{name} is not the path of a file from the root, or from ~, on")
    from ..policy.screen.changes import BadRules, changes

    text = _text(name, path)
    try:
        changes(text)
    except BadRules as error:
        raise refuse(name, path, f"{name} {error}") from None
    return text


def _text(name: str, path: str) -> str:
    try:
        with os.fdopen(open_file(path), "rb") as file:
            data = file.read(MOST_FILE + 1)
        if len(data) > MOST_FILE:
            raise refuse(name, path, f"{name} is a file of more than {MOST_FILE} bytes")
        return data.decode()
    except OSError as error:
        raise refuse(name, path, f"{name} cannot be read: {error.strerror}") from None
    except FileRefused as error:
        raise refuse(name, path, f"{name} is not opened: {error.message}") from None
    except UnicodeDecodeError:
        raise refuse(name, path, f"{name} is no text") from None


rules: Form[str | None] = Form(_rules, "a TOML file", "FILE")
