"""Many sandboxes of one broker: fifty at once with twenty cells each, and a hundred that do nothing while one is asked.

Says where the processors' time went while they were made. Each step has a bound, and each answer is checked.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from sandbox_kernel import AsyncSandbox

from .kernels import BenchmarkError
from .many import Load

T = TypeVar("T")
TICKS = os.sysconf("SC_CLK_TCK")
STEP_SECONDS = 300.0
"""For one step of all; a machine that needs longer has other work."""
ROUNDS = 3
AT_ONCE = 8
"""Starts of the sandboxes that do nothing: how they come to be is no figure here."""
KINDS = {
    "dockerd": "the engine",
    "containerd": "the engine",
    "containerd-shim": "the engine",
    "runc": "the engine",
    "docker-init": "in the sandboxes",
    "exe": "the engine",
}
"""By the beginning of a process's name; a runtime that has ended is counted with whoever waited for it."""


class Spent:
    """What the processors did since it was made, by whose work it was, in seconds."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._before, self._all = self._now(), _busy()

    def __call__(self) -> dict[str, float]:
        after, busy = self._now(), _busy() - self._all
        found = {kind: after[kind] - self._before[kind] for kind in after}
        rest = busy - sum(found.values())
        return {kind: seconds for kind, seconds in (*found.items(), ("all else", rest)) if abs(seconds) >= 0.01}

    def _now(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for place in Path("/proc").glob("[0-9]*"):
            try:
                name, _, rest = (place / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
                cgroup = (place / "cgroup").read_text(encoding="utf-8")
            except OSError:  # it has ended
                continue
            kind = self._kind(int(place.name), name, cgroup)
            if kind is not None:
                found[kind] += sum(map(int, rest.split()[11:15])) / TICKS
        return found

    def _kind(self, pid: int, name: str, cgroup: str) -> str | None:
        if pid == os.getpid():
            return "the caller"
        if pid == self._broker:
            return "the broker"
        if "/docker/" in cgroup or "docker-" in cgroup:
            return "in the sandboxes"
        return next((kind for start, kind in KINDS.items() if name.startswith(start)), None)


def _busy() -> float:
    """Return how long all processors together have worked since the machine's start."""
    user, nice, system, _idle, _wait, irq, soft = map(int, Path("/proc/stat").read_text("ascii").split()[1:8])
    return (user + nice + system + irq + soft) / TICKS


class Crowd(Load):
    """Many at once, each step with a bound, and what the first of them cost."""

    def __init__(self, broker: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._broker = broker
        self.spent: dict[str, float] = {}

    async def _each(self, step: str, work: list[Callable[[], Awaitable[T]]]) -> list[T]:
        spent = Spent(self._broker)
        async with asyncio.timeout(STEP_SECONDS):
            done = await super()._each(step, work)
        if step == "start":
            self.spent = spent()
        return done


async def at_once(broker: int, settings: dict[str, Any], sandboxes: int, cells: int) -> None:
    """Show what many sandboxes that are asked for in the same moment wait for. Raises `BenchmarkError` if one fails."""
    load = Crowd(broker, sandboxes, cells, 64 << 10, settings)
    await load.run()
    if load.errors:
        raise BenchmarkError(f"{sandboxes} at once: {len(load.errors)} errors, such as {load.errors[0]}")
    for name in ("create", "run_code"):
        alone, values = statistics.median(load.alone[name]), sorted(load.samples[name])
        middle, late = statistics.median(values), values[max(0, round(0.95 * len(values)) - 1)]
        what = f"{sandboxes} at once, {cells} cells each: {name}"
        print(f"{what:56} {middle:8.3f} s  p95 {late:.3f}, {middle / alone:.1f} of one alone ({alone:.3f})", flush=True)
    all_of_it = sum(load.spent.values())
    rows = sorted(load.spent.items(), key=lambda row: -row[1])
    shares = ", ".join(f"{kind} {seconds / sandboxes:.3f} s ({seconds / all_of_it:.0%})" for kind, seconds in rows)
    took = load.seconds["start"]
    print(f"  made in {took:.1f} s by {all_of_it:.1f} s of {os.cpu_count()} processors; of each: {shares}", flush=True)


async def idle(settings: dict[str, Any], count: int) -> None:
    """Show how soon each of many sandboxes that have nothing to do answers when it is asked, against one alone."""
    there: list[AsyncSandbox] = []
    turns = asyncio.Semaphore(AT_ONCE)

    async def create() -> None:
        async with turns:
            there.append(await AsyncSandbox.create(**settings))

    try:
        async with asyncio.timeout(STEP_SECONDS):
            await create()
            one = await _answers(there, 10 * ROUNDS)
            made = await asyncio.gather(*(create() for _ in range(count - 1)), return_exceptions=True)
        wrong = [each for each in made if each is not None]
        if wrong:
            raise BenchmarkError(f"{count} at rest: {len(wrong)} did not start: {wrong[0]!r}")
        async with asyncio.timeout(STEP_SECONDS):
            await _answers(there, 1)  # what the system has put away comes back
            many = await _answers(there, ROUNDS)
    finally:
        await asyncio.gather(*(each.kill() for each in there), return_exceptions=True)
    what, middle = f"{count} at rest, one after another: an answer", statistics.median(many)
    late = sorted(many)[max(0, round(0.95 * len(many)) - 1)]
    print(
        f"{what:56} {1000 * middle:8.3f} ms  p95 {1000 * late:.3f}, {middle / statistics.median(one):.2f} of one alone",
        flush=True,
    )


async def _answers(sandboxes: list[AsyncSandbox], rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        for sandbox in sandboxes:
            begin = time.perf_counter()
            execution = await sandbox.run_code("1 + 1")
            taken.append(time.perf_counter() - begin)
            if execution.text != "2":
                raise BenchmarkError(f"a sandbox at rest answered {execution!r}")
    return taken
