"""The states of one container, from its order to its end, and what may follow what.

Pure: one table. What is not in it is a defect of ours, and refused.
"""

from __future__ import annotations

import enum

from .state_table import next_state


class State(enum.Enum):
    """Where the life of a container stands; it is in one of these at a time."""

    NEW = "no container was asked for"
    STARTING = "the engine works on it"
    ATTESTING = "its agent answers, and is not attested yet"
    BOOTING = "attested; its first kernel starts"
    ASKING = "a kernel is ready, and asked what it is before requests are let in"
    READY = "its kernel takes requests"
    RESTARTING = "its kernel is ended, since somebody wants a new one"
    REPLACING = "its kernel ended, and the next one starts"
    RETIRING = "it is ended as unused; what comes now waits for the next one"
    ENDING = "it is being ended; what it sends is ignored"
    ABORTING = "it is ended before it showed what it is: nothing is lost with it"
    ENDED = "it is gone"
    PARKED = "it was given to another process"
    CLOSED = "it was let go of with its session"


class Event(enum.Enum):
    """What happens to a container."""

    LAUNCH = "somebody wants it"
    ATTACHED = "the engine started it"
    ADOPTED = "it came from another process, which had it attested"
    ATTESTED = "it is what was asked for"
    KERNEL_READY = "a kernel can take requests"
    INTRODUCED = "it is known what the kernel is"
    KERNEL_EXITED = "a kernel ended"
    RESTART = "somebody wants a new kernel"
    IDLE = "nobody used it for long"
    END = "it has to go"
    GONE = "it ended, or never started"
    PARK = "it is given away"
    CLOSE = "its session ends"


_ANYTIME = {Event.END: State.ENDING, Event.GONE: State.ENDED, Event.CLOSE: State.CLOSED}
"""While there is a container."""

TABLE: dict[State, dict[Event, State]] = {
    State.NEW: {Event.LAUNCH: State.STARTING, Event.CLOSE: State.CLOSED},
    State.STARTING: {
        Event.ATTACHED: State.ATTESTING,
        Event.ADOPTED: State.BOOTING,
        Event.GONE: State.ENDED,
        Event.CLOSE: State.CLOSED,
    },
    State.ATTESTING: {
        **_ANYTIME,
        Event.END: State.ABORTING,
        Event.ATTESTED: State.BOOTING,
        Event.KERNEL_EXITED: State.ATTESTING,
        Event.RESTART: State.ATTESTING,
    },
    State.BOOTING: {
        **_ANYTIME,
        Event.KERNEL_READY: State.ASKING,
        Event.KERNEL_EXITED: State.BOOTING,
        Event.RESTART: State.BOOTING,
    },
    State.ASKING: {
        **_ANYTIME,
        Event.INTRODUCED: State.READY,
        Event.KERNEL_EXITED: State.BOOTING,
        Event.RESTART: State.ASKING,
    },
    State.READY: {
        **_ANYTIME,
        Event.KERNEL_EXITED: State.REPLACING,
        Event.RESTART: State.RESTARTING,
        Event.IDLE: State.RETIRING,
        Event.PARK: State.PARKED,
    },
    State.RESTARTING: {
        **_ANYTIME,
        Event.KERNEL_EXITED: State.REPLACING,
        Event.RESTART: State.RESTARTING,
        Event.IDLE: State.RETIRING,
    },
    State.REPLACING: {
        **_ANYTIME,
        Event.KERNEL_READY: State.ASKING,
        Event.KERNEL_EXITED: State.REPLACING,
        Event.RESTART: State.REPLACING,
        Event.IDLE: State.RETIRING,
        Event.PARK: State.PARKED,
    },
    State.RETIRING: {
        **_ANYTIME,
        Event.END: State.RETIRING,
        Event.RESTART: State.RETIRING,
    },
    State.ENDING: {**_ANYTIME, Event.RESTART: State.ENDING},
    State.ABORTING: {**_ANYTIME, Event.END: State.ABORTING, Event.RESTART: State.ABORTING},
    State.ENDED: {Event.CLOSE: State.CLOSED},
    State.PARKED: {Event.CLOSE: State.PARKED},
    State.CLOSED: {Event.CLOSE: State.CLOSED},
}

OPEN = frozenset({State.READY, State.RESTARTING, State.REPLACING, State.RETIRING})
"""A container runs that was attested, and whose kernel was ready once."""
AWAITING_KERNEL = frozenset({State.ATTESTING, State.BOOTING, State.ASKING, State.RESTARTING, State.REPLACING})
"""A kernel has to become ready, in bounded time."""
UNATTESTED = frozenset({State.STARTING, State.ATTESTING, State.ABORTING})
"""It never attested itself, and holds no work."""
LET_GO = frozenset({State.PARKED, State.CLOSED})
"""It has no owner in this process any more."""
UNHEARD = frozenset({State.RETIRING, State.ENDING, State.ABORTING})
"""What it still sends counts for nothing."""


def following(state: State, event: Event) -> State:
    """Return the state that follows. Raises `ImpossibleError` for what is not in the table."""
    return next_state(TABLE, state, event, "container")
