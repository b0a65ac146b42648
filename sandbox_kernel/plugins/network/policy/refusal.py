"""What a refused connection raises: a note with its code, and the rule that would allow it. Imports codes only."""

from __future__ import annotations

from ....core.codes import Code, Note

MAX_SHOWN = 80
"""Characters of a host's name that a text repeats."""


class Refused(Exception):
    """A connection or a request may not leave; `note` says why.

    `rule` is the line of the setting `network` that would allow it, None where no rule would.
    """

    def __init__(self, note: Note, rule: str | None = None) -> None:
        super().__init__(note.text)
        self.note = note
        self.rule = rule

    @property
    def code(self) -> Code:
        return self.note.code


def shown(raw: bytes | str) -> str:
    """Return what a cell wrote as a text may repeat it: bounded, printable ASCII, in quotes."""
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    cut = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return ascii(cut)
