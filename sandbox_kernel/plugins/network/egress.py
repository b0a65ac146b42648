"""The way out for the cells of one session: each connection is a proxy request that is read, decided and served here.

`tunnel` and `http_relay` carry what was allowed, `dial` finds the way, `limits` counts. Everything that is refused is
said three times: to the program, to the person who runs the cell, and to the audit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from ...core.codes import Note
from ...core.events import ConnectionEnded
from ..api import RESET_CROWDED, Cell, Identified, SessionService, Stream, StreamReset
from . import request_head
from .buffered_connection import Buffered
from .client_hello import ALERT_ACCESS_DENIED, HelloReader, asks_again
from .codes import NetworkCode
from .connection_reporter import NetworkDenied, Reporter
from .dial import Dialled, Dialler
from .dns_lookup import Lookups, Resolver, is_own
from .error_responses import is_denial, refusal
from .http_relay import Dial, HttpRelay, Passed
from .interfaces import Duplex, TlsInterceptor
from .operator_proxy import Proxies
from .policy import Address, NetworkPolicy, RefusedConnection, Target
from .traffic_limits import EgressLimits, Ledger, MeteredConnection, Traffic, Watch

CheckName = Callable[[str | None], None]
"""Raises Refused for a server that a hello must not name."""


async def checked_hello(client: Buffered, check: CheckName, seconds: float, *, second: bool = False) -> bytes:
    """Return the bytes of a client's hello that names the right server, and nothing behind it. Raises Refused."""
    reader = HelloReader(second=second)
    try:
        async with asyncio.timeout(seconds):
            while True:
                data = await client.receive()
                if not data:
                    raise RefusedConnection(NetworkCode.NOT_TLS.note())
                try:
                    hello = reader.feed(data)
                except RefusedConnection:
                    client.take_back(data)  # for whoever says so in the client's own language
                    raise
                if hello is not None:
                    break
    except TimeoutError:
        raise RefusedConnection(NetworkCode.HEAD_TOO_SLOW.note(limit=f"{seconds:g}")) from None
    client.take_back(reader.rest)
    if hello.hides:
        raise RefusedConnection(NetworkCode.SERVER_NAME_HIDDEN.note())
    check(hello.server_name)
    return reader.taken


async def run(client: Buffered, host: Buffered, first: bytes, check: CheckName, seconds: float) -> None:
    """Pass on a hello that was checked, and then everything, until both sides have finished.

    A server may ask for another hello, and that one counts. Raises Refused, StreamReset, OSError.
    """
    await host.send(first)
    begun = b""
    while (again := asks_again(begun)) is None and (data := await host.receive()):
        begun += data
    if begun:
        await client.send(begun)
    if again:
        await host.send(await checked_hello(client, check, seconds, second=True))
    await both_ways(client, host)


async def both_ways(client: Duplex, host: Duplex) -> None:
    """Copy until both have finished; raises what breaks either way, and then nothing more is copied."""
    outward = asyncio.get_running_loop().create_task(_copy(client, host))
    inward = asyncio.get_running_loop().create_task(_copy(host, client))
    ways = (outward, inward)
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        for way in ways:
            if way.done():
                way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: Duplex, sink: Duplex) -> None:
    while data := await source.receive():
        await sink.send(data)
    await sink.finish()


LINGER_SECONDS = 2.0
LINGER_BYTES = 1 << 20
"""How long, and for how much, a client that still sends is listened to, so that it reads why nobody wants that."""
MAX_TOLD = 100
"""Most reports on connections that one cell is told."""
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Egress(SessionService):
    """What the setting `network` allows, served: a `StreamService`, and a `CellObserver`."""

    preamble = b""

    def __init__(
        self,
        policy: NetworkPolicy,
        reporter: Reporter,
        *,
        limits: EgressLimits | None = None,
        resolver: Resolver | None = None,
        own: Callable[[Address], bool] = is_own,
        proxies: Proxies | None = None,
        insight: TlsInterceptor | None = None,
    ) -> None:
        """`proxies` is for the host's own way out, and `insight` looks into the connections to some hosts."""
        self.policy = policy
        self.reporter = reporter
        self.limits = limits or EgressLimits()
        self.insight = insight
        self._ledger = Ledger(self.limits)
        resolver = resolver or Lookups(self.limits.lookups, self.limits.lookup_seconds)
        self.dialler = Dialler(policy, resolver, seconds=self.limits.silent_seconds, own=own, proxies=proxies)
        self._told: dict[str, set[tuple[str, str]]] = {}

    @property
    def traffic(self) -> Traffic:
        return self._ledger.traffic

    @property
    def open_connections(self) -> int:
        return self._ledger.open

    # --- a service of a session ---

    async def serve(self, stream: Stream, cell: Cell) -> None:
        """Serve one connection until its end. Raises StreamReset."""
        try:
            account = self._ledger.opened(cell.id)
        except RefusedConnection as refused:
            self.refused(refused.note, cell)
            await _say(stream, refusal(refused.note))
            return
        try:
            watch = Watch(self.limits)
            await _Connection(self, stream, MeteredConnection(stream, account, watch), cell, watch).serve()
        except StreamReset as broken:
            if broken.code == RESET_CROWDED:
                self.refused(NetworkCode.TOO_MANY_CONNECTIONS.note(limit=self.limits.connections), cell)
            raise
        finally:
            self._ledger.closed(account)

    def cell_sent(self, cell: Identified) -> None:
        self._ledger.cell_began()
        self._told[cell.id] = set()

    def cell_ended(self, cell: Identified) -> None:
        self._ledger.cell_ended(cell.id)
        self._told.pop(cell.id, None)

    # --- for its connections ---

    def refused(self, note: Note, cell: Cell, target: Target | None = None, **figures: Any) -> None:
        """Say to the audit and to the person that something was refused; to the latter once a host and cell."""
        self._ledger.refused(note.code)
        place: dict[str, Any] = {} if target is None else {"host": target.host, "port": target.port}
        self.reporter.note(ConnectionEnded(code=note.code, reason=note.text, cell=cell.id, **place, **figures))
        told = self._told.get(cell.id, set())
        key = (note.code.code, target.host if target is not None else note.text)
        if key not in told and len(told) < MAX_TOLD:
            told.add(key)
            said = NetworkDenied(note)
            self.reporter.tell(f"{said.name if is_denial(note.code) else 'network'}: {said}")


class _Connection:
    def __init__(self, egress: Egress, stream: Stream, metered: MeteredConnection, cell: Cell, watch: Watch) -> None:
        self._egress = egress
        self._stream = stream
        self._metered = metered
        self._client = Buffered(metered)
        self._cell = cell
        self._watch = watch
        self._led: tuple[Target, Address] | None = None
        """Where the last connection to a host led."""
        self._target: Target | None = None
        self._rule: str | None = None
        """That allows it."""
        self._said = (0, 0, 0.0)

    async def serve(self) -> None:
        """Read what is wanted, and do it. What is refused once bytes have passed breaks the connection."""
        try:
            async with self._watch:
                self._idle(True)
                if not await self._client.begins():
                    return
                await self._serve()
                await _linger(self._client)
        except RefusedConnection as refused:
            if refused.code is NetworkCode.CONNECTION_SILENT and not self._metered.asked:
                self._passed("CONNECT")  # nobody waits for anything: a client keeps it for later
            else:
                self._egress.refused(refused.note, self._cell, self._target, **self._figures())
            self._metered.reset(refused.code.code)
        except OSError:
            self._metered.reset("broken")

    async def _serve(self) -> None:
        raw = await self._first()
        if raw is None:
            return
        if raw.startswith(b"CONNECT "):
            await self._tunnel(raw)
            return
        self._client.take_back(raw)
        await self._relay(self._client, self._dialled).run()

    async def _first(self) -> bytes | None:
        """Return the head of the first request; None if it was refused."""
        seconds = self._egress.limits.head_seconds
        try:
            async with asyncio.timeout(seconds):
                raw = await self._client.head()
                self._idle(False)
                return raw
        except TimeoutError:
            await self._refuse(NetworkCode.HEAD_TOO_SLOW.note(limit=f"{seconds:g}"))
        except RefusedConnection as refused:
            await self._refuse(refused.note)
        return None

    async def _tunnel(self, raw: bytes) -> None:
        policy = self._egress.policy
        try:
            asked = request_head.read(request_head.server(), raw)
            self._target = target = policy.authority(asked.authority or b"", default_port=None)
            if asked.host is not None:
                policy.check_host_header(target, asked.host)
            self._rule = policy.allow(target, None).text
            host = await self._dialled(target)
        except RefusedConnection as refused:
            await self._refuse(refused.note)
            return
        try:
            await self._client.send(CONNECTED)
            first = await self._hello(target)
            if first is not None:
                await self._through(target, host, first)
        except (StreamReset, OSError, asyncio.CancelledError):
            if not self._watch.over:  # an end like another
                self._passed("CONNECT")
            raise
        finally:
            host.reset("closed")

    async def _through(self, target: Target, host: Duplex, first: bytes) -> None:
        """Carry a tunnel whose first word is right."""
        insight = self._egress.insight
        if insight is not None and insight.looks_into(target.host, target.port):
            self._client.take_back(first)
            await self._look_into(insight, target, host)
        else:
            await run(self._client, Buffered(host), first, self._check(target), self._egress.limits.head_seconds)
        self._passed("CONNECT")

    async def _hello(self, target: Target) -> bytes | None:
        """Return the first word of TLS; None if it was refused, which is said in the language of the client."""
        try:
            self._idle(True)
            hello = await checked_hello(self._client, self._check(target), self._egress.limits.head_seconds)
        except RefusedConnection as refused:
            spoken = refusal(refused.note) if refused.code is NetworkCode.NOT_TLS else ALERT_ACCESS_DENIED
            await self._refuse(refused.note, spoken)
            return None
        self._idle(False)
        return hello

    def _check(self, target: Target) -> CheckName:
        return lambda name: self._egress.policy.check_server_name(target, name)

    async def _look_into(self, insight: TlsInterceptor, target: Target, host: Duplex) -> None:
        """Serve the requests within TLS that ends here. The connection that is open already is for the first.

        Both sides begin TLS at the same time, for a host may be far away.
        """

        async def within(outside: Duplex) -> Duplex:
            try:
                return await insight.towards_host(outside, target.host, target.port)
            except BaseException:
                outside.reset("refused")
                raise

        first = asyncio.get_running_loop().create_task(within(host))
        ready = [first]

        async def dial(target: Target) -> Duplex:
            return await ready.pop() if ready else await within(await self._dialled(target))

        try:
            client = Buffered(await insight.towards_cell(self._client, target.host, target.port))
            await self._relay(client, dial, target=target).run()
            await client.finish()
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    def _relay(self, client: Buffered, dial: Dial, target: Target | None = None) -> HttpRelay:
        insight = self._egress.insight
        return HttpRelay(
            client,
            dial,
            self._egress.policy,
            scheme="http" if target is None else "https",
            target=target,
            exchange=(lambda head: None) if insight is None else insight.exchange,
            passed=self._request_passed,
            head_seconds=self._egress.limits.head_seconds,
            idle=self._idle,
        )

    def _idle(self, idle: bool) -> None:
        self._stream.idle(idle=idle)

    async def _dialled(self, target: Target) -> Duplex:
        dialled: Dialled = await self._egress.dialler.dial(target, self._watch.touch)
        self._target, self._led = target, (target, dialled.address)
        return dialled.duplex

    async def _refuse(self, note: Note, spoken: bytes | None = None) -> None:
        self._egress.refused(note, self._cell, self._target, **self._figures())
        await self._client.send(refusal(note) if spoken is None else spoken)

    # --- reports ---

    def _request_passed(self, passed: Passed) -> None:
        self._target = passed.target
        if passed.rule is not None:
            self._rule = passed.rule
        if passed.refused is not None:
            about = {"method": passed.method} if passed.method else {}
            self._egress.refused(passed.refused.note, self._cell, passed.target, **about, **self._figures())
        else:
            self._passed(passed.method, status=passed.status)

    def _passed(self, method: str, **status: int | None) -> None:
        if (target := self._target) is not None:
            note = NetworkCode.CONNECTED.note(host=target.host, port=target.port)
            about: dict[str, Any] = {"host": target.host, "port": target.port, "method": method, **status}
            event = ConnectionEnded(code=note.code, reason=note.text, cell=self._cell.id, **about, **self._figures())
            self._egress.reporter.note(event)

    def _figures(self) -> dict[str, Any]:
        """Return what the connection carried since this was asked last: of one request, if it carries several."""
        now = (self._metered.bytes_in, self._metered.bytes_out, self._watch.seconds)
        bytes_in, bytes_out, seconds = (a - b for a, b in zip(now, self._said, strict=True))
        self._said = now
        led = self._led
        where = {"address": str(led[1]), "rule": self._rule} if led is not None and led[0] == self._target else {}
        return {
            **where,
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
            "seconds": round(seconds, 3),
        }


async def _say(stream: Duplex, data: bytes) -> None:
    """Send the last words of a connection."""
    with contextlib.suppress(StreamReset):
        await stream.send(data)
        await _linger(stream)


async def _linger(stream: Duplex) -> None:
    """Finish, and hear a client out for a bounded while: it may be sending still, and read only then."""
    await stream.finish()
    heard = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while heard < LINGER_BYTES and (data := await stream.receive()):
                heard += len(data)
