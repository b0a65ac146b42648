"""Taking a state: a machine is started for nobody, attested, and written down when its kernel is ready.

What it says is read here as by a session, and goes nowhere. Imports the frames and the container.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...container import wire
from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ..shipping import command_of, new_uid
from . import states
from .container import QemuContainer

MOST_FRAME = 4 << 20
MOST_EVENTS = 100


def spec_of(spec: SandboxSpec, preload: tuple[str, ...]) -> SandboxSpec:
    """Return what a state is taken of for sandboxes of a spec: its agent waits for a claim."""
    if spec.made_of is None:
        raise ValueError("it is no agent's")
    command = command_of(spec.made_of, spec.limits, watched=spec.watched, warm=True, preload=preload, copied=True)
    return replace(spec, session_id=os.urandom(16).hex(), uid=new_uid(), command=command)


async def get_ready(container: QemuContainer, spec: SandboxSpec) -> None:
    """Return when it was attested and its kernel is up. Raises `EngineError` for one that says anything else."""
    decoder, attested, events = wire.Decoder(MOST_FRAME), False, 0
    while data := await container.receive():
        try:
            frames = [json.loads(parts[0]) for kind, parts in decoder.feed(data) if kind == wire.AGENT]
        except (wire.FrameError, ValueError, IndexError) as error:
            raise EngineError(EndCode.ENGINE_FAILED, f"the machine's agent sent no frames: {error!r}") from error
        for said in frames:
            events += 1
            op = said.get("op") if isinstance(said, dict) else None
            if op == "hello" and not attested:
                await container.attest(said.get("report"), spec)
                attested = True
            elif op == "kernel_ready" and attested:
                return
            elif op == "kernel_exited" or events > MOST_EVENTS:
                raise EngineError(EndCode.ENGINE_FAILED, "the machine's kernel ended before it was ready")
    raise EngineError(EndCode.ENGINE_FAILED, f"the machine ended: {(await container.wait()).detail[-500:]}")


async def write_down(container: QemuContainer, scratch: Path) -> dict[str, Any]:
    """Write the machine's state into a folder. Raises `EngineError` and OSError."""
    fd = os.open(scratch / states.STATE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return await container.save(fd)
    finally:
        os.close(fd)
