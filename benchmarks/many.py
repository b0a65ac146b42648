"""`python -m benchmarks.many`: many sandboxes at once in one process, as a chat back end has them.

Every sandbox runs its cells one after another, all sandboxes at the same time, and each moves a file in and out; every
answer is checked. The exit code is 1 if anything failed, or if anything is left when all have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]

from sandbox_kernel import AsyncSandbox, SandboxError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines import container_reaper
from sandbox_kernel.engines.select import make_engine

T = TypeVar("T")
LEFT_SECONDS = 1.0
"""How long after the last kill a container may still be seen."""


class Wrong(Exception):
    """A sandbox gave another answer than the right one."""


class Load:
    """One run: its samples, and what went wrong."""

    def __init__(self, sandboxes: int, cells: int, file_bytes: int, settings: dict[str, Any]) -> None:
        self.sandboxes = sandboxes
        self.cells = cells
        self.content = random.Random(7).randbytes(file_bytes)  # noqa: S311 (content, no secret)
        self.settings = settings
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.alone: dict[str, list[float]] = {}
        """The same of one sandbox, before the others start."""
        self.errors: list[str] = []
        self.seconds: dict[str, float] = {}
        self._made: list[AsyncSandbox] = []
        self.running = 0
        """Containers that were there when all had started."""

    async def run(self) -> None:
        """Start all, use all, end all; each step of all of them at the same time. None is left, however it ends."""
        try:
            await self._run()
        finally:
            await asyncio.gather(*(one.kill() for one in self._made), return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with AsyncSandbox(**self.settings) as sandbox:  # the first one loads code, and is no sample
                await sandbox.run_code("1")
            await self._use(alone := await self._create())
            await self._timed("kill", alone.kill())
        except SandboxError as error:
            self.errors.append(f"none can start: {error!r}")
            return
        self.alone, self.samples = self.samples, defaultdict(list)
        begin = time.monotonic()
        open_now = await self._each("start", [self._create] * self.sandboxes)
        self.running = len(await containers())
        if self.running != self.sandboxes:
            self.errors.append(f"{self.running} containers run where {self.sandboxes} should")
        await self._each("use", [lambda one=one: self._use(one) for one in open_now])  # type: ignore[misc]
        await self._each("end", [lambda one=one: self._timed("kill", one.kill()) for one in open_now])  # type: ignore[misc]
        self.seconds["all"] = time.monotonic() - begin

    async def _each(self, step: str, work: list[Callable[[], Awaitable[T]]]) -> list[T]:
        begin = time.monotonic()
        done = await asyncio.gather(*(one() for one in work), return_exceptions=True)
        self.seconds[step] = time.monotonic() - begin
        self.errors += [f"{step}: {error!r}" for error in done if isinstance(error, BaseException)]
        return [one for one in done if not isinstance(one, BaseException)]

    async def _timed(self, name: str, work: Awaitable[T]) -> T:
        begin = time.monotonic()
        result = await work
        self.samples[name].append(time.monotonic() - begin)
        return result

    async def _create(self) -> AsyncSandbox:
        made = await self._timed("create", AsyncSandbox.create(**self.settings))
        self._made.append(made)
        return made

    async def _use(self, sandbox: AsyncSandbox) -> None:
        await self._timed("file write", sandbox.files.write("in.bin", self.content))
        code = "import hashlib; data = open('in.bin', 'rb').read(); hashlib.sha256(data).hexdigest()"
        await self._cell(sandbox, code, repr(hashlib.sha256(self.content).hexdigest()))
        for number in range(1, self.cells - 1):
            code = f"total = {'total + ' if number > 1 else ''}{number}\nprint('cell {number}')\ntotal"
            await self._cell(sandbox, code, str(number * (number + 1) // 2), f"cell {number}\n")
        await self._cell(sandbox, "open('out.bin', 'wb').write(data[::-1])", str(len(self.content)))
        if await self._timed("file read", sandbox.files.read("out.bin", "bytes")) != self.content[::-1]:
            raise Wrong("the file came back changed")

    async def _cell(self, sandbox: AsyncSandbox, code: str, text: str, printed: str = "") -> None:
        execution = await self._timed("run_code", sandbox.run_code(code))
        if execution.error is not None or (execution.text, "".join(execution.logs.stdout)) != (text, printed):
            raise Wrong(f"{code!r} gave {execution!r}, not {text}")


async def containers() -> list[dict[str, Any]]:
    """Return the containers that belong to this process."""
    return [row for row in await make_engine(Settings()).list() if row.owner_pid == os.getpid()]


def held() -> dict[str, int]:
    """Return what this process holds that a sandbox could leave behind."""
    process = psutil.Process()
    return {
        "sockets": sum(link.startswith("socket:") for link in links()),
        # The guard is the process's own, and goes with it: that it does is a test of its own.
        "child processes": sum(
            container_reaper.__file__ not in child.cmdline() for child in process.children(recursive=True)
        ),
        "threads of ours": sum(thread.name == "sandbox_kernel" for thread in threading.enumerate()),
    }


def links() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(path.readlink()))
        except OSError:  # the one that lists them
            continue
    return found


async def leftovers(before: dict[str, int]) -> list[str]:
    """Return what is left of the sandboxes, in words."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (rows := await containers()) and time.monotonic() < deadline:  # noqa: ASYNC110 (it is the engine that knows)
        await asyncio.sleep(0.05)
    left = [f"{len(rows)} containers"] if rows else []
    after = held()
    left += [f"{name}: {after[name]}, {before[name]} before" for name in before if after[name] > before[name]]
    tasks = len(asyncio.all_tasks()) - 1
    return left + ([f"{tasks} tasks"] if tasks else [])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * len(ordered)))]


def show(load: Load, left: list[str], cpu_seconds: float) -> None:
    memory, cores = psutil.virtual_memory(), os.cpu_count() or 1
    print(
        f"{load.sandboxes} sandboxes at once in one process, {load.cells} cells each, a file of "
        f"{len(load.content) / 1024:.0f} KiB in and out of each"
    )
    print(f"machine: {cores} cores, {memory.total / 2**30:.0f} GiB, load {os.getloadavg()[0]:.1f} at the end")
    print(f"running when all had started: {load.running}\n")
    print(f"{'milliseconds':<14}{'count':>7}{'p50':>10}{'p95':>10}{'longest':>10}{'one alone':>12}")
    for name in ("create", "run_code", "file write", "file read", "kill"):
        if values := load.samples[name]:
            row = (statistics.median(values), percentile(values, 0.95), max(values))
            alone = 1000 * statistics.median(load.alone[name])
            print(f"{name:<14}{len(values):>7}" + "".join(f"{1000 * one:>10.1f}" for one in row) + f"{alone:>12.1f}")
    steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in load.seconds.items())
    print(f"\nall of them took: {steps}; {len(load.samples['run_code'])} cells, {cpu_seconds:.1f} s of CPU here")
    print(
        f"All work at the same time, so these are waiting times: {load.sandboxes} sandboxes share {cores} cores, and a "
        "create waits for its turn first."
    )
    for error in load.errors[:10]:
        print(f"error: {error[:500]}")
    print(f"errors: {len(load.errors)}; left behind: {', '.join(left) or 'nothing'}")


async def main(options: argparse.Namespace) -> int:
    settings = {"memory": options.memory, "image": options.image, "runtime": options.runtime}
    load = Load(options.sandboxes, options.cells, options.file_kib << 10, settings)
    before, cpu = held(), time.process_time()
    await load.run()
    left = await leftovers(before)
    show(load, left, time.process_time() - cpu)
    return 1 if load.errors or left else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sandboxes", type=int, default=50)
    parser.add_argument("--cells", type=int, default=20, help="of each sandbox, two at least")
    parser.add_argument("--file-kib", type=int, default=1024, help="size of the file in KiB")
    parser.add_argument("--memory", default="256M", help="of each sandbox")
    parser.add_argument("--image")
    parser.add_argument("--runtime")
    options = parser.parse_args(arguments)
    if options.sandboxes < 1 or options.cells < 2 or options.file_kib < 1:
        parser.error("one sandbox, two cells and 1 KiB are the least")
    return options


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
