"""Background tasks have an owner, who holds them, hears of their faults, and ends them."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from typing import Any

import pytest

from sandbox_kernel.core import tasks as module
from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.tasks import Tasks, made_in_thread, noted_in
from tests.support.patience import cancelled, within


class Heard:
    """What an owner was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks = Tasks(lambda name, error: self.lines.append(f"{name}: {error!r}"))


async def fails() -> None:
    raise ValueError("odd")


async def works() -> int:
    return 1


async def waits() -> None:
    await asyncio.Event().wait()


async def settled(*tasks: asyncio.Task[Any]) -> None:
    """Wait for tasks, and for what is called at their ends."""
    async with within(20):
        await asyncio.wait(tasks)
        await asyncio.sleep(0)


async def test_a_task_that_fails_is_reported_by_its_name_and_then_made_good() -> None:
    heard = Heard()
    task = heard.tasks.start(fails(), "a request", failed=lambda error: heard.lines.append(f"answered: {error!r}"))
    await settled(task)
    assert heard.lines == ["a request: ValueError('odd')", "answered: ValueError('odd')"]


async def test_control_a_task_that_works_or_is_cancelled_is_not_reported() -> None:
    heard = Heard()
    done, cancelled = heard.tasks.start(works(), "works"), heard.tasks.start(waits(), "waits")
    cancelled.cancel()
    await settled(done, cancelled)
    assert (done.result(), cancelled.cancelled(), heard.lines) == (1, True, [])


async def test_who_takes_the_outcome_of_a_task_is_the_one_to_hear_of_its_fault() -> None:
    heard = Heard()
    with pytest.raises(ValueError, match="odd"):
        await heard.tasks.hold(fails(), "a question")
    assert heard.lines == []


async def test_without_a_report_a_fault_stands_in_the_log_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="sandbox_kernel"):
        await settled(Tasks().start(fails(), "a request"))
    assert "a defect, met in a request" in caplog.text
    assert 'raise ValueError("odd")' in caplog.text


async def test_a_fault_can_stand_in_the_audit_too(caplog: pytest.LogCaptureFixture) -> None:
    events: list[SessionEvent] = []
    await settled(Tasks(noted_in(events.append)).start(fails(), "a request"))
    assert [(event.name, event.line()) for event in events] == [
        ("defect", {"type": "a request", "reason": "ValueError('odd')"})
    ]
    assert "a defect, met in a request" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("owned", [True, False])
async def test_a_task_lives_as_long_as_its_owner(owned: bool) -> None:
    """The control is a task of asyncio's: with nobody else to hold it, it is collected while it waits."""
    heard = Heard()

    async def forgotten() -> None:
        await asyncio.get_running_loop().create_future()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)  # of the control, a complaint
    task = weakref.ref(heard.tasks.start(forgotten(), "waits") if owned else loop.create_task(forgotten()))
    await asyncio.sleep(0)
    gc.collect()
    assert (task() is not None) is owned
    await heard.tasks.close()


async def test_the_end_of_the_owner_is_the_end_of_its_tasks() -> None:
    heard = Heard()
    running = [heard.tasks.start(waits(), "one"), heard.tasks.hold(waits(), "two")]
    async with within(20):
        await heard.tasks.close()
    assert all(task.cancelled() for task in running)
    late = heard.tasks.start(works(), "late")
    await settled(late)
    assert late.cancelled()
    assert heard.lines == []


async def test_a_task_may_have_time_to_end_by_itself() -> None:
    heard, event = Heard(), asyncio.Event()
    task = heard.tasks.start(event.wait(), "the end of a session")
    asyncio.get_running_loop().call_soon(event.set)
    async with within(20):
        await heard.tasks.close(60)
    assert task.result() is True


async def test_a_task_that_does_not_end_is_left_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 0.05)
    heard, event = Heard(), asyncio.Event()

    async def stubborn() -> None:
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError:
                continue

    task = heard.tasks.start(stubborn(), "stubborn")
    await asyncio.sleep(0)
    async with within(20):
        await heard.tasks.close()
    assert heard.lines == ["stubborn: TimeoutError('it did not end within 0.05 s')"]
    event.set()
    await settled(task)


async def test_a_task_that_ends_its_own_owner_does_not_wait_for_itself() -> None:
    heard = Heard()
    async with within(20):
        await heard.tasks.hold(heard.tasks.close(), "the end")
    assert heard.lines == []


async def test_what_a_thread_makes_for_a_caller_who_gave_up_is_undone() -> None:
    going, undone = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def make() -> str:
        going.wait(20)
        return "made"

    def undo(what: str) -> None:
        assert what == "made"
        loop.call_soon_threadsafe(undone.set)

    making = asyncio.create_task(made_in_thread(make, undo))
    await asyncio.sleep(0)
    await cancelled(making)
    assert not undone.is_set()
    going.set()
    async with within(20):
        await undone.wait()


async def test_control_what_a_thread_makes_for_a_caller_who_waits_is_the_caller_s() -> None:
    undone: list[str] = []
    assert await made_in_thread(lambda: "made", undone.append) == "made"
    with pytest.raises(ValueError, match="odd"):
        await made_in_thread(lambda: str(int("odd")), undone.append)
    assert undone == []
