"""A machine without memory, as far as no machine is needed: its file, the gate's line, and its end."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import ExitReason
from sandbox_kernel.core.tasks import Tasks
from sandbox_kernel.plugins.qemu import hibernation, saved_states
from sandbox_kernel.plugins.qemu.hibernation import Hibernated, Hibernation
from sandbox_kernel.plugins.qemu.launch_plan import LaunchPlan
from tests.support.descriptors import open_files
from tests.support.patience import within


class Pipe:
    """One that is held, or not."""

    held = False

    def hold(self) -> None:
        self.held = True

    def let_go_on(self) -> None:
        self.held = False


class Machine(Hibernation):
    """The part of a container that rests, and what it needs of the others."""

    def __init__(self) -> None:
        self.id = "sandbox-kernel-test"
        self._plan: Any = SimpleNamespace()
        self._pipe: Any = Pipe()
        self._monitor = None
        self._tasks = Tasks()
        self.reasons: list[ExitReason] = []
        self.killed = 0

    def _end(self, reason: ExitReason) -> None:
        self.reasons.append(reason)

    def rest_in(self, fd: int) -> None:
        reading, line = os.pipe()
        os.close(reading)
        self._fall_asleep(Hibernated(fd, saved_states.look(os.fstat(fd)), line))

    async def awake(self) -> None:
        await self._awake()

    async def swap(self, fd: int, launch: Callable[[int, int], Any]) -> None:
        self._pipe.hold()
        await self._swap(cast("LaunchPlan", SimpleNamespace(launch=launch)), fd)

    @property
    def pipe_is_held(self) -> bool:
        return bool(self._pipe.held)

    def forget(self) -> None:
        self._forget_state()

    async def kill(self) -> None:
        await asyncio.sleep(0)
        await self._tasks.close()
        await asyncio.sleep(0)
        self.killed += 1


@pytest.fixture
def file() -> Iterator[int]:
    with tempfile.TemporaryFile() as there:
        yield os.dup(there.fileno())


async def test_one_that_is_killed_while_it_does_not_come_back_says_why(file: int) -> None:
    machine = Machine()
    machine.rest_in(file)
    os.pwrite(file, b"changed", 0)
    killing = asyncio.gather(machine.kill(), machine.kill())
    with pytest.raises(EngineError, match="has been changed"):
        await machine.awake()
    await killing
    assert machine.killed == 3, "and its own end was not cancelled"
    assert "has been changed" in machine.reasons[0].detail
    machine.forget()


def test_the_file_is_closed_in_a_forked_process(file: int) -> None:
    machine = Machine()
    machine.rest_in(file)
    if not (child := os.fork()):
        still = 0
        try:
            os.fstat(file)
            still = 1
        except OSError:
            pass
        os._exit(still)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.fstat(file)
    machine.forget()


@pytest.mark.parametrize("refused", ["pipe", "launch"])
async def test_what_cannot_be_started_in_its_place_leaves_nothing_open(
    file: int, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    machine = Machine()

    def refuse(*_: object) -> Any:
        raise OSError(24, "Too many open files")

    if refused == "pipe":
        monkeypatch.setattr(os, "pipe", refuse)
    before = open_files()
    with pytest.raises(OSError, match="Too many"):
        await machine.swap(file, refuse)
    assert str(file) in {number for number, _ in before - open_files()}
    assert not open_files() - before
    assert not machine.pipe_is_held


async def test_a_gate_that_is_not_needed_any_more_is_ended(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the end of QEMU is given up: what stands in its place already has nobody."""
    machine, forgotten, given = Machine(), list[str](), list[bytes]()
    reached = asyncio.Event()
    monkeypatch.setattr(hibernation, "reaper", lambda: SimpleNamespace(forget=forgotten.append))

    def launch_gate(state: int, gate: int) -> Any:
        given.append(os.pread(state, 10, 0))
        with pytest.raises(OSError, match="Bad file"):
            os.pwrite(state, b"x", 0)
        pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
        ends = os.pipe()
        started: Any = SimpleNamespace(
            name="gate", pid=pid, monitor=os.pidfd_open(pid), errors=ends[0], status=ends[1], group=None
        )
        return started, None, SimpleNamespace(close=lambda: forgotten.append("monitor"))

    async def put_down() -> None:
        reached.set()
        await asyncio.Event().wait()

    os.pwrite(file, b"state", 0)
    monkeypatch.setattr(machine, "_put_down", put_down)
    before = open_files()
    swapping = asyncio.create_task(machine.swap(file, launch_gate))
    async with within(10):
        await reached.wait()
        swapping.cancel()
        await asyncio.gather(swapping, return_exceptions=True)
    assert swapping.cancelled()
    assert str(file) in {number for number, _ in before - open_files()}
    assert not open_files() - before
    assert (given, forgotten) == ([b"state"], ["gate", "monitor"])
    assert machine.asleep is None
