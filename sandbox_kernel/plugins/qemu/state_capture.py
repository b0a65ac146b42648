"""Taking a state: a machine is started for nobody, attested, and written down when its kernel is ready.

What it says is read here as by a session, and goes nowhere. A process of its own does so in the background, and
outlives the one that wanted it:

    python -I -m sandbox_kernel.plugins.qemu {"image": …, "limits": …}
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...container import wire
from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.helper_processes import start_apart
from ...core.model import AgentOptions, Limits, SandboxSpec
from ...engines.shipping import COMMAND, Extension, module_line, program_of
from ...engines.user_ids import new_uid
from . import saved_states
from .container import QemuContainer

MAX_FRAME = 4 << 20
MAX_FRAMES = 100
PING_SECONDS = 10.0


def spec_of(spec: SandboxSpec, preload: tuple[str, ...]) -> SandboxSpec:
    """Return what a state is taken of for sandboxes of a spec: its agent waits for a claim, its kernel at the gate."""
    if spec.made_of is None:
        raise ValueError("it is no agent's")
    gate = saved_states.GATE.read_text(encoding="utf-8")
    extension = Extension(gate, module_line(f"{gate}\nwait({preload!r})\n", "gate"))
    program = program_of(spec.made_of, spec.limits, warm=True, extension=extension)
    return replace(spec, session_id=os.urandom(16).hex(), uid=new_uid(), program=program)


async def get_ready(container: QemuContainer, spec: SandboxSpec, *, until: str = "kernel_ready") -> None:
    """Return when it was attested and its agent says that its kernel is so far.

    Raises `EngineError` for one that says anything else.
    """
    staying = asyncio.create_task(_stay(container))
    try:
        await _ready(container, spec, until)
    finally:
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)


async def _stay(container: QemuContainer) -> None:
    """Say now and then that somebody is there: an agent that hears nothing for a minute ends; starts may be slow."""
    ping = b"".join(wire.encode(wire.AGENT, [json.dumps({"op": "ping"}).encode()]))
    while True:
        await asyncio.sleep(PING_SECONDS)
        await container.send(ping)


async def _ready(container: QemuContainer, spec: SandboxSpec, until: str) -> None:
    attested = False
    async for said in _words(container):
        op = said.get("op")
        if op == "hello" and not attested:
            await container.attest(said.get("report"), spec)
            attested = True
        elif op == until and attested:
            return
        elif op == "kernel_exited":
            raise EngineError(EndCode.ENGINE_FAILED, "the machine's kernel ended before it was ready")
    reason = await container.wait()
    why = f"{reason.kind}, exit code {reason.exit_code}"
    if reason.detail:
        why += f": {reason.detail[-500:]}"
    raise EngineError(EndCode.ENGINE_FAILED, f"the machine ended before it was ready ({why})")


async def _words(container: QemuContainer) -> AsyncIterator[dict[str, Any]]:
    """Yield what the agent says, and not without an end. Raises `EngineError`."""
    decoder, count = wire.Decoder(MAX_FRAME), 0
    while data := await container.receive():
        try:
            for kind, parts in decoder.feed(data):
                count += 1
                if count > MAX_FRAMES:
                    raise ValueError("it does not end")
                if kind == wire.AGENT:
                    said = json.loads(parts[0])
                    if not isinstance(said, dict):
                        raise ValueError("not what an agent says")
                    yield said
        except (wire.FrameError, ValueError, IndexError, RecursionError) as error:
            raise EngineError(EndCode.ENGINE_FAILED, f"the machine's agent sent no frames: {error!r}") from error


async def write_down(container: QemuContainer, scratch: Path) -> dict[str, Any]:
    """Write the machine's state into a folder. Raises `EngineError` and OSError."""
    fd = os.open(scratch / saved_states.STATE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return await container.save(fd)
    finally:
        os.close(fd)


MODULE = "sandbox_kernel.plugins.qemu"
START_SECONDS = 10.0


def take_in_background(spec: SandboxSpec, preload: tuple[str, ...], folder: Path, *, cgroup: bool) -> None:
    """Start such a process for a spec that may be kept. Raises OSError and `subprocess.SubprocessError`."""
    if spec.made_of is None:
        raise ValueError("it is no agent's")
    said = {
        "image": spec.image,
        "limits": asdict(spec.limits),
        "limits_kept": spec.limits_kept,
        "charts": spec.made_of.charts,
        "zone": spec.made_of.zone,
        "preload": preload,
        "folder": str(folder),
        "cgroup": cgroup,
    }
    start_apart(MODULE, json.dumps(said), seconds=START_SECONDS)


def spec_asked(said: dict[str, Any]) -> SandboxSpec:
    """Return the spec that was asked for: it has the same state."""
    options = AgentOptions(charts=said["charts"], zone=said["zone"])
    limits = Limits(**said["limits"])
    return SandboxSpec(
        session_id=os.urandom(16).hex(),
        image=said["image"],
        limits=limits,
        command=COMMAND,
        program=program_of(options, limits),
        limits_kept=said["limits_kept"],
        uid=new_uid(),
        made_of=options,
    )
