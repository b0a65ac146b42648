"""One running machine: QEMU in a sandbox of bubblewrap's, the pipe into the machine, and why what runs there ended.

What ends the machine from outside is bubblewrap's; how its sandbox ended, the machine's first process says.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...container import wire
from ...core.codes import EndCode, Note, Survived
from ...core.errors import EngineError, SandboxError
from ...core.model import SIGKILLED, ExitReason, SandboxSample, SandboxSpec
from ...core.tasks import Tasks
from ...engines import seccomp_program as system_calls
from ...engines.abilities import PAUSE, Ability, Ask
from ...engines.attestation import checks, same
from ...engines.base import AttestationCheck, Handover, Inspection
from ...engines.hardening import protections
from ...engines.pipe import Pipe
from ...engines.usage_watch import MayUse
from ..bubblewrap.interface import (
    ETC_MOUNTS,
    PROC,
    Launched,
    Root,
    arguments,
    compared,
    etc,
    look,
    machine,
    variables,
)
from . import hardware, profile
from .codes import QemuCode, SnapshotCode
from .hibernation import Hibernation, ending
from .launch_plan import LaunchPlan
from .line_protocol import LineChannel
from .qmp import QmpMonitor
from .running_config import RunningConfig

SEED_BYTES = 64
MACHINE = "x86_64"


def anew() -> dict[str, Any]:
    """Return the time and a seed: what a machine that is, or may be, another's copy has to be told first."""
    return {"time_ns": time.time_ns(), "seed": base64.b64encode(os.urandom(SEED_BYTES)).decode()}


def clock() -> dict[str, Any]:
    """Return the order to set the clock."""
    return {"op": "clock", "time_ns": time.time_ns()}


def start(spec: SandboxSpec, root: Root, *, watch_draws: bool = False) -> dict[str, Any]:
    """Return the order to start a sandbox for `spec`; `watch_draws` has the machine note who draws random numbers."""
    wanted = protections(spec)
    return {
        "op": "start",
        **anew(),
        "watched_draws": watch_draws,
        "command": list(spec.command),
        "environment": {**root.environment, **wanted.environment},
        "uid": wanted.uid,
        "folder": wanted.working_folder,
        "hostname": wanted.hostname,
        "memory_bytes": wanted.memory_bytes,
        "pids": wanted.pids,
        "cpu_quota": wanted.cpu_quota_microseconds,
        "cpu_period": wanted.cpu_period_microseconds,
        "open_files": wanted.open_files,
        "masked": [path for path in wanted.masked_paths if path.startswith(PROC)],
        "readonly": list(wanted.readonly_paths),
        "etc": etc(wanted),
        "writable": [
            {
                "path": place.path,
                "bytes": place.size_bytes,
                "files": place.files,
                "mode": place.mode,
                "owner": place.owner or 0,
            }
            for place in wanted.writable
        ],
        "disks": [disk.path for disk in wanted.disks],
        "datasets": [one.path for one in wanted.attached],
        "shm_bytes": wanted.shm_bytes,
        "calls": base64.b64encode(system_calls.program(wanted.system_calls, MACHINE)).decode(),
    }


ABILITIES = frozenset(Ability)
MAX_DETAIL = 8192
BOOT_SECONDS = 60.0
THAW_SECONDS = 20.0
"""How long a copy of a state may take to say its first word; one that does not is begun from nothing, and in time."""
ANSWER_SECONDS = 15.0
DRAWS_SECONDS = 75.0
SIGKILL = 9
MAX_CODE = 255
"""Of a process, or 128 and the number of the signal that ended it."""


class QemuContainer(Hibernation):
    """A running machine. Made by `QemuEngine` only."""

    def __init__(
        self,
        program: str,
        launched: Launched,
        pipe: Pipe,
        made: RunningConfig,
        begun: tuple[LaunchPlan, socket.socket] | None,
        *,
        first: int | None = None,
    ) -> None:
        """`begun` is what it was begun by, and QEMU's monitor; None for one that another process has started."""
        most = MayUse(hardware.process_bytes(made.memory_bytes), profile.THREADS)
        super().__init__(program, launched, pipe, most, first)
        self.paused = False
        self._made = made
        self._nonce: str | None = None
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._tasks = Tasks()
        self._plan: LaunchPlan | None = None
        self._talk: LineChannel | None = None
        self._monitor: QmpMonitor | None = None
        if begun is not None:
            self._plan = begun[0]
            self._talk = LineChannel(begun[0].ways.words[0], self._told, self._silent)
            self._monitor = QmpMonitor(begun[1])

    async def sample(self) -> SandboxSample:
        """Return what is known of the machine; the programs of its guest are not processes of this machine's."""
        return (await super().sample())._replace(programs=None)

    # --- how it begins ----------------------------------------------------------------------------------------------

    async def boot(self, spec: SandboxSpec, root: Root, patience: float = 1.0, *, watch_draws: bool = False) -> None:
        """Have the machine start the sandbox, and return when its program runs. Raises `EngineError`.

        `patience` is how many times as long as usual that may take. With `watch_draws`, `drawn` can be asked.
        """
        await self.running()
        await self._asked(None, "up", BOOT_SECONDS * patience)
        seconds = ANSWER_SECONDS * patience
        said = await self._asked(start(spec, root, watch_draws=watch_draws), "started", seconds, other="refused")
        if said["op"] == "refused":
            why = str(said.get("why"))[:300]
            text = why.replace("[Errno 2] No such", "no such")
            raise EngineError(EndCode.ENGINE_FAILED, f"the machine did not start the sandbox: {text}")

    async def drawn(self, modules: Sequence[str]) -> set[str]:
        """Return which of these modules drew random numbers when the kernel imported them, before it came to its gate.

        Raises `EngineError` if the kernel did so by itself: each copy of it would go on from the same numbers.
        """
        said = await self._asked({"op": "draws"}, "draws", DRAWS_SECONDS)
        drew = said.get("drew")
        if said.get("marks") != 1 + len(modules) or not isinstance(drew, list) or 1 in drew:
            raise EngineError(QemuCode.STATE_HAS_DRAWN)
        return {module for number, module in enumerate(modules, 2) if number in drew}

    def claim(self) -> None:
        """Tell an agent that waits, and is a copy, that it has an owner: it resets itself, and reports."""
        self._nonce = secrets.token_hex(16)
        claim = json.dumps({"op": "claim", "nonce": self._nonce}).encode()
        data = b"".join(wire.encode(wire.AGENT, [claim]))
        if self._pipe.offer(data) != len(data):
            raise EngineError(EndCode.PIPE_GONE, kept=Survived.NOTHING)

    async def begin_anew(self, patience: float = 1.0, *, claimed: bool = False) -> None:
        """Give a machine that is a copy the time and random numbers of its own, and let its sandbox go on.

        What it is told waits for it until it has been read; so the time is told once more when it hears us.
        """
        if claimed:
            self.claim()  # it is read by who is let go on
        seconds = patience * (THAW_SECONDS if claimed else BOOT_SECONDS)
        thawed = self._asked({"op": "thaw", **anew()}, "thawed", seconds)
        await asyncio.gather(self.running(), thawed)
        await self._asked(clock(), "clock", patience * ANSWER_SECONDS)

    # --- standing still ---------------------------------------------------------------------------------------------

    @property
    def abilities(self) -> frozenset[Ability]:
        if self._monitor is None:
            return super().abilities
        return ABILITIES if self._made.is_whole else PAUSE

    @property
    def lacks(self) -> Mapping[Ability, Note]:
        """Why it has none of its engine's abilities."""
        if self._made.is_whole:
            return {}
        code = SnapshotCode.SNAPSHOT_NOT_WHOLE.note(why="what it has on a disk, and of the host's, is outside of it")
        return dict.fromkeys((Ability.SNAPSHOT, Ability.FORK), code)

    async def pause(self) -> None:
        if self._monitor is None:
            await super().pause()
        elif not self.paused:
            try:
                await self._monitored().ask("stop")
            except BaseException:
                # QEMU may do it all the same, and does one after the other.
                with contextlib.suppress(SandboxError, OSError):
                    await asyncio.shield(ending.hold(self._monitored().ask("cont"), "let a sandbox go on"))
                raise
            self.paused = True

    async def resume(self) -> None:
        if self._monitor is None:
            await super().resume()
        elif self.paused:
            await self._awake()
            await self._monitored().ask("cont")
            self.paused = False
            await self._asked({"op": "thaw", **anew()}, "thawed", ANSWER_SECONDS)

    async def save(self, fd: int, ask: Ask | None = None) -> dict[str, Any]:
        monitor = self._monitored()
        if self.paused:
            await self.resume()
        try:
            said = await self._asked({"op": "freeze"}, "frozen", ANSWER_SECONDS)
            if said.get("ok") is not True:
                raise EngineError(EndCode.SANDBOX_SILENT, "the sandbox does not stand still")
            await monitor.write_down(fd, hardware.state_bytes(self._made.memory_bytes))
            self.paused = True
        except BaseException:
            if not self._over.is_set():
                self.paused = True
                await asyncio.shield(ending.hold(self.resume(), "let a sandbox go on"))
            raise
        return self._made.facts()

    # --- the end ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        super().abandon()
        self._hang_up()

    async def kill(self) -> None:
        await self._rest_no_more()
        try:
            await super().kill()
        finally:
            self._hang_up()
            await self._tasks.close()

    def detach(self) -> Handover:
        """Give the pipe away. Whoever has it then cannot have the machine stand still, nor hear how it ended."""
        if self.paused:
            raise EngineError(EndCode.SANDBOX_NOT_RUNNING, "a machine that stands still cannot be given away")
        given = super().detach()
        given.state["made"] = self._made.state()
        self._hang_up()
        return given

    # --- what it is -------------------------------------------------------------------------------------------------

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        inside = replace(spec, uid=self._made.uid)  # of a machine that began as a copy, in a kernel of its own
        found = checks(inside, report, await self.look(spec))
        if self._nonce is None:
            return found
        nonce = report.get("nonce") if isinstance(report, Mapping) else None
        return (*found, same("nonce of the claim", self._nonce, nonce))

    async def look(self, spec: SandboxSpec) -> Inspection:
        if self._over.is_set() or self._ended.done() or self._handle is None:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        made, mine = self._made, self._launched
        self.image_id = made.machine.contents
        wanted = profile.wanted(spec)
        words = arguments(wanted, made.inside, machine(mine.group, opened=mine.opened), mine.descriptors, made.words())
        lines = compared(wanted, mine, words, look(mine, self._first))
        weaker = mine.group is None and spec.limits_kept == "best-effort"
        names = variables(protections(spec), made.root) - {"PWD"}
        above = {hardware.DATASETS} if spec.attached else set()
        found = Inspection(lines, names, ETC_MOUNTS | above, "qemu without a cgroup" if weaker else "qemu")
        return found._replace(attached=mine.held.identities())

    # --- what is heard ----------------------------------------------------------------------------------------------

    async def _asked(
        self, question: dict[str, Any] | None, answer: str, seconds: float, other: str | None = None
    ) -> dict[str, Any]:
        """Return what the machine answers. Raises `EngineError` if it does not in time, or has ended."""
        if self._talk is None:
            raise EngineError(
                EndCode.ENGINE_LACKS_PROTECTION,
                "a machine that was taken over from another process cannot be asked: start a new one",
            )
        future = asyncio.get_running_loop().create_future()
        names = [answer] if other is None else [answer, other]
        self._pending.update(dict.fromkeys(names, future))
        ended = asyncio.ensure_future(self._over.wait())
        try:
            async with asyncio.timeout(seconds):
                if question is not None:
                    await self._talk.send(question)
                self._talk.hear()
                await asyncio.wait({future, ended}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise EngineError(
                EndCode.ENGINE_SILENT, f"the machine does not say {answer!r} in time", limit=f"{seconds:.0f} s"
            ) from error
        except OSError as error:
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING) from error
        finally:
            ended.cancel()
            for name in names:
                self._pending.pop(name, None)
        if not future.done():
            why = self._stderr.decode("utf-8", "replace").strip()[-500:]
            raise EngineError(EndCode.ENGINE_FAILED, f"QEMU ended: {why or 'it said nothing'}")
        said: dict[str, Any] = future.result()
        return said

    def _told(self, said: dict[str, Any]) -> None:
        op = said.get("op")
        future = self._pending.get(op) if isinstance(op, str) else None
        if future is not None and not future.done():
            future.set_result(said)
        if op == "ended":
            self._has_ended(said)

    def _has_ended(self, said: dict[str, Any]) -> None:
        """The sandbox ended, and the machine goes on until all that it said has been read, or it is ended."""
        code, written = said.get("code"), said.get("written")
        if type(code) is not int or not 0 <= code <= MAX_CODE or type(written) is not int or self._ended.done():
            return  # the machine's end is what is left to see
        detail = str(said.get("tail", "")).strip()[-MAX_DETAIL:]
        if said.get("signal") == SIGKILL and type(ooms := said.get("ooms")) is int and ooms > 0:
            self._end(ExitReason(kind="out_of_memory", exit_code=SIGKILLED))
        elif code == SIGKILLED:
            self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail=detail))
        else:
            self._end(ExitReason(kind="exited", exit_code=code, detail=detail))
        self._pipe.end_at(written)

    def _conclude(self) -> None:
        if self._talk is not None:
            self._talk.hear()
        super()._conclude()

    def _silent(self) -> None:
        """The machine says nothing more, or something that is no line of ours; its end is what is left to see."""

    def _monitored(self) -> QmpMonitor:
        if self._monitor is None or self._over.is_set():
            raise EngineError(
                EndCode.ENGINE_LACKS_PROTECTION,
                "a machine that was taken over from another process, or has ended, cannot stand still",
            )
        return self._monitor

    def _hang_up(self) -> None:
        for way in (self._talk, self._monitor):
            if way is not None:
                way.close()
        if self._plan is not None:
            self._plan.ways.close_theirs()
        self._forget_state()
