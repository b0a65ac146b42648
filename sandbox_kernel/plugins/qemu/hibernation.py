"""A paused machine that gives its memory back: it is written to a file, its process ends, and it goes on from there.

It is the same machine afterwards, so nothing in it begins anew but its clock. The pipe stays as it is: both ends are
held here, with what is on its way. From the moment that QEMU has ended, a gate stands in its place, in limits and with
a reaper of its own: what lists or ends sandboxes finds it, and it starts QEMU again when it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import time
import weakref
from typing import NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SIGKILLED, ExitReason, Settings
from ...core.tasks import Tasks, made_in_thread
from ...engines.abilities import Ability, abilities_of
from ...engines.attestation import demand
from ...engines.pipe import Pipe
from ..bubblewrap.interface import (
    KILL_SECONDS,
    BubblewrapContainer,
    Launched,
    await_end,
    has_ended,
    kill,
    reaper,
)
from . import saved_states
from .hardware import state_bytes
from .launch_plan import LaunchPlan
from .qmp import QmpMonitor
from .running_config import RunningConfig
from .settings import QemuSettings
from .snapshots.store import Store

ending = Tasks()
"""What must come to its end though a container's own tasks are ended meanwhile, as they are by `kill`."""
SWAP_SECONDS = 8.0
"""How long the end of QEMU is waited for by whoever ends the sandbox."""


class Hibernated(NamedTuple):
    """What a machine goes on from."""

    fd: int
    looked: list[int]
    """How the file looked when QEMU had ended."""
    gate: int
    """Where the line is written that starts QEMU."""


class Hibernation(BubblewrapContainer):
    """The part of a container that gives its memory back."""

    _pipe: Pipe
    _plan: LaunchPlan | None
    _made: RunningConfig
    _monitor: QmpMonitor | None
    _tasks: Tasks
    asleep: Hibernated | None = None
    """What it goes on from, while it has no memory."""
    _swapping: asyncio.Task[None] | None = None

    async def last(self, settings: Settings) -> bool:
        await asyncio.sleep(settings.of(QemuSettings).pause_memory)
        if self._over.is_set() or Ability.SNAPSHOT not in abilities_of(self):
            return False  # it has ended; or it was taken over from another process, which had the way to its memory
        store, most = Store.of(settings), state_bytes(settings.limits.memory)
        fd = await made_in_thread(lambda: store.scratch(most), os.close)
        try:
            await self.rest(fd)
        finally:
            os.close(fd)
        return True

    async def rest(self, fd: int) -> None:
        """Write the machine, which is paused, to an empty file, and end its process; `resume` goes on from there.

        The file is the machine's from then on: `fd` may be closed. Whoever gives up within the writing leaves it as it
        was. Raises `EngineError`, and then it keeps its memory.
        """
        if self.asleep is not None:
            return
        if not self.paused or self._plan is None:
            raise EngineError(EndCode.SANDBOX_NOT_RUNNING, "only a machine that is paused here can be written down")
        own = os.dup(fd)
        self._pipe.hold()  # what QEMU hands over after it was written down would come twice, or never
        try:
            await self._monitored().write_down(own, state_bytes(self._made.memory_bytes))
            self._monitored()
        except BaseException:
            os.close(own)
            self._pipe.let_go_on()
            raise
        self._swapping = self._tasks.hold(self._swap(self._plan, own), f"let {self.id} rest")
        await asyncio.shield(self._swapping)

    async def _swap(self, plan: LaunchPlan, fd: int) -> None:
        """End QEMU, and have a gate stand in its place. The file is closed if that does not come about."""
        with contextlib.ExitStack() as after, contextlib.ExitStack() as undo:
            after.callback(self._swapped)
            undo.callback(os.close, fd)
            gate, line = os.pipe()
            after.callback(os.close, gate)
            undo.callback(os.close, line)
            # Whoever takes over what reads the state there cannot write to the disk by it.
            reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
            after.callback(os.close, reading)
            launched, made, monitor = plan.launch(reading, gate)
            undo.callback(_give_up, launched, monitor)
            try:
                await self._put_down()
            except EngineError as error:  # it is as good as dead, and its reaper is still there
                logging.getLogger("sandbox_kernel").warning("%s: %s", self.id, error)
            looked = saved_states.look(os.fstat(fd))
            undo.pop_all()
            if self._monitor is not None:
                self._monitor.close()
            self._monitor, self._made = QmpMonitor(monitor), made
            self._take_up(launched)
            self._fall_asleep(Hibernated(fd, looked, line))

    def _fall_asleep(self, asleep: Hibernated) -> None:
        self.asleep = asleep
        _resting.add(self)

    def _swapped(self) -> None:
        self._swapping = None
        self._pipe.let_go_on()

    async def _put_down(self) -> None:
        """End the processes, of which nothing counts as the container's end: it has others, or gets them.

        Raises `EngineError` when that is not done within 4 s; the reaper then goes on.
        """
        mine, handles = self._launched, [self._launched.monitor, *([] if self._handle is None else [self._handle])]
        for fd in (*handles, mine.errors, mine.status):
            self._loop.remove_reader(fd)
        self._listening = False
        if self._limit is not None:
            self._limit.close()
        kill(handles)
        try:
            if not await asyncio.to_thread(_ended, handles, mine, KILL_SECONDS):
                raise EngineError(EndCode.CONTAINER_NOT_REMOVED, "the sandbox did not end", limit=f"{KILL_SECONDS:g} s")
            reaper().forget(mine.name)
        finally:
            for fd in (*handles, mine.errors, mine.status):
                os.close(fd)

    async def _awake(self) -> None:
        """Start QEMU where it was, unless it runs. Raises `EngineError`; what does not come back has ended."""
        await self._rest_no_more()
        if self.asleep is None or self._plan is None:
            return
        asleep = self.asleep
        self._pipe.hold()
        try:
            if saved_states.look(os.fstat(asleep.fd)) != asleep.looked:
                raise EngineError(EndCode.ENGINE_FAILED, "what the paused machine was written to has been changed")
            with contextlib.suppress(OSError):  # somebody ended the gate
                os.write(asleep.gate, b"\n")
            await self.running()
            demand((await self.look(self._plan.spec)).lines)
            await self._monitored().read_back(os.fstat(asleep.fd).st_size)
        except BaseException as error:
            why = error.message if isinstance(error, EngineError) else repr(error)
            self._end(
                ExitReason(kind="killed", exit_code=SIGKILLED, detail=f"it did not come back from its pause: {why}")
            )
            await asyncio.shield(ending.hold(self.kill(), f"end {self.id}"))
            raise
        self._forget_state()
        self._pipe.let_go_on()

    async def _rest_no_more(self) -> None:
        """Return when QEMU is not about to be ended; that takes some seconds at most."""
        if self._swapping is not None:
            await asyncio.wait({self._swapping}, timeout=SWAP_SECONDS)

    def _forget_state(self) -> None:
        """Close the file, whose room the disk has back then, and the gate's line. Works without a loop."""
        asleep, self.asleep = self.asleep, None
        _resting.discard(self)
        if asleep is not None:
            os.close(asleep.fd)
            os.close(asleep.gate)

    def _monitored(self) -> QmpMonitor:
        raise NotImplementedError


_resting: weakref.WeakSet[Hibernation] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child, close its copies: else the file would have its room on the disk for as long as the child."""
    for one in list(_resting):
        one._forget_state()  # noqa: SLF001 (its own)


os.register_at_fork(after_in_child=_forked)


def _give_up(launched: Launched, monitor: socket.socket) -> None:
    """End what stands at its gate, and has nobody; its pipe is another one's, too, and stays open."""
    kill([launched.monitor])
    await_end(launched.pid)
    if launched.group is not None:
        launched.group.remove()
    reaper().forget(launched.name)
    for fd in (launched.monitor, launched.errors, launched.status):
        os.close(fd)
    monitor.close()


def _ended(handles: list[int], launched: Launched, seconds: float) -> bool:
    """Return whether processes have ended, and their cgroups are gone, within so many seconds."""
    until = time.monotonic() + seconds
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    while not all(has_ended(handle) for handle in handles):
        if (left := until - time.monotonic()) <= 0:
            return False
        for handle, _ in poll.poll(left * 1000):
            poll.unregister(handle)
    with contextlib.suppress(ChildProcessError):  # it is another process's child
        os.waitpid(launched.pid, os.WNOHANG)
    return launched.group is None or launched.group.remove(max(0.0, until - time.monotonic()))
