"""What a kernel may send: each request within its own limits, all of them within the session's, and little in vain.

A cell that exceeds its limit is ended. A flood that no cell answers for, by a thread or a forger, ends its kernel.
"""

from __future__ import annotations

from ...core.codes import Code, EndCode, Note
from ...core.errors import OutputLimit
from ...core.model import Limits
from ...policy import CellBudget, SessionBudget
from .escalation import Escalation
from .outbound import Outbound
from .queue import PendingRequest

SMALL = 1 << 16
"""Bytes up to which what a kernel owes, a status or a reply, is charged to the session alone."""


class Quota:
    """Counts what a kernel sends, and sees to it that too much has an end."""

    def __init__(self, limits: Limits, outbound: Outbound, escalation: Escalation) -> None:
        self._limits = limits
        self._outbound = outbound
        self._escalation = escalation
        self._session = SessionBudget(limits)
        self._dropped = CellBudget(limits)
        """What was sent and did not pass. That costs work too, so there is as little of it as of one cell's output."""
        self._flooded = False
        self._flood: OutputLimit | None = None

    @property
    def flood(self) -> OutputLimit | None:
        """Why this kernel has to go, if it sent a flood."""
        return self._flood

    def allows(self, kind: str, request: PendingRequest | None, size: int, *, owed: bool = False) -> bool:
        """Charge an output to its cell and to the session; see to it that a flood ends.

        What is `owed` counts by its size: an honest cell that uses its limit to the last message still gets its reply.
        """
        own = request.allowance(self._limits) if request is not None and not (owed and size < SMALL) else None
        for budget in (self._session, own):
            if budget is None or budget.charge(size, 0 if owed else 1).allowed:
                continue
            if request is not None and not request.finished:
                self._escalation.end(request, budget.exceeded or too_much())
            else:
                # A thread goes on after its cell: nothing to interrupt, so its kernel has to go.
                self._end_flood(budget.exceeded, kind)
            return False
        return True

    def charge_status(self, size: int) -> None:
        """Count a status, which always passes."""
        self._session.charge(size, 0)

    def drop(self, why: Code | Note, size: int, kind: str = "", *, quietly: bool = False) -> None:
        """Note a message that does not pass; a kernel that goes on sending such is ended."""
        if not quietly:
            self._outbound.dropped(why, kind)
        if not self._dropped.charge(size).allowed:
            self._end_flood(self._dropped.exceeded, kind)

    def forget_kernel(self) -> None:
        """Begin again for the next kernel; what its session may send stays what it was."""
        self._flooded, self._flood = False, None
        self._dropped = CellBudget(self._limits)

    def _end_flood(self, error: OutputLimit | None, kind: str) -> None:
        if self._flooded:
            return
        self._flooded, self._flood = True, error
        self._outbound.emit("flood", code=error.code.code if error else None, reason=str(error), type=kind)
        self._escalation.end_kernel(
            error or OutputLimit(EndCode.OUTPUT_TOO_LARGE, "a thread of an earlier cell went on sending")
        )


def too_much() -> OutputLimit:
    return OutputLimit(EndCode.OUTPUT_TOO_LARGE.note(who="cell"))
