"""Many sandboxes read one dataset at once, and a file that shrinks ends the reader that has mapped it, and no other."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from sandbox_kernel.core.model import MIB
from sandbox_kernel.engines.base import Container
from tests.support.datasets import a_folder, dataset
from tests.support.engines import Bubblewrap, alive, receive_line

WALL = Bubblewrap("bubblewrap")
HASHES = """
import hashlib, sys
print(hashlib.sha256(open("/mnt/datasets/sales/big", "rb").read()).hexdigest(), flush=True)
sys.stdin.readline()
"""
MAPS = """
import mmap, sys
with open("/mnt/datasets/sales/big", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print(mapped[-1], flush=True)
sys.stdin.readline()
print(mapped[-1], flush=True)
"""


@pytest.fixture(autouse=True)
def _there() -> None:
    if why := WALL.absent():
        pytest.skip(why)


async def _read(folder: Path, many: int) -> set[str]:
    engine = WALL.make()
    running: list[Container] = []
    try:
        for _ in range(many):
            container = await engine.start(WALL.spec(HASHES, attached=dataset(folder)))
            running += [container]
        return {(await receive_line(one)).decode().strip() for one in running}
    finally:
        await asyncio.gather(*(one.kill() for one in running))


@pytest.mark.parametrize("many", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_many_sandboxes_read_one_dataset_at_once(many: int) -> None:
    with a_folder() as folder:
        data = os.urandom(MIB) * 4
        (folder / "big").write_bytes(data)
        assert await _read(folder, many) == {hashlib.sha256(data).hexdigest()}


async def test_a_file_that_shrinks_ends_the_one_who_has_mapped_it() -> None:
    """By SIGBUS, as on any machine; another sandbox reads what is left."""
    with a_folder() as folder:
        (folder / "big").write_bytes(b"x" * MIB)
        async with alive(WALL.make().start(WALL.spec(MAPS, attached=dataset(folder)))) as container:
            assert json.loads(await receive_line(container)) == ord("x")
            os.truncate(folder / "big", 0)
            await container.send(b"\n")
            reason = await container.wait()
            assert (reason.kind, reason.exit_code) == ("exited", 128 + signal.SIGBUS)
        assert await _read(folder, 1) == {hashlib.sha256(b"").hexdigest()}
