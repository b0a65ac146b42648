"""The host's side of the attacks: something to aim at, and a container in which they run one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.docker.engine import DockerEngine
from tests.attacks.escape import (
    attacks_agent,  # noqa: F401 (fills the table)
    attacks_files,  # noqa: F401
    attacks_kernel,  # noqa: F401
    attacks_limits,  # noqa: F401
    attacks_network,  # noqa: F401
    attacks_rights,  # noqa: F401
)
from tests.attacks.escape.alterations import ALTERATIONS, Alteration
from tests.support.engines import IMAGE, SMALL
from tests.support.patience import within

MODULES = (
    "inside",
    "attacks_agent",
    "attacks_network",
    "attacks_kernel",
    "attacks_rights",
    "attacks_files",
    "attacks_limits",
)
BATCH_SECONDS = 150.0

LOAD = """
import json, sys, types

def load(modules):
    package = sys.modules["escape"] = types.ModuleType("escape")
    package.__path__ = []
    for name, source in modules:
        module = sys.modules["escape." + name] = types.ModuleType("escape." + name)
        module.__package__ = "escape"
        exec(compile(source, name + ".py", "exec", dont_inherit=True), module.__dict__)
    return sys.modules["escape.inside"]
"""
"""Defines a function that makes the attacks' modules from their sources, in the container."""

_BOOT = f"""{LOAD}
given = json.loads(sys.stdin.readline())
inside = load(given["modules"])
inside.GIVEN.update(given)
inside.main(given["names"])
"""

Outcomes = dict[str, tuple[str, str]]


def spec_for(
    runtime: str | None, command: tuple[str, ...] = ("python3", "-I", "-c", _BOOT), **fields: Any
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


def sources() -> list[tuple[str, str]]:
    return [(name, Path(__file__).with_name(f"{name}.py").read_text()) for name in MODULES]


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data, addr)


@contextlib.contextmanager
def targets(session: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Open what a hostile cell would like to reach on this machine: sockets, a file, shared memory."""
    libc, key = ctypes.CDLL(None, use_errno=True), 0x5A000000 + secrets.randbelow(1 << 24)
    mode = 0o1666 | 0o2000  # IPC_CREAT | IPC_EXCL, for everybody
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{session}")
        file = folder / "file"
        file.write_text(session)
        at_path = stack.enter_context(socket.socket(socket.AF_UNIX))
        at_path.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        for listener in (abstract, at_path):
            listener.listen()
        shared = Path("/dev/shm", session)
        shared.write_text("shared")
        stack.callback(shared.unlink)
        stack.callback((folder / "socket").unlink)
        for name, arguments, remove in (
            ("shmget", (key, 4096, mode), lambda number: libc.shmctl(number, 0, None)),
            ("msgget", (key, mode), lambda number: libc.msgctl(number, 0, None)),
            ("semget", (key, 1, mode), lambda number: libc.semctl(number, 0, 0)),
        ):
            number = getattr(libc, name)(*arguments)
            assert number >= 0, name
            stack.callback(remove, number)
        yield {
            "tcp": tcp.getsockname()[1],
            "abstract": f"\0{session}",
            "file": str(file),
            "folder": str(folder),
            "secret": session,
            "session": session,
            "key": key,
            "pid": os.getpid(),
        }


async def run_once(
    names: list[str], runtime: str, change: Alteration | None, given: dict[str, Any], **fields: Any
) -> Outcomes:
    """Run attacks in one container until all have ended, or one has ended the container; `fields` are the spec's."""
    spec, engine = spec_for(runtime, **fields), DockerEngine()
    body = container_arguments(spec)
    if change is not None:
        change(body, given)
    container = await (engine.start(spec) if change is None else engine.start_body(spec.session_id, body))
    try:
        await container.send(json.dumps({**given, "modules": sources(), "names": names}).encode() + b"\n")
        output = b""
        async with within(BATCH_SECONDS):
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
    with targets(secrets.token_hex(8), folder) as given:
        loop = asyncio.get_running_loop()
        udp, _ = await loop.create_datagram_endpoint(_Echo, local_addr=("127.0.0.1", 0))
        given["udp"] = udp.get_extra_info("sockname")[1]
        change = None if alteration is None else ALTERATIONS[alteration]
        try:
            while left := [name for name in names if name not in found]:
                found |= await run_once(left, runtime, change, given)
        finally:
            udp.close()
    return found


def run(names: list[str], runtime: str, alteration: str | None, folder: Path) -> Outcomes:
    """Run attacks as a sandbox is or altered, and return how each ended; nothing is left of the containers.

    An attack that ends its whole container has an outcome like "sandbox out_of_memory"; the others get a new one.
    """
    return asyncio.run(_run(names, runtime, alteration, folder))
