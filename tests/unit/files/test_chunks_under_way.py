"""Several chunks of a file under way at a time: in their order, bounded, and nothing is left of what fails."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import file_requests
from sandbox_kernel.core.codes import FileCode
from sandbox_kernel.core.errors import FileRefused, SandboxDied
from sandbox_kernel.files import scratch_files
from sandbox_kernel.files.file_rules import CHUNK_BYTES
from sandbox_kernel.files.scratch_files import AHEAD, in_turn
from tests.support.files_agent import Answer, Liar, read, real
from tests.support.patience import cancelled, within

MIB = 1 << 20
CONTENT = os.urandom(9 * MIB + 5)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "scratch"
    root.mkdir()
    monkeypatch.setattr(file_requests, "ROOT", str(root))
    return root


async def pieces(content: bytes = CONTENT, size: int = CHUNK_BYTES) -> AsyncIterator[bytes]:
    for offset in range(0, len(content), size):
        yield content[offset : offset + size]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class Slow:
    """The real agent, which answers when it is let; notes how many questions wait, and which."""

    def __init__(self) -> None:
        self.waiting = self.most = 0
        self.turn = asyncio.Semaphore(0)
        self.asked: list[str] = []

    async def __call__(self, op: str, data: bytes = b"", **fields: Any) -> Answer:
        self.asked.append(op)
        answer = await real(op, data, **fields)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            if op != "file.discard":
                await self.turn.acquire()
            return answer
        finally:
            self.waiting -= 1

    async def until(self, count: int) -> None:
        while self.waiting < count:  # noqa: ASYNC110 (turns of the loop are what passes)
            await asyncio.sleep(0)


async def test_a_write_and_a_read_have_so_many_chunks_under_way_and_no_more(scratch: Path) -> None:
    slow = Slow()
    async with within(30):
        writing = asyncio.create_task(scratch_files.send(slow, "a", pieces(), len(CONTENT)))
        await slow.until(AHEAD)
        for _ in range(10):
            slow.turn.release()
        await writing
        assert (slow.most, (scratch / "a").read_bytes() == CONTENT) == (AHEAD, True)
        slow.most = 0
        reading = asyncio.create_task(read(slow, "a", 1 << 30))
        await slow.until(1)
        slow.turn.release()
        await slow.until(AHEAD)
        for _ in range(9):
            slow.turn.release()
        assert (await reading == CONTENT, slow.most) == (True, AHEAD)


async def test_a_cancelled_write_leaves_no_part_of_a_file(scratch: Path) -> None:
    slow = Slow()
    async with within(30):
        writing = asyncio.create_task(scratch_files.send(slow, "a", pieces(), None))
        await slow.until(AHEAD)
        assert len(names(scratch)) == 1
        await cancelled(writing)
    assert slow.waiting == 0
    assert names(scratch) == []


async def test_a_reader_that_stops_leaves_no_question_behind(scratch: Path) -> None:
    (scratch / "a").write_bytes(CONTENT)
    slow = Slow()
    async with within(30):
        stream = scratch_files.stream(slow, "a", 1 << 30)
        slow.turn.release()
        slow.turn.release()
        assert await anext(stream) == CONTENT[:MIB]
        assert await anext(stream) == CONTENT[MIB : 2 * MIB]
        assert slow.waiting > 0
        await stream.aclose()
    assert slow.waiting == 0


@pytest.mark.parametrize("at", [0, 1, 5, 9])
async def test_a_chunk_that_finds_no_room_ends_the_write_with_its_reason(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    actual = os.pwrite

    def full(handle: int, data: bytes, offset: int) -> int:
        if offset >= at * MIB:
            raise OSError(28, "No space left on device")
        return actual(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FileRefused) as caught:
        await scratch_files.send(real, "a", pieces(), None)
    assert caught.value.code is FileCode.SCRATCH_FULL
    assert names(scratch) == []


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_a_sender_that_stops_half_way_leaves_no_part_of_a_file(scratch: Path, count: int) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(CONTENT[: count * MIB]):
            yield piece
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await scratch_files.send(real, "a", broken(), len(CONTENT))
    assert names(scratch) == []


@pytest.mark.parametrize("change", ["grows", "shrinks", "other"])
async def test_a_file_that_changes_while_it_is_read_is_refused(scratch: Path, change: str) -> None:
    path = scratch / "a"
    path.write_bytes(CONTENT)
    stream = scratch_files.stream(real, "a", 1 << 30)
    assert await anext(stream) == CONTENT[:MIB]
    with path.open("r+b") as file:
        if change == "grows":
            file.seek(0, 2)
            file.write(b"more")
        elif change == "shrinks":
            file.truncate(3 * MIB)
        else:
            file.write(b"other")
            os.utime(path, ns=(1, 1))
    with pytest.raises(FileRefused) as caught:
        async for _ in stream:
            pass
    assert caught.value.code is FileCode.CHANGED


async def test_a_sandbox_that_dies_ends_a_read_and_a_write(scratch: Path) -> None:
    (scratch / "a").write_bytes(CONTENT)

    def dead(offset: int, **fields: Any) -> Answer:
        if offset >= 3 * MIB:
            raise SandboxDied(FileCode.NOT_DONE)
        data = CONTENT[offset : offset + MIB]
        stamp = [len(CONTENT), 1, 1, 1]
        return {"ok": True, "stamp": stamp}, data if "size" in fields else b""

    with pytest.raises(SandboxDied):
        await read(Liar(read=dead), "a", 1 << 30)
    with pytest.raises(SandboxDied):
        await scratch_files.send(Liar(write=lambda data, **fields: dead(**fields)), "b", pieces(), None)


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("ok", [True, False])
async def test_answers_that_are_far_too_large_are_not_held_while_others_are_awaited(kind: type, ok: bool) -> None:
    """The first of them is late, so that the errors of the others wait for their turn."""
    size, held = 40 * MIB, asyncio.Event()
    stamp = [CHUNK_BYTES * 9, 1, 1, 1]
    answered = 0

    async def liar(op: str, offset: int = 0, **fields: Any) -> Any:
        nonlocal answered
        if offset == 0:
            return {"ok": True, "stamp": stamp}, bytes(CHUNK_BYTES)
        if offset == CHUNK_BYTES:
            await held.wait()
            return {"ok": False}, b""
        answered += 1
        return {"ok": ok, "stamp": stamp}, kind(size)

    async with within(30):
        tracemalloc.start()
        try:
            reading = asyncio.create_task(read(liar, "a", 1 << 30))
            while answered < AHEAD - 1:  # noqa: ASYNC110 (turns of the loop are what passes)
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            now = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        held.set()
        with pytest.raises(FileRefused):
            await reading
    assert now < size


async def test_results_come_in_their_order_and_the_first_failure_ends_the_rest() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def one(number: int) -> int:
        begun.append(number)
        try:
            for _ in range(20 - number):
                await asyncio.sleep(0)
            if number == 7:
                raise ValueError("the seventh")
            return number
        finally:
            ended.append(number)

    async def work() -> AsyncIterator[Coroutine[Any, Any, int]]:
        for number in range(20):
            yield one(number)

    found = []

    async def collect() -> None:
        async for number in in_turn(work()):
            found.append(number)  # noqa: PERF401 (it is not complete)

    with pytest.raises(ValueError, match="the seventh"):
        await collect()
    assert found == list(range(7))
    assert sorted(ended) == sorted(begun)
    assert max(begun) < 7 + AHEAD
