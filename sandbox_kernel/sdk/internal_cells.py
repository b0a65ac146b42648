"""Cells of this package's own, which do something for a caller; the screen reads what that is, and not the cell."""

from __future__ import annotations

from .client import AsyncSandbox, instance_of
from .execution import Execution


async def run_for(sandbox: AsyncSandbox, code: str, *, reads: str, timeout: float) -> Execution:
    """Run a cell for at most `timeout` seconds. Raises as `run_code` does.

    `reads` is a cell that would do as much, or empty for what no rule is about.
    """

    async def hear(kind: str, value: object) -> None:
        """Nobody wants to hear of anything before the end."""

    return await instance_of(sandbox).run(code, timeout, False, frozenset(), hear, reads=reads)
