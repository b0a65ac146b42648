"""Whose a sandbox is: each event in each state is in the table below, or is refused."""

from __future__ import annotations

import pytest

from sandbox_kernel.core.state_table import ImpossibleError
from sandbox_kernel.plugins.broker.owner_states import TABLE, OwnerEvent, OwnerState, following
from tests.support.cases import each

NO = "."
"""What cannot happen."""
EXPECTED = """
          CLAIM  LEAVE  END    GONE
OWNED     OWNED  KEPT   ENDING ENDED
KEPT      OWNED  .      ENDING ENDED
ENDING    ENDING ENDING ENDING ENDED
ENDED     ENDED  ENDED  ENDED  .
"""
COLUMNS, *LINES = [line.split() for line in EXPECTED.strip().splitlines()]
ROWS = {name: found for name, *found in LINES}


def test_the_table_is_whole() -> None:
    assert [event.name for event in OwnerEvent] == COLUMNS
    assert set(ROWS) == {state.name for state in OwnerState} == {state.name for state in TABLE}


@each(("state", "event"), [(state, event) for state in OwnerState for event in OwnerEvent])
def test_each_event_in_each_state_is_what_is_expected(state: OwnerState, event: OwnerEvent) -> None:
    expected = ROWS[state.name][COLUMNS.index(event.name)]
    if expected == NO:
        with pytest.raises(ImpossibleError):
            following(state, event)
    else:
        assert following(state, event).name == expected
