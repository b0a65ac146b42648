"""The hints of a session: the plugin `hints` says them, which is loaded with the first failure. Without it, none."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.model import Audience, Settings
from ..plugins import index
from ..plugins.api import MAX_SEARCHED, Beside, CellFailure, CellHints


class SessionHints:
    """The hints of one session, for those who hear its cells."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._audience = Audience()
        self.beside: Beside | None = None
        """Asked for files that a cell did not find, where only a person gets to see the answer."""

    def address(self, audience: Audience, beside: Beside | None = None) -> None:
        """Say from now on what this audience can do, and what lies `beside` its notebook."""
        self._audience, self.beside = audience, beside

    def of_cell(self, failure: CellFailure | None, found: str | None, program: str | None, code: str) -> Sequence[str]:
        """Return the hints for a cell, as `CellHints` does."""
        ordinary = failure is None and program is None and "!" not in code and "%" not in code
        return () if ordinary or (hints := self._made()) is None else hints.of_cell(failure, found, program, code)

    def sought(self, failure: CellFailure) -> Sequence[str]:
        """Return the relative paths that an exception may be about and that are worth a check."""
        return () if self.beside is None or (hints := self._made()) is None else hints.sought(failure)

    def program_not_found(self, printed: str) -> str | None:
        """Return the program that a shell in a cell did not find, if it is one that is known."""
        if "not found" not in printed[:MAX_SEARCHED] or (hints := self._made()) is None:
            return None
        return hints.program_not_found(printed)

    def _made(self) -> CellHints | None:
        make = index.hints()
        made: CellHints | None = None if make is None else make(self._settings, self._audience, self.beside)
        return made
