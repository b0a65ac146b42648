"""Processors that are busy for long: a miner works in a cell that says nothing, or on after its cell. Pure."""

from __future__ import annotations

from ...core.model import MonitorRule
from .codes import MonitorCode
from .rules import Signal

LOOKS = 6
"""How many looks there are in the time of a rule, so that a stretch is not missed by much."""
SHORTEST, LONGEST = 0.1, 15.0
"""Seconds from one look to the next."""


def look_every(seconds: float) -> float:
    """Return the seconds from one look to the next, for a rule of so many."""
    return max(SHORTEST, min(LONGEST, seconds / LOOKS))


class Pulse:
    """What the processors did since a stretch of the same kind began: with a cell, or without one."""

    def __init__(self, in_silence: MonitorRule | None, without_cell: MonitorRule | None, cpus: float) -> None:
        """Either rule may be off. `cpus` is how many processors may be busy at most."""
        self._rules = {True: in_silence, False: without_cell}
        self._cpus = cpus
        self._last: tuple[float, float] | None = None
        self._began: float | None = None
        self._kind: tuple[bool, int] | None = None

    @property
    def interval(self) -> float | None:
        """Seconds from one look to the next; None if nobody has to look."""
        times = [rule.seconds for rule in self._rules.values() if rule is not None]
        return look_every(min(times)) if times else None

    def look(self, now: float, cpu_seconds: float | None, *, running: bool, shown: int) -> Signal | None:
        """Take the processor time used until now; None if it is not known. `shown` counts what cells showed.

        Returns a signal once they were busy for as long as the rule says, and then begins anew.
        """
        last, self._last = self._last, None if cpu_seconds is None else (now, cpu_seconds)
        kind, rule = (running, shown), self._rules[running]
        if last is None or cpu_seconds is None or rule is None or now <= last[0]:
            self._began, self._kind = None, kind
            return None
        percent = 100 * (cpu_seconds - last[1]) / (now - last[0]) / self._cpus
        if percent < rule.count or kind != self._kind:
            self._began, self._kind = None, kind
            return None
        self._began = last[0] if self._began is None else self._began
        if now - self._began < rule.seconds:
            return None
        self._began = None
        code = MonitorCode.BUSY_IN_SILENCE if running else MonitorCode.BUSY_WITHOUT_CELL
        return Signal(code, rule.count, f"{min(percent, 100):.0f} % at the last look")
