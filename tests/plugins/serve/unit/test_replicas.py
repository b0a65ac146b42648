"""Peers that are hostile, broken or not there cost a bounded time and memory."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Message, Scope
from starlette.websockets import WebSocket

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve import replicas
from sandbox_kernel.plugins.serve.replicas import Locus, Questions, Replicas, asking, parsed
from tests.support.loopback import listening
from tests.support.patience import within

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ID = "0123456789abcdef"
HAS = f"HTTP/1.1 204 No Content\r\nx-sandbox-kernel-replica: {ID}\r\n\r\n".encode()
HAS_NOT = f"HTTP/1.1 404 Not Found\r\nx-sandbox-kernel-replica: {ID}\r\ncontent-length: 0\r\n\r\n".encode()


def scope(path: str = "/sandboxes/s", *headers: tuple[bytes, bytes]) -> Scope:
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), *headers],
    }


@asynccontextmanager
async def peer(*answers: bytes, endless: bytes = b"", silent: bool = False) -> AsyncIterator[int]:
    """Give the port of a peer that says one thing after another, to one connection each, and the last to all others."""
    said = list(answers)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said.pop(0) if len(said) > 1 else b"".join(said))
        while endless:
            writer.write(endless)
            await writer.drain()
        await writer.drain()
        if silent:
            await reader.read()

    async with listening(speak) as port:
        yield port


def to(*ports: int) -> Replicas:
    return Replicas([("127.0.0.1", port) for port in ports])


NOWHERE = Locus(is_here=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "endless"),
    [
        (b"garbage\r\n\r\n", b""),
        (b"", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\nx-sandbox-kernel-replica: ../x\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 65536),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["garbage", "nothing", "no-name", "a-name-that-is-none", "an-endless-head", "no-end-of-continue"],
)
async def test_a_peer_that_speaks_no_answer_is_left_out(answer: bytes, endless: bytes) -> None:
    async with within(20), peer(answer, endless=endless) as bad, peer(HAS) as good:
        assert await to(bad).other(scope(), NOWHERE) is None
        assert await to(bad, good).other(scope(), NOWHERE) is not None


async def test_a_peer_that_is_silent_is_left_out_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "ASK_SECONDS", 0.2)
    async with within(20), peer(b"", silent=True) as bad:
        assert await to(bad).other(scope(), NOWHERE) is None


async def test_a_name_that_leads_nowhere_is_no_peer() -> None:
    async with within(20):
        assert await Replicas([("name.invalid", 80)]).other(scope(), NOWHERE) is None


async def answered(app: Any, asked: Scope, *, body: bytes = b"") -> list[Message]:
    """Return what an application sends for a request whose client stays."""
    sent: list[Message] = []
    stays = asyncio.Event()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await stays.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(asked, receive, send)
    return sent


async def test_a_peer_that_dies_before_it_answers_is_a_sandbox_that_is_not_there() -> None:
    async with within(20), peer(HAS, b"") as port:
        other = await to(port).other(scope(), NOWHERE)
        sent = await answered(other, scope())
    assert sent[0]["status"] == 502


async def test_an_answer_that_is_cut_has_no_end() -> None:
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: keep-alive\r\n\r\nfull"
    for said, ends in ((cut, False), (whole, True)):
        async with within(20), peer(HAS, said) as port:
            other = await to(port).other(scope(), NOWHERE)
            sent = await answered(other, scope())
        assert sent[0]["status"] == 200
        assert all(name != b"connection" for name, _ in sent[0]["headers"])
        assert (not sent[-1].get("more_body", False)) == ends


async def test_an_endless_answer_ends_with_its_client() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    came = asyncio.Event()

    async def receive() -> Message:
        if not came.is_set():
            await came.wait()
        return {"type": "http.disconnect"}

    pieces: list[int] = []

    async def send(message: Message) -> None:
        pieces.append(len(message.get("body", b"")))
        if sum(pieces) > 1 << 20:
            came.set()
        await asyncio.sleep(0)

    async with within(20), peer(HAS, endless=b"") as _, _endless(head) as port:
        other = await to(port).other(scope(), NOWHERE)
        assert other is not None
        await other(scope(), receive, send)
    assert max(pieces) <= replicas.PIECE_BYTES


@asynccontextmanager
async def _endless(head: bytes) -> AsyncIterator[int]:
    """Give a peer that has the sandbox, and whose answer has no end."""
    asked = 0

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        if asked == 1:
            writer.write(HAS)
            return
        writer.write(head)
        while True:
            writer.write(b"1000\r\n" + b"z" * 0x1000 + b"\r\n")
            await writer.drain()

    async with listening(speak) as port:
        yield port


@pytest.mark.parametrize(
    "content",
    [b"nothing", b'{"a": 1}', b"[1, 2]", b'[{"other": 1}]', b"[" * 100_000, b" " * (replicas.LIST_BYTES + 1)],
    ids=["no-json", "no-list", "no-objects", "no-names", "brackets", "too-large"],
)
async def test_a_list_that_is_none_is_empty(content: bytes) -> None:
    said = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
    good = b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n[{"id": "x"}]'.replace(b"12", b"13")
    async with within(20), peer(said) as bad, peer(good) as port:
        found = await to(bad, port).united(HTTPConnection(scope("/v2/sandboxes")), [{"id": "own"}], "id")
    assert sorted(row["id"] for row in found) == ["own", "x"]


@pytest.mark.parametrize(
    ("path", "query", "sent"),
    [
        ("/jupyter/api/kernels", b"token=mine", [b"mine"]),
        ("/v2/sandboxes", b"token=mine", []),
        ("/v2/sandboxes", b"token=%E2%82%AC", []),
        ("/jupyter/api/kernels", b"", []),
    ],
)
async def test_only_what_was_taken_for_a_token_is_passed_on_as_one(path: str, query: bytes, sent: list[bytes]) -> None:
    heads: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HAS_NOT.replace(b"content-length", b"x-sandbox-kernel-sandboxes: 2\r\ncontent-length"))
        await writer.drain()

    async with listening(speak) as port:
        with asking(HTTPConnection({**scope(path), "query_string": query}), "mine"):
            assert await to(port).sandboxes() == 2
    assert re.findall(rb"x-api-key: (.*)\r\n", heads[0].lower()) == sent


async def test_a_name_is_made_at_one_replica_whichever_is_asked() -> None:
    """Each of two replicas knows both ids, and takes the same one."""
    owners = set()
    async with within(20), peer(HAS_NOT) as port:
        own = to(port)
        for name in "abcdefgh":
            own.id = "f" * 16
            owners.add(await own.other(scope(), Locus(is_here=False, name=name)) is None)
    assert owners == {True, False}


def test_what_is_no_peer_is_refused() -> None:
    assert parsed(["replicas", "10.0.0.1:9", "[::1]:9"], 8) == [("replicas", 8), ("10.0.0.1", 9), ("::1", 9)]
    for wrong in ("", "http://a", "a:0", "a:99999", "a b"):
        with pytest.raises(ConfigurationError):
            parsed([wrong], 8)


async def test_a_list_is_asked_for_without_the_body_of_the_request() -> None:
    said = b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n[{"id": "x"}]'
    for headers in ((), ((b"content-length", b"2"),)):
        async with within(20), peer(said) as port:
            found = await to(port).united(HTTPConnection(scope("/v2/sandboxes", *headers)), [], "id")
        assert found == [{"id": "x"}]


@pytest.mark.parametrize("status", [307, 403])
async def test_a_refusal_of_a_websocket_is_passed_on_and_not_followed(status: int) -> None:
    refusal = b"HTTP/1.1 %d x\r\nlocation: ws://elsewhere.invalid/\r\ncontent-length: 0\r\n\r\n" % status
    asked = {**scope(), "type": "websocket", "subprotocols": [], "extensions": {"websocket.http.response": {}}}
    async with within(20), peer(HAS, refusal) as port:
        other = await to(port).other(asked, NOWHERE)
        sent = await answered(other, asked)
    assert sent[0]["status"] == status


async def refuses(socket: WebSocket) -> None:
    await socket.send_denial_response(Response("no", 401))


async def accepts(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("welcome")


@pytest.mark.parametrize(("path", "status"), [("nothing", 404), ("refuses", 401), ("accepts", 404)])
async def test_a_question_about_a_websocket_has_one_answer_of_http(path: str, status: int) -> None:
    app = Questions(Starlette(routes=[WebSocketRoute("/refuses", refuses), WebSocketRoute("/accepts", accepts)]))
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        said.append(message)

    await app(scope(f"/replica/websocket/{path}"), receive, send)
    assert [message["type"] for message in said] == ["http.response.start", "http.response.body"]
    assert said[0]["status"] == status


MINE = (b"x-mine", b"1")


@asynccontextmanager
async def peer_of_one() -> AsyncIterator[tuple[int, asyncio.Queue[None]]]:
    """Give the port of a peer that answers whoever says that a sandbox is theirs, and no other; and who has come."""
    came: asyncio.Queue[None] = asyncio.Queue()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.put_nowait(None)
        if b"x-mine" in await reader.readuntil(b"\r\n\r\n"):
            writer.write(HAS)
            await writer.drain()
        await reader.read()

    async with listening(speak) as port:
        yield port, came


async def test_strangers_hold_up_strangers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: of one more stranger the peer never hears."""
    monkeypatch.setattr(replicas, "MAX_ASKS", 2)
    monkeypatch.setattr(replicas, "ASK_SECONDS", 60.0)
    async with peer_of_one() as (port, came):
        one, nowhere = to(port), Locus(is_here=False)
        strangers = [asyncio.create_task(one.other(scope(), nowhere, proven=False)) for _ in range(10)]
        try:
            async with within(10):
                for _ in range(2):
                    await came.get()
                assert await one.other(scope("/sandboxes/s", MINE), nowhere) is not None
                await came.get()
            more = asyncio.create_task(one.other(scope("/sandboxes/s", MINE), nowhere, proven=False))
            strangers.append(more)
            await asyncio.wait({more}, timeout=0.1)
            assert not more.done()
            assert came.empty()
        finally:
            for stranger in strangers:
                stranger.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)


async def test_the_wait_for_a_turn_is_within_the_time_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "MAX_ASKS", 1)
    monkeypatch.setattr(replicas, "ASK_SECONDS", 0.2)
    async with peer_of_one() as (port, came), within(10):
        one = to(port)
        found = await asyncio.gather(*(one.other(scope(), Locus(is_here=False)) for _ in range(10)))
        assert found == [None] * 10
        assert came.qsize() <= 3, "one after another, each would have had its time"


async def test_a_websocket_to_a_peer_that_hangs_ends_with_its_client_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "END_SECONDS", 0.1)
    ended = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        [key] = [line.split()[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:")]
        proof = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())  # noqa: S324
        writer.write(b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ")
        writer.write(proof + b"\r\n\r\n")
        with suppress(OSError):
            while await reader.read(1 << 16):
                pass
        ended.set()

    said: list[Message] = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]

    async def receive() -> Message:
        return said.pop(0)

    async def send(message: Message) -> None:
        """Take what is sent."""

    async with listening(speak) as port, within(5):
        found = replicas.ReplicaPeer("127.0.0.1", port, "127.0.0.1")
        asked = {**scope("/x"), "type": "websocket", "subprotocols": [], "scheme": "ws"}
        await replicas._Forward(Replicas([]), found, widen=True)(asked, receive, send)  # noqa: SLF001
        await ended.wait()
