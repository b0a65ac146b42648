"""Taking a state: a machine is started for nobody, attested, and written down when its kernel is ready.

What it says is read here as by a session, and goes nowhere. Imports the frames and the container.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...container import wire
from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ..shipping import command_of, new_uid, rehearsal_line
from . import states
from .container import QemuContainer

MOST_FRAME = 4 << 20
MOST_FRAMES = 100
PING_SECONDS = 10.0
CONTENT = 3
"""Which part of a kernel's message that is, after the header, the parent and the metadata."""


def spec_of(spec: SandboxSpec, preload: tuple[str, ...]) -> SandboxSpec:
    """Return what a state is taken of for sandboxes of a spec: its agent waits for a claim."""
    if spec.made_of is None:
        raise ValueError("it is no agent's")
    command = command_of(spec.made_of, spec.limits, watched=spec.watched, warm=True, preload=preload, copied=True)
    return replace(spec, session_id=os.urandom(16).hex(), uid=new_uid(), command=command)


async def get_ready(container: QemuContainer, spec: SandboxSpec, *, rehearse: bool = False) -> None:
    """Return when it was attested and its kernel is up; with `rehearse`, when that has done what first cells do, too.

    Raises `EngineError` for one that says anything else.
    """
    staying = asyncio.create_task(_stay(container))
    try:
        await _ready(container, spec, rehearse=rehearse)
    finally:
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)


async def _stay(container: QemuContainer) -> None:
    """Say now and then that somebody is there: an agent that hears nothing for a minute ends; starts may be slow."""
    ping = b"".join(wire.encode(wire.AGENT, [json.dumps({"op": "ping"}).encode()]))
    while True:
        await asyncio.sleep(PING_SECONDS)
        await container.send(ping)


async def _ready(container: QemuContainer, spec: SandboxSpec, *, rehearse: bool) -> None:
    attested, awaited = False, {wire.SHELL, wire.IOPUB}
    name = os.urandom(16).hex()
    async for kind, said in _frames(container):
        op = said[0].get("op") if kind == wire.AGENT else None
        if op == "hello" and not attested:
            await container.attest(said[0].get("report"), spec)
            attested = True
        elif op == "kernel_ready" and attested:
            if not rehearse:
                return
            await container.send(_cell(name, rehearsal_line()))
        elif op == "kernel_exited":
            raise EngineError(EndCode.ENGINE_FAILED, "the machine's kernel ended before it was ready")
        elif kind in awaited and len(said) > CONTENT and said[1].get("msg_id") == name:
            if kind == wire.SHELL and said[CONTENT].get("status") != "ok":
                raise EngineError(EndCode.ENGINE_FAILED, f"the kernel cannot rehearse: {str(said[CONTENT])[:300]}")
            if kind == wire.SHELL or said[CONTENT].get("execution_state") == "idle":
                awaited.discard(kind)
            if not awaited:
                return
    reason = await container.wait()
    why = f"{reason.kind}, exit code {reason.exit_code}"
    if reason.detail:
        why += f": {reason.detail[-500:]}"
    raise EngineError(EndCode.ENGINE_FAILED, f"the machine ended before it was ready ({why})")


async def _frames(container: QemuContainer) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """Yield what comes, as JSON, and not without an end. Raises `EngineError`."""
    decoder, count = wire.Decoder(MOST_FRAME), 0
    while data := await container.receive():
        try:
            for kind, parts in decoder.feed(data):
                said = [json.loads(part) for part in parts[: 1 if kind == wire.AGENT else CONTENT + 1]]
                count += 1
                if count > MOST_FRAMES or not said or not all(isinstance(each, dict) for each in said):
                    raise ValueError("not what an agent says")
                yield kind, said
        except (wire.FrameError, ValueError) as error:
            raise EngineError(EndCode.ENGINE_FAILED, f"the machine's agent sent no frames: {error!r}") from error


def _cell(name: str, code: str) -> bytes:
    """Return a request to the kernel of which nothing is left in it."""
    header = {"msg_id": name, "msg_type": "execute_request", "session": "rehearsal", "username": "host"}
    header |= {"version": "5.3", "date": "2000-01-01T00:00:00Z"}
    content = {"code": code, "silent": True, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    parts = [json.dumps(part).encode() for part in (header, {}, {}, {**content, "stop_on_error": False})]
    return b"".join(wire.encode(wire.SHELL, parts))


async def write_down(container: QemuContainer, scratch: Path) -> dict[str, Any]:
    """Write the machine's state into a folder. Raises `EngineError` and OSError."""
    fd = os.open(scratch / states.STATE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        return await container.save(fd)
    finally:
        os.close(fd)
