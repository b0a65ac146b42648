"""A real start for those who look at a machine: one sandbox that attests itself, of which nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from ..container import wire
from ..core.codes import EndCode
from ..core.errors import SandboxDied
from ..core.model import Settings
from .base import AttestationCheck, Engine
from .shipping import new_spec

REPORT_BYTES = 4 << 20


async def attestations(
    settings: Settings, engine: Engine
) -> tuple[tuple[AttestationCheck, ...], tuple[AttestationCheck, ...]]:
    """Start a sandbox and return the comparison of what it is with what was asked for, line by line.

    The second one is with what was not asked for: another user, and other limits.
    """
    spec = new_spec(settings)
    limits = replace(spec.limits, pids=spec.limits.pids + 1, memory=spec.limits.memory + (1 << 20))
    other = replace(spec, uid=spec.uid + 1, limits=limits)
    container = None
    try:
        async with asyncio.timeout(settings.limits.start_timeout):
            container = await engine.start(spec)
            decoder = wire.Decoder(REPORT_BYTES)
            while data := await container.receive():
                for kind, parts in decoder.feed(data):
                    if kind == wire.AGENT and (event := json.loads(parts[0])).get("op") == "hello":
                        report = event.get("report")
                        return await container.compare(report, spec), await container.compare(report, other)
            reason = await container.wait()
            raise SandboxDied(
                EndCode.NO_REPORT, f"the sandbox {reason.kind} before it reported: {reason.detail.strip()[-500:]}"
            )
    except (TimeoutError, wire.FrameError, ValueError) as error:
        raise SandboxDied(
            EndCode.NO_REPORT, f"the sandbox did not report as it should: {error or 'it was too slow'}"
        ) from error
    finally:
        if container is not None:
            await container.kill()
