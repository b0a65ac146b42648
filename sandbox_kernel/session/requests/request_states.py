"""The states of one request, from its arrival to its reply, and what may follow what.

Pure: one table. A transition that is not in it is a bug, and refused. Callers check the state first.
"""

from __future__ import annotations

import enum

from ...core.state_table import next_state


class RequestState(enum.IntEnum):
    """How far a request has come; none goes back."""

    WAITING = 0
    """In its queue."""
    NEXT = 1
    """It was taken out of its queue: what comes before it is done, such as copying files."""
    SENT = 2
    """On its way to the kernel."""
    BUSY = 3
    """The kernel has taken it up."""
    IDLE = 4
    """The kernel is done with it; its reply may come later."""
    ENDED = 5
    """Nothing more is heard of it, but for what a thread prints late; its front end is being told."""
    CLOSED = 6
    """Its front end has its reply. Nothing of its content is left."""


class RequestEvent(enum.Enum):
    """What happens to a request."""

    TAKE = "its turn has come"
    SEND = "it goes to the kernel"
    START = "the kernel says that it works on it"
    STOP = "the kernel says that it is done with it"
    END = "the host ends it, for whatever reason"
    CLOSE = "its front end was told"


TABLE: dict[RequestState, dict[RequestEvent, RequestState]] = {
    RequestState.WAITING: {RequestEvent.TAKE: RequestState.NEXT, RequestEvent.END: RequestState.ENDED},
    RequestState.NEXT: {RequestEvent.SEND: RequestState.SENT, RequestEvent.END: RequestState.ENDED},
    RequestState.SENT: {RequestEvent.START: RequestState.BUSY, RequestEvent.END: RequestState.ENDED},
    RequestState.BUSY: {RequestEvent.STOP: RequestState.IDLE, RequestEvent.END: RequestState.ENDED},
    RequestState.IDLE: {RequestEvent.END: RequestState.ENDED},
    RequestState.ENDED: {RequestEvent.CLOSE: RequestState.CLOSED},
    RequestState.CLOSED: {},
}


class Step(enum.Enum):
    """How far the end of a request from outside has come."""

    NONE = 0
    """It is left alone."""
    INTERRUPT = 1
    """The kernel is interrupted, and has time to answer that."""
    KILL = 2
    """The kernel is killed, with all that runs in it."""


def following(state: RequestState, event: RequestEvent) -> RequestState:
    """Return the state that follows. Raises `ImpossibleError` for what is not in the table."""
    return next_state(TABLE, state, event, "request")
