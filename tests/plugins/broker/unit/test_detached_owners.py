"""One owner of a kept sandbox after another, on the real pipes, and a sandbox that takes and brings nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import EngineError, QuotaExceeded
from sandbox_kernel.core.model import Limits, SandboxSpec
from sandbox_kernel.core.tasks import Tasks
from sandbox_kernel.engines.abilities import PAUSE
from sandbox_kernel.engines.pipe import OverPipe, Pipe
from sandbox_kernel.plugins.broker import create_request
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.client.listener_trust import Peer
from sandbox_kernel.plugins.broker.daemon import Broker
from sandbox_kernel.plugins.broker.detached_registry import MAX_PASSING
from sandbox_kernel.plugins.broker.detached_sandbox import (
    OF_A_FRAME,
    SLICE,
    DetachedOptions,
    DetachedSandbox,
    Frames,
    cut,
    noted,
)
from tests.support.cases import each
from tests.support.patience import until, within

NAME, IMAGE = "0" * 32, "sandbox-kernel:data"
ME = Peer(1, 1000, 1000)
OPTIONS = DetachedOptions(name=NAME, seconds=60, most_seconds=60, set_by="", metadata={}, settings="{}", prepared={})
WISH = {"name": NAME, "seconds": 60, "metadata": {}, "settings": "{}", "prepared": {}}


class Deaf(OverPipe):
    """A sandbox whose program reads nothing, and writes what the test writes."""

    id = "deaf"

    def __init__(self) -> None:
        ours, self.inside = socket.socketpair()
        self._pipe = Pipe(ours)

    async def kill(self) -> None:
        self._pipe.close()
        self.inside.close()


def asked() -> dict[str, Any]:
    spec = SandboxSpec(session_id=NAME, image=IMAGE, runtime=None, command=(), limits=Limits(), uid=70_000)
    return packets.asked(spec)


@contextlib.asynccontextmanager
async def a_kept(
    broker: Broker | None = None, container: Deaf | None = None, wish: DetachedOptions = OPTIONS
) -> AsyncIterator[tuple[Broker, DetachedSandbox, Deaf]]:
    """A broker with a sandbox, which is killed at the end: once it is gone, so is all that waited for it."""
    broker, container, tasks = broker or Broker(cast("Any", object()), Policy()), container or Deaf(), Tasks()
    kept = DetachedSandbox(cast("Any", container), create_request.read(asked()).spec(), ME.uid, tasks, wish)
    broker.lent[kept.spec.session_id] = kept
    yield broker, kept, container
    await container.kill()
    await until(lambda: not kept.passing)
    kept.over()
    await tasks.close()
    await broker.tasks.close()


async def test_a_start_that_is_refused_leaves_no_name_behind() -> None:
    """Else a user who is over a ceiling for a while would have used up all detached sandboxes."""
    broker = Broker(cast("Any", object()), Policy(everybody=Ceiling(sessions=0, detached=1)))
    said = {
        "protocol": packets.VERSION,
        "spec": asked(),
        "agent": create_request.read(asked()).digest(),
        "kept": WISH,
    }
    for _ in range(2):
        with pytest.raises(QuotaExceeded, match="0 sandboxes at once"):
            await broker.make(said, ME)
    assert broker.keeping.wish(WISH, ME) is not None


def test_a_note_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="too long"):
        noted(b"no JSON" * packets.MAX_NOTE)
    with pytest.raises(ValueError, match="too long"):
        noted(b'{"op": "keep", "session": {"a": "%s"}}' % (b"x" * packets.MAX_SESSION))
    assert noted(b'{"op": "keep", "session": {}}')["session"] == {}  # the control


def told_of(broker: Broker, kept: DetachedSandbox) -> bytes:
    """Return the answer to the next owner, as a packet. Raises `EngineError` if it does not fit into one."""
    answer = {"id": "x" * 200, "session": "x" * 200, "uid": 1 << 31, "held": True}
    return packets.packed({**answer, "pipe": packets.PLAIN, "kept": kept.told(), "n": 1})


@each("letter", ["x", '"', "\n", "\x01", "\x7f", "é", "€", "\U0001f600"])
async def test_whatever_is_noted_fits_into_the_answer_to_the_next_owner(letter: str) -> None:
    """Whether an owner writes a letter as it is or by its number: else nobody could take its sandbox over."""
    broker = Broker(cast("Any", object()), Policy())
    metadata = {str(number): "€" * 30 for number in range(packets.MAX_METADATA)}
    settings = longest(letter, packets.MAX_SETTINGS)
    said = {**WISH, "settings": settings, "metadata": metadata}
    with pytest.raises(EngineError):
        broker.keeping.wish({**said, "settings": settings + letter}, ME)
    wish = broker.keeping.wish(said, ME)
    assert wish is not None
    cell = {"id": "x", "seconds": 1, "numbers": [1e15] * 1000}
    async with a_kept(broker, wish=wish) as (_, kept, _container):
        for plain in (True, False):
            for most in (1000, 2000, packets.MAX_SESSION, packets.MAX_NOTE):
                text = longest(letter, most // 12 * 10)
                for note in ({"session": {"a": text}}, {"cell": {**cell, "a": text}}):
                    data = json.dumps(note, ensure_ascii=plain).encode("utf-8")
                    with contextlib.suppress(ValueError):
                        kept._note(data)  # noqa: SLF001 (as an owner's frame has it)
        assert kept.noted
        assert kept.cell
        assert len(told_of(broker, kept)) <= packets.MAX_BYTES


def longest(letter: str, most: int) -> str:
    """Return the longest text of one letter that takes so many bytes in a packet."""
    return letter * (most // (len(json.dumps(letter)) - 2))


def test_numbers_that_are_longer_when_they_are_written_anew_are_counted_so() -> None:
    numbers = b",".join([b"9e15"] * (packets.MAX_NOTE // 6))
    note = b'{"op": "keep", "cell": {"id": "x", "seconds": 1, "more": [%s]}}' % numbers
    assert len(note) < packets.MAX_NOTE
    with pytest.raises(ValueError, match="too long"):
        noted(note)


def test_half_of_a_pair_is_no_text() -> None:
    """It would be found where the id of a cell is looked for in what the sandbox says, which ended the sandbox."""
    with pytest.raises(ValueError, match="surrogates"):
        noted(b'{"op": "keep", "cell": {"id": "\\ud800", "seconds": 1}}')
    assert noted(b'{"op": "keep", "cell": {"id": "\\ud83d\\ude00", "seconds": 1}}')  # the control


async def test_thousands_of_small_frames_let_others_have_their_turn() -> None:
    chunks = [struct.pack("!IB", 3, wire.AGENT) + b"\0\0"] * (16 * SLICE // 7)
    sent = [b"".join(chunks), b""]
    found, done = 0, False

    async def receive() -> bytes:
        return sent.pop(0)

    async def other() -> int:
        count = 0
        while not done:
            await asyncio.sleep(0)
            count += 1
        return count

    counting = asyncio.ensure_future(other())
    async for _ in cut(Frames(1 << 20, 1 << 16), receive):
        found += 1
    done = True
    assert found == len(chunks)
    assert await counting >= 10


async def test_owners_of_a_sandbox_that_does_not_listen_do_not_pile_up() -> None:
    """Each costs the broker a pipe, so there is an end to them while nothing is taken."""
    async with a_kept() as (broker, kept, container):
        stuck = b"".join(wire.encode(wire.AGENT, [b"x" * (4 << 20)]))
        fds = [kept.open(first=True)]
        with socket.socket(fileno=os.dup(fds[0])) as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(sock, stuck)
        said = {"name": NAME, "take": True}
        fds += [broker.keeping.free(said, ME).open() for _ in range(MAX_PASSING - 1)]
        with pytest.raises(QuotaExceeded, match=str(MAX_PASSING)):
            broker.keeping.free(said, ME)
        await container.kill()
        for fd in fds:
            os.close(fd)


async def test_a_connection_whose_pipe_is_closed_is_none_of_the_next_owner_s() -> None:
    """It ends as the next one comes: its own end later would be taken for that of the next."""
    async with a_kept() as (broker, kept, container):
        cast_out: list[str] = []
        first = kept.open(first=True)
        kept.cast_out = lambda: cast_out.append("first")
        os.close(first)
        await until(lambda: not kept.is_owned)
        assert not cast_out  # it may still want to end its sandbox
        second = broker.keeping.free({"name": NAME, "take": False}, ME).open()
        assert cast_out == ["first"]
        kept.cast_out = lambda: cast_out.append("second")
        kept.lost()  # and whoever says that it leaves has no part in it any more
        third = kept.open()
        assert cast_out == ["first"]
        await container.kill()
        os.close(second)
        os.close(third)


async def next_frames(sock: socket.socket, count: int) -> list[tuple[int, bytes]]:
    decoder, found = wire.Decoder(1 << 20), list[tuple[int, bytes]]()
    sock.setblocking(False)
    async with within(10):
        while len(found) < count:
            data = await asyncio.get_running_loop().sock_recv(sock, 1 << 16)
            found += [(kind, parts[0]) for kind, parts in decoder.feed(data)]
    return found


async def test_connections_and_contexts_of_one_owner_are_none_of_the_next_one_s() -> None:
    """The agent is told to end them behind all that the owner wrote, and until it has, the next one hears of none."""
    async with a_kept() as (_, kept, container):
        loop, inside = asyncio.get_running_loop(), container.inside

        async def say(kind: int, content: bytes) -> None:
            inside.setblocking(False)
            await loop.sock_sendall(inside, b"".join(wire.encode(kind, [content])))

        ended = (wire.AGENT, b'{"op": "orphaned"}')
        with socket.socket(fileno=kept.open(first=True)) as first:
            await say(wire.AGENT, ended[1])  # a hostile one that says so unasked gains nothing
            for kind in (wire.STREAM, wire.NESTED):
                await say(kind, b"of the first")
            assert await next_frames(first, 2) == [(wire.STREAM, b"of the first"), (wire.NESTED, b"of the first")]
            first.sendall(b"".join(wire.encode(wire.STREAM, [b"last word"])))
            kept.lost()
        assert await next_frames(inside, 2) == [(wire.STREAM, b"last word"), ended]
        with socket.socket(fileno=kept.open()) as second:
            unread = kept._paced  # noqa: SLF001 (it is read slowly, however much of it comes)
            for kind in (wire.STREAM, wire.NESTED):
                await say(kind, b"still of the first")
            await until(lambda: kept._paced >= unread + 2 * OF_A_FRAME)  # noqa: SLF001
            await say(*ended)
            await say(wire.STREAM, b"of the second")
            assert await next_frames(second, 1) == [(wire.STREAM, b"of the second")]
            assert not kept.transcript.pieces


class Freezing(Deaf):
    """One that can be paused, which takes until the test says so."""

    abilities = PAUSE
    paused = False

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may = asyncio.Event(), asyncio.Event()

    async def pause(self) -> None:
        self.paused = True  # as Docker does it, also if its caller gives up
        self.begun.set()
        await self.may.wait()

    async def resume(self) -> None:
        self.paused = False


async def test_a_cell_has_the_time_left_that_it_had_at_the_pause() -> None:
    async with a_kept(container=(frozen := Freezing())) as (_, kept, _container):
        frozen.may.set()
        fd = kept.open(first=True)
        kept._note(b'{"op": "keep", "cell": {"id": "x", "seconds": 9}}')  # noqa: SLF001 (as an owner's frame has it)
        await kept.pause()
        kept._cell_began -= 103  # noqa: SLF001 (the test waits for no clock)
        kept._paused_at -= 100  # noqa: SLF001
        assert 3 <= kept.told()["cell"]["elapsed"] < 50
        await kept.resume()
        assert 3 <= kept.told()["cell"]["elapsed"] < 50
        os.close(fd)


@each("taken", [False, True])
async def test_an_owner_that_is_gone_while_it_pauses_leaves_no_sandbox_frozen_unseen(*, taken: bool) -> None:
    """Its connection ends with what it asked for, and the engine freezes the sandbox all the same."""
    async with a_kept(container=(frozen := Freezing())) as (_, kept, _container):
        fds = [kept.open(first=True)]
        pausing = asyncio.ensure_future(kept.pause())
        await frozen.begun.wait()
        pausing.cancel()
        kept.lost()
        if taken:
            fds.append(kept.open())
        frozen.may.set()
        await until(lambda: frozen.paused == kept.paused == (not taken))
        for fd in fds:
            os.close(fd)


async def filled(sock: socket.socket, kind: int) -> memoryview:
    """Write frames until nobody takes more of them; return the rest."""
    rest = memoryview(b"".join(wire.encode(kind, [b"x" * (1 << 20)])) * 16)
    vain = 0
    sock.setblocking(False)
    while rest and vain < 100:
        try:
            rest, vain = rest[sock.send(rest) :], 0
        except BlockingIOError:
            vain += 1
            await asyncio.sleep(0)  # the broker takes what there is, as far as it can get rid of it
    assert rest
    return rest


@pytest.mark.slow
@each("left", [False, True])
async def test_an_owner_that_stands_still_holds_nobody_up(*, left: bool) -> None:
    """It is stopped with both ways full: the sandbox would wait for it, it for the sandbox, and the next for both."""
    fds: list[int] = []
    async with a_kept() as (broker, kept, container):
        fds.append(kept.open(first=True))
        with socket.socket(fileno=os.dup(fds[0])) as sock:
            await filled(sock, wire.SHELL)
        rest = await filled(container.inside, wire.IOPUB)
        if left:
            kept.lost()
        else:
            fds.append(broker.keeping.free({"name": NAME, "take": True}, ME).open())
        async with within(10):
            await asyncio.get_running_loop().sock_sendall(container.inside, rest)
    for fd in fds:
        os.close(fd)
