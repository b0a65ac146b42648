"""When the time of a sandbox begins to count."""

from __future__ import annotations

import asyncio

from sandbox_kernel.sdk.lifetimes import Lifetime
from tests.support.patience import within


class Sandbox:
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def kill(self) -> None:
        self.ended.set()


async def test_the_time_of_a_sandbox_counts_once_it_is_ready() -> None:
    """A start that takes longer than the whole time ends nothing; it has a limit of its own."""
    lifetime, sandbox = Lifetime(0.01), Sandbox()
    lifetime.begin(asyncio.get_running_loop(), sandbox.kill)
    await asyncio.sleep(0.05)  # longer than its whole time
    assert not sandbox.ended.is_set()
    assert lifetime.ends is None
    lifetime.is_ready()
    async with within(5):
        await sandbox.ended.wait()


async def test_what_was_set_meanwhile_counts_from_then_on() -> None:
    lifetime, sandbox = Lifetime(0.01), Sandbox()
    lifetime.begin(asyncio.get_running_loop(), sandbox.kill)
    lifetime.set(1000)
    ends = lifetime.ends
    lifetime.is_ready()
    lifetime.is_ready()
    assert lifetime.ends == ends
    lifetime.stop()


async def test_one_without_a_time_has_no_end() -> None:
    lifetime, sandbox = Lifetime(None), Sandbox()
    lifetime.begin(asyncio.get_running_loop(), sandbox.kill)
    lifetime.is_ready()
    assert (lifetime.ends, lifetime.is_new) == (None, False)
