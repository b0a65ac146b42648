"""What a cell says to the proxy, judged by a parser of another make: what goes out is what was decided, and no more.

The relay reads bytes as h11 does, after rules of its own. llhttp, by way of aiohttp, reads what the host would get:
each connection holds whole requests, for the host that it leads to, and as many as were decided.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParserC  # type: ignore[attr-defined]

from sandbox_kernel.plugins.network.buffered_connection import Buffered
from sandbox_kernel.plugins.network.http_relay import HttpRelay, Passed
from sandbox_kernel.plugins.network.policy import NetworkPolicy, RefusedConnection, Target
from tests.support.gateway import Pieces
from tests.support.requests import HONEST, SMUGGLES

from ..judge import Unsafe, require

RULES = ("api.example.test", "api.example.test:8080", "GET data.example.test", "10.0.0.7", "[fd00::7]:8080")
KNOWN = frozenset(b"GET HEAD POST PUT DELETE OPTIONS PATCH TRACE PROPFIND".split())

_policy: NetworkPolicy
_loop: asyncio.AbstractEventLoop


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """One loop for a million inputs."""
    global _policy, _loop  # noqa: PLW0603
    _policy = NetworkPolicy(RULES)
    _loop = asyncio.new_event_loop()
    try:
        yield
    finally:
        _loop.close()


class Host:
    """A host that answers each request when llhttp says that it is whole."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.whole = 0
        self.sent = b""
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._parser = HttpRequestParserC(BaseProtocol(_loop), _loop, 1 << 20)
        self._open: list[tuple[object, object]] = []

    async def send(self, data: bytes) -> None:
        require(data, "nothing was sent")
        self.sent += data
        method, _, rest = data.partition(b" ")
        if not self._open and method not in KNOWN:  # one that llhttp has never heard of
            data = b"POST " + rest
        try:
            messages, upgrade, tail = self._parser.feed_data(data)
        except HttpProcessingError as error:
            raise Unsafe((str(error), self.sent)) from None
        require(not upgrade and not tail, self.sent)
        for message, body in messages:
            require(not self._open, ("a request within another one", self.sent))
            self._open.append((message, body))
            self._check(message)
        if self._open and self._open[0][1].is_eof():  # type: ignore[attr-defined]
            message, _ = self._open.pop()
            self.whole += 1
            bare = message.method == "HEAD"  # type: ignore[attr-defined]
            await self._answers.put(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if bare else b"ok"))

    def _check(self, message: object) -> None:
        usual = self.target.port == 80
        host = f"[{self.target.host}]" if ":" in self.target.host else self.target.host
        wanted = host if usual else f"{host}:{self.target.port}"
        headers = message.headers  # type: ignore[attr-defined]
        require(headers.getall("Host") == [wanted], (wanted, self.sent))
        require(message.path.startswith("/"), self.sent)  # type: ignore[attr-defined]
        lengths = len(headers.getall("Content-Length", [])) + len(headers.getall("Transfer-Encoding", []))
        require(lengths <= 1, self.sent)
        for name in headers:
            low = name.lower()
            require(not low.startswith("proxy-"), self.sent)
            require(low not in {"connection", "upgrade", "te", "trailer", "keep-alive", "expect"}, self.sent)

    async def receive(self) -> bytes:
        return await self._answers.get()

    async def finish(self) -> None:
        """It is never asked."""

    def reset(self, code: str) -> None:
        """Nothing is left of it."""


def run(data: bytes) -> None:
    """The first byte says how the rest is cut."""
    step, raw = (data[0] if data else 0) or 1 << 16, data[1:]
    _loop.run_until_complete(_relay(Pieces(*(raw[at : at + step] for at in range(0, len(raw), step)))))


async def _relay(client: Pieces) -> None:
    hosts: list[Host] = []
    passed: list[Passed] = []

    async def dial(target: Target) -> Host:
        require(any(rule.opens(target.port) and rule.host == target.host for rule in _policy.rules), target)
        hosts.append(Host(target))
        return hosts[-1]

    try:
        await HttpRelay(Buffered(client), dial, _policy, passed=passed.append).run()
    except RefusedConnection as refused:
        require(str(refused).isascii(), str(refused))
    answered = [one for one in passed if one.refused is None]
    require(len(answered) == sum(host.whole for host in hosts), (len(answered), [host.sent for host in hosts]))
    require(not client.got or client.got.startswith(b"HTTP/1.1 "), client.got)
    for one in answered:
        require(one.target is not None, one)
        if one.target is not None:
            _policy.allow(one.target, one.method)


def seeds() -> Iterator[bytes]:
    for raw in (*HONEST, *SMUGGLES.values()):
        for step in (0, 1, 40):
            yield bytes([step]) + raw
            yield bytes([step]) + HONEST[0] + raw
