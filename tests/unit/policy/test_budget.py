"""A refusal names the limit, its value, what was reached and the setting."""

from __future__ import annotations

import pytest

from sandbox_kernel.core.model import Limits
from sandbox_kernel.policy.budget import SESSION_CELLS, CellBudget, SessionBudget

LIMITS = Limits(output_limit=1000, output_messages=5, message_limit=600)


@pytest.mark.parametrize(
    ("sizes", "setting", "limit", "value"),
    [
        ([601], "message_limit", "600 bytes", "601 bytes"),
        ([500, 501], "output_limit", "1000 bytes", "1001 bytes"),
        ([1] * 6, "output_messages", "5 messages", "6 messages"),
    ],
)
def test_the_error_says_which_limit(sizes: list[int], setting: str, limit: str, value: str) -> None:
    budget = CellBudget(LIMITS)
    assert [budget.charge(size) for size in sizes] == [True] * (len(sizes) - 1) + [False]
    error = budget.exceeded
    assert error is not None
    assert (error.setting, error.limit, error.value, error.name) == (setting, limit, value, "OutputLimit")
    assert not budget.charge(0)
    assert budget.exceeded is error


def test_output_up_to_the_limit_passes() -> None:
    budget = CellBudget(LIMITS)
    assert all(budget.charge(size) for size in (500, 500, 0, 0, 0))
    assert budget.exceeded is None


def test_a_session_has_a_budget_of_its_own() -> None:
    budget = SessionBudget(LIMITS)
    assert all(budget.charge(500) for _ in range(2 * SESSION_CELLS))
    assert not budget.charge(1)
    assert "the session sent too much output" in str(budget.exceeded)
