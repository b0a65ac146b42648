"""The beginning of a sandbox, which needs no event loop: a kernel process starts one before it imports the rest.

It imports asyncio only where there is no cgroup, and then while the sandbox starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from dataclasses import dataclass

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SCRATCH, SandboxSpec
from ...engines import attachment
from ...engines.hardening import Protections, protections
from ...engines.owner_process import OwnerProcess
from . import cgroups, engine_errors, root_lookup, scratch_folder
from .cgroups import CgroupSet, NoCgroup
from .discovery import bubblewrap_program, has_namespaces, reachable
from .launch import Launched, await_end, drops, launch, may_look, new_name
from .reaper import kill

FIRST_SECONDS = 0.5
STATUS_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BegunSandbox:
    """A sandbox on its way, which ends with `pipe`. The process that takes it up listens to it, or gives it up."""

    spec: SandboxSpec
    program: str
    launched: Launched
    pipe: socket.socket
    rest: bytes
    """Of its program, what the pipe had no room for yet."""

    @property
    def engine(self) -> str:
        return "bubblewrap"

    def give_up(self) -> None:
        """End it; its reaper does the rest."""
        kill([self.launched.monitor])
        await_end(self.launched.pid)
        self.pipe.close()
        self.launched.held.close()
        for fd in (self.launched.monitor, self.launched.errors, self.launched.status):
            os.close(fd)


def begin(spec: SandboxSpec, program: str | None = None, *, cgroup: bool = True, layers: bool = True) -> BegunSandbox:
    """Start a sandbox; `program` and `cgroup` are as for the engine. Raises `EngineError` and `ImageMissing`.

    Without `layers`, it has the files of the root as they are.
    """
    if spec.runtime is not None:
        raise EngineError(
            EndCode.ENGINE_LACKS_RUNTIME,
            f"bubblewrap has no runtime {spec.runtime!r}: leave it out, or use another engine",
            setting="runtime",
        )
    program = program or bubblewrap_program()
    if program is None:
        raise engine_errors.missing()
    root = root_lookup.find(spec.image)
    if drops():
        if not may_look():
            raise engine_errors.no_sight() if has_namespaces(program) else engine_errors.no_namespaces()
        for path in (program, root.folder, *(source for source, _ in root.binds)):
            if not reachable(path):
                raise engine_errors.unreachable(path)
    if root_lookup.program(root, spec.command[0]) is None:
        raise EngineError(
            EndCode.ENGINE_FAILED,
            f"no such file or program in the root {spec.image!r}: {spec.command[0][:100]}",
            setting="image",
        )
    if spec.attached and not layers:
        raise engine_errors.no_layers(spec, "it does so to the root")
    has_folder = scratch_folder.takes_its_place(spec)
    held = attachment.hold(spec, disks=not has_folder)
    group, name = None, ""
    try:
        group = group_for(spec, protections(spec), cgroup=cgroup)
        name = new_name(spec, group)
        if has_folder:
            held.keep(SCRATCH, scratch_folder.make(name, spec.limits.scratch_size))
        launched, mine = launch(program, spec, root, group, layers=layers, attached=held, name=name)
        held.started()
    except BaseException:
        if SCRATCH in held.descriptors and has_folder:
            scratch_folder.remove(f"{scratch_folder.PLACE}/{name}")
        held.close()
        if group is not None:
            group.remove(0)
        raise
    mine.setblocking(False)
    sent = 0
    with contextlib.suppress(OSError):  # it has ended already; whoever takes it up is told why
        sent = mine.send(spec.program)
    return BegunSandbox(spec, program, launched, mine, spec.program[sent:])


def begin_ahead(spec: SandboxSpec) -> BegunSandbox:
    """Start a sandbox that is not read for a while. Raises as `begin` does.

    Without a cgroup, its first process is given its limits here: they are for those that it starts from then on.
    """
    begun = begin(spec)
    if begun.launched.group is not None:
        return begun
    from ...engines.usage_watch import MayUse
    from .watch import confine

    launched, until = begun.launched, time.monotonic() + FIRST_SECONDS
    poll = select.poll()
    poll.register(launched.status, select.POLLIN)
    try:
        while b"\n" not in launched.said and poll.poll(max(0.0, until - time.monotonic()) * 1000):
            if not (more := os.read(launched.status, STATUS_BYTES)):
                break
            launched.said += more
        first = int(json.loads(launched.said.partition(b"\n")[0])["child-pid"])
    except (ValueError, LookupError, TypeError):
        begun.give_up()
        raise EngineError(EndCode.ENGINE_SILENT, "bubblewrap does not say whom it has started") from None
    with contextlib.suppress(OSError):  # it ended already, or is another user's; the look at what it uses is left
        confine(first, MayUse.of(spec))
    return begun


def group_for(spec: SandboxSpec, wanted: Protections, *, cgroup: bool) -> CgroupSet | None:
    """Return a cgroup for it; None if there is none to be had, and none has to be. Raises `EngineError`."""
    name = OwnerProcess.of(os.getpid()).container_name(spec.session_id)
    try:
        if not cgroup:
            raise NoCgroup("it is not to be made")
        return cgroups.make(name, wanted)
    except NoCgroup as error:
        if spec.limits_kept == "best-effort" and spec.cpuset is None:
            return None
        program = bubblewrap_program()
        if program is not None and not has_namespaces(program):  # to accept less would lead to this
            raise engine_errors.no_namespaces() from error
        if spec.cpuset is not None:
            raise engine_errors.no_processors(spec.cpuset, str(error)) from error
        raise engine_errors.no_limits(str(error)) from error
