"""Tests that need the machine for themselves, beside others that do not; only several workers have to agree on that.

Those with the mark `alone` come first, and one worker runs them all while the others wait. A test takes the door before
it goes in, and holds it until it is in: so nobody waits for ever while others come and go.

What fails beside others is tried once more with the machine for itself, as who was starved of it proves nothing. Both
attempts are in what pytest prints, and a run has few of them. What tests of a module or class share is made anew: what
the first attempt has spoiled proves nothing either. Tests in `unit/` are never tried again.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.order import spread

T = TypeVar("T")


class Turns:
    """The machine, as one worker sees it. `folder` is the same for all workers of a run."""

    def __init__(self, folder: Path) -> None:
        self._door, self._machine = folder / "door", folder / "machine"
        self._held = ExitStack()

    def take(self, *, alone: bool) -> None:
        """Wait for a share of the machine, or for all of it; what is held already stays held."""
        with ExitStack() as door:
            _lock(self._door, fcntl.LOCK_EX, door)
            _lock(self._machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, self._held)

    def give_back(self) -> None:
        self._held.close()


def _lock(path: Path, how: int, until: ExitStack) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until.callback(os.close, file)
    fcntl.flock(file, how)
    until.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a child that a test has forked may hold the file open


class TurnsPlugin:
    """What pytest calls in a worker."""

    def __init__(self, turns: Turns, workers: int) -> None:
        self.turns, self.workers = turns, workers
        self.is_alone = False
        self.item: pytest.Item | None = None
        self.clock: Any = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Have pytest-rerunfailures tell the first process at once: each test would wait 40 ms for a delayed answer."""
        told: Any = getattr(session.config, "failures_db", None)
        if hasattr(told, "sock"):
            told.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @pytest.hookimpl(trylast=True)  # after the order was made random
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = spread(items, self.workers, lambda item: item.nodeid.partition("::")[0])
        items.sort(key=lambda item: not is_alone(item))
        for item in items:
            if "/unit/" not in item.nodeid:
                item.add_marker(pytest.mark.flaky(reruns=1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Before a test is tried again, wait until no other is under way."""
        outcome: str = report.outcome  # pytest-rerunfailures adds one to those that pytest knows
        if outcome != "rerun" or self.item is None:
            return
        end_shared(self.item)
        if self.clock is not None:
            self.item.ihook.pytest_timeout_cancel_timer(item=self.item)
        if not self.is_alone:
            self.is_alone = True
            self.turns.give_back()
            self.turns.take(alone=True)
        # pytest-timeout sets one clock for all attempts: it has rung, if the first one ended by it.
        if self.clock is not None:
            self.item.ihook.pytest_timeout_set_timer(item=self.item, settings=self.clock)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, settings: Any) -> None:
        """Keep the settings of a test's clock, which others set."""
        self.clock = settings

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # before the clock of a test's time limit starts
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        if not self.is_alone:
            self.is_alone = is_alone(item)
            self.turns.take(alone=self.is_alone)
        self.item, self.clock = item, None
        try:
            return (yield)
        finally:
            if not (self.is_alone and nextitem is not None and is_alone(nextitem)):
                self.is_alone = False
                self.turns.give_back()


def once(path: Path | None, work: Callable[[], T]) -> T:
    """Return what one worker's `work` came to, which the others read as JSON from `path`; without a path, just work."""
    if path is None:
        return work()
    with ExitStack() as held:
        _lock(path.with_suffix(".lock"), fcntl.LOCK_EX, held)
        if not path.exists():
            path.write_text(json.dumps(work()), encoding="utf-8")
        found: T = json.loads(path.read_text(encoding="utf-8"))
        return found


def end_shared(item: Any) -> None:
    """End the fixtures of a test that others of its module, class or package share; the next attempt makes them anew.

    What their ends find wrong is of the attempt that failed, and that is told already.
    """
    item._initrequest()  # noqa: SLF001 (pytest has no public name for what follows)
    for made in item._fixtureinfo.name2fixturedefs.values():  # noqa: SLF001
        for fixture in made:
            if fixture.scope in {"class", "module", "package"}:
                with suppress(Exception, pytest.fail.Exception):
                    fixture.finish(item._request)  # noqa: SLF001


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None
