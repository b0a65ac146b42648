"""A caller's connection to a broker that listens on the network: TLS, who this process is, and two connections.

Its address is that of the engine, as a socket's path is. Outwards it is a socket as `channel.connect` returns one;
`tls_relay` says why. The broker's name has to be that of its
certificate, and its authority the one that is named: no other is believed. Files are read for each connection, for a
token is replaced after minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import ssl
import weakref
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ....core.errors import ConfigurationError, EngineUnavailable
from ....core.tasks import Tasks
from ..codes import BrokerCode
from ..settings import BrokerSettings
from . import packets, tls_relay
from .tls_relay import ConnectionBroken, PacketRelay

CONNECT_SECONDS = 5.0
"""For an address to answer, and for TLS."""
MAX_TOKEN = 8 << 10
UNHEARD = ", before a word: it may not take this certificate, or have too many callers"
"""TLS tells a caller of neither."""
ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251})|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})")


class _Wire(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class RelayedSocket(socket.socket):
    """This process's end of a connection that tasks of its loop relay."""

    connection: NetworkConnection

    def break_off(self) -> None:
        """Close the connection itself, where no loop runs that would."""
        self.connection.break_off()


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom this process believes at an address, and as whom it comes."""

    address: str
    host: str
    port: int
    settings: BrokerSettings

    @classmethod
    def of(cls, address: str, settings: BrokerSettings) -> Trust:
        """Raises `ConfigurationError`."""
        found = ADDRESS.fullmatch(address)
        if found is None or int(found["port"]) > 65535:
            raise _wrong("engine", "that is no broker://HOST:PORT")
        return cls(address, found["host"].strip("[]"), int(found["port"]), settings)

    def context(self) -> ssl.SSLContext:
        """Return what TLS is to be like. Raises `ConfigurationError` for files that cannot be used."""
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which verifies the certificate and its name
        found.minimum_version = ssl.TLSVersion.TLSv1_3
        settings = self.settings
        try:
            found.load_verify_locations(settings.broker_authority)
        except (OSError, ValueError) as error:
            raise _wrong("broker_authority", _words(error), settings.broker_authority) from error
        if settings.broker_certificate is not None:
            try:
                found.load_cert_chain(settings.broker_certificate, settings.broker_private_key, password=lambda: "")
            except (OSError, ValueError) as error:
                raise _wrong("broker_certificate", _words(error), settings.broker_certificate) from error
        return found

    def token(self) -> str:
        """Return the token that is in force now; none for who comes with a certificate. Raises `ConfigurationError`."""
        if self.settings.broker_certificate is not None:
            return ""
        try:
            with Path(self.settings.broker_token).open("rb") as file:
                data = file.read(MAX_TOKEN + 1)
            token = data.decode("ascii").strip()
        except (OSError, ValueError) as error:
            raise _wrong("broker_token", _words(error), self.settings.broker_token) from error
        if not 0 < len(token) <= MAX_TOKEN:
            raise _wrong("broker_token", f"it has no token of at most {MAX_TOKEN} bytes")
        return token


def _words(error: Exception) -> str:
    return tls_relay.words(error) if isinstance(error, OSError) else "it is no text"


def _wrong(setting: str, why: str, value: str | None = None) -> ConfigurationError:
    return ConfigurationError(BrokerCode.BROKER_NOT_CONFIGURED.note(why=why), setting=setting, value=value)


async def connect(address: str, settings: BrokerSettings) -> socket.socket:
    """Return a connection to the broker at HOST:PORT. Raises `EngineUnavailable` and `ConfigurationError`."""
    trust = Trust.of(address, settings)
    wire = await _open_wire(trust, None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    found = RelayedSocket(fileno=theirs.detach())
    found.connection = NetworkConnection(trust, wire, ours)
    return found


async def _open_wire(trust: Trust, name: bytes | None) -> _Wire:
    """Return a connection with TLS, on which it was said who this process is, and for which pipe it is."""
    token, context = await asyncio.to_thread(lambda: (trust.token(), trust.context()))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            wire = _Wire(
                *await asyncio.open_connection(
                    trust.host,
                    trust.port,
                    ssl=context,
                    limit=tls_relay.LIMIT_BYTES,
                    ssl_shutdown_timeout=tls_relay.FLUSH_SECONDS,
                )
            )
    except (OSError, TimeoutError) as error:
        why = tls_relay.words(error) if isinstance(error, OSError) else "it does not answer in time"
        if isinstance(error, ssl.SSLCertVerificationError):
            raise EngineUnavailable(
                BrokerCode.BROKER_STRANGER, f"who answers at {trust.address} is not the broker: {error.verify_message}"
            ) from error
        raise EngineUnavailable(
            BrokerCode.BROKER_UNAVAILABLE, f"no broker answers at {trust.address}: {why}"
        ) from error
    sock = wire.writer.get_extra_info("socket")
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = {"token": token, "pipe": None if name is None else name.hex()}
        await tls_relay.send(wire.writer, tls_relay.HELLO, json.dumps(said).encode())
    except (ConnectionBroken, OSError) as error:
        wire.writer.transport.abort()
        raise EngineUnavailable(
            BrokerCode.BROKER_UNAVAILABLE, f"no broker answers at {trust.address}: {error}"
        ) from error
    except BaseException:
        wire.writer.transport.abort()
        raise
    return wire


class NetworkConnection:
    """The two connections of one sandbox, or the one of a question."""

    def __init__(self, trust: Trust, wire: _Wire, sock: socket.socket) -> None:
        self._trust = trust
        self._wires, self._ours = [wire], [sock]
        self._running = 0
        self._tasks = Tasks()
        self._start(self._packets(wire, sock), "packets of a broker")
        _open.add(self)
        _held.add(self)

    def break_off(self) -> None:
        """Break the connections without a loop; one that runs closes what is left of them."""
        for sock in self._ours:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for number in self._numbers():
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def forked(self) -> None:
        """Close a child's copies: else a sandbox would outlive the parent for as long as the child."""
        for sock in self._ours:
            sock.close()
        for number in self._numbers():
            # The socket is its transport's, which closes this number some day, whatever has it by then.
            with contextlib.suppress(OSError):
                nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                os.dup2(nothing, number, inheritable=False)
                os.close(nothing)

    def _numbers(self) -> list[int]:
        found = (wire.writer.get_extra_info("socket") for wire in self._wires)
        return [sock.fileno() for sock in found if sock is not None and sock.fileno() >= 0]

    def _start(self, work: Coroutine[Any, Any, object], name: str) -> None:
        self._running += 1
        self._tasks.start(work, name).add_done_callback(self._done)

    def _done(self, task: object) -> None:
        self._running -= 1
        if not self._running:
            _held.discard(self)

    async def _packets(self, wire: _Wire, sock: socket.socket) -> None:
        relay = PacketRelay(wire.reader, wire.writer, sock, pass_for=_no_pass, pipe_of=self._pipe_of)
        try:
            with sock:
                why = await relay.run()
                if why is not None:
                    self._lost(sock, why if relay.heard else f"{why}{UNHEARD}")
            if why is None:
                await tls_relay.closed(wire.writer)
        finally:
            wire.writer.transport.abort()

    def _lost(self, sock: socket.socket, why: str) -> None:
        """Say in the broker's place what it cannot say any more: to a first request, and to who has a sandbox."""
        unavailable = EngineUnavailable(
            BrokerCode.BROKER_UNAVAILABLE, f"the broker at {self._trust.address} is gone: {why}"
        )
        note = BrokerCode.BROKER_CONNECTION_LOST.note(why=why)
        ended = {"op": "ended", "kind": "engine_lost", "exit_code": None, "detail": note.text, "code": note.code.code}
        for said in ({"refused": packets.refusal(unavailable), "n": 1}, ended):
            with contextlib.suppress(OSError):
                sock.send(packets.packed(said))

    async def _pipe_of(self, name: bytes) -> int:
        """Return a descriptor for the pipe with this pass."""
        try:
            wire = await _open_wire(self._trust, name)
        except (EngineUnavailable, ConfigurationError) as error:
            raise ConnectionBroken(error.message) from error
        ours, theirs = socket.socketpair()
        self._wires.append(wire)
        self._ours.append(ours)
        self._start(self._pipe(wire, ours), "a sandbox's pipe of a broker")
        return theirs.detach()

    async def _pipe(self, wire: _Wire, sock: socket.socket) -> None:
        try:
            await tls_relay.relay_pipe(wire.reader, wire.writer, sock)
        finally:
            sock.close()
            wire.writer.transport.abort()


def _no_pass(fd: int) -> bytes:
    raise AssertionError("a caller sends no pipe")


_held: set[NetworkConnection] = set()
"""Those whose tasks run: a loop holds none of its tasks."""
_open: weakref.WeakSet[NetworkConnection] = weakref.WeakSet()


def _forked() -> None:
    for one in list(_open):
        one.forked()


os.register_at_fork(after_in_child=_forked)
