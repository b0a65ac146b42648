"""The way to a host: one resolution, every address checked, and the checked addresses dialled, one after the other.

No name is looked up a second time, so nothing can lead elsewhere than where the check was. Through a proxy of the
operator's it is the checked address, too, that the proxy is asked for.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import NamedTuple

import h11

from .buffered_connection import HEAD_BYTES, Buffered
from .codes import NetworkCode
from .dns_lookup import Resolver, family_of, is_own
from .interfaces import Duplex
from .operator_proxy import OperatorProxy, Proxies
from .policy import Address, NetworkPolicy, RefusedConnection, Target

PIECE = 256 << 10
"""Bytes of one read at most."""
IN_A_ROW = 8
"""Pieces that one connection reads before the others have their turn."""


class SocketDuplex:
    """A connected socket. One task may receive while another one sends."""

    def __init__(self, connected: socket.socket, touched: Callable[[], None] = lambda: None) -> None:
        """`touched` is called for each piece that moved."""
        self._socket = connected
        self._touched = touched
        self._loop = asyncio.get_running_loop()
        self._reads = 0
        self._closed = False

    async def receive(self) -> bytes:
        self._check()
        self._reads += 1
        if self._reads % IN_A_ROW == 0:
            await asyncio.sleep(0)  # a read that has something at once does not wait
            self._check()
        data = await self._loop.sock_recv(self._socket, PIECE)
        self._touched()
        return data

    async def send(self, data: bytes) -> None:
        self._check()
        await self._loop.sock_sendall(self._socket, data)
        self._touched()

    async def finish(self) -> None:
        self._check()
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self, code: str) -> None:
        """Close it. Whoever waits for it has to be cancelled."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _check(self) -> None:
        if self._closed:
            raise ConnectionResetError("it was closed")


MAX_DIALLED = 8
"""Addresses of one name that are tried."""
AN_ADDRESS_SECONDS = 5.0
"""For an address behind which there is another one."""


class Dialled(NamedTuple):
    duplex: Duplex
    address: Address


class Dialler:
    """Opens connections to targets that were allowed."""

    def __init__(
        self,
        policy: NetworkPolicy,
        resolver: Resolver,
        *,
        seconds: float,
        own: Callable[[Address], bool] = is_own,
        proxies: Proxies | None = None,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._seconds = seconds
        self._own = own
        self._proxies = proxies

    async def dial(self, target: Target, touched: Callable[[], None] = lambda: None) -> Dialled:
        """Return a connection to `target`. Raises Refused; takes `seconds` at most."""
        try:
            async with asyncio.timeout(self._seconds):
                addresses = [target.address] if target.address else await self._resolver(target.host, target.port)
                checked = self._policy.check(target, addresses, self._own)
                proxy = self._proxies.for_host(target.host) if self._proxies is not None else None
                if proxy is not None:
                    return await self._through(proxy, target, checked[0], touched)
                return await self._first_of(target, checked[:MAX_DIALLED], touched)
        except TimeoutError:
            raise RefusedConnection(NetworkCode.DIAL_SLOW.note(host=target.host, limit=f"{self._seconds:g}")) from None

    async def _first_of(self, target: Target, addresses: tuple[Address, ...], touched: Callable[[], None]) -> Dialled:
        failure = "nothing answers"
        for address in addresses:
            try:
                async with asyncio.timeout(None if address == addresses[-1] else AN_ADDRESS_SECONDS):
                    connected = await _connect(family_of(address.version), (str(address), target.port))
            except TimeoutError:
                continue
            except OSError as error:
                failure = os.strerror(error.errno) if error.errno else type(error).__name__
                continue
            return Dialled(SocketDuplex(connected, touched), address)
        raise RefusedConnection(NetworkCode.DIAL_FAILED.note(host=target.host, port=target.port, why=failure))

    async def _through(
        self, proxy: OperatorProxy, target: Target, address: Address, touched: Callable[[], None]
    ) -> Dialled:
        """Return a connection that the operator's proxy opened to a checked address."""
        loop = asyncio.get_running_loop()
        try:
            places = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
            family, _, _, _, place = places[0]
            connected = await _connect(family, (str(place[0]), proxy.port))
        except OSError as error:
            raise RefusedConnection(NetworkCode.PROXY_FAILED.note(why=error.strerror or type(error).__name__)) from None
        duplex = Buffered(SocketDuplex(connected, touched))
        try:
            await _ask_proxy(duplex, proxy, Target(str(address), target.port, address).authority.encode())
        except BaseException:
            duplex.reset("refused")
            raise
        return Dialled(duplex, address)


async def _connect(family: int, place: tuple[str, int]) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connecting, place)
    except BaseException:
        connecting.close()
        raise
    return connecting


async def _ask_proxy(duplex: Buffered, proxy: OperatorProxy, authority: bytes) -> None:
    """Have the proxy open a tunnel. Raises Refused if it does not."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    headers = [(b"Host", authority)]
    if proxy.authorization is not None:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    request = h11.Request(method=b"CONNECT", target=authority, headers=headers)
    try:
        await duplex.send(parser.send(request) + parser.send(h11.EndOfMessage()))
        while not isinstance(event := parser.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                parser.receive_data(await duplex.receive())
            elif not isinstance(event, h11.InformationalResponse):
                raise RefusedConnection(NetworkCode.PROXY_FAILED.note(why="it ended the connection"))
    except (OSError, h11.RemoteProtocolError) as error:
        raise RefusedConnection(NetworkCode.PROXY_FAILED.note(why=type(error).__name__)) from None
    if not 200 <= event.status_code < 300:
        raise RefusedConnection(NetworkCode.PROXY_FAILED.note(why=f"it answered {event.status_code}"))
    duplex.take_back(parser.trailing_data[0])
