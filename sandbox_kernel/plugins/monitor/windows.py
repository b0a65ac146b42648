"""Counting: when a rule is met, and how often that is said. Time is handed in, in seconds of any one clock."""

from __future__ import annotations

from collections import deque

from ...core.model import Monitoring, MonitorRule
from .rules import Finding, Signal, code_of

MAX_KEPT = 256
"""Moments of one rule that are kept; nearer ones are taken together, and none is forgotten early."""
MAX_FINDINGS = 100
"""Of one rule in a session; what comes after is one more of the same."""


class _Window:
    """One rule, and what came of its signal lately."""

    def __init__(self, rule: MonitorRule) -> None:
        self.rule = rule
        self._came: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._quiet_until = float("-inf")
        self._findings = 0

    def take(self, signal: Signal, now: float) -> Finding | None:
        while self._came and self._came[0][0] <= now - self.rule.seconds:
            self._sum -= self._came.popleft()[1]
        if self._came and len(self._came) >= MAX_KEPT:
            self._came[-1] = (now, self._came[-1][1] + signal.weight)
        else:
            self._came.append((now, signal.weight))
        self._sum += signal.weight
        if self._sum < self.rule.count or now < self._quiet_until or self._findings >= MAX_FINDINGS:
            return None
        count, self._sum = self._sum, 0
        self._came.clear()
        self._quiet_until = now + self.rule.seconds
        self._findings += 1
        return Finding(code_of(self.rule), self.rule.level, count, self.rule.seconds, signal.what)


class Windows:
    """All rules of a session. A rule that was met says so again after its seconds at the earliest."""

    def __init__(self, monitoring: Monitoring) -> None:
        self._windows = {code_of(rule): _Window(rule) for rule in monitoring.rules}

    def take(self, signal: Signal, now: float) -> Finding | None:
        """Count a signal; return what is to be said of it, if its rule is met now."""
        window = self._windows.get(signal.code)
        return None if window is None else window.take(signal, now)

    def rule(self, code: object) -> MonitorRule | None:
        """Return the rule of a code, None if it is off."""
        return next((window.rule for known, window in self._windows.items() if known is code), None)
