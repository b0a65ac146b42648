"""How good the screen is: what it finds of attacks, and what it leaves of honest work."""

from __future__ import annotations

import pytest

from sandbox_kernel.policy.screen import Screen
from tests.support.screen import attacks, honest, is_held_out

FAMILIES = sorted({family for family, _ in attacks()})
THRESHOLD = 60


def found(snippets: list[str]) -> tuple[float, float]:
    """Return which part of the snippets has a finding, and which part would be blocked."""
    results = [Screen().look(snippet) for snippet in snippets]
    whole = len(results)
    return sum(bool(one.findings) for one in results) / whole, sum(one.score >= THRESHOLD for one in results) / whole


def test_there_are_several_hundred_attacks_and_a_third_is_held_out() -> None:
    held_out = [one for _, one in attacks() if is_held_out(one)]
    assert len(attacks()) > 350
    assert 100 < len(held_out) < 150
    assert len({one for _, one in attacks()}) == len(attacks())


@pytest.mark.parametrize("family", FAMILIES)
def test_of_each_family_nine_in_ten_attacks_are_found(family: str) -> None:
    noticed, _ = found([one for name, one in attacks() if name == family and not is_held_out(one)])
    assert noticed >= 0.95


def test_of_the_attacks_that_were_held_out_nine_in_ten_are_found() -> None:
    noticed, blocked = found([one for _, one in attacks() if is_held_out(one)])
    assert noticed >= 0.9
    assert blocked >= 0.65


def test_no_honest_cell_is_blocked_and_few_are_warned_of() -> None:
    screens = {cell: Screen().look(cell) for _, cell in honest()}
    assert [cell for cell, one in screens.items() if one.score >= THRESHOLD] == []
    assert sum(bool(one.findings) for one in screens.values()) / len(screens) < 0.25


def test_control_without_rules_nothing_is_found() -> None:
    from sandbox_kernel.policy.screen import Book, Changes
    from sandbox_kernel.policy.screen.book import usual

    none = Book(Changes(weights=dict.fromkeys(usual().rows, 0)))
    assert not any(Screen(none).look(one).findings for _, one in attacks())
