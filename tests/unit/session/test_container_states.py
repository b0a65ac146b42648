"""The states of a container: each event in each state is in the table below, or is refused."""

from __future__ import annotations

import pytest

from sandbox_kernel.session.container_states import (
    AWAITING_KERNEL,
    LET_GO,
    OPEN,
    TABLE,
    UNATTESTED,
    UNHEARD,
    Event,
    State,
    following,
)
from sandbox_kernel.session.state_table import ImpossibleError
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
    assert list(COLUMNS) == [event.name for event in Event]
    assert set(ROWS) == {state.name for state in State}
    assert {len(row) for row in ROWS.values()} == {len(Event)}
    assert set(TABLE) == set(State)


@each("state", State, ids=lambda state: state.name)
@each("event", Event, ids=lambda event: event.name)
def test_what_follows(state: State, event: Event) -> None:
    expected = ROWS[state.name][COLUMNS.index(event.name)]
    if expected == NO:
        with pytest.raises(ImpossibleError, match=f"{event.name} cannot happen to a container that is {state.name}"):
            following(state, event)
    else:
        assert following(state, event) is State[expected]


def test_every_state_is_reached_from_the_first() -> None:
    reached, new = {State.NEW}, {State.NEW}
    while new:
        new = {after for state in new for after in TABLE[state].values()} - reached
        reached |= new
    assert reached == set(State)


@each("state", set(State) - LET_GO - {State.ENDED}, ids=lambda state: state.name)
def test_every_life_can_be_ended(state: State) -> None:
    assert following(state, Event.CLOSE) is State.CLOSED
    if state is not State.NEW:
        assert following(state, Event.GONE) is State.ENDED


def test_a_kernel_is_let_in_only_once_its_container_was_attested() -> None:
    """Without the two events that say so, no way leads to a kernel that takes requests."""
    reached, new = {State.NEW}, {State.NEW}
    while new:
        steps = {
            after
            for state in new
            for event, after in TABLE[state].items()
            if event not in {Event.ATTESTED, Event.ADOPTED}
        }
        new = steps - reached
        reached |= new
    assert not reached & (OPEN | {State.BOOTING, State.ASKING, State.PARKED})


def test_the_groups_of_states_say_one_thing_each() -> None:
    assert not OPEN & UNATTESTED
    assert not AWAITING_KERNEL & UNHEARD
    assert not LET_GO & (OPEN | UNATTESTED | UNHEARD | AWAITING_KERNEL)
