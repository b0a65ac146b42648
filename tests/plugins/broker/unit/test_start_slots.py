"""Starts at once: no user takes the turns of another, or the place where another waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox_kernel.core.errors import QuotaExceeded
from sandbox_kernel.plugins.broker.start_slots import StartSlots
from tests.support.patience import within


class Starts:
    """Starts on slots, each of which ends when it is told to."""

    def __init__(self, slots: int, most: int) -> None:
        self.slots = StartSlots(slots, most)
        self.begun: list[int] = []
        self.end = asyncio.Semaphore(0)

    def start(self, user: int) -> asyncio.Task[Any]:
        return asyncio.create_task(self._one(user))

    async def _one(self, user: int) -> None:
        async with self.slots.turn(user):
            self.begun.append(user)
            await self.end.acquire()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_users_take_turns() -> None:
    starts = Starts(1, 64)
    tasks = [starts.start(1) for _ in range(20)]
    await settled()
    tasks += [starts.start(2), starts.start(3), starts.start(3)]
    async with within(10):
        await settled()
        for _ in tasks:
            starts.end.release()
            await settled()
        await asyncio.gather(*tasks)
    assert starts.begun[:6] == [1, 1, 2, 3, 1, 3], "one after the other, and each user its own in order"
    assert len(starts.begun) == 23


async def test_who_leaves_in_the_same_moment_ends_no_request_of_another() -> None:
    starts = Starts(1, 4)
    leaving = [starts.start(1) for _ in range(5)]
    await settled()
    other = starts.start(2)  # which comes before those that are cancelled have left
    for task in leaving[1:]:
        task.cancel()
    async with within(10):
        await settled()
        starts.end.release()
        starts.end.release()
        await other
        await asyncio.gather(*leaving, return_exceptions=True)
    assert (starts.begun, len(starts.slots)) == ([1, 2], 0)


async def test_whoever_has_most_makes_room() -> None:
    starts = Starts(1, 8)
    tasks = [starts.start(1) for _ in range(9)]
    await settled()
    more = starts.start(1)
    await settled()
    with pytest.raises(QuotaExceeded):
        await more
    others = [starts.start(user) for user in (2, 3, 4)]
    await settled()
    assert [task.done() for task in others] == [False] * 3
    assert sum(task.done() and isinstance(task.exception(), QuotaExceeded) for task in tasks) == 3
    assert len(starts.slots) == 8
    for _ in range(9):
        starts.end.release()
    async with within(10):
        await asyncio.gather(*others)
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(starts.slots) == 0


async def test_a_start_that_is_cancelled_takes_no_slot_with_it() -> None:
    starts = Starts(1, 8)
    first, second, third = (starts.start(user) for user in (1, 2, 3))
    await settled()
    second.cancel()
    starts.end.release()
    starts.end.release()
    async with within(10):
        await asyncio.gather(first, third)
    again = starts.start(1)
    starts.end.release()
    async with within(10):
        await again
    assert second.cancelled()
