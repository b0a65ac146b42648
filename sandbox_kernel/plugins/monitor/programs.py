"""What runs in a sandbox, as samples of its processes say: programs that lie where cells write. Pure.

A program that begins and ends between two samples is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.model import ProcessSample
from .codes import MonitorCode
from .rules import Signal

WRITABLE = ("/memfd:", "/mnt/data/", "/tmp/", "/dev/shm/")  # noqa: S108 (of the sandbox)
"""How the paths of files begin that cells can make: the kernel names a file in memory so."""
UNSEEN_LOOKS = 2
"""Samples without a process, one after another, that make it unseen: a kernel may be on its way in one of them."""
MAX_KNOWN = 1000
MAX_SHOWN = 3


class Programs:
    """What the samples of one sandbox have shown."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        self._unseen = 0
        self._seconds: dict[str, float] = {}
        self.busiest = ""
        """The programs that used most of the processors between the last two samples; safe to print."""

    def look(self, programs: Sequence[ProcessSample] | None) -> Iterator[Signal]:
        """Yield what is new in a sample; None is one in which the host sees no process."""
        if programs is None:
            self._unseen += 1
            self.busiest = ""
            if self._unseen == UNSEEN_LOOKS:
                yield Signal(MonitorCode.NOT_WATCHED)
            return
        self._unseen = 0
        self._compare(programs)
        for program in programs:
            file = next((file for file in program.files if file.startswith(WRITABLE)), None)
            if file is not None and (program.identity, file) not in self._known:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known.add((program.identity, file))
                yield Signal(MonitorCode.DROPPED_PROGRAM, 1, file)

    def _compare(self, programs: Sequence[ProcessSample]) -> None:
        used = [(one.cpu_seconds - self._seconds.get(one.identity, 0.0), one.name) for one in programs]
        self._seconds = {one.identity: one.cpu_seconds for one in programs}
        most = sorted((pair for pair in used if pair[0] > 0), reverse=True)[:MAX_SHOWN]
        self.busiest = ", ".join(name for _, name in most)
