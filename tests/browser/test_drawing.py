"""A real browser draws what is at the edge of an output's budget, and not what the budget keeps away from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.policy import svg
from sandbox_kernel.policy.allowance import MAX_ELEMENTS
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.cases import some
from tests.support.chromium import draws
from tests.support.policy.extent import OVER
from tests.support.policy.messages import filtered
from tests.unit.policy.test_svg import AREAS, BOMBS, DRAWN, REFUSED, VIEW

FROZEN_SECONDS, DRAWN_SECONDS = 12, 60
"""What is drawn takes about two seconds of an idle machine, and what is not takes minutes."""
ROWS = 1_400

EDGES = {
    "a grid": "<table style='border-collapse:collapse;border:1px solid'><tr>"
    + "<td>a</td>" * ROWS
    + "</tr>"
    + "<tr><td style='border:1px solid'>b</td></tr>" * (ROWS - 2)
    + "</table>",
    "columns": "<table>" + "<col span=1000>" * 99 + "<tr><td>a</td></tr></table>",
    "elements": "<table>" + "<tr><td>a</td></tr>" * (MAX_ELEMENTS // 2 - 1) + "</table>",
    "depth": ("<span style='display:inline-block'>" * 50 + "x" + "</span>" * 50) * 190,
    "marks": "<p>" + ("a" + "\u0301" * 4) * 100_000,
}


@pytest.mark.parametrize("name", some(EDGES, of=2))
def test_an_output_at_the_edge_of_the_budget_is_drawn(name: str, tmp_path: Path) -> None:
    data, verdict = filtered({"text/html": EDGES[name]}, OutputPolicy("strict"))
    assert verdict.reasons == ()
    assert draws(data["text/html"], DRAWN_SECONDS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a wide row and a long column", "inline blocks in each other"])
def test_what_the_budget_keeps_away_is_not_drawn_without_it(name: str, tmp_path: Path) -> None:
    assert not draws(OVER[name], FROZEN_SECONDS, tmp_path)
    shown, _ = filtered({"text/html": OVER[name]}, OutputPolicy("strict"))
    assert draws(shown["text/html"], DRAWN_SECONDS, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("rectangles", "letters") else pytest.param(name, marks=pytest.mark.long)
        for name in AREAS
        if name not in REFUSED
    ],
)
def test_a_drawing_at_the_edge_of_its_allowance_is_drawn(name: str, tmp_path: Path) -> None:
    data, verdict = filtered({"image/svg+xml": f"{VIEW}{AREAS[name](1000)}</svg>"})
    assert verdict.reasons == ()
    assert draws(data["text/html"], DRAWN_SECONDS, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", DRAWN)
def test_control_a_drawing_of_a_library_is_drawn(name: str, tmp_path: Path) -> None:
    data, _ = filtered({"image/svg+xml": f"{VIEW}{DRAWN[name]}</svg>"})
    assert draws(data["text/html"], DRAWN_SECONDS, tmp_path)


@pytest.mark.long
def test_control_a_drawing_that_is_left_out_is_not_drawn(tmp_path: Path) -> None:
    image = svg.address(BOMBS["use"])
    assert not draws(f'<img src="{image}">', FROZEN_SECONDS, tmp_path)
