"""A benchmark of many sandboxes that is too slow for its bound leaves none of them behind."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Self

import pytest

from benchmarks import crowd, many
from sandbox_kernel import SandboxError


class Slow:
    """A sandbox, of which the last ones never start."""

    made: list[Slow] = []  # noqa: RUF012 (of one test, which sets it)
    numbers = itertools.count()
    most = 0

    def __init__(self, **settings: Any) -> None:
        self.is_there = False
        type(self).made.append(self)

    @classmethod
    async def create(cls, **settings: Any) -> Self:
        one = cls()
        if next(cls.numbers) >= cls.most:
            await asyncio.Event().wait()
        one.is_there = True
        return one

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def run_code(self, code: str) -> Any:
        class Execution:
            text, error = "2", None

        return Execution()

    async def kill(self) -> None:
        self.is_there = False


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "made", [])
    monkeypatch.setattr(Slow, "numbers", itertools.count())
    monkeypatch.setattr(Slow, "most", 3)
    monkeypatch.setattr(crowd, "STEP_SECONDS", 0.2)
    monkeypatch.setattr(crowd, "AsyncSandbox", Slow)
    monkeypatch.setattr(many, "AsyncSandbox", Slow)


async def test_many_at_rest_that_do_not_start_in_time() -> None:
    with pytest.raises(TimeoutError):
        await crowd.idle({}, 5)
    assert len(Slow.made) == 5
    assert not any(one.is_there for one in Slow.made)


async def test_many_at_once_that_do_not_start_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def used(load: crowd.Crowd, sandbox: object) -> None:
        pass

    monkeypatch.setattr(crowd.Crowd, "_use", used)
    load = crowd.Crowd(0, 5, 1, 1, {})
    with pytest.raises((TimeoutError, SandboxError)):
        await load.run()
    assert len(Slow.made) == 1 + 1 + 5
    assert not any(one.is_there for one in Slow.made)
