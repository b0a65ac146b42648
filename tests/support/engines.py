"""What the tests of the engines share: an image, programs to run inside, and readers of what comes out."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox_kernel.container import report as agent_report
from sandbox_kernel.container import shield as agent_shield
from sandbox_kernel.core.model import MIB, Limits
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine

IMAGE = os.environ.get("SANDBOX_KERNEL_TEST_IMAGE", "sandbox-kernel:base")

SMALL = Limits(memory_bytes=192 * MIB, scratch_bytes=32 * MIB, tmp_bytes=16 * MIB, shm_bytes=16 * MIB)

ECHO = """
import os
while data := os.read(0, 65536):
    os.write(1, data)
"""

REPORT = """
import json, sys
shield, module = {"__name__": "agent_shield"}, {"__name__": "agent_report"}
exec(sys.argv[2], shield)
exec(sys.argv[1], module)
status = module["own_status"]()
shield["raise_shield"]()
print(json.dumps(module["collect"](status)), flush=True)
sys.stdin.read()
"""


def report_sources() -> tuple[str, str]:
    """Return the programs that `REPORT` takes as its arguments."""
    return (
        Path(agent_report.__file__).read_text(encoding="utf-8"),
        Path(agent_shield.__file__).read_text(encoding="utf-8"),
    )


async def receive_all(container: DockerContainer) -> bytes:
    output = bytearray()
    while data := await container.receive():
        output += data
    return bytes(output)


async def receive_line(container: DockerContainer) -> bytes:
    output = bytearray()
    while not output.endswith(b"\n"):
        data = await container.receive()
        assert data, (await container.wait()).detail
        output += data
    return bytes(output)


async def containers_of(engine: DockerEngine, session_id: str) -> list[str]:
    """Return the containers that the engine has for a session, running or not."""
    return [row.container for row in await engine.list() if row.session == session_id]
