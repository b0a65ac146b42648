"""Sandboxes that are brought to their ends, each of them fresh and small: what the host makes of it, and what is left.

The verdicts rest on the host's own word: an error that says it came from the host, the engine's list, this machine's
processes. Each hostile cell ends by itself after a while, so that a missing limit is a finding and not a wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict

from ...core.codes import EndCode
from ...core.errors import SandboxError
from ...core.helper_processes import environment_of_helpers
from ...core.model import MIB, Settings
from ...engines.inspectable import Inspectable
from ...escape.attack_program import cell, heard, table
from ...sdk.client import AsyncSandbox
from ...sdk.execution import Execution
from ...session import self_test
from . import probe_cells
from .host_inspection import members
from .probes import BY_CODE, Word
from .verdicts import Finding, Verdict, decided, failed, not_applicable, of_attacks

CELL_SECONDS = 1.5
"""The limit of the cell that never ends."""
BY_ITSELF_SECONDS = 25.0
"""When it ends by itself after all."""
OWNER_SECONDS = 30.0
LEFT_SECONDS = 10.0
"""How long what ends may take to be gone."""


def of_end(code: str, execution: Execution, wanted: EndCode) -> Finding:
    """Judge a cell that the host was to end for a reason."""
    error = execution.error
    if error is None:
        return decided(code, False, "the cell ended by itself, and well")
    ended = f"{error.name} after {execution.seconds:.1f} s"
    if not error.from_sandbox:
        return decided(code, False, f"the cell ended by itself: {ended}")
    return decided(code, error.code == wanted.code, f"the host ended it: {ended}")


def of_processes(execution: Execution, *, gvisor: bool) -> Finding:
    """Judge a cell that started processes without end."""
    code = "limit-processes"
    error, name = execution.error, "processes_without_end"
    said = heard("".join(execution.logs.stdout), [name])
    if gvisor and error is not None and error.code == EndCode.OUT_OF_MEMORY.code:
        why = "gVisor's processes are none of the host's, which does not count them: they ended at the limit of memory"
        return not_applicable(code, why)
    probe = BY_CODE[code]._replace(attacks=(name,))
    return of_attacks(probe, table(), said, gvisor=False)


async def flood_kill_and_memory(sandbox: AsyncSandbox, wanted: set[str]) -> list[Finding]:
    """Flood the host, kill the kernel, and use up the memory, in this order."""
    limits, found = sandbox.settings.limits, []
    if "end-output" in wanted:
        execution = await sandbox.run_code(probe_cells.FLOOD.format(lines=limits.output_limit * 4 // 65536))
        found.append(of_end("end-output", execution, EndCode.OUTPUT_TOO_LARGE))
    if "end-kernel" in wanted:
        execution = await sandbox.run_code(probe_cells.KILL)
        killed = of_end("end-kernel", execution, EndCode.KERNEL_DIED)
        after = await sandbox.run_code("6 * 7")
        more = "the next cell ran" if after.text == "42" else f"the next cell did not run: {after.error}"
        fine = killed.verdict is Verdict.PASS and after.text == "42"
        found.append(decided("end-kernel", fine, f"{killed.happened}; {more}"))
    if "limit-memory" in wanted:
        execution = await sandbox.run_code(probe_cells.MEMORY.format(size=limits.memory + 64 * MIB))
        found.append(of_end("limit-memory", execution, EndCode.OUT_OF_MEMORY))
    return found


async def busy_and_many(
    sandbox: AsyncSandbox,
    wanted: set[str],
    marker: str,
    planted: asyncio.Event,
    *,
    gvisor: bool,
    more: Mapping[str, object],
) -> list[Finding]:
    """Look for what another sandbox has left, run without end, and start processes without end, in this order.

    `more` is what attacks are given besides: how long one may take, where that is not the usual time.
    """
    found = []
    if "plant-next" in wanted:
        await sandbox.start()
        await planted.wait()
        execution = await sandbox.run_code(probe_cells.LOOK.format(marker=marker))
        there = ", ".join("".join(execution.logs.stdout).split())[:200]
        looked = execution.error is None
        text = f"found in {there}" if there else "nothing of it was there" if looked else f"{execution.error}"
        found.append(decided("plant-next", looked and not there, text, Word.SANDBOX))
    if "end-time" in wanted:
        execution = await sandbox.run_code(probe_cells.BUSY.format(seconds=BY_ITSELF_SECONDS), timeout=CELL_SECONDS)
        found.append(of_end("end-time", execution, EndCode.CELL_TIMEOUT))
    if "limit-processes" in wanted:
        given = {**more, "limits": asdict(sandbox.settings.limits)}
        execution = await sandbox.run_code(cell(["processes_without_end"], given))
        found.append(of_processes(execution, gvisor=gvisor))
    return found


async def attested(settings: Settings, engine: Inspectable) -> list[Finding]:
    """Compare a sandbox with what was asked for, and with what was not."""
    lines, other = await self_test.attestations(settings, engine)
    wrong = [line.sentence for line in lines if not line.ok]
    seen = [line.name for line in other if not line.ok]
    text = "; ".join(wrong)[:400] if wrong else f"all {len(lines)} comparisons hold"
    others = f"{len(seen)} differences seen: {', '.join(seen)[:200]}" if seen else "no difference was seen"
    return [
        decided("technology-attested", not wrong, text),
        decided("technology-attestation-sees", bool(seen), others),
    ]


async def orphaned(settings: Settings, engine: Inspectable) -> Finding:
    """Have a process own a sandbox, kill it with SIGKILL, and see what becomes of the sandbox."""
    given = {
        "engine": engine.address,
        "runtime": settings.runtime,
        "image": settings.image,
        "limits_kept": settings.limits_kept,
        "limits": asdict(settings.limits),
    }
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", probe_cells.OWNER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env=environment_of_helpers(),
    )
    try:
        async with asyncio.timeout(settings.limits.start_timeout + OWNER_SECONDS):
            if owner.stdin is None or owner.stdout is None:
                return failed("end-owner", "no pipe to a process of its own")
            owner.stdin.write(json.dumps(given).encode() + b"\n")
            await owner.stdin.drain()
            session = (await owner.stdout.readline()).decode().strip()
    except TimeoutError:
        session = ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            owner.kill()
        await owner.wait()
    if not session:
        return failed("end-owner", "the owner could not start its sandbox")
    began = time.monotonic()
    left = await _left(engine, {session})
    text = f"its owner was killed; {'it is still there' if left else 'it was gone'} after"
    return decided("end-owner", not left, f"{text} {time.monotonic() - began:.1f} s")


async def remains(engine: Inspectable, sessions: set[str], containers: set[str]) -> list[Finding]:
    """Look for what is left of sandboxes that have ended: in the engine's list, and among this machine's processes."""
    left = await _left(engine, sessions)
    text = f"{len(left)} of {len(sessions)} are left" if left else f"none of {len(sessions)} is left"
    running = [pid for container in containers for pid in members(container, await engine.shown(container))]
    processes = f"{len(running)} are left" if running else f"none of {len(containers)} sandboxes' is left"
    return [decided("end-containers", not left, text), decided("end-processes", not running, processes)]


async def _left(engine: Inspectable, sessions: set[str]) -> list[str]:
    """Return the containers that sessions still have after they had time to go."""
    until = time.monotonic() + LEFT_SECONDS
    while True:
        left = [row.container for row in await engine.list() if row.session in sessions]
        if not left or time.monotonic() > until:
            return left
        await asyncio.sleep(0.1)


def reason(error: SandboxError | TimeoutError) -> str:
    return f"it could not be tried: {error}"[:400]
