"""The five ZMQ sockets of a kernel: binding, signing, and reading them from asyncio. They are a `Transport`."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import zmq

from ..core.codes import EndCode, MessageCode
from ..core.errors import ConfigurationError, ProtocolError
from ..core.events import Emit, MessageLost, RequestRefused
from ..core.model import Channel, Message
from ..policy import protocol
from ..session.serving.server import MessageHeaders
from .kept_ports import NO_PORTS
from .peer_check import PeerCheck

DELIMITER = b"<IDS|MSG>"
"""Stands between a message's routing identities and its signature."""
REMEMBERED = 1 << 16
"""Signatures of messages that came; the oldest is forgotten for one more."""
SIGNED_PARTS = 4
"""Header, parent header, metadata and content. Buffers are not signed, says the protocol."""


class Signatures:
    """Signs what goes and checks what comes, with the key of a connection file; an empty one lets everybody send."""

    def __init__(self, key: bytes, scheme: str = "hmac-sha256") -> None:
        """`scheme` is "hmac-" and a hash of Python's. Raises `ConfigurationError` for any other."""
        family, _, name = scheme.partition("-")
        try:
            if family != "hmac":
                raise ValueError(scheme)
            keyed = hmac.new(key, digestmod=name)
            keyed.hexdigest()  # a hash without a length of its own cannot be one
        except (ValueError, TypeError):
            raise ConfigurationError(
                EndCode.WRONG_SETTING.note(), limit="hmac-sha256", value=repr(scheme), setting="signature_scheme"
            ) from None
        self._keyed = keyed if key else None
        self._seen: dict[bytes, None] = {}

    def sign(self, parts: Iterable[Any]) -> bytes:
        """Return the signature of the four parts of a message, which is empty without a key."""
        if self._keyed is None:
            return b""
        mac = self._keyed.copy()
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def verified(self, parts: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the identity of a message's sender, and its parts after the signature.

        Raises `ProtocolError` for a message without the four parts, with a wrong signature, or that came before.
        """
        try:
            middle = parts.index(DELIMITER)
        except ValueError:
            raise ProtocolError(MessageCode.NOT_A_REQUEST.note(why="it has no delimiter")) from None
        if middle != 1:
            raise ProtocolError(MessageCode.NOT_A_REQUEST.note(why=f"it has {middle} routing identities"))
        rest = parts[middle + 2 :]
        if len(rest) < SIGNED_PARTS:
            raise ProtocolError(MessageCode.NOT_A_REQUEST.note(why=f"it has {len(rest)} parts of 4"))
        if self._keyed is not None:
            self._check(parts[middle + 1], rest[:SIGNED_PARTS])
        return parts[0], rest

    def _check(self, signature: bytes, parts: list[bytes]) -> None:
        if not hmac.compare_digest(signature, self.sign(parts)):
            raise ProtocolError(MessageCode.WRONG_SIGNATURE)
        if signature in self._seen:  # only what was signed is remembered: nobody else can fill the memory
            raise ProtocolError(MessageCode.SENT_TWICE)
        self._seen[signature] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]


NO_COPY = 1 << 16
"""Bytes from which a part is handed to ZMQ without a copy."""
LARGE = 1 << 20
"""Bytes of a part from which it pays to keep the memory for the next one."""
BURST = 100
"""Messages read in a row before other work gets its turn."""
SMALL_FRAME = 1024
"""Bytes of a heartbeat or a subscription: clients send a few at most."""
REQUEST_FRAME = 4 << 20
"""Bytes of a frame that can always come: a chunk of a file in base64 is 1.4 million."""
WAITING_REQUESTS = 100
"""Of each client, between ZMQ and this process; more of them wait in the system's buffers."""
MAX_NOTED = 1000
"""Most lines of the audit about unsigned messages: anybody can send those without a key."""
LINGER_MS = 1000
QUEUED_MESSAGES = 110_000
"""For each client; a cell's own limits (`output_messages`, `output_limit`) bound what there is to wait."""
WAITING_BYTES = 1 << 30
"""Of messages that the slowest client has not taken yet; what comes above that is lost to all, and said so.

Eight times what a cell may send with the default settings: a client that is so far behind does not read at all.
"""

OnRequest = Callable[[Message, bytes], None]


class FrontSockets:
    """Bound sockets, whose requests go to `on_request` with the identity of the client."""

    def __init__(
        self,
        connection: Mapping[str, Any],
        on_request: OnRequest,
        emit: Emit,
        *,
        message_bytes: int,
        anybody: bool = False,
        ports: Mapping[str, int] = NO_PORTS,
    ) -> None:
        """Bind; call from the loop. A request may have `message_bytes`; `anybody` of this machine may connect.

        `ports` are sockets by channel that listen already, at the same addresses; they are closed with these.

        A frame of up to twice that size is read, so that what is too large is answered; a larger one ends its
        connection. Nothing but a signature tells whether who sent it may, and that comes with the last frame.
        """
        self._on_request = on_request
        self._emit = emit
        self._noted = 0
        self._connection = connection
        self._ports = ports
        self._frame_bytes = max(2 * message_bytes, REQUEST_FRAME)
        scheme = str(connection.get("signature_scheme") or "hmac-sha256")
        self._signatures = Signatures(str(connection.get("key", "")).encode(), scheme)
        if not connection.get("key"):
            sys.stderr.write("sandbox-kernel: the connection file has no key, so requests are not signed\n")
        self._headers = MessageHeaders()
        self._context = zmq.Context()
        self._sockets: dict[Channel, zmq.Socket[Any]] = {}
        self._leaving: list[tuple[zmq.MessageTracker, int]] = []
        self._published: deque[tuple[zmq.MessageTracker, int]] = deque()
        """Messages on their way to all clients, in order, each with the bytes of it and of those before it."""
        self._published_bytes = 0
        self._untracked = 0
        """Bytes of small messages that were published behind the last of those."""
        self._waiting_bytes = max(WAITING_BYTES, 4 * message_bytes)
        self.listeners = 0
        """Subscriptions to what is published that are in force."""
        self._listening = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._peers = PeerCheck(self._context, lambda why: _call(loop, self._shut_out, why), anybody=anybody)
        for channel, kind in (
            ("shell", zmq.ROUTER),
            ("control", zmq.ROUTER),
            ("stdin", zmq.ROUTER),
            ("iopub", zmq.XPUB),
        ):
            self._sockets[channel] = self._bind(channel, kind)  # type: ignore[index]
        # Heartbeats are answered by a thread inside libzmq, off the interpreter and its loop: clients allow 1 s.
        self._heartbeat = self._bind("hb", zmq.ROUTER)
        self._peers.start()
        self._beat = threading.Thread(target=self._echo, name="heartbeat", daemon=True)
        self._beat.start()

    def _bind(self, channel: str, kind: int) -> zmq.Socket[Any]:
        connection = self._connection
        socket = self._context.socket(kind)
        socket.linger = LINGER_MS
        socket.maxmsgsize = SMALL_FRAME if channel in ("iopub", "hb") else self._frame_bytes
        socket.rcvhwm = WAITING_REQUESTS
        if channel == "hb":
            socket.sndhwm = WAITING_REQUESTS
        if kind == zmq.ROUTER:
            socket.router_handover = 1
        else:
            socket.xpub_verboser = 1  # every subscription gets its welcome, and the end of each is noticed
            # All of a cell's outputs may wait for a slow client; beyond ZMQ's 1,000, idle itself would be lost.
            socket.sndhwm = QUEUED_MESSAGES
        if connection.get("curve_secretkey"):
            socket.curve_secretkey = str(connection["curve_secretkey"]).encode()
            socket.curve_publickey = str(connection["curve_publickey"]).encode()
            socket.curve_server = True
        self._peers.watch(socket)
        transport, ip, port = connection.get("transport", "tcp"), connection["ip"], connection[f"{channel}_port"]
        if channel in self._ports:
            socket.use_fd = self._ports[channel]
        mask = os.umask(0o177)  # with the transport ipc, a socket is a file
        try:
            socket.bind(f"{transport}://{ip}{':' if transport == 'tcp' else '-'}{port}")
        finally:
            os.umask(mask)
        return socket

    def _note(self, event: RequestRefused | MessageLost) -> None:
        self._noted += 1
        if self._noted < MAX_NOTED:
            self._emit(event)
        elif self._noted == MAX_NOTED:
            self._emit(event.having(last="no more of this is written"))

    def _shut_out(self, why: str) -> None:
        if not self._noted:
            sys.stderr.write(f"sandbox-kernel: refused {why} (setting: clients)\n")
        self._note(RequestRefused(reason=f"{why}; setting: clients"))

    def _echo(self) -> None:
        try:
            zmq.proxy(self._heartbeat, self._heartbeat)
        except zmq.ZMQError:
            pass
        finally:
            self._heartbeat.close(linger=0)

    def listen(self) -> None:
        """Begin to read; call from the loop."""
        loop = asyncio.get_running_loop()
        for channel, socket in self._sockets.items():
            loop.add_reader(socket.fileno(), self._readable, channel)
            self._readable(channel)

    def drain(self, channel: Channel = "shell") -> None:
        """Take in every request that has arrived."""
        while self._read_one(channel):
            pass

    def _readable(self, channel: Channel) -> None:
        # ZMQ's file descriptor is edge-triggered: whatever is not read now must be asked for again.
        for _ in range(BURST):
            if not self._read_one(channel):
                return
        asyncio.get_running_loop().call_soon(self._readable, channel)

    def _read_one(self, channel: Channel) -> bool:
        socket = self._sockets.get(channel)
        if socket is None or socket.closed:
            return False
        try:
            parts: list[bytes] = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        if channel == "iopub":
            self._subscribed(parts[0])
            return True
        try:
            message, client = self._decode(channel, parts)
        except ProtocolError as error:
            reason = f"not a proper request on {channel}: {error.message}"
            self._note(RequestRefused(reason=reason, code=error.code))
        else:
            self._on_request(message, client)
        return True

    def _decode(self, channel: Channel, parts: list[bytes]) -> tuple[Message, bytes]:
        client, rest = self._signatures.verified(parts)
        header, _, metadata, content = (protocol.parse_object(part) for part in rest[:4])
        protocol.check_identifiers(header)
        protocol.dumps(header)  # every answer repeats it; it may nest deeper than can be said again
        message = Message(channel=channel, header=header, metadata=metadata, content=content, buffers=tuple(rest[4:]))
        return message, client

    async def until_heard_by(self, listeners: int) -> None:
        """Wait until so many subscriptions are in force."""
        while self.listeners < listeners:
            self._listening.clear()
            await self._listening.wait()

    def _subscribed(self, event: bytes) -> None:
        if event[:1] == b"\x00":
            self.listeners -= 1
        elif event[:1] == b"\x01":
            self.listeners += 1
            self._listening.set()
            content = {"subscription": event[1:].decode(errors="replace")}
            message = Message(channel="iopub", header={"msg_type": "iopub_welcome"}, content=content)
            self.send(message, None, topic=event[1:])

    def _welcome_first(self) -> None:
        """Welcome who has just subscribed: the socket hands over to them already, and the first word is the welcome."""
        for _ in range(BURST):
            if not self._read_one("iopub"):
                return

    def send(self, message: Message, client: bytes | None = None, *, topic: bytes | None = None) -> None:
        """Sign and send a message with a header of our own. Raises `ProtocolError` if it cannot be said in JSON."""
        kind = message.type
        header = self._headers.of(kind)
        parts = [protocol.dumps(part) for part in (header, message.parent, message.metadata, message.content)]
        prefix = topic if topic is not None else f"kernel.{self._headers.session}.{kind}".encode()
        first = client if client is not None else prefix
        everything: list[Any] = [first, DELIMITER, self._signatures.sign(parts), *parts, *message.buffers]
        if client is None and not prefix:
            del everything[0]
        socket = self._sockets[message.channel]
        if message.channel == "iopub" and topic is None:
            self._welcome_first()
        sizes = list(map(len, everything))
        size, largest = sum(sizes), max(sizes)
        large = largest >= NO_COPY
        if largest >= LARGE:
            from ..core.heap import keep_freed

            keep_freed()
        if client is None:
            if self._is_lost(kind, size, welcome=topic is not None):
                return
            # One that is tracked stands for the small ones before it: they leave in order.
            size = self._untracked = self._untracked + size
        tracker = None
        if large or (client is None and size >= LARGE):
            # Of several parts, pyzmq tracks the last one, and none of less than `NO_COPY` unless it is made a frame.
            last = zmq.Frame(everything.pop(), track=True, copy=False, copy_threshold=0)
            tracker = last.tracker
            everything.append(last)
            del last  # whoever has the frame keeps it from being sent
            self._untracked = 0 if client is None else self._untracked
        try:
            socket.send_multipart(everything, zmq.NOBLOCK, copy=not large)
            if tracker is not None:
                (self._published if client is None else self._leaving).append((tracker, size))
                self._published_bytes += size if client is None else 0
        except zmq.Again:
            self._note(MessageLost(reason=f"a client reads too slowly: a {kind} was not sent"))
        if int(socket.get(zmq.EVENTS)) & zmq.POLLIN:
            asyncio.get_running_loop().call_soon(self._readable, message.channel)

    def _is_lost(self, kind: str, size: int, *, welcome: bool) -> bool:
        """Return whether what is published is lost to all, as too much waits already; what ends a cell never is."""
        while self._published and self._published[0][0].done:
            self._published_bytes -= self._published.popleft()[1]
        if welcome or kind == "status" or self._published_bytes + self._untracked + size <= self._waiting_bytes:
            return False
        self._note(MessageLost(reason=f"a client does not read: a {kind} was not sent"))
        return True

    def unsent_bytes(self) -> int:
        """Return the bytes of large replies that no client has taken yet."""
        self._leaving = [(tracker, size) for tracker, size in self._leaving if not tracker.done]
        return sum(size for _, size in self._leaving)

    def close(self) -> None:
        """Close the sockets; what was sent still gets a second to leave."""
        loop = asyncio.get_running_loop()
        for socket in self._sockets.values():
            loop.remove_reader(socket.fileno())
            socket.close()
        self._sockets = {}

    def destroy(self) -> None:
        """End the context and the heartbeat; waits for what is still leaving, a second at most."""
        self._context.term()
        self._beat.join(LINGER_MS / 1000)
        self._peers.join(LINGER_MS / 1000)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[str], None], argument: str) -> None:
    """Call from another thread; a loop that has ended needs no calls."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, argument)
