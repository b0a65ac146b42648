"""The time zone of this machine, by its name in the tz database. Reads /etc; no variable counts."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

FORM = r"[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,32}){0,2}"
_FORM = re.compile(FORM)
LINK, NAME = Path("/etc/localtime"), Path("/etc/timezone")


def of_machine() -> str | None:
    """Return the name of the machine's zone; None if it has none, or none with a name."""
    with suppress(OSError):
        _, found, name = str(LINK.readlink()).partition("/zoneinfo/")
        if found and _FORM.fullmatch(name):
            return name
    with suppress(OSError, UnicodeDecodeError):
        name = NAME.read_text(encoding="utf-8")[:100].strip()
        return name if _FORM.fullmatch(name) else None
    return None
