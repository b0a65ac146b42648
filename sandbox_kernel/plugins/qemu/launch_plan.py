"""How a machine is started, each time: a paused one that gave its memory back starts again."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import NamedTuple

from ...core.model import SandboxSpec
from ...engines.attachment import Attachment
from ..bubblewrap.interface import Guest, Launched, Root, Way, group_for, launch, way
from . import hardware, profile
from .artifacts import MachineParts
from .running_config import RunningConfig

MARK = "SANDBOX_KERNEL_QEMU"
"""The variable by which machines are found."""


class MachineSockets(NamedTuple):
    """What leads into a machine. Its ends are held here, too: what is on its way outlives QEMU's process."""

    pipe: Way
    words: Way

    @classmethod
    def new(cls) -> MachineSockets:
        return cls(way(), way())

    def close(self) -> None:
        for each in self:
            for end in each:
                end.close()

    def close_theirs(self) -> None:
        for _, theirs in self:
            theirs.close()


class LaunchPlan(NamedTuple):
    bwrap: str
    program: str
    spec: SandboxSpec
    root: Root
    machine: MachineParts
    uid: int
    """The user's number within the machine."""
    ways: MachineSockets
    cgroup: bool = True
    niceness: int = 0

    def launch(
        self,
        state: int | None = None,
        gate: int | None = None,
        disk: int | None = None,
        held: Attachment | None = None,
    ) -> tuple[Launched, RunningConfig, socket.socket]:
        """Start QEMU, from a state if an open file of one is given; return what it is, and our end of its monitor.

        `disk` is the file of its second one, which the caller may close then; `held` is what it sees of the host's, and
        closed with it. With a `gate`, it begins when the other
        end of that file says so. Raises `EngineError`.
        """
        spec = self.spec
        wanted, (monitor, theirs) = profile.wanted(spec), way()
        incoming = None if state is None else os.dup(state)
        group = None
        try:
            ends = hardware.Ends(self.ways.words[1].fileno(), theirs.fileno(), incoming, disk)
            count = profile.count_of(spec)
            made = RunningConfig(self.root, self.machine, self.program, ends, self.uid, spec.limits.memory, count)
            made = made._replace(datasets=bool(spec.attached))
            group = group_for(spec, wanted, cgroup=self.cgroup)
            own = replace(spec, command=made.words())
            more = tuple(fd for fd in ends if fd is not None)
            guest = Guest(wanted, more, MARK, self.niceness, self.ways.pipe, gate)
            launched, _ = launch(self.bwrap, own, made.inside, group, guest, attached=held)
        except BaseException:
            monitor.close()
            if group is not None:
                group.remove(0)
            raise
        finally:
            theirs.close()
            if incoming is not None:
                os.close(incoming)
        return launched, made, monitor
