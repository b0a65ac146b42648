"""How fast the engine's pipe is by itself: a container that only reads its stdin, or only writes its stdout.

Nothing of the way out is in there, and no agent: this is what a download, and an upload, could reach at most. Speeds
are in MB/s (10^6 bytes).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time

from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.engines.base import SandboxSpec
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.docker.engine import DockerEngine

PIECE = 256 << 10
"""Bytes that are written at a time, as the way out does."""

READS = (
    "import os\nos.write(1, b'.')\nleft = {size}\n"
    "while left:\n    left -= len(os.read(0, 1 << 20))\nos.write(1, b'.')\nos.read(0, 1)"
)
WRITES = (
    "import os\nos.write(1, b'.')\nos.read(0, 1)\nleft = {size}\npiece = memoryview(bytes(65536))\n"
    "while left:\n    left -= os.write(1, piece[:left])\nos.read(0, 1)"
)


def speeds(runtime: str | None, size: int) -> tuple[float, float]:
    """Return how fast `size` bytes go into a container, and come out of one."""
    return asyncio.run(_timed(runtime, READS, size)), asyncio.run(_timed(runtime, WRITES, size))


async def _timed(runtime: str | None, program: str, size: int) -> float:
    spec = SandboxSpec(
        session_id=secrets.token_hex(8),
        image=Settings().image,
        command=("python3", "-I", "-c", program.format(size=size)),
        limits=Limits(),
        uid=300_000_000 + os.getpid() % 10_000_000,
        runtime=runtime,
    )
    container = await DockerEngine().start_body(spec.session_id, container_arguments(spec))
    try:
        await container.receive()
        began = time.perf_counter()
        if program is READS:
            zeros = bytes(PIECE)
            for at in range(0, size, PIECE):
                await container.send(zeros[: size - at])
            await container.receive()
        else:
            await container.send(b".")
            left = size
            while left:
                left -= len(await container.receive(min(left, 1 << 16)))
        return size / (time.perf_counter() - began) / 1e6
    finally:
        await container.kill()
