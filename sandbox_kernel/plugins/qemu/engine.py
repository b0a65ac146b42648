"""The engine of machines: QEMU for each session, in a sandbox of bubblewrap's, with a kernel of its own in it."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.helper_processes import environment_of_helpers
from ...core.model import PYTHON_KERNEL, SandboxSpec, format_bytes
from ...core.tasks import Tasks, made_in_thread
from ...engines.attachment import Attachment, hold, lacking, provider
from ...engines.hardening import protections
from ...engines.inspectable import MachineCondition
from ...engines.pipe import Pipe
from ...engines.shipping import without_home
from ..bubblewrap.interface import (
    BubblewrapEngine,
    bubblewrap_program,
    drops,
    find_root,
    has_own_proc,
    missing,
    mounts,
    no_proc,
    program_in,
    reachable,
    taken_over,
    unreachable,
)
from . import artifacts, hardware, profile, saved_states, state_capture
from .codes import QemuCode
from .container import ABILITIES, QemuContainer
from .launch_plan import MARK, LaunchPlan, MachineSockets
from .running_config import RunningConfig

if TYPE_CHECKING:
    from ...engines.inspectable import EngineInfo, MachineCondition, Shown

KVM = "/dev/kvm"


def conditions() -> tuple[MachineCondition, ...]:
    """Return all of them."""
    program = artifacts.qemu_program()
    if program is None:
        rows = [MachineCondition("qemu", met=False, found="there is none", remedy=artifacts.install())]
    else:
        rows = [MachineCondition("qemu", met=True, found=program)]
    firmware = any(Path(share, "bios-256k.bin").exists() for share in artifacts.SHARES)
    rows.append(
        MachineCondition(
            "firmware", met=firmware, found="there" if firmware else "there is none", remedy=artifacts.install()
        )
    )
    kind = platform.machine()
    if kind != "x86_64":
        found = f"{kind}: machines are x86_64's, emulated"
        rows.append(MachineCondition("processor", met=False, found=found, remedy="use another engine"))
    there = os.access(KVM, os.R_OK | os.W_OK)
    found = "there, and not used: this version emulates" if there else "not there: machines are emulated"
    rows.append(MachineCondition("kvm", met=True, found=found))
    rows.append(MachineCondition("states", met=True, found=_states()))
    return tuple(rows)


def _states() -> str:
    """Say which states there are to start from; of another sandbox, the first start takes one."""
    try:
        folder = saved_states.folder_of_user()
        found = list(folder.glob(f"*/{saved_states.STATE}"))
        size = sum(path.stat().st_size for path in found)
        failures = saved_states.failures(folder)
    except (OSError, LookupError) as error:
        return f"none can be kept: machines start from nothing ({error})"
    if failures:
        return f"{len(found)}, {format_bytes(size)}: another one could not be taken of late ({'; '.join(failures)})"
    return f"{len(found)}, {format_bytes(size)}: a sandbox of which there is none starts from nothing and takes one"


PREPARE_SECONDS = 300.0
NICENESS = 15
"""Of a machine of which a state is taken: somebody waits for another one."""
PATIENCE = 5.0
"""How many times as long that one may take to start."""
UNFIT = frozenset({EndCode.ENGINE_FAILED, EndCode.ENGINE_SILENT})
"""The codes of a machine whose state cannot be read, or does not start."""


class QemuEngine(BubblewrapEngine):
    """QEMU, the system's, with emulation."""

    abilities = ABILITIES
    mark = MARK

    def __init__(
        self, *, cgroup: bool = True, preload: tuple[str, ...] = (), folder: Path | None = None, ahead: bool = True
    ) -> None:
        """`preload` is what kernels of a state have imported, and `folder` has the states; None is the user's own.

        Without `ahead`, no state is taken where there is none.
        """
        super().__init__(None, cgroup=cgroup)
        self._preload, self._folder, self._ahead_of_others = preload, folder, ahead
        self._wanted: set[str] = set()
        self._undoing = Tasks()
        self._taking = Tasks(log_failed)

    # --- the seam ---------------------------------------------------------------------------------------------------

    async def start(self, spec: SandboxSpec) -> QemuContainer:
        """Start a machine, from a state if there is one of it. One that fails, or is cancelled, leaves nothing behind.

        Where there is none, one is taken beside it, for those to come; but none of what is one caller's own.
        """
        spec = without_home(spec)
        if not may_be_kept(spec):
            return await self._start(spec)
        folder, key = self.place(spec)
        try:
            state = await asyncio.to_thread(saved_states.find, folder, key)
        except saved_states.ChangedState as error:
            log_changed(key, error)
            await asyncio.to_thread(saved_states.remove, folder, key)
            state = None
        if state is not None:
            try:
                # The copy of a state is private: it is claimed at once, and closed.
                try:
                    return await self._start(spec, (state.fd, state.facts), claimed=True)
                finally:
                    os.close(state.fd)
            except EngineError as error:
                if error.code not in UNFIT:
                    raise
                log_changed(key, error)  # nor would it start the next time
                await asyncio.to_thread(saved_states.remove, folder, key)
        container = await self._start(spec)
        if self._ahead_of_others and key not in self._wanted:
            self._wanted.add(key)
            self._taking.start(asyncio.to_thread(self._want, spec, folder, key), "taking a state of a machine")
        return container

    def _want(self, spec: SandboxSpec, folder: Path, key: str) -> None:
        """Have a state taken, unless that failed not long ago or is under way. This process need not outlive that."""
        if why := saved_states.failed(folder, key):
            logging.getLogger("sandbox_kernel").warning("machines start from nothing: no state can be taken: %s", why)
        elif not saved_states.is_one_being_made(folder):
            state_capture.take_in_background(spec, self._preload, folder, cgroup=self._cgroup)
        else:  # one at a time takes processors enough; whoever starts the next sandbox asks again
            self._wanted.discard(key)

    async def prepare(self, spec: SandboxSpec) -> bool:
        """Take a state of a machine for sandboxes of this spec, unless there is one; return whether it was taken.

        It takes half a minute of a processor. None is taken of one with variables of its caller's or a way out.
        Raises `EngineError` and OSError; the reason is remembered for a while by those who would try again.
        """
        if not may_be_kept(spec):
            return False
        folder, key = self.place(spec)
        if (folder / key / saved_states.STATE).exists():
            return False
        with saved_states.making(folder, key) as scratch:
            if scratch is None or (folder / key / saved_states.STATE).exists():  # another one was at it until now
                return False
            try:
                made = await self._written(spec, scratch)
                await asyncio.to_thread(saved_states.keep, folder, key, scratch, made)
            except (EngineError, OSError, TimeoutError) as error:
                saved_states.note_failure(folder, key, str(error) or repr(error))
                raise
            return True

    async def _written(self, spec: SandboxSpec, scratch: Path) -> dict[str, Any]:
        """Start a machine for nobody, and write it down when its kernel is at its gate. Raises as `prepare` does.

        A module that draws random numbers when it is imported is left out, and the machine is started again.
        """
        modules = self._preload
        while True:
            async with asyncio.timeout(PREPARE_SECONDS):
                own = state_capture.spec_of(spec, modules)
                container = await self._start(own, niceness=NICENESS)
                try:
                    await state_capture.get_ready(container, own, until="kernel_imported")
                    drew = await container.drawn(modules)
                    if not drew:
                        return await state_capture.write_down(container, scratch)
                finally:
                    await container.kill()
            logging.getLogger("sandbox_kernel").warning(
                "%s: %s. Setting: preload.", QemuCode.STATE_HAS_DRAWN.text, ", ".join(sorted(drew))
            )
            modules = tuple(module for module in modules if module not in drew)

    async def restore(self, spec: SandboxSpec, fd: int, facts: Mapping[str, Any]) -> QemuContainer:
        """Start a machine that goes on from what `save` wrote. Raises `EngineError` for what does not fit here."""
        return await self._start(without_home(spec), (fd, facts))

    async def _start(
        self,
        spec: SandboxSpec,
        state: tuple[int, Mapping[str, Any]] | None = None,
        *,
        claimed: bool = False,
        niceness: int = 0,
    ) -> QemuContainer:
        if spec.runtime is not None:
            raise EngineError(
                EndCode.ENGINE_LACKS_RUNTIME,
                f"QEMU has no runtime {spec.runtime!r}: leave it out, or use another engine",
                setting="runtime",
            )
        refuse(spec)
        bwrap, program = bubblewrap_program(), artifacts.needed()
        if bwrap is None:
            raise missing()
        if not has_own_proc():
            raise no_proc("QEMU's sandbox needs a whole one, and a mount covers a part of this machine's")
        root = find_root(spec.image)
        machine = artifacts.find(root)
        if drops():
            for path in (bwrap, program, machine.folder):
                if not reachable(path):
                    raise unreachable(path)
        if state is None and program_in(root, spec.command[0]) is None:
            raise EngineError(
                EndCode.ENGINE_FAILED,
                f"no such file or program in the root {spec.image!r}: {spec.command[0][:100]}",
                setting="image",
            )
        uid = spec.uid if state is None else _fitting(spec, machine, state[1])
        opened = await made_in_thread(lambda: _opened(spec), _let_go)
        plan = LaunchPlan(bwrap, program, spec, root, machine, uid, MachineSockets.new(), self._cgroup, niceness)
        try:
            launched, made, monitor = plan.launch(
                None if state is None else state[0], disk=opened.disk, held=opened.held
            )
        except BaseException:
            plan.ways.close()
            _let_go(opened)
            raise
        if opened.disk is not None:
            os.close(opened.disk)
        pipe = Pipe(plan.ways.pipe[0])
        container = QemuContainer(bwrap, launched, pipe, made, (plan, monitor))
        patience = (PATIENCE if niceness else 1.0) / min(1.0, spec.limits.cpus)  # all is done by its processors
        try:
            if state is None:
                await container.boot(spec, root, patience, watch_draws=bool(niceness))
                await pipe.load(spec.program)
            else:
                await container.begin_anew(patience, claimed=claimed)
        except BaseException:
            await asyncio.shield(self._undoing.hold(container.kill(), f"undo {container.id}"))
            raise
        return container

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return "qemu"

    async def info(self) -> EngineInfo:
        program = artifacts.needed()
        said = await asyncio.create_subprocess_exec(
            program, "--version", stdout=asyncio.subprocess.PIPE, env=environment_of_helpers()
        )
        version, _ = await said.communicate()
        return replace(await super().info(), version=version.decode("utf-8", "replace").partition("\n")[0].strip())

    async def conditions(self) -> tuple[MachineCondition, ...]:

        return (*await super().conditions(), *await asyncio.to_thread(conditions))

    async def shown(self, container: str) -> Shown:
        found = await super().shown(container)
        around = mounts(await asyncio.to_thread(profile.root_of, artifacts.needed()))
        return replace(found, mounts=around, around_bytes=hardware.process_bytes(0), is_machine=True)

    def place(self, spec: SandboxSpec) -> tuple[Path, str]:
        """Return where a state for a spec lies, and its name there."""
        program = artifacts.needed()
        machine = artifacts.find(find_root(spec.image))
        folder = saved_states.folder_of_user() if self._folder is None else self._folder
        return folder, saved_states.key_of(spec, machine, program, profile.count_of(spec), self._preload)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _adopted(self, state: dict[str, Any], pipe: Pipe) -> QemuContainer:
        launched, _, first = taken_over(state, MARK)
        return QemuContainer(self._found(), launched, pipe, RunningConfig.read(state["made"]), None, first=first)


def refuse(spec: SandboxSpec) -> None:
    """Raise `EngineError` for what no machine has: the host would mount a disk that a hostile one may have written."""
    for one in spec.attached:
        if not one.layered:
            raise lacking(one.setting)


class _Opened(NamedTuple):
    held: Attachment
    disk: int | None
    """The file of its second disk."""


def _opened(spec: SandboxSpec) -> _Opened:
    """Open it; a disk is made. Raises `ConfigurationError` and `EngineError`."""
    held = hold(spec, disks=False)
    try:
        disks = protections(spec).disks
        return _Opened(held, provider("scratch").disk_image(disks[0].size_bytes, disks[0].owner) if disks else None)
    except BaseException:
        held.close()
        raise


def _let_go(opened: _Opened) -> None:
    opened.held.close()
    if opened.disk is not None:
        os.close(opened.disk)


def may_be_kept(spec: SandboxSpec) -> bool:
    """Return whether a state of it is all of it, holds nothing of one caller's, and so may lie and serve others.

    Variables may be keys, and a way out is one session's: neither is written down unless somebody asks for a snapshot.
    What waits in a state is Python: a kernel of another language is started when it is wanted.
    """
    made = spec.made_of
    whole = spec.limits.scratch == "memory" and not spec.attached and not spec.watched
    return whole and made is not None and not made.variables and made.inside is None and made.kernel == PYTHON_KERNEL


def log_failed(name: str, error: BaseException) -> None:
    """Say that no state could be taken: sandboxes start without one."""
    logging.getLogger("sandbox_kernel").warning("%s failed: %s", name, error)


def log_changed(key: str, error: Exception) -> None:
    """Say that a state is refused."""
    logging.getLogger("sandbox_kernel").warning("the state %s is refused, and made anew: %s", key, error)


def _fitting(spec: SandboxSpec, machine: artifacts.MachineParts, facts: Mapping[str, Any]) -> int:
    """Return the user's number in a state that fits. Raises `EngineError` for one that does not."""
    asked = {"machine": machine.identity, "memory_bytes": spec.limits.memory, "processors": profile.count_of(spec)}
    if odd := [name for name, value in asked.items() if facts.get(name) != value]:
        raise EngineError(
            EndCode.ENGINE_FAILED, f"the state was written by another machine: it differs in {', '.join(odd)}"
        )
    if type(uid := facts.get("uid")) is not int or uid <= 0:
        raise EngineError(EndCode.ENGINE_FAILED, "the state says no user")
    return uid
