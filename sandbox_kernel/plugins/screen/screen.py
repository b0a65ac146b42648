"""The screen of one session: cells in their order, and the names that each leaves for the next.

It does no I/O. The date decides about overrides alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core.screen_findings import WEIGHTS, Finding, Place, Screened
from .python_reader import UNKNOWN, ExpressionValue, PythonReader
from .rule_index import RuleIndex, default

if TYPE_CHECKING:
    from .judges import Opinion
    from .overrides import Needs
    from .settings import ScreenSettings

MAX_NAMES = 3000
"""Names that are carried from cell to cell."""
MAX_CARRIED = 4096
"""Characters of a text that is carried."""


class CellScreen:
    """Screens the cells of a session, or of a notebook, one after another."""

    def __init__(self, index: RuleIndex | None = None, *, overrides: bool = True, needs: Needs = "off") -> None:
        """`overrides`: whether a comment in a cell may allow what was found in it; `needs`: what it has to name."""
        self._index = index or default()
        self._overrides = overrides
        self._needs: Needs = needs
        self.names: dict[str, ExpressionValue] = {}
        """What is known of the names of the cells that ran; at most `MAX_NAMES`."""
        self._last: tuple[str, dict[str, ExpressionValue]] = "", {}
        """The cell that was read last, and the names that it leaves if it runs."""

    @classmethod
    def of(cls, settings: ScreenSettings, index: RuleIndex | None) -> CellScreen:
        """Return one by the settings."""
        allows = settings.screen_overrides == "allow"
        return cls(index, overrides=allows, needs=settings.screen_override_needs)

    def forget(self) -> None:
        """Forget the names of the cells that ran: another kernel has none of them."""
        self.names = {}

    def look(self, code: str, expressions: tuple[str, ...] = (), *, runs: bool = True) -> Screened:
        """Return what is found in a cell and in the expressions that come with it.

        With `runs`, the next cell is read with what this one leaves; call `ran` otherwise, once it is known.
        """
        reader = PythonReader(self._index, self.names)
        findings = {one.code: one for one in reader.read(code).findings}
        self._last = code, reader.names
        if runs:
            self.ran(code)
        known = self.names | reader.names if expressions else {}
        for expression in expressions:
            for one in PythonReader(self._index, known).read(expression).findings:
                findings.setdefault(one.code, one)
        return Screened(self._with_overrides(code, findings.values()))

    def with_opinions(self, code: str, found: Screened, opinions: Iterable[Opinion]) -> Screened:
        """Return what was found in a cell together with what judges say of it, as far as that counts."""
        first = len(code.partition("\n")[0]) + 1
        rows = ((one, self._index.rows.get(one.code.code)) for one in opinions if one.weight >= WEIGHTS["low"])
        more = [
            Finding(row.code, row.family, one.weight, 1, one.sentence, row.remedy, places=(Place(1, 1, 1, first),))
            for one, row in rows
            if row is not None
        ]
        return Screened((*found.findings, *self._with_overrides(code, more)))

    def _with_overrides(self, code: str, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        if not self._overrides or "sandbox:" not in code:
            return tuple(findings)
        from .overrides import apply, overrides_in  # most cells have none

        return apply(findings, overrides_in(code), self._needs)

    def ran(self, code: str) -> None:
        """Note that a cell which was looked at runs now."""
        if self._last[0] != code:
            self.look(code, runs=False)
        for name, value in self._last[1].items():
            self.names.pop(name, None)
            self.names[name] = value if len(value.text or "") <= MAX_CARRIED else UNKNOWN
        while len(self.names) > MAX_NAMES:
            plain = next((name for name, value in self.names.items() if value.ref is None), None)
            del self.names[plain if plain is not None else next(iter(self.names))]
