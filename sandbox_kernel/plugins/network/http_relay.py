"""HTTP requests of one connection, one after another: each is decided by itself, parsed and written again.

Neither side's bytes reach the other: h11 reads them, and h11 writes what was read. So both ends of what goes out mean
the same by it. Works on any `Duplex`, plain or within TLS, and knows neither sockets nor names of the network's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

import h11

from ..api import StreamReset
from . import request_head
from .buffered_connection import HEAD_BYTES, Buffered
from .codes import NetworkCode
from .error_responses import refusal
from .interfaces import Duplex, Exchange, ExchangeFactory, RequestHead, ResponseHead
from .policy import NetworkPolicy, RefusedConnection, Target
from .request_head import CellRequestHead

PIECE = 64 << 10
"""Bytes of a body that are parsed at a time."""
MAX_INTERIM = 16
"""Answers before the answer (1xx) that are read and dropped."""
MAX_ANSWER_HEADERS = 256
IN_A_ROW = 64
"""Pieces that are parsed before other tasks have their turn: a body in chunks of one byte waits for nothing else."""


class BrokenError(Exception):
    """The host's connection broke or ended before an answer began."""


class Upstream:
    """A connection to a host, kept for the next request to it."""

    def __init__(self, duplex: Duplex, target: Target) -> None:
        self.duplex = duplex
        self.target = target
        self.used = False
        self._reading: asyncio.Task[bytes | None] | None = None

    def rest(self) -> None:
        """Listen while nothing is asked: what comes then is an end, or nothing that anybody asked for."""
        reading = asyncio.get_running_loop().create_task(_received(self.duplex))
        self._reading = reading
        self.used = True

    @property
    def stale(self) -> bool:
        return self._reading is not None and self._reading.done()

    async def receive(self) -> bytes | None:
        """Return what comes next; nothing at the end, None if the connection broke."""
        reading, self._reading = self._reading, None
        return await (_received(self.duplex) if reading is None else reading)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self.duplex.reset("closed")


async def _received(duplex: Duplex) -> bytes | None:
    try:
        return await duplex.receive()
    except (OSError, StreamReset):
        return None


class CellSide:
    def __init__(self, client: Buffered) -> None:
        self.parser = request_head.server()
        self.answered = False
        """Whether a byte of an answer is on its way."""
        self._client = client
        self._pieces = 0

    async def go_on(self) -> None:
        """Tell a client that waits for it to send the body."""
        if self.parser.they_are_waiting_for_100_continue:
            await self._client.send(self.parser.send(h11.InformationalResponse(status_code=100, headers=[])))

    async def piece(self) -> bytes | None:
        """Return the next piece of the request's body; None at its end. Raises Refused if it is not framed so."""
        self._pieces += 1
        if self._pieces % IN_A_ROW == 0:
            await asyncio.sleep(0)
        while True:
            try:
                event = self.parser.next_event()
            except h11.RemoteProtocolError:
                raise RefusedConnection(NetworkCode.BODY_IMPROPER.note()) from None
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                return None
            data = await self._client.receive()
            self._client.take_back(data[PIECE:])
            self.parser.receive_data(data[:PIECE])

    async def answer(self, head: ResponseHead, length: int | None) -> None:
        headers = list(head.headers)
        if length is not None:
            headers.append((b"Content-Length", b"%d" % length))
        data = self.parser.send(h11.Response(status_code=head.status, headers=headers, reason=head.reason))
        self.answered = True
        await self._client.send(data)

    async def send(self, data: bytes) -> None:
        parts = self.parser.send_with_data_passthrough(h11.Data(data=data)) or ()
        for part in parts if len(parts) == 1 else (b"".join(parts),):  # a chunk's length and end are no pieces
            await self._client.send(part)

    async def end(self, rest: bytes) -> None:
        data = self.parser.send(h11.Data(data=rest)) if rest else b""
        data += self.parser.send(h11.EndOfMessage())
        if data:
            await self._client.send(data)

    def over(self) -> bool:
        """Return whether another request may follow, which is then the next to be received."""
        if (self.parser.our_state, self.parser.their_state) != (h11.DONE, h11.DONE):
            return False
        self._client.take_back(self.parser.trailing_data[0])
        return True


class HostSide:
    def __init__(self, upstream: Upstream, head: RequestHead) -> None:
        self._upstream = upstream
        self._head = head
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._events = 0
        self._counted: int | None = None
        """Bytes to come of a body that says its length, which is then read here: a parser would copy it four times."""
        self._unasked = b""
        """What came behind it."""
        self._keeps = False
        """Whether the host keeps the connection behind such a body."""

    async def ask(self, length: int | None) -> None:
        """Send the head of the request; and that is all of it if `length` is 0."""
        head = self._head
        # The port is left out where the scheme says it.
        usual = {"http": 80, "https": 443}[head.scheme]
        host = f"[{head.host}]" if ":" in head.host else head.host
        headers = [(b"Host", (host if head.port == usual else f"{host}:{head.port}").encode()), *head.headers]
        if length is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        elif length or head.method not in {"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"}:
            headers.append((b"Content-Length", b"%d" % length))
        data = self._parser.send(h11.Request(method=head.method.encode(), target=head.path, headers=headers))
        if length == 0:
            data += self._parser.send(h11.EndOfMessage())
        await self._upstream.duplex.send(data)

    async def upload(self, cell: CellSide) -> None:
        """Send the body on; raises what the cell does wrong. A host that takes no more may have answered already."""
        gone = False
        while (data := await cell.piece()) is not None:
            if not gone:
                gone = not await self._send(self._parser.send(h11.Data(data=data)))
        if not gone:
            await self._send(self._parser.send(h11.EndOfMessage()))

    async def _send(self, data: bytes) -> bool:
        try:
            if data:  # the end of a body with a length has none
                await self._upstream.duplex.send(data)
        except (OSError, StreamReset):
            return False
        return True

    async def answer(self) -> tuple[ResponseHead, int | None]:
        """Return the head of the answer, and the length that its body has; None if only its end tells."""
        for _ in range(MAX_INTERIM):
            event = await self._next(begun=False)
            if isinstance(event, h11.Response):
                headers = event.headers.raw_items()
                size = len(event.reason) + sum(len(name) + len(value) for name, value in headers)
                if len(headers) > MAX_ANSWER_HEADERS or size > HEAD_BYTES:
                    raise self._improper()
                chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
                lengths = [int(value) for name, value in event.headers if name == b"content-length" and not chunked]
                head = ResponseHead(event.status_code, bytes(event.reason), request_head.forwarded(headers))
                if event.status_code == 204 or not lengths:
                    return head, None
                if self._head.method != "HEAD" and event.status_code != 304:
                    closes = any(name == b"connection" and b"close" in value.lower() for name, value in event.headers)
                    self._counted, self._keeps = lengths[0], event.http_version == b"1.1" and not closes
                return head, lengths[0]
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                break
        raise self._improper()

    async def body(self) -> AsyncIterator[bytes]:
        if self._counted is not None:
            async for piece in self._pieces(self._counted):
                yield piece
            return
        while not isinstance(event := await self._next(begun=True), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise self._improper()
            yield bytes(event.data)

    async def _pieces(self, left: int) -> AsyncIterator[bytes]:
        data: bytes | None = self._parser.trailing_data[0]
        while left:
            data = data or await self._upstream.receive()
            if not data:
                raise self._improper()
            piece, data = data[:left], data[left:]
            left -= len(piece)
            yield piece
        self._unasked = data or b""

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: the host keeps the connection, and has said no more than was asked."""
        if self._counted is not None:
            return self._keeps and not self._unasked and self._parser.our_state is h11.DONE
        states = (self._parser.our_state, self._parser.their_state)
        return states == (h11.DONE, h11.DONE) and not self._parser.trailing_data[0]

    async def _next(self, *, begun: bool) -> h11.Event:
        """Return what the host says next. Raises Refused; BrokenError for nothing where no answer has `begun`."""
        self._events += 1
        if self._events % IN_A_ROW == 0:
            await asyncio.sleep(0)
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError:
                raise self._improper() from None
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                raise self._improper()
            data = await self._upstream.receive()
            if not data and not begun and not self._parser.trailing_data[0]:
                raise BrokenError
            if data is None:
                raise self._improper()
            self._parser.receive_data(data)

    def _improper(self) -> RefusedConnection:
        return RefusedConnection(NetworkCode.ANSWER_IMPROPER.note(host=self._head.host))


AGAIN = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that are asked a second time where a kept connection turns out to be closed."""

BARE = frozenset((204, 304))
"""Answers without a body."""

Dial = Callable[[Target], Awaitable[Duplex]]
"""Opens a connection to what was allowed. Raises Refused."""


@dataclass(slots=True)
class Passed:
    """One request that was looked at, for the audit: never its path, which may hold what is secret."""

    method: str = ""
    target: Target | None = None
    rule: str | None = None
    """That let it out; None for one within a tunnel, whose rule it was."""
    status: int = 0
    """Of the host's answer; 0 if none came."""
    refused: RefusedConnection | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    cell: CellSide
    head: RequestHead
    target: Target
    length: int | None
    looker: Exchange | None
    passed: Passed


class HttpRelay:
    def __init__(
        self,
        client: Buffered,
        dial: Dial,
        policy: NetworkPolicy,
        *,
        scheme: Literal["http", "https"] = "http",
        target: Target | None = None,
        exchange: ExchangeFactory = lambda head: None,
        passed: Callable[[Passed], None] = lambda passed: None,
        head_seconds: float = 15.0,
        idle: Callable[[bool], None] = lambda idle: None,
    ) -> None:
        """`target` is that of the tunnel in which the requests come; None for those of a plain proxy.

        `passed` hears of each request that is over, or was answered by a refusal, and `idle` whether one is waited for.
        """
        self._client = client
        self._dial = dial
        self._policy = policy
        self._scheme = scheme
        self._target = target
        self._exchange = exchange
        self._passed = passed
        self._head_seconds = head_seconds
        self._idle = idle
        self._upstream: Upstream | None = None

    async def run(self) -> None:
        """Serve requests until one of both sides is done. Raises what breaks the connection: Refused, StreamReset."""
        try:
            while await self._client.begins() and await self._serve():
                self._idle(True)
        finally:
            self._drop()

    async def _serve(self) -> bool:
        """Serve one request; return whether another one may follow. A refusal is answered, if that can be."""
        passed = Passed()
        cell = CellSide(self._client)
        try:
            pending = await self._decided(cell, passed)
            kept = await self._answered(pending)
        except RefusedConnection as refused:
            if cell.answered:
                raise
            passed.refused = refused
            self._passed(passed)
            await self._client.send(refusal(refused.note))
            return False
        if kept and self._upstream is not None:
            self._upstream.rest()
        else:
            self._drop()
        self._passed(passed)
        return cell.over()

    async def _decided(self, cell: CellSide, passed: Passed) -> _Pending:
        """Read a request and return it, if it may go out."""
        try:
            async with asyncio.timeout(self._head_seconds):
                raw = await self._client.head()
                self._idle(False)
        except TimeoutError:
            raise RefusedConnection(NetworkCode.HEAD_TOO_SLOW.note(limit=f"{self._head_seconds:g}")) from None
        asked = request_head.read(cell.parser, raw)
        passed.method = asked.method
        if asked.length == 0:
            await cell.piece()  # there is none, and so the request is complete
        if asked.method == "CONNECT":
            raise RefusedConnection(NetworkCode.TARGET_IMPROPER.note(what="opens a tunnel within another connection"))
        passed.target = target = self._target_of(asked)
        if asked.host is not None:
            self._policy.check_host_header(target, asked.host)
        if self._target is None:
            rules = [self._policy.allow(target, one) for one in (asked.method, *request_head.other_methods(asked))]
            passed.rule = rules[0].text
        head = RequestHead(asked.method, self._scheme, target.host, target.port, asked.path, asked.headers)
        looker = self._exchange(head)
        if looker is not None:
            changed = looker.request(head)
            head = replace(head, path=changed.path, headers=changed.headers)
        return _Pending(cell, head, target, asked.length, looker, passed)

    def _target_of(self, asked: CellRequestHead) -> Target:
        """Return where a request goes: where its tunnel does, or else where it says."""
        if self._target is None:
            if asked.authority is None:
                raise RefusedConnection(NetworkCode.TARGET_IMPROPER.note(what="has a path for a target, and no host"))
            return self._policy.authority(asked.authority, default_port=80)
        if asked.authority is not None:
            raise RefusedConnection(NetworkCode.TARGET_IMPROPER.note(what="names a host within a tunnel"))
        if asked.host is None:
            raise RefusedConnection(NetworkCode.TARGET_IMPROPER.note(what="has no Host header"))
        return self._target

    async def _answered(self, pending: _Pending) -> bool:
        """Send a request on, and its answer back; return whether the host's connection can be kept.

        Where a kept one turns out to be closed, what does no harm is asked again on a new one.
        """
        upstream = await self._connected(pending.target)
        try:
            return await self._ask(pending, upstream)
        except BrokenError:
            if not upstream.used or pending.length != 0 or pending.head.method not in AGAIN:
                raise RefusedConnection(NetworkCode.HOST_BROKE.note(host=pending.head.host)) from None
        self._drop()
        try:
            return await self._ask(pending, await self._connected(pending.target))
        except BrokenError:
            raise RefusedConnection(NetworkCode.HOST_BROKE.note(host=pending.head.host)) from None

    async def _ask(self, pending: _Pending, upstream: Upstream) -> bool:
        """Ask once. Raises BrokenError if the connection ended before an answer began."""
        host = HostSide(upstream, pending.head)
        try:
            await host.ask(pending.length)
        except (OSError, StreamReset):
            raise BrokenError from None
        if pending.length == 0:
            await self._pass_answer(pending, host)
            return host.reusable
        await pending.cell.go_on()
        upload = asyncio.get_running_loop().create_task(host.upload(pending.cell))
        answer = asyncio.get_running_loop().create_task(self._pass_answer(pending, host))
        try:
            await asyncio.wait((upload, answer), return_when=asyncio.FIRST_COMPLETED)
            if upload.done():
                upload.result()  # what the cell did wrong ends both
            await answer
        finally:
            for task in (upload, answer):
                task.cancel()
            await asyncio.gather(upload, answer, return_exceptions=True)
        return host.reusable

    async def _pass_answer(self, pending: _Pending, host: HostSide) -> None:
        head, length = await host.answer()
        pending.passed.status = head.status
        body = None
        if pending.looker is not None and head.values(b"content-encoding"):
            length = None  # of a packed body, that says how much of the cell's own words is like the rest of it
        if pending.looker is not None:
            changed = pending.looker.response(head)
            head = replace(head, reason=changed.reason, headers=changed.headers)
            if pending.head.method != "HEAD" and head.status not in BARE:
                body = pending.looker.body()
        await pending.cell.answer(head, length if body is None else None)
        async for data in host.body():
            for piece in (data,) if body is None else body.feed(data):
                await pending.cell.send(piece)
        await pending.cell.end(b"" if body is None else body.finish())

    async def _connected(self, target: Target) -> Upstream:
        """Return a connection to `target`: the one at hand, if it is still good for that."""
        if self._upstream is not None and (self._upstream.target != target or self._upstream.stale):
            self._drop()
        if self._upstream is None:
            self._upstream = Upstream(await self._dial(target), target)
        return self._upstream

    def _drop(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
