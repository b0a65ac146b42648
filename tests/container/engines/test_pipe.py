"""The pipe alone, on a socket pair with scripted bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.engines.demultiplexer import Demultiplexer
from sandbox_kernel.engines.pipe import READ_BYTES, Pipe
from tests.support.patience import within


def framed(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50))), st.data())
def test_a_stream_cut_anywhere_gives_the_same_bytes(pieces: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(framed(number, payload) for number, payload in pieces)
    demultiplexer, output, position = Demultiplexer(), b"", 0
    while position < len(stream):
        size = data.draw(st.integers(1, 20))
        output += demultiplexer.feed(memoryview(stream[position : position + size]))
        position += size
    assert output == b"".join(payload for number, payload in pieces if number == 1)
    assert bytes(demultiplexer.stderr) == b"".join(payload for number, payload in pieces if number == 2)[-8192:]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


Ends = tuple[socket.socket, socket.socket]


@pytest.mark.parametrize("minimum", [1, 20])
@pytest.mark.parametrize("cut", range(1, 30))
async def test_the_pipe_can_be_given_away_at_any_byte(ends: Ends, cut: int, minimum: int) -> None:
    ours, theirs = ends
    stream = framed(1, b"first") + framed(2, b"err") + framed(1, b"second")
    first = Pipe(ours, stream=Demultiplexer())
    theirs.sendall(stream[:cut])
    output = b""
    receiving = asyncio.create_task(first.receive(minimum))
    done, _ = await asyncio.wait([receiving], timeout=0.02)
    if done:
        output += receiving.result()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    fd, state = first.detach()
    assert len(str(state)) < 500
    second = Pipe.attach(fd, state, Demultiplexer.of(state))
    theirs.sendall(stream[cut:])
    theirs.shutdown(socket.SHUT_WR)
    while data := await second.receive():
        output += data
    second.close()
    assert output == b"firstsecond"


async def test_pieces_are_gathered_until_there_are_as_many_as_are_known_to_come(ends: Ends) -> None:
    ours, theirs = ends
    pipe = Pipe(ours, stream=Demultiplexer())
    receiving = asyncio.create_task(pipe.receive(40))
    for _ in range(3):
        theirs.sendall(framed(1, b"12345"))
        done, _ = await asyncio.wait([receiving], timeout=0.02)
        assert not done
    theirs.sendall(framed(1, b"67890"))
    assert await receiving == b"12345" * 3 + b"67890"
    theirs.sendall(framed(1, b"short"))
    theirs.shutdown(socket.SHUT_WR)
    assert await pipe.receive(1 << 30) == b"short"
    assert await pipe.receive(1 << 30) == b""
    pipe.close()


async def test_more_than_is_read_at_once_is_not_waited_for(ends: Ends) -> None:
    ours, theirs = ends
    theirs.setblocking(False)
    pipe = Pipe(ours, stream=Demultiplexer())
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(theirs, framed(1, bytes(READ_BYTES))))
    async with within(30):
        assert len(await pipe.receive(1 << 30)) > READ_BYTES // 2
        await sending
    pipe.close()


async def test_bytes_that_came_with_the_head_come_first(ends: Ends) -> None:
    ours, theirs = ends
    theirs.sendall(framed(1, b"b"))
    pipe = Pipe(ours, framed(1, b"a"), Demultiplexer())
    assert await pipe.receive() == b"a"
    assert await pipe.receive() == b"b"
    pipe.close()


async def test_closing_ends_a_receive_and_a_send_that_wait(ends: Ends) -> None:
    ours, theirs = ends
    pipe = Pipe(ours, stream=Demultiplexer())
    receiving, sending = asyncio.create_task(pipe.receive()), asyncio.create_task(pipe.send(bytes(10_000_000)))
    await asyncio.wait([receiving, sending], timeout=0.05)
    assert not receiving.done()
    assert not sending.done()
    pipe.close()
    pipe.close()
    async with within(20):
        assert await receiving == b""
        with pytest.raises(EngineError, match="gone"):
            await sending
    assert await pipe.receive() == b""
    assert theirs.recv(1)


async def test_a_lost_connection_is_the_end_and_not_an_error(ends: Ends) -> None:
    ours, theirs = ends
    pipe = Pipe(ours, stream=Demultiplexer())
    theirs.sendall(framed(1, b"last") + b"\1\0\0")
    theirs.close()
    assert await pipe.receive() == b"last"
    assert await pipe.receive() == b""
    assert await pipe.receive() == b""
    pipe.close()


async def test_nothing_is_read_before_it_is_asked_for(ends: Ends) -> None:
    """A container that floods the host waits; what the host holds stays bounded."""
    ours, theirs = ends
    theirs.setblocking(False)
    pipe = Pipe(ours, stream=Demultiplexer())
    theirs.send(framed(1, b"x"))
    assert await pipe.receive() == b"x"
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < 64 << 20:
            sent += theirs.send(framed(1, bytes(4096)))
            await asyncio.sleep(0)
    assert sent < 4 << 20
    pipe.close()


async def test_an_offer_writes_what_fits_and_never_into_a_send(ends: Ends) -> None:
    ours, theirs = ends
    pipe = Pipe(ours, stream=Demultiplexer())
    assert pipe.offer(b"first ") == 6
    taken = pipe.offer(bytes(10_000_000))
    assert 0 < taken < 10_000_000
    assert pipe.offer(b"x") == 0, "the pipe is full"
    sending = asyncio.create_task(pipe.send(b" last"))
    await asyncio.wait([sending], timeout=0.05)
    assert not sending.done()
    theirs.setblocking(False)
    received = theirs.recv(6 + taken)
    assert pipe.offer(b"x") == 0, "a send is under way"
    async with within(30):
        while len(received) < 6 + taken + 5:
            received += await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
        await sending
    assert received == b"first " + bytes(taken) + b" last"
    pipe.close()
    assert pipe.offer(b"x") == 0


async def test_without_a_stream_of_the_engine_s_bytes_come_as_they_are(ends: Ends) -> None:
    ours, theirs = ends
    first = Pipe(ours)
    theirs.sendall(b"\1\0\0\0\0\0\0\1x")
    assert await first.receive() == b"\1\0\0\0\0\0\0\1x"
    theirs.sendall(b"next")
    second = Pipe.attach(*first.detach())
    assert await second.receive() == b"next"
    second.close()


async def test_what_has_come_is_the_rest_although_the_other_end_stays_open(ends: Ends) -> None:
    ours, theirs = ends
    pipe = Pipe(ours)
    theirs.sendall(b"last")
    pipe.finish()
    assert await pipe.receive() == b"last"
    receiving = asyncio.create_task(pipe.receive())
    async with within(5):
        assert await receiving == b""
    pipe.close()
