"""What a run says while it runs: a line for each cell that ended, and on a terminal one for the cell that runs.

On stderr, so that what a script prints can go to stdout.

Everything that comes from the notebook is made printable.
"""

from __future__ import annotations

import time

from ...core.model import MIB, format_bytes
from ...files.file_rules import printable
from .output_stream import OutputStream

MUCH = 32 * MIB
"""Bytes of inputs from which it is said how far they are."""
STEPS = 100
_WIDTH = 76
_COLOURS = {"ok": "32", "failed": "31", "limit": "31", "sandbox": "31", "stopped": "33"}


class RunProgress:
    """Lines for people, or for a log."""

    def __init__(self, output_stream: OutputStream, *, total: int, live: bool, quiet: bool = False) -> None:
        self._output_stream = output_stream
        self._total = total
        self._live = live and not quiet
        self._quiet = quiet
        self._running: tuple[int, str, float] | None = None
        self._shown = False
        self._part = 0

    def say(self, line: str) -> None:
        """Say one line."""
        if not self._quiet:
            self.clear()
            self._output_stream.say(line + "\n", live=self._live)

    def copied(self, count: int, total: int) -> None:
        """Note how many bytes of the inputs have gone in, where they are so many that somebody waits for them."""
        part = count * STEPS // total if total >= MUCH else 0
        if part == self._part or self._quiet:
            return
        self._part = part
        line = f"inputs: {format_bytes(count)} of {format_bytes(total)}"
        if self._live:
            self.clear()
            self._output_stream.say(line)
            self._shown = True
        elif part % (STEPS // 4) == 0:
            self.say(line)

    def begin(self, number: int, source: str) -> None:
        """Note that a code cell begins."""
        self._running = (number, first_line(source), time.monotonic())
        self.tick()

    def tick(self) -> None:
        """Show on a terminal how long the cell has been running."""
        if self._live and self._running is not None:
            number, line, started = self._running
            self.clear()
            self._output_stream.say(
                f"{self._number(number)} {_clock(time.monotonic() - started):>8}  {line}"[:_WIDTH] + " …"
            )
            self._shown = True

    def end(self, status: str, seconds: float, note: str = "") -> None:
        """Note how the cell that runs has ended."""
        if self._running is None:
            return
        number, line, _ = self._running
        self._running = None
        word = f"\x1b[{_COLOURS.get(status, '0')}m{status:<7}\x1b[0m" if self._live else f"{status:<7}"
        self.say(f"{self._number(number)} {seconds:6.2f} s  {word} {line[:_WIDTH]}")
        if note:
            self.say(f"{'':>{len(self._number(number))}} {printable(note, 500)}")

    def clear(self) -> None:
        """Take away the live line, for what others print."""
        if self._shown:
            self._shown = False
            self._output_stream.erase()

    def _number(self, number: int) -> str:
        width = len(str(self._total))
        return f"[{number:>{width}}/{self._total}]"


def first_line(source: str) -> str:
    """Return the first line of a cell that says something, safe to print."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    code = [line for line in lines if not line.startswith("#")]
    return printable((code or lines or [""])[0], 100)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
