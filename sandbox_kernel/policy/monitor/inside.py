"""What an agent tells of its cells: how much more than it told before. Pure; each figure of it is bounded.

It is an attacker's word, believed where it tells against the sandbox that says it: a lie harms the one who lies, and
silence is possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.codes import MonitorCode
from .rules import Signal

MOST = 1 << 31
COUNTED: Mapping[str, tuple[MonitorCode, ...]] = {
    "programs": (MonitorCode.PROGRAMS_STARTED, MonitorCode.MANY_PROGRAMS),
    "dropped": (MonitorCode.DROPPED_PROGRAM,),
    "outward": (MonitorCode.OUTWARD_CONNECTIONS,),
    "metadata": (MonitorCode.METADATA_SOUGHT,),
}
"""What the agent counts from its start on, and what each of it is a signal of."""
MOST_BAITS, MOST_NAME, MOST_SHOWN = 32, 80, 100


class Told:
    """What one agent has told."""

    def __init__(self, *, listens: bool, known: bool = False) -> None:
        """`listens`: whether a runtime of its kind can tell of system calls.

        `known`: whether it told another process of the host's before, so that its first word holds nothing new.
        """
        self._listens = listens
        self._known = known
        self._counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        self._opened: set[str] = set()
        self._first = True

    def take(self, said: Mapping[str, Any]) -> list[Signal]:
        """Return what is new in a word of the agent's; what is not of its type is nothing."""
        known, self._known = self._known, False
        new = list(self._new(said))
        return [] if known else new

    def _new(self, said: Mapping[str, Any]) -> Iterator[Signal]:
        last = said.get("last")
        what = ascii(last[:MOST_SHOWN]).strip("'\"") if type(last) is str else ""
        if self._first and self._listens and said.get("listening") is not True:
            yield Signal(MonitorCode.NOT_WATCHED)
        self._first = False
        for name, codes in COUNTED.items():
            count = said.get(name)
            if type(count) is not int or not self._counts[name] < count <= MOST:
                continue
            more, self._counts[name] = count - self._counts[name], count
            for code in codes:
                yield Signal(code, more, what)
        opened = said.get("opened")
        for name in opened[:MOST_BAITS] if isinstance(opened, list) else ():
            if type(name) is str and name not in self._opened and len(self._opened) < MOST_BAITS:
                self._opened.add(name)
                yield Signal(MonitorCode.BAIT_OPENED, 1, ascii(name[:MOST_NAME]).strip("'\""))
