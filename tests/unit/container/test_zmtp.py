"""The agent's own ZMTP: with ZeroMQ's sockets at the other end, and with peers that lie, end in the midst or never."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.container import kernel_messages, wire, zmtp
from tests.support.cases import each

BOUND = 1 << 20
MIB = 1 << 20
SECONDS = 20
EMPTY = b"\0\0"

spoken = st.lists(st.lists(st.binary(max_size=600), min_size=1, max_size=6), max_size=8)


def bare(parts: list[Any]) -> list[bytes]:
    return [bytes(part) for part in parts]


def stream_of(sent: list[list[bytes]]) -> bytes:
    return b"".join(piece for parts in sent for piece in zmtp.encode(parts))


def head(length: int, flags: int = 0) -> bytes:
    """Return the head of a frame that says it is so long."""
    return bytes((flags | zmtp.LONG,)) + length.to_bytes(8, "big")


class Loop:
    """A loop as the agent's is, around one channel."""

    def __init__(self, address: Path | str, kind: bytes = zmtp.DEALER, most: int = BOUND) -> None:
        self.poller = select.poll()
        self.channel = zmtp.Channel(str(address), kind, b"agent-1", most, self.poller)

    def turn(self, milliseconds: int = 20) -> bool:
        """Do what can be done; return whether there was something."""
        self.channel.connect()
        ready = dict(self.poller.poll(milliseconds)).get(self.channel.file, 0)
        if ready & select.POLLOUT:
            self.channel.flush()
        if ready & ~select.POLLOUT:
            self.channel.receive()
        return bool(ready)

    def until(self, condition: Callable[[], Any]) -> Any:
        for _ in range(SECONDS * 50):
            found = condition()
            if found:
                return found
            self.turn()
        raise AssertionError("it did not come")

    def next(self) -> list[bytes]:
        parts, size = self.until(self.channel.take)
        assert size == sum(map(len, parts))
        return bare(parts)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    one = Loop(tmp_path / "s")
    yield one
    one.channel.close()


@contextlib.contextmanager
def zeromq(address: Path, kind: int) -> Iterator[zmq.Socket[Any]]:
    with zmq.Context() as context, context.socket(kind) as one:
        one.linger = 0
        one.sndhwm = 100_000
        one.rcvtimeo = one.sndtimeo = 1000 * SECONDS
        one.bind(f"ipc://{address}")
        yield one


# --- ZeroMQ at the other end ---


def test_a_router_knows_the_agent_by_its_name_and_both_hear_all_parts(loop: Loop, tmp_path: Path) -> None:
    parts = [b"<IDS|MSG>", b"", b"x" * 255, b"y" * 256, b"z" * (3 * MIB), b"end"]
    with zeromq(tmp_path / "s", zmq.ROUTER) as router:
        loop.channel = zmtp.Channel(loop.channel.address, zmtp.DEALER, b"agent-1", 4 * MIB, loop.poller)
        assert loop.channel.send(parts)
        assert loop.until(lambda: router.poll(0) and router.recv_multipart()) == [b"agent-1", *parts]
        router.send_multipart([b"agent-1", *parts])
        assert loop.next() == parts


@each("kind", [zmq.PUB, zmq.XPUB])
def test_whatever_is_published_is_heard(kind: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    address = tmp_path_factory.mktemp("s") / "s"
    loop = Loop(address, zmtp.SUB)
    with zeromq(address, kind) as publisher:

        def hello() -> Any:
            publisher.send(b"hello")
            return loop.channel.take()

        loop.until(hello)
        assert kind == zmq.PUB or publisher.recv() == b"\x01"
        publisher.send_multipart([b"topic", b"", b"end"])
        assert loop.until(lambda: [heard for heard in [loop.next()] if heard != [b"hello"]]) == [
            [b"topic", b"", b"end"]
        ]
    loop.channel.close()


def test_what_is_said_before_there_is_a_kernel_waits_for_it_and_for_the_next(loop: Loop, tmp_path: Path) -> None:
    assert not loop.channel.connect()
    for number in range(3):
        assert loop.channel.send([b"%d" % number])
    for begin in (0, 3):
        with zeromq(tmp_path / "s", zmq.ROUTER) as router:
            heard = [loop.until(lambda: router.poll(0) and router.recv_multipart())[1] for _ in range(3)]
            assert heard == [b"%d" % number for number in range(begin, begin + 3)]
        loop.until(lambda: loop.channel.file < 0)
        for number in range(3, 6):
            loop.channel.send([b"%d" % number])


def test_a_message_that_was_cut_off_is_sent_again_in_full(loop: Loop, tmp_path: Path) -> None:
    parts = [b"x" * (4 * MIB), b"end"]
    with silent(tmp_path / "s") as listener:
        loop.channel.send(parts)
        loop.turn()
        end = greeted(listener)
        loop.until(lambda: end.recv(1 << 16)[-1:] == b"x")
        end.close()
        loop.until(lambda: loop.channel.file < 0)
    with zeromq(tmp_path / "s", zmq.ROUTER) as router:
        assert loop.until(lambda: router.poll(0) and router.recv_multipart())[1:] == parts


def test_as_many_messages_wait_as_may_and_no_more(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmtp, "MAX_WAITING", 3)
    assert [loop.channel.send([b"x"]) for _ in range(5)] == [True, True, True, False, False]


def test_what_nobody_takes_is_read_ahead_up_to_a_bound_and_the_rest_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmtp, "AHEAD", 100_000)
    loop, count = Loop(tmp_path / "s", zmtp.SUB), 5000
    with zeromq(tmp_path / "s", zmq.XPUB) as publisher:
        loop.until(lambda: publisher.poll(0))
        for number in range(count):
            publisher.send_multipart([b"%d" % number, b"x" * 1000])
        loop.until(lambda: loop.channel.ahead >= zmtp.AHEAD)
        assert not loop.turn(), "it is polled for what it may not read"
        assert loop.channel.ahead < zmtp.AHEAD + 2 * zmtp.READ
        assert [loop.next()[0] for _ in range(count)] == [b"%d" % number for number in range(count)]
        assert loop.channel.ahead == 0
    loop.channel.close()


def test_an_end_that_may_not_be_read_yet_is_not_told_again_and_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmtp, "AHEAD", 1)
    with silent(tmp_path / "s") as listener:
        loop.turn()
        with greeted(listener) as end:
            end.sendall(stream_of([[b"last"]]))
            loop.until(lambda: loop.channel.ahead)
        assert not loop.turn()
        assert loop.next() == [b"last"]
        assert loop.turn()
        assert loop.channel.file < 0


# --- what comes, cut anywhere ---


@given(spoken, st.lists(st.integers(min_value=0, max_value=5000)))
def test_messages_come_out_as_they_went_in_wherever_they_are_cut(sent: list[list[bytes]], cuts: list[int]) -> None:
    stream, decoder = stream_of(sent), zmtp.ZmtpDecoder(BOUND)
    received: list[tuple[list[Any], int]] = []
    for start, end in pairwise([0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]):
        received += decoder.feed(stream[start:end])
    assert [bare(parts) for parts, _ in received] == sent
    assert [size for _, size in received] == [sum(map(len, parts)) for parts in sent]


@given(spoken, st.integers(min_value=1, max_value=700), st.integers(min_value=0, max_value=2000))
def test_what_is_too_large_is_counted_and_what_comes_after_it_is_whole(
    sent: list[list[bytes]], step: int, most: int
) -> None:
    stream, decoder = stream_of(sent), zmtp.ZmtpDecoder(most)
    received: list[tuple[list[Any], int]] = []
    for start in range(0, len(stream), step):
        received += decoder.feed(stream[start : start + step])
    assert [size for _, size in received] == [sum(map(len, parts)) for parts in sent]
    for (parts, size), said in zip(received, sent, strict=True):
        assert bare(parts) == said[: len(parts)]
        assert (parts == said) == (size <= most)


@pytest.mark.parametrize("size", [zmtp.READ - 1, zmtp.READ, zmtp.AT_FIRST, zmtp.AT_FIRST + 1, 5 * MIB])
def test_a_large_part_is_read_in_place(size: int) -> None:
    mine, theirs = socket.socketpair()
    sent = [[b"before", os.urandom(size), b"after"], [os.urandom(size)], [b"", b"last"]]
    stream, decoder = memoryview(stream_of(sent)), zmtp.ZmtpDecoder(12 * MIB)
    received: list[tuple[list[Any], int]] = []
    with mine, theirs:
        for one in (mine, theirs):
            one.setblocking(False)
        while len(received) < len(sent):
            with contextlib.suppress(BlockingIOError):
                stream = stream[theirs.send(stream[: 1 << 17]) :]
            with contextlib.suppress(BlockingIOError):
                received += decoder.receive(mine.fileno())
    assert [bare(parts) for parts, _ in received] == sent


@given(st.binary(max_size=2000), st.integers(min_value=1, max_value=2000))
def test_any_bytes_are_messages_or_an_error_and_the_cut_does_not_matter(data: bytes, step: int) -> None:
    def outcome(step: int) -> tuple[list[Any], bool]:
        decoder, found = zmtp.ZmtpDecoder(300), []
        try:
            for start in range(0, len(data), step):
                if decoder._frame is not None:  # noqa: SLF001 (it would be read in place, which is tested above)
                    break
                found += decoder.feed(data[start : start + step])
        except zmtp.Broken:
            return found, True
        return found, False

    assert outcome(step)[1] == outcome(1)[1]
    assert outcome(1)[0][: len(outcome(step)[0])] == outcome(step)[0]


# --- peers that lie ---


@contextlib.contextmanager
def silent(address: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        listener.settimeout(SECONDS)
        yield listener
    address.unlink()


def ready(kind: bytes = b"ROUTER") -> bytes:
    body = zmtp.READY + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    return bytes((zmtp.COMMAND, len(body))) + body


def greeted(listener: socket.socket) -> socket.socket:
    """Return the other end of a connection, which has said by then what comes first."""
    end, _ = listener.accept()
    end.settimeout(SECONDS)
    end.sendall(zmtp.GREETING + ready())
    return end


NOISE = bytes(range(255, -1, -1)) * 20
BROKEN = {
    "noise": NOISE,
    "another protocol": b"HTTP/1.1 200 OK\r\n\r\n" * 10,
    "an older protocol": zmtp.GREETING[:10] + b"\x01\0" + zmtp.GREETING[12:],
    "encryption": zmtp.GREETING.replace(b"NULL\0", b"CURVE"),
    "a message for a greeting": zmtp.GREETING + stream_of([[b"x"]]),
    "another command": zmtp.GREETING + b"\x04\x06\x05ERROR",
    "a command without end": zmtp.GREETING + head(1 << 62, zmtp.COMMAND),
    "a long command": zmtp.GREETING + head(5000, zmtp.COMMAND) + bytes(5000),
    "an impossible frame": zmtp.GREETING + ready() + head(1 << 63),
    "flags that nobody knows": zmtp.GREETING + ready() + b"\x08\x01x",
    "a command with more to come": zmtp.GREETING + ready() + b"\x05\x01x",
    "a long command later": zmtp.GREETING + ready() + head(5000, zmtp.COMMAND) + bytes(5000),
    "an end in the greeting": zmtp.GREETING[:30],
    "an end in the handshake": zmtp.GREETING + ready()[:9],
    "an end in a frame": zmtp.GREETING + ready() + b"\x00\x20half",
    "an end in a large frame": zmtp.GREETING + ready() + head(1 << 20) + b"half",
}


@each("what", BROKEN)
def test_a_peer_that_breaks_the_rules_loses_its_connection_and_the_next_is_heard(
    what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    address = tmp_path_factory.mktemp("s") / "s"
    loop = Loop(address)
    with silent(address) as listener:
        loop.turn()
        with contextlib.suppress(OSError), listener.accept()[0] as end:
            end.sendall(BROKEN[what])
            if what.startswith("an end"):
                end.shutdown(socket.SHUT_WR)
            loop.until(lambda: loop.channel.file < 0)
        assert loop.channel.take() is None
        loop.turn()
        with greeted(listener) as end:
            end.sendall(stream_of([[b"honest"]]))
            assert loop.next() == [b"honest"]
    loop.channel.close()


ENDLESS = {
    "greeting": (b"", zmtp.GREETING[:63], MIB),
    "handshake": (zmtp.GREETING, head(4096, zmtp.COMMAND) + bytes(4000), MIB),
    "parts": (zmtp.GREETING + ready(), b"\x01\x05parts" * 50_000, MIB),
    "large parts": (zmtp.GREETING + ready(), (b"\x03" + (50_000).to_bytes(8, "big") + bytes(50_000)) * 200, 3 * BOUND),
    "frame": (zmtp.GREETING + ready() + head(1 << 40), bytes(10 * MIB), MIB),
    "commands": (zmtp.GREETING + ready(), b"\x04\x05\x04PING" * 50_000, MIB),
    "messages": (zmtp.GREETING + ready(), EMPTY * 100_000, 8 * MIB),
}
"""What is said first, what it goes on with, and how many bytes that may cost."""


@pytest.mark.slow
@each("what", ENDLESS)
def test_what_never_ends_is_not_kept(what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    address = tmp_path_factory.mktemp("s") / "s"
    loop = Loop(address)
    first, piece, bound = ENDLESS[what]
    with silent(address) as listener:
        loop.turn()
        with listener.accept()[0] as end:
            end.setblocking(False)
            end.sendall(first)
            tracemalloc.start()
            try:
                view = memoryview(piece)
                while view:
                    with contextlib.suppress(BlockingIOError):
                        view = view[end.send(view) :]
                    loop.turn(0)
                    while loop.channel.take():
                        pass
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert loop.channel.file >= 0, "it is no reason to end the connection"
        assert most < bound, most
    loop.channel.close()


def test_control_what_may_be_kept_costs_that_much(loop: Loop, tmp_path: Path) -> None:
    with silent(tmp_path / "s") as listener:
        loop.channel = zmtp.Channel(loop.channel.address, zmtp.DEALER, b"", 100 * MIB, loop.poller)
        loop.turn()
        with greeted(listener) as end:
            end.setblocking(False)
            tracemalloc.start()
            try:
                view = memoryview(stream_of([[bytes(10 * MIB)]]))
                while view:
                    with contextlib.suppress(BlockingIOError):
                        view = view[end.send(view) :]
                    loop.turn(0)
                parts, size = loop.until(loop.channel.take)
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert (len(parts[0]), size) == (10 * MIB, 10 * MIB)
    assert most > 10 * MIB


def test_messages_that_nobody_takes_have_a_bound_however_small_they_are(loop: Loop, tmp_path: Path) -> None:
    with silent(tmp_path / "s") as listener:
        loop.turn()
        with greeted(listener) as end:
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while end.send(EMPTY * 10_000):
                    loop.turn(0)
        assert not loop.turn()
        count = 0
        while loop.channel.take():
            count += 1
        assert count < zmtp.AHEAD // zmtp.FOR_A_PART


def test_a_message_of_which_parts_are_missing_is_not_taken_for_another() -> None:
    """Of too many parts, some are not kept. Where the message begins, enough are left for the host to refuse it."""
    many = [kernel_messages.DELIMITER, b"", *[b"x"] * 6000]
    for before, whole in ((0, True), (kernel_messages.NAMES - 1, True), (kernel_messages.NAMES, False), (4999, False)):
        ((parts, _),) = zmtp.ZmtpDecoder(BOUND).feed(stream_of([[b"id"] * before + many]))
        found = kernel_messages.whole(parts)
        assert (found is not None) == whole
        assert found is None or len(found) > wire.MAX_PARTS
