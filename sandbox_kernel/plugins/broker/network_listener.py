"""Callers in other pods or on other machines: TLS, who is at the other end, and two connections for each sandbox.

A caller proves who it is with a certificate, or with a bearer token in its first word, which the cluster is asked
about. Then it is a caller as any other: `caller_connection` reads its requests from one end of a local pair, and
`client/tls_relay` has the other. What is not known yet is bounded in number, by address and altogether, in bytes and in
seconds. Its sandbox ends with either of its two connections, and with this process, which moves its pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.codes import UsageCode
from ...core.crowd import Crowd, network_of
from ...core.errors import ConfigurationError, EngineError, QuotaExceeded, SandboxError
from ...core.tasks import Tasks
from .client import packets, tls_relay
from .client.listener_trust import Peer
from .client.network_caller import NetworkCaller
from .client.tls_relay import ConnectionBroken, PacketRelay
from .codes import BrokerCode

if TYPE_CHECKING:
    from ..api import TokenReview
    from .caller_connection import Caller, Service

HANDSHAKE_SECONDS = 5.0
FIRST_WORD_SECONDS = 5.0
"""For the word that says who it is, once there is TLS."""
UNKNOWN, UNKNOWN_OF_AN_ADDRESS = 64, 16
"""Connections whose caller is not known yet. Of more, the oldest of the address that has most is closed."""
MAX_HELLO = 12 << 10
MAX_TOKEN = 8 << 10
MAX_NAME = 300
PASS_SECONDS = 10.0
"""In which a pass is to be used."""
LAST_WORDS_SECONDS = 5.0
"""For the engine to hand over the rest of what an ended sandbox wrote."""
GOODBYE_SECONDS = 1.0
"""For what callers are told at the end of the broker."""
BACKLOG = 64
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]*")
"""What a header can have: it goes into no header here, and is nothing else elsewhere."""


class CertificateFiles(NamedTuple):
    """Paths of PEM files."""

    certificate: str
    private_key: str
    client_authority: str | None
    """Who vouches for callers' certificates; None takes none."""


class Secured:
    """TLS as the files say it, which are read again once one of them is another: a certificate is renewed."""

    def __init__(self, files: CertificateFiles, *, tokens: bool, say: Callable[[str], None]) -> None:
        """`tokens` says whether callers may come without a certificate. Raises `ConfigurationError`."""
        self._files, self._tokens, self._say = files, tokens, say
        self._stamp = self._stamped()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._read()
                self._say("the certificate was read again")
            except ConfigurationError as error:
                self._say(f"{error} What was in force before stays in force.")
        return self._context

    def _stamped(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files if path is not None)

    def _read(self) -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.minimum_version = ssl.TLSVersion.TLSv1_3
        found.num_tickets = 0  # each connection says by itself who it is
        try:
            # A password that is asked for on a terminal would stop the broker.
            found.load_cert_chain(self._files.certificate, self._files.private_key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise _unusable("--certificate, --private-key", error) from error
        if self._files.client_authority is not None:
            try:
                found.load_verify_locations(self._files.client_authority)
            except (OSError, ValueError) as error:
                raise _unusable("--client-authority", error) from error
            found.verify_mode = ssl.CERT_OPTIONAL if self._tokens else ssl.CERT_REQUIRED
        return found


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (asked at each connection)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _unusable(option: str, error: Exception) -> ConfigurationError:
    said = error.strerror if isinstance(error, OSError) else None
    return ConfigurationError(
        UsageCode.WRONG_ARGUMENT, f"{option}: no PEM file that can be used: {said or error}"[:300]
    )


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pipe that waits for its second connection."""

    fd: int
    caller: Caller
    timer: asyncio.TimerHandle


@dataclass(frozen=True, slots=True)
class _Introduced:
    """A connection whose caller is known, and what it is for."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    who: NetworkCaller
    pipe: bytes | None


class NetworkListener:
    """One address on which a broker takes callers."""

    def __init__(self, broker: Service, secured: Secured, review: TokenReview | None) -> None:
        self._broker, self._secured, self._review = broker, secured, review
        self._unknown: Crowd[asyncio.Task[Any]] = Crowd(UNKNOWN, UNKNOWN_OF_AN_ADDRESS, self._crowded_out)
        self._passes: dict[bytes, _Pass] = {}
        self._pipes: dict[Caller, asyncio.StreamWriter] = {}
        """The second connection of each caller that has a sandbox."""
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()

    async def close(self) -> None:
        """Take nobody any more; those who are there hear the rest, for a moment."""
        await self._tasks.close(GOODBYE_SECONDS)
        for name in list(self._passes):
            self._expire(name)
        if self._review is not None:
            await self._review.close()

    def taken(self, sock: socket.socket) -> None:
        """Take a connection, which may be anybody's."""
        try:
            address = str(sock.getpeername()[0])
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # it has gone
            sock.close()
            return
        task = self._tasks.start(self._serve(sock), "a caller of the network")
        task.add_done_callback(lambda _: sock.close())  # also of one that had not begun
        self._unknown.add(task, network_of(address))

    def _crowded_out(self, task: asyncio.Task[Any]) -> None:
        self._broker.figures.refused(BrokerCode.BROKER_BUSY.code)
        task.cancel()

    async def _serve(self, sock: socket.socket) -> None:
        try:
            found = await self._introduced(sock)
        finally:
            if (task := asyncio.current_task()) is not None:
                self._unknown.discard(task)
        if found is None:
            return
        try:
            if found.pipe is None:
                await self._packets(found)
            else:
                await self._pipe(found, found.pipe)
        finally:
            found.writer.transport.abort()

    # --- until it is known who it is ----------------------------------------------------------------------------------

    async def _introduced(self, sock: socket.socket) -> _Introduced | None:
        """Return whose a connection is, None for one that is refused; bounded in bytes and seconds."""
        writer: asyncio.StreamWriter | None = None
        found: _Introduced | None = None
        try:
            reader, writer = await self._over_tls(sock)
            token, pipe = _hello(await tls_relay.receive(reader, MAX_HELLO, FIRST_WORD_SECONDS))
            try:
                who = await self._who(writer, token)
                if (ceiling := self._broker.policy.of(who)).denied:
                    raise QuotaExceeded(BrokerCode.BROKER_DENIED, value=who.name, set_by=ceiling.by("denied"))
            except SandboxError as error:
                self._broker.figures.refused(error.code.code)
                said = packets.packed({"refused": packets.refusal(error), "n": 1})
                await tls_relay.send(writer, tls_relay.PACKET, said)
                await tls_relay.closed(writer)
            else:
                found = _Introduced(reader, writer, who, pipe)
        except (ConnectionBroken, OSError, ValueError):
            self._broker.figures.refused("broker-improper")
        finally:
            if found is None:
                if writer is not None:
                    writer.transport.abort()
                sock.close()
        return found

    async def _over_tls(self, sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(limit=tls_relay.LIMIT_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol,
            sock,
            ssl=self._secured.context(),
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=tls_relay.FLUSH_SECONDS,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _who(self, writer: asyncio.StreamWriter, token: str) -> NetworkCaller:
        """Return who a caller is. Raises `EngineError` for one that nobody vouches for."""
        if certificate := writer.get_extra_info("peercert"):
            return NetworkCaller("certificate", _common_name(certificate))
        if self._review is None or not token:
            raise _unknown("it has neither a certificate nor a token that this broker takes")
        try:
            owner = await self._review.owner(token)
        except EngineError as error:  # what the cluster says of itself is not for a stranger
            self._broker.say(f"a token could not be reviewed: {error}")
            raise _unknown("the broker could not ask the cluster whose the token is") from error
        if owner is None:
            raise _unknown("the cluster does not know the token, or it is for another audience, or its time is over")
        return NetworkCaller("token", owner.name, owner.groups)

    # --- its two connections ------------------------------------------------------------------------------------------

    async def _packets(self, found: _Introduced) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller = self._broker.take(theirs, Peer(0, found.who, -1))
        with ours:
            relay = PacketRelay(
                found.reader,
                found.writer,
                ours,
                pass_for=lambda fd: self._pass_for(fd, caller),
                pipe_of=_no_pipe,
            )
            try:
                if await relay.run() is None:
                    await tls_relay.closed(found.writer)
            finally:
                caller.hang_up()
                if (pipe := self._pipes.get(caller)) is not None:
                    pipe.transport.abort()  # one that nobody reads any more would wait for as long as TCP does

    def _pass_for(self, fd: int, caller: Caller) -> bytes:
        name = secrets.token_bytes(tls_relay.PASS_BYTES)
        self._passes[name] = _Pass(fd, caller, self._loop.call_later(PASS_SECONDS, self._expire, name))
        return name

    async def _pipe(self, found: _Introduced, name: bytes) -> None:
        waiting = self._passes.get(name)
        if waiting is None or waiting.caller.peer.uid != found.who:
            self._broker.figures.refused("broker-improper")
            return
        del self._passes[name]
        waiting.timer.cancel()
        caller = waiting.caller
        self._pipes[caller] = found.writer
        try:
            with socket.socket(fileno=waiting.fd) as sock:
                caller.finish_pipe = lambda: self._finish_later(sock)
                if caller.lent is None or caller.lent.reason is not None:
                    caller.finish_pipe()
                broke = await tls_relay.relay_pipe(found.reader, found.writer, sock)
        finally:
            del self._pipes[caller]
        if broke:
            caller.pipe_broke()

    def _finish_later(self, sock: socket.socket) -> None:
        """Have a pipe end whose sandbox has: what outlives an owner may have a copy of the other end for a moment more.

        What the engine has not handed over yet is waited for.
        """

        def finish() -> None:
            if sock.fileno() >= 0:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD)

        self._loop.call_later(LAST_WORDS_SECONDS, finish)

    def _expire(self, name: bytes) -> None:
        """Close a pipe that nobody came for: its sandbox ends."""
        waiting = self._passes.pop(name, None)
        if waiting is not None:
            waiting.timer.cancel()
            os.close(waiting.fd)


async def _no_pipe(name: bytes) -> int:
    raise ConnectionBroken("a caller sends no pipe")


def _hello(frame: tuple[int, bytes]) -> tuple[str, bytes | None]:
    """Return the token of a first word, and the pass of the pipe that it is for. Raises ValueError."""
    kind, data = frame
    said = packets.unpacked(data)
    if kind != tls_relay.HELLO or said.keys() != {"token", "pipe"}:
        raise ValueError("no first word")
    token = packets.text(said["token"], MAX_TOKEN)
    if not _TOKEN.fullmatch(token):
        raise ValueError("no token")
    return token, None if said["pipe"] is None else bytes.fromhex(packets.text(said["pipe"], 2 * tls_relay.PASS_BYTES))


def _common_name(certificate: dict[str, Any]) -> str:
    """Return the one name in a certificate. Raises `EngineError` for one that has none, or several."""
    rows = certificate.get("subject", ())
    names = [value for row in rows for key, value in row if key == "commonName"]
    if len(names) != 1 or not 0 < len(names[0]) <= MAX_NAME or not names[0].isprintable():
        raise _unknown("its certificate has no common name, or several")
    return str(names[0])


def _unknown(why: str) -> EngineError:
    return EngineError(BrokerCode.BROKER_UNKNOWN_CALLER.note(why=why))


# --- its address ------------------------------------------------------------------------------------------------------


def bound(address: str) -> socket.socket:
    """Return a socket that listens at HOST:PORT. Raises `ConfigurationError`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"--listen: {address!r} is no HOST:PORT"[:200])
    host = host.removeprefix("[").removesuffix("]")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, int(port)))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        words = f"no broker can listen at {address[:200]}: {error.strerror or error}"
        raise ConfigurationError(UsageCode.ADDRESS_UNUSABLE, words) from error
    return sock
