"""The states of a container: each event in each state is in the table below, or is refused."""

from __future__ import annotations

import pytest

from sandbox_kernel.core.state_table import ImpossibleError
from sandbox_kernel.session.container_states import (
    AWAITING_KERNEL,
    LET_GO,
    OPEN,
    TABLE,
    UNATTESTED,
    UNHEARD,
    ContainerEvent,
    ContainerState,
    following,
)
from tests.support.cases import each

COLUMNS = [
    "LAUNCH",
    "ATTACHED",
    "ADOPTED",
    "ATTESTED",
    "KERNEL_READY",
    "INTRODUCED",
    "KERNEL_EXITED",
    "RESTART",
    "IDLE",
    "END",
    "GONE",
    "PARK",
    "CLOSE",
]
NO = "."
"""What cannot happen."""
EXPECTED = """
NEW        STARTING  .         .       .       .      .     .         .          .        .        .     .      CLOSED
STARTING   .         ATTESTING BOOTING .       .      .     .         .          .        .        ENDED .      CLOSED
ATTESTING  .         .         .       BOOTING .      .     ATTESTING ATTESTING  .        ABORTING ENDED .      CLOSED
BOOTING    .         .         .       .       ASKING .     BOOTING   BOOTING    .        ENDING   ENDED .      CLOSED
ASKING     .         .         .       .       .      READY BOOTING   ASKING     .        ENDING   ENDED .      CLOSED
READY      .         .         .       .       .      .     REPLACING RESTARTING RETIRING ENDING   ENDED PARKED CLOSED
RESTARTING .         .         .       .       .      .     REPLACING RESTARTING RETIRING ENDING   ENDED .      CLOSED
REPLACING  .         .         .       .       ASKING .     REPLACING REPLACING  RETIRING ENDING   ENDED PARKED CLOSED
RETIRING   .         .         .       .       .      .     .         RETIRING   .        RETIRING ENDED .      CLOSED
ENDING     .         .         .       .       .      .     .         ENDING     .        ENDING   ENDED .      CLOSED
ABORTING   .         .         .       .       .      .     .         ABORTING   .        ABORTING ENDED .      CLOSED
ENDED      .         .         .       .       .      .     .         .          .        .        .     .      CLOSED
PARKED     .         .         .       .       .      .     .         .          .        .        .     .      PARKED
CLOSED     .         .         .       .       .      .     .         .          .        .        .     .      CLOSED
"""
ROWS = {line.split()[0]: line.split()[1:] for line in EXPECTED.strip().splitlines()}


def test_the_table_is_whole() -> None:
    assert list(COLUMNS) == [event.name for event in ContainerEvent]
    assert set(ROWS) == {state.name for state in ContainerState}
    assert {len(row) for row in ROWS.values()} == {len(ContainerEvent)}
    assert set(TABLE) == set(ContainerState)


@each("state", ContainerState, ids=lambda state: state.name)
@each("event", ContainerEvent, ids=lambda event: event.name)
def test_what_follows(state: ContainerState, event: ContainerEvent) -> None:
    expected = ROWS[state.name][COLUMNS.index(event.name)]
    if expected == NO:
        with pytest.raises(ImpossibleError, match=f"{event.name} cannot happen to a container that is {state.name}"):
            following(state, event)
    else:
        assert following(state, event) is ContainerState[expected]


def test_every_state_is_reached_from_the_first() -> None:
    reached, new = {ContainerState.NEW}, {ContainerState.NEW}
    while new:
        new = {after for state in new for after in TABLE[state].values()} - reached
        reached |= new
    assert reached == set(ContainerState)


@each("state", set(ContainerState) - LET_GO - {ContainerState.ENDED}, ids=lambda state: state.name)
def test_every_life_can_be_ended(state: ContainerState) -> None:
    assert following(state, ContainerEvent.CLOSE) is ContainerState.CLOSED
    if state is not ContainerState.NEW:
        assert following(state, ContainerEvent.GONE) is ContainerState.ENDED


def test_a_kernel_is_let_in_only_once_its_container_was_attested() -> None:
    """Without the two events that say so, no way leads to a kernel that takes requests."""
    reached, new = {ContainerState.NEW}, {ContainerState.NEW}
    while new:
        steps = {
            after
            for state in new
            for event, after in TABLE[state].items()
            if event not in {ContainerEvent.ATTESTED, ContainerEvent.ADOPTED}
        }
        new = steps - reached
        reached |= new
    assert not reached & (OPEN | {ContainerState.BOOTING, ContainerState.ASKING, ContainerState.PARKED})


def test_the_groups_of_states_say_one_thing_each() -> None:
    assert not OPEN & UNATTESTED
    assert not AWAITING_KERNEL & UNHEARD
    assert not LET_GO & (OPEN | UNATTESTED | UNHEARD | AWAITING_KERNEL)
