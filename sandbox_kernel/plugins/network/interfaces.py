"""The seams of the plugin: a connection as four methods, one HTTP request with its answer, and who looks at them.

Values and protocols only. Imports nothing of ours: the relay, the tunnel and the secrets are written against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

Headers = tuple[tuple[bytes, bytes], ...]
"""Names as they were written, and values without the space around them, in their order."""


class Duplex(Protocol):
    """Bytes both ways: a cell's connection, one to a host, or the inside of a TLS connection that ends here."""

    async def receive(self) -> bytes:
        """Return the next piece; `b""` once the other side has finished. Raises OSError when it is broken."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of `data`, as fast as the other side takes it. Raises OSError when it is broken."""
        ...

    async def finish(self) -> None:
        """Say that nothing more will be sent; the other direction stays open."""
        ...

    def reset(self, code: str) -> None:
        """Break it at once, both ways, for the reason that `code` names. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request of a cell, for a host that was allowed."""

    method: str
    scheme: Literal["http", "https"]
    """`https` if TLS ends here: what is sent goes on over TLS."""
    host: str
    """Canonical, without brackets: what a rule allowed."""
    port: int
    path: bytes
    """With the query, as it goes to the host: begins with a slash, no fragment."""
    headers: Headers
    """Without those that concern one connection alone, `Host`, `Content-Length` and `Transfer-Encoding`."""

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of a header; `name` in lower case."""
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The answer of the host. Answers of another kind (1xx) are not passed on."""

    status: int
    reason: bytes
    headers: Headers
    """Without those that concern one connection alone, `Content-Length` and `Transfer-Encoding`."""

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of a header; `name` in lower case."""
        return [value for key, value in self.headers if key.lower() == name]


class BodyFilter(Protocol):
    """Sees the body of an answer in pieces, and says what the cell gets in its place."""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Yield what can be passed on by now, in pieces. What is not taken yet needs no memory, however much it is.

        Raises `Refused`: the connection breaks.
        """
        ...

    def finish(self) -> bytes:
        """Return what is left, at the end of the body. Raises `Refused`."""
        ...


class Exchange(Protocol):
    """Looks at one request and its answer. The methods are called in this order, each once at most."""

    def request(self, head: RequestHead) -> RequestHead:
        """Return what is sent; may change path and headers, and nothing else. Raises `Refused`: nothing is sent."""
        ...

    def response(self, head: ResponseHead) -> ResponseHead:
        """Return the head that the cell gets. Raises `Refused`: it gets an answer that says so."""
        ...

    def body(self) -> BodyFilter | None:
        """Return what the body goes through; None if it passes as it is, with its length."""
        ...


ExchangeFactory = Callable[[RequestHead], "Exchange | None"]
"""Returns who looks at a request; None if nobody has to."""


class TlsInterceptor(Protocol):
    """Looks into the connections to some hosts: ends their TLS, and sees each request in there and its answer.

    The server name of a tunnel was checked before any of this is asked.
    """

    def looks_into(self, host: str, port: int) -> bool:
        """Whether the TLS of a tunnel to this host ends here. Asked once a tunnel."""
        ...

    async def towards_cell(self, tunnel: Duplex, host: str, port: int) -> Duplex:
        """Return the inside of a TLS connection in which we are `host`. Raises `Refused`; takes bounded time."""
        ...

    async def towards_host(self, connection: Duplex, host: str, port: int) -> Duplex:
        """Return the inside of a TLS connection to `host`, whose certificate was verified. Raises `Refused`."""
        ...

    def exchange(self, head: RequestHead) -> Exchange | None:
        """Return who looks at this request, plain or within TLS."""
        ...
