"""Which cells run, and the streams of a session without a service. Those of another one are the plugin `streams`'s."""

from __future__ import annotations

from ..core.codes import EndCode
from ..core.errors import WireError
from ..plugins.api import Cell, Identified


class RunningCells:
    """Which cells run, and which of them connections are charged to: an observer of cells."""

    def __init__(self) -> None:
        self._running: dict[str, Cell] = {}
        self._last: Cell | None = None
        self.begun = 0
        """How many there were so far."""

    @property
    def charged(self) -> Cell | None:
        """The cell that began last of those that run, or else that ended last; None before a kernel's first."""
        return next(reversed(self._running.values()), self._last)

    def cell_sent(self, cell: Identified) -> None:
        self._running[cell.id] = self._last = Cell(cell.id)
        self.begun += 1

    def cell_ended(self, cell: Identified) -> None:
        self._last = self._running.pop(cell.id, self._last)

    def kernel_gone(self) -> None:
        """Charge nothing more to the cells of a kernel that is gone."""
        self._last = None


class NoStreams:
    """Those of a session without a service: none."""

    def begin(self) -> None: ...

    def take(self, parts: list[bytes]) -> None:
        raise WireError(EndCode.NOT_FRAMES, "the sandbox sent a frame of a stream, and was never allowed to open one")

    def reset_all(self, code: str) -> None: ...

    async def close(self) -> None: ...
