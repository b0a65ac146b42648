"""The seconds of the tests' own bounds: full ones on a quiet machine, parts of one on a busy one, never none."""

from __future__ import annotations

import asyncio
import itertools
import os

import pytest

from tests.support.kernels import eventually
from tests.support.patience import LEAST, Patience, Stopwatch, running, within

PROCESSORS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("wanting", "counts"),
    [(0, 10.0), (PROCESSORS, 10.0), (2 * PROCESSORS, 5.0), (4 * PROCESSORS, 2.5), (10**6, 10 * LEAST)],
)
def test_a_second_counts_for_what_the_machine_had_to_give(wanting: int, counts: float) -> None:
    patience = Patience(itertools.count(0, 5).__next__, lambda: wanting)
    assert [patience.count(), patience.count()] == [counts / 2, counts]


def test_what_goes_on_is_looked_at_again_and_again() -> None:
    loads = iter([0, 2 * PROCESSORS])
    patience = Patience(itertools.count(0, 4).__next__, lambda: next(loads))
    assert [patience.count(), patience.count()] == [4.0, 6.0]


def test_a_wait_ends() -> None:
    with Stopwatch() as watch, pytest.raises(AssertionError, match=r"not within 0\.05 s: never"):
        eventually(lambda: False, 0.05, "never")
    assert 0 < watch.seconds < 5
    assert running() >= 0


async def test_a_block_that_hangs_ends() -> None:
    with Stopwatch() as watch, pytest.raises(TimeoutError):
        async with within(0.05):
            await asyncio.Event().wait()
    assert 0 < watch.seconds < 5


async def test_a_block_that_ends_is_left_alone() -> None:
    async with within(0.05):
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
