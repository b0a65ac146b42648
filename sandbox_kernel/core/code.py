"""What a refusal is as a value: a code that programs read, a severity, and words for people. Imports nothing of ours.

Exit codes, reports, audits and adapters decide by the code; only the last step to a person uses the words.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any, Literal, NamedTuple

Severity = Literal["violation", "limit", "notice", "failure"]
"""violation: it could have acted, loaded, leaked or forged. limit: something was used up. notice: honest code does so.
failure: a kernel, a sandbox, the machine or a setting did not do what it should; no refusal has this one."""


class Code(Enum):
    """The root of the tables: a member is a row. What is called `TOO_LARGE` here is `too-large` to programs.

    A code never changes its meaning, and none is given to another thing later.
    """

    severity: Severity
    text: str
    """What is said of it; names in braces are filled in where it happens."""
    remedy: str
    """What a person can do about it."""

    def __init__(self, severity: Severity, text: str, remedy: str) -> None:
        self.severity = severity
        self.text = text
        self.remedy = remedy

    @property
    def code(self) -> str:
        return self.name.lower().replace("_", "-")

    def note(self, **details: Any) -> Note:
        """Return this code with its text filled in."""
        return Note(self, self.text.format_map(details))

    def __str__(self) -> str:
        return self.code


class Note(NamedTuple):
    """One thing that was refused, removed or ended: why, for programs and for people."""

    code: Code
    text: str
    """May hold names that came from the container."""

    def __str__(self) -> str:
        return self.text


class Survived(StrEnum):
    """What is left of a session's work after one of its cells was ended."""

    VARIABLES_AND_FILES = "variables-and-files"
    FILES = "files"
    NOTHING = "nothing"

    def sentence(self, why: str | None = None) -> str:
        """Return it as a person reads it, with `why` more is lost than one would think."""
        return _LEFT[self] + (f": {why}" if why else "")


_LEFT = {
    Survived.VARIABLES_AND_FILES: "variables and files",
    Survived.FILES: "files, but no variables",
    Survived.NOTHING: "nothing",
}
