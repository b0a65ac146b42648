"""Names into addresses: the resolver of the system, in threads, a few at a time and each for a bounded time.

Decides nothing: the caller compares every address with the rules, and dials the checked address.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

from .codes import NetworkCode
from .policy import Address, RefusedConnection

Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Returns the addresses of a canonical name, in the order in which they are to be tried. Raises Refused."""

HOSTS = "/etc/hosts"
MAX_HOSTS = 4 << 20
_NO_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_NOBODY = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses for documents, which no machine has."""


class Lookups:
    """The resolver of the system.

    A lookup cannot be ended. One that takes too long goes on in its thread, which the process does not wait for, and
    counts for as long as it lasts.
    """

    def __init__(self, most: int, seconds: float, look: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._free = asyncio.Semaphore(most)
        self._seconds = seconds
        self._look = look

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
                return await self._looked_up(host, port)
        except TimeoutError:
            raise RefusedConnection(NetworkCode.LOOKUP_SLOW.note(host=host, limit=f"{self._seconds:g}")) from None

    def _looked_up(self, host: str, port: int) -> asyncio.Future[Sequence[Address]]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Sequence[Address]] = loop.create_future()

        def deliver(found: Sequence[Address] | RefusedConnection) -> None:
            self._free.release()
            if outcome.done():
                return
            if isinstance(found, RefusedConnection):
                outcome.set_exception(found)
            else:
                outcome.set_result(found)

        def work() -> None:
            found = self._ask(host, port)
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(deliver, found)

        threading.Thread(target=work, name="sandbox-kernel-lookup", daemon=True).start()
        return outcome

    def _ask(self, host: str, port: int) -> Sequence[Address] | RefusedConnection:
        if listed := _listed(host):
            return listed
        try:
            # Without the final dot, the machine's search domains are tried too: another name than the one of the rule.
            rows = self._look(f"{host}.", port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in _NO_NAME:
                return RefusedConnection(NetworkCode.NO_ADDRESS.note(host=host))
            return RefusedConnection(NetworkCode.LOOKUP_FAILED.note(host=host, why=error.strerror))
        except (OSError, UnicodeError) as error:
            return RefusedConnection(NetworkCode.LOOKUP_FAILED.note(host=host, why=type(error).__name__))
        inet = {socket.AF_INET, socket.AF_INET6}
        return [ip_address(place[0]) for family, _, _, _, place in rows if family in inet]


def _listed(host: str) -> list[Address]:
    """Return the addresses of a host in the machine's own list, which knows no final dots."""
    with contextlib.suppress(OSError, ValueError), Path(HOSTS).open(encoding="latin-1") as file:
        rows = [line.partition("#")[0].split() for line in file.read(MAX_HOSTS).splitlines()]
        return [ip_address(row[0]) for row in rows if host in (name.lower() for name in row[1:])]
    return []


def is_own(address: Address) -> bool:
    """Whether an address is one of this machine's: only such a one can be bound."""
    if not _binds(address.version, str(address)):
        return False
    if not _binds(address.version, _NOBODY[address.version]):
        return True
    # This machine lets any address be bound: see whether what is sent to it would come from it. Nothing is sent.
    with _probe(address.version) as probe:
        try:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
        except OSError:
            return True


def _binds(version: int, address: str) -> bool:
    try:
        probe = _probe(version)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return False  # a machine without IPv6 has no such address, and reaches none
        raise
    with probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _probe(version: int) -> socket.socket:
    return socket.socket(family_of(version), socket.SOCK_DGRAM)


def family_of(version: int) -> socket.AddressFamily:
    return socket.AF_INET if version == IPv4Address(0).version else socket.AF_INET6
