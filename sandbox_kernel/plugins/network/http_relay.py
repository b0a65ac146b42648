"""HTTP requests of one connection, one after another: each is decided anew, and every byte is written anew.

Neither side's bytes reach the other: h11 reads them, and h11 writes what was read. So both ends of what goes out mean
the same by it. Works on any `Duplex`, plain or within TLS, and knows neither sockets nor names of the network's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..api import StreamReset
from . import proxy_head
from .answers import refusal
from .buffered import Buffered
from .codes import NetworkCode
from .exchange import Duplex, Exchange, ExchangeFactory, RequestHead
from .http_sides import BrokenError, CellSide, HostSide, Upstream
from .policy import NetworkPolicy, Refused, Target
from .proxy_head import Asked

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
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request that may go out."""

    cell: CellSide
    head: RequestHead
    target: Target
    length: int | None
    looker: Exchange | None
    passed: Passed


class Relay:
    """The requests of one connection of a cell."""

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
        except Refused as refused:
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
            raise Refused(NetworkCode.HEAD_TOO_SLOW.note(limit=f"{self._head_seconds:g}")) from None
        asked = proxy_head.read(cell.parser, raw)
        passed.method = asked.method
        if asked.length == 0:
            await cell.piece()  # there is none, and so the request is complete
        if asked.method == "CONNECT":
            raise Refused(NetworkCode.TARGET_IMPROPER.note(what="opens a tunnel within another connection"))
        passed.target = target = self._target_of(asked)
        if asked.host is not None:
            self._policy.check_host_header(target, asked.host)
        if self._target is None:
            rules = [self._policy.allow(target, one) for one in (asked.method, *proxy_head.other_methods(asked))]
            passed.rule = rules[0].text
        head = RequestHead(asked.method, self._scheme, target.host, target.port, asked.path, asked.headers)
        looker = self._exchange(head)
        if looker is not None:
            changed = looker.request(head)
            head = replace(head, path=changed.path, headers=changed.headers)
        return _Pending(cell, head, target, asked.length, looker, passed)

    def _target_of(self, asked: Asked) -> Target:
        """Return where a request goes: where its tunnel does, or else where it says."""
        if self._target is None:
            if asked.authority is None:
                raise Refused(NetworkCode.TARGET_IMPROPER.note(what="has a path for a target, and no host"))
            return self._policy.authority(asked.authority, default_port=80)
        if asked.authority is not None:
            raise Refused(NetworkCode.TARGET_IMPROPER.note(what="names a host within a tunnel"))
        if asked.host is None:
            raise Refused(NetworkCode.TARGET_IMPROPER.note(what="has no Host header"))
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
                raise Refused(NetworkCode.HOST_BROKE.note(host=pending.head.host)) from None
        self._drop()
        try:
            return await self._ask(pending, await self._connected(pending.target))
        except BrokenError:
            raise Refused(NetworkCode.HOST_BROKE.note(host=pending.head.host)) from None

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
