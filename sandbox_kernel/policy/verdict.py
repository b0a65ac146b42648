"""What the filters say: a verdict, and the notes that go with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..core.codes import Code, Note, OutputCode
from ..core.model import Message

MAX_SHOWN = 8
"""Reasons of one message that a person sees: hostile output must not make a wall of them."""
MAX_NOTES = 64
"""Reasons of one message that are kept."""
MAX_NOTE = 160

_NAME = re.compile(r"[A-Za-z0-9_.+/@-]{1,80}")
_ODD = re.compile(r"[^ -#%-\[\]-~]")
"""What no note holds, though it repeat a word of the container's: what a page typesets, or a terminal obeys."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The message as it may pass, or None if it may not, and why: an unchanged message is the very same object.

    `notes` are for the audit, and for the line that a person sees. A changed output carries that line already; for
    a dropped message, or a changed reply, the caller may show one.
    """

    message: Message | None
    notes: tuple[Note, ...] = ()
    work: int = 0
    """Elements of a page that showing the message counts as."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """What the notes say to people."""
        return tuple(note.text for note in self.notes)


class RefusedError(ValueError):
    """The message may not pass at all; `note` says why."""

    def __init__(self, code: Code, **details: Any) -> None:
        self.note = noted(code, **details)
        super().__init__(self.note.text)


class Notes:
    """The reasons collected while one message is filtered: each once, in order, bounded."""

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}
        self.work = 0
        """Elements of a page that what was kept counts as: each filter adds its own."""

    def add(self, code: Code, **details: Any) -> None:
        """Note that something was removed; `details` are what the code's text has in braces."""
        self.take(noted(code, **details))

    def take(self, note: Note) -> None:
        """Note what another filter noted."""
        if len(self._notes) < MAX_NOTES:
            self._notes[note] = None
        elif note not in self._notes:
            self._notes[noted(OutputCode.MORE_REMOVED)] = None

    def __iter__(self) -> Iterator[Note]:
        return iter(self._notes)

    def __bool__(self) -> bool:
        return bool(self._notes)

    def line(self) -> str:
        """Return the one line that is put into an output."""
        shown = [note.text for note in islice(self._notes, MAX_SHOWN)] + ["..."] * (len(self._notes) > MAX_SHOWN)
        return f"[sandbox_kernel: {', '.join(shown)}; setting: outputs]"


def noted(code: Code, **details: Any) -> Note:
    r"""Return a note as it may stand in any output: of bounded length, in ASCII, without a dollar or a backslash."""
    note = code.note(**details)
    return Note(code, _ODD.sub("?", note.text[:MAX_NOTE]))


def named(name: object) -> str:
    """Return a name that came from the container if it can be shown as it is, else a stand-in."""
    return name if isinstance(name, str) and _NAME.fullmatch(name) else "something without a proper name"
