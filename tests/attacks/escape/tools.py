"""The host's side of the attacks: something to aim at, and a container in which they run one after the other."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines import socket_memory
from sandbox_kernel.engines.base import Container
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.verify.attack_program import PROGRAM, sources
from sandbox_kernel.plugins.verify.canaries import laid
from sandbox_kernel.plugins.verify.inside import kit
from tests.attacks.escape.alterations import ALTERATIONS, NO_LIMIT_OF_SOCKETS, Alteration
from tests.attacks.escape.weaker import weakened
from tests.support.engines import IMAGE, ONLY, OTHER_DAEMONS, SMALL, Bubblewrap, Docker, of_plugins, report_sources
from tests.support.patience import SLOWNESS, within

BATCH_SECONDS = 150.0
BUBBLEWRAP = Bubblewrap("bubblewrap")
BEST_EFFORT = Bubblewrap("bubblewrap-best-effort", cgroup=False)
RUNTIMES = ("runc", "runsc", BUBBLEWRAP.name, BEST_EFFORT.name) if ONLY is None else (ONLY,)
"""Those of this run."""
EMULATED = 8
"""How many times as long an attack may take on a machine that is emulated."""
ON_BUBBLEWRAP = {each.name: each for each in (BUBBLEWRAP, BEST_EFFORT, *of_plugins())}
BESIDE: dict[str, Bubblewrap | Docker] = {**ON_BUBBLEWRAP, **{each.name: each for each in OTHER_DAEMONS}}
"""What is not a runtime of the usual Docker."""
WITHOUT_A_CGROUP = {BEST_EFFORT.name, *(each.name for each in OTHER_DAEMONS if each.limits == "best-effort")}

FILTERED = """
import ctypes, sys
filters = {"__name__": "syscall_filters"}
exec(sys.argv[1], filters)
if not filters["put"](ctypes.CDLL(None, use_errno=True), bytes.fromhex(sys.argv[2])):
    sys.exit("the system did not take the filter")
"""
"""Put the list of system calls around the attacks, as the agent does around kernels."""

Outcomes = dict[str, tuple[str, str]]


def driver(under: Bubblewrap | Docker) -> tuple[str, ...]:
    """Return the program of the attacks; where the engine puts no list of system calls around it, with one."""
    if getattr(under, "filtered_by_the_agent", False):
        _, source, calls = report_sources()
        return ("python3", "-I", "-c", FILTERED + PROGRAM, source, calls)
    return ("python3", "-I", "-c", PROGRAM)


def spec_for(
    runtime: str | None, command: tuple[str, ...] = ("python3", "-I", "-c", PROGRAM), **fields: Any
) -> SandboxSpec:
    return SandboxSpec(
        **{
            "session_id": secrets.token_hex(8),
            "image": IMAGE,
            "limits": SMALL,
            "command": command,
            "uid": 300_000_000 + secrets.randbelow(100_000_000),
            "runtime": None if runtime == "runc" else runtime,
            **fields,
        }
    )


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data, addr)


async def run_once(
    names: list[str], runtime: str, change: Alteration | None, given: dict[str, Any], **fields: Any
) -> Outcomes:
    """Run attacks in one container until all have ended, or one has ended the container; `fields` are the spec's."""
    if under := BESIDE.get(runtime):
        spec = under.spec(command=driver(under), **fields)
        return await _attacked(await under.make().start(spec), spec, names, given)
    spec, engine = spec_for(runtime, **fields), DockerEngine()
    body = container_arguments(spec)
    if change is not None:
        change(body, given)
        # A machine's AppArmor is one more layer before what an alteration is about.
        body["HostConfig"]["SecurityOpt"].append("apparmor=unconfined")
    started = engine.start(spec) if change is None else engine.start_body(spec.session_id, body)
    return await _attacked(await started, spec, names, given)


async def run_weakened(names: list[str], runtime: str, lacking: str, given: dict[str, Any]) -> Outcomes:
    """The same in a sandbox of bubblewrap's that lacks a protection."""
    under = ON_BUBBLEWRAP[runtime]
    spec = under.spec(command=("python3", "-I", "-c", PROGRAM))
    with weakened(lacking, given) as larger:
        container = await under.make().start(larger(spec))
    return await _attacked(container, spec, names, given)


async def _attacked(container: Container, spec: SandboxSpec, names: list[str], given: dict[str, Any]) -> Outcomes:
    longer = EMULATED if ONLY in {one.name for one in of_plugins()} else 1
    seconds = round(kit.SECONDS * SLOWNESS * longer)
    told = {"limits": asdict(spec.limits), "seconds": seconds, **given, "modules": sources(), "names": names}
    try:
        await container.send(json.dumps(told).encode() + b"\n")
        output = b""
        async with within(BATCH_SECONDS * longer):
            while output.count(b"\n") < len(names) and (data := await container.receive()):
                output += data
            ended = [json.loads(line) for line in output.splitlines()]
            if len(ended) < len(names):
                reason = await container.wait()
                ended.append([names[len(ended)], f"sandbox {reason.kind}", reason.detail])
    finally:
        await container.kill()
    return {name: (word, said) for name, word, said in ended}


async def _run(names: list[str], runtime: str, alteration: str | None, folder: Path) -> Outcomes:
    found: Outcomes = {}
    with laid(secrets.token_hex(8), folder) as bait:
        given = bait.given
        loop = asyncio.get_running_loop()
        udp, _ = await loop.create_datagram_endpoint(_Echo, local_addr=("127.0.0.1", 0))
        given["udp"] = udp.get_extra_info("sockname")[1]
        try:
            while left := [name for name in names if name not in found]:
                if alteration is not None and runtime in ON_BUBBLEWRAP:
                    found |= await run_weakened(left, runtime, alteration, given)
                else:
                    change = None if alteration is None else ALTERATIONS[alteration]
                    found |= await run_once(left, runtime, change, given)
        finally:
            udp.close()
    return found


def run(names: list[str], runtime: str, alteration: str | None, folder: Path) -> Outcomes:
    """Run attacks as a sandbox is or altered, and return how each ended; nothing is left of the containers.

    An attack that ends its whole container has an outcome like "sandbox out_of_memory"; the others get a new one.
    """
    lacking = patch.object(socket_memory, "SOCKETS", "none") if alteration == NO_LIMIT_OF_SOCKETS else nullcontext()
    with lacking:
        return asyncio.run(_run(names, runtime, alteration, folder))
