"""The states of one container, from its order to its end, and what may follow what.

Pure: one table. A transition that is not in it is a bug, and refused.
"""

from __future__ import annotations

import enum

from ..core.state_table import next_state


class ContainerState(enum.Enum):
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


class ContainerEvent(enum.Enum):
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


_ANYTIME = {
    ContainerEvent.END: ContainerState.ENDING,
    ContainerEvent.GONE: ContainerState.ENDED,
    ContainerEvent.CLOSE: ContainerState.CLOSED,
}
"""While there is a container."""

TABLE: dict[ContainerState, dict[ContainerEvent, ContainerState]] = {
    ContainerState.NEW: {ContainerEvent.LAUNCH: ContainerState.STARTING, ContainerEvent.CLOSE: ContainerState.CLOSED},
    ContainerState.STARTING: {
        ContainerEvent.ATTACHED: ContainerState.ATTESTING,
        ContainerEvent.ADOPTED: ContainerState.BOOTING,
        ContainerEvent.GONE: ContainerState.ENDED,
        ContainerEvent.CLOSE: ContainerState.CLOSED,
    },
    ContainerState.ATTESTING: {
        **_ANYTIME,
        ContainerEvent.END: ContainerState.ABORTING,
        ContainerEvent.ATTESTED: ContainerState.BOOTING,
        ContainerEvent.KERNEL_EXITED: ContainerState.ATTESTING,
        ContainerEvent.RESTART: ContainerState.ATTESTING,
    },
    ContainerState.BOOTING: {
        **_ANYTIME,
        ContainerEvent.KERNEL_READY: ContainerState.ASKING,
        ContainerEvent.KERNEL_EXITED: ContainerState.BOOTING,
        ContainerEvent.RESTART: ContainerState.BOOTING,
    },
    ContainerState.ASKING: {
        **_ANYTIME,
        ContainerEvent.INTRODUCED: ContainerState.READY,
        ContainerEvent.KERNEL_EXITED: ContainerState.BOOTING,
        ContainerEvent.RESTART: ContainerState.ASKING,
    },
    ContainerState.READY: {
        **_ANYTIME,
        ContainerEvent.KERNEL_EXITED: ContainerState.REPLACING,
        ContainerEvent.RESTART: ContainerState.RESTARTING,
        ContainerEvent.IDLE: ContainerState.RETIRING,
        ContainerEvent.PARK: ContainerState.PARKED,
    },
    ContainerState.RESTARTING: {
        **_ANYTIME,
        ContainerEvent.KERNEL_EXITED: ContainerState.REPLACING,
        ContainerEvent.RESTART: ContainerState.RESTARTING,
        ContainerEvent.IDLE: ContainerState.RETIRING,
    },
    ContainerState.REPLACING: {
        **_ANYTIME,
        ContainerEvent.KERNEL_READY: ContainerState.ASKING,
        ContainerEvent.KERNEL_EXITED: ContainerState.REPLACING,
        ContainerEvent.RESTART: ContainerState.REPLACING,
        ContainerEvent.IDLE: ContainerState.RETIRING,
        ContainerEvent.PARK: ContainerState.PARKED,
    },
    ContainerState.RETIRING: {
        **_ANYTIME,
        ContainerEvent.END: ContainerState.RETIRING,
        ContainerEvent.RESTART: ContainerState.RETIRING,
    },
    ContainerState.ENDING: {**_ANYTIME, ContainerEvent.RESTART: ContainerState.ENDING},
    ContainerState.ABORTING: {
        **_ANYTIME,
        ContainerEvent.END: ContainerState.ABORTING,
        ContainerEvent.RESTART: ContainerState.ABORTING,
    },
    ContainerState.ENDED: {ContainerEvent.CLOSE: ContainerState.CLOSED},
    ContainerState.PARKED: {ContainerEvent.CLOSE: ContainerState.PARKED},
    ContainerState.CLOSED: {ContainerEvent.CLOSE: ContainerState.CLOSED},
}

OPEN = frozenset({ContainerState.READY, ContainerState.RESTARTING, ContainerState.REPLACING, ContainerState.RETIRING})
"""A container runs that was attested, and whose kernel was ready once."""
AWAITING_KERNEL = frozenset(
    {
        ContainerState.ATTESTING,
        ContainerState.BOOTING,
        ContainerState.ASKING,
        ContainerState.RESTARTING,
        ContainerState.REPLACING,
    }
)
"""A kernel has to become ready, in bounded time."""
UNATTESTED = frozenset({ContainerState.STARTING, ContainerState.ATTESTING, ContainerState.ABORTING})
"""It never attested itself, and holds no work."""
LET_GO = frozenset({ContainerState.PARKED, ContainerState.CLOSED})
"""It has no owner in this process any more."""
UNHEARD = frozenset({ContainerState.RETIRING, ContainerState.ENDING, ContainerState.ABORTING})
"""What it still sends counts for nothing."""


def following(state: ContainerState, event: ContainerEvent) -> ContainerState:
    """Return the state that follows. Raises `ImpossibleError` for what is not in the table."""
    return next_state(TABLE, state, event, "container")
