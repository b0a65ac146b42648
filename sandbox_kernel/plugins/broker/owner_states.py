"""The owner of a sandbox over time, as a table of states: the same for everything that outlives an owner.

What keeps it between two owners, and for how long, is the keeper's: a pipe holder for a restart, a broker for a
lifetime, a shared sandbox's broker for a moment. Pure. A transition that is not in the table is a defect, and refused.
"""

from __future__ import annotations

import enum

from ...core.state_table import next_state


class OwnerState(enum.Enum):
    """Where the ownership of a sandbox stands; it is in one of these at a time."""

    OWNED = "a process has its pipe"
    KEPT = "no owner has its pipe, and the next one may come"
    ENDING = "it is being ended, whoever has its pipe"
    ENDED = "it is gone"


class OwnerEvent(enum.Enum):
    CLAIM = "an owner has come"
    LEAVE = "its owner has gone, and it is kept for the next one"
    END = "its owner has gone and it ends with it, or its time is up"
    GONE = "it has ended"


LATE = (OwnerEvent.CLAIM, OwnerEvent.LEAVE, OwnerEvent.END)
"""What may cross the end on its way, and changes nothing."""

TABLE: dict[OwnerState, dict[OwnerEvent, OwnerState]] = {
    OwnerState.OWNED: {
        OwnerEvent.CLAIM: OwnerState.OWNED,
        OwnerEvent.LEAVE: OwnerState.KEPT,
        OwnerEvent.END: OwnerState.ENDING,
        OwnerEvent.GONE: OwnerState.ENDED,
    },
    OwnerState.KEPT: {
        OwnerEvent.CLAIM: OwnerState.OWNED,
        OwnerEvent.END: OwnerState.ENDING,
        OwnerEvent.GONE: OwnerState.ENDED,
    },
    OwnerState.ENDING: {
        **dict.fromkeys(LATE, OwnerState.ENDING),
        OwnerEvent.GONE: OwnerState.ENDED,
    },
    OwnerState.ENDED: dict.fromkeys(LATE, OwnerState.ENDED),
}


def following(state: OwnerState, event: OwnerEvent) -> OwnerState:
    """Return the state that follows. Raises `ImpossibleError` for what is not in the table."""
    return next_state(TABLE, state, event, "sandbox")
