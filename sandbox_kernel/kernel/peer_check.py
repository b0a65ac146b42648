"""Who may connect to the kernel's sockets: processes of the user that runs it, and root's; no frame of others is read.

A port of this machine is open to each of its users, and what ZMQ reads before a signature can be checked has no bound
of its own: a message of endless parts, subscriptions without number. So a connection is judged before its first frame.

macOS has no table of connections with their users. `lsof`, a part of the system, lists the connections of processes
that this user may look at, which are this user's own. So a connection in that list may stay, and any other is refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import zmq

from ..engines.owner_process import told
from .pipe_holder import peer_uid

ZAP_ADDRESS = "inproc://zeromq.zap.01"
"""Where libzmq asks whether a connection may be: https://rfc.zeromq.org/spec/27/."""
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
NO_DESCRIPTOR = "a connection for which no file descriptor is left"
CLOSED = f"a connection that was closed at once{'' if sys.platform == 'linux' else ', or is of another user'}"
RESERVE_MS = 50
"""From one try to the next to have a descriptor in reserve again."""

Refused = Callable[[str], None]


class PeerCheck:
    """Judges each connection to the sockets that `watch` was called for, in a thread of its own.

    libzmq asks again and again for a connection that waits while no file descriptor is left. So there is one in
    reserve: with it the connection is taken, and ended.
    """

    def __init__(self, context: zmq.Context[Any], refused: Refused, *, anybody: bool = False) -> None:
        """`refused` hears, from another thread, why a connection was ended; `anybody` may connect otherwise."""
        self._refused = refused
        self._anybody = anybody
        self._reserve: int | None = None
        self._answers = context.socket(zmq.REP)
        self._answers.linger = 0
        self._answers.bind(ZAP_ADDRESS)
        self._monitors: list[zmq.Socket[Any]] = []
        self._thread = threading.Thread(target=self._run, name="peer-check", daemon=True)

    def watch(self, guarded: zmq.Socket[Any]) -> None:
        """Call before the socket is bound, and before `start`."""
        guarded.zap_domain = b"kernel"  # libzmq asks, and lets nobody speak before the answer
        monitor = guarded.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED)
        monitor.linger = 0
        self._monitors.append(monitor)

    def start(self) -> None:
        self._reserve_one()  # before anything else takes what is left
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, which comes with that of the context."""
        self._thread.join(seconds)

    def _run(self) -> None:
        poller = zmq.Poller()
        for one in (self._answers, *self._monitors):
            poller.register(one, zmq.POLLIN)
        try:
            while True:
                self._reserve_one()
                ready = dict(poller.poll(RESERVE_MS if self._reserve is None else None))
                asked = self._answers.recv_multipart() if self._answers in ready else None
                # Who is asked about was accepted before, so whoever must go has been shut out before the answer.
                for monitor in self._monitors:
                    self._look(monitor)
                if asked is not None:
                    self._answers.send_multipart([*asked[:2], b"200", b"OK", b"", b""])
        except zmq.ZMQError:
            pass  # the context ends, and this thread with it
        finally:
            for one in (self._answers, *self._monitors):
                one.close(linger=0)
            self._give_up_reserve()

    def _reserve_one(self) -> None:
        if self._reserve is None:
            with contextlib.suppress(OSError):
                self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _give_up_reserve(self) -> None:
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            os.close(reserve)

    def _look(self, monitor: zmq.Socket[Any]) -> None:
        while True:
            try:
                event, *_ = monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            kind, descriptor = struct.unpack("=hi", event)
            if kind == zmq.EVENT_ACCEPTED:
                self._judge(descriptor)
            elif kind == zmq.EVENT_ACCEPT_FAILED:
                self._give_up_reserve()

    def _judge(self, descriptor: int) -> None:
        """End a connection that may not stay. No descriptor is made for that: there may be none left."""
        try:
            peer = socket.socket(fileno=descriptor)
        except OSError:
            return  # gone already, or the number is another file's by now
        try:
            reason = NO_DESCRIPTOR if self._reserve is None else None if self._anybody else why_not(peer)
            if reason is None:
                return
            peer.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # gone by itself
        finally:
            peer.detach()
        self._refused(reason)


def why_not(peer: socket.socket) -> str | None:
    """Return why the other end of an accepted connection may not stay, None if it may."""
    try:
        if peer.family == socket.AF_UNIX:
            return _of(peer_uid(peer))
        here, there = peer.getsockname()[:2], peer.getpeername()[:2]
    except OSError:
        return CLOSED
    try:
        uid = owner(there, here)
    except OSError as error:
        return f"a connection, since the kernel's table of connections cannot be read: {error}"
    if uid is None:
        local = ip_address(here[0]).is_loopback or here[0] == there[0]
        # Whoever is on another machine has the key or has not; see `transport_encryption` in docs/isolation.md.
        return CLOSED if local else None
    return _of(uid)


def _of(uid: int) -> str | None:
    return None if uid in (os.geteuid(), 0) else f"a connection of another user of this machine, uid {uid}"


def owner(end: tuple[str, int], other: tuple[str, int]) -> int | None:
    """Return the user who holds `end` of a TCP connection on this machine, None if nobody does. Raises `OSError`."""
    if sys.platform != "linux":
        return _owner_by_lsof(end, other)
    wanted = [(_hex(*end, wide=wide), _hex(*other, wide=wide)) for wide in (False, True)]
    for table, pair in zip(TABLES, wanted, strict=True):
        if None in pair:
            continue
        try:
            file = Path(table).open(encoding="ascii")  # noqa: SIM115 (closed below)
        except FileNotFoundError:
            if table == TABLES[0]:
                raise
            continue  # a machine without IPv6
        with file:
            for line in file:
                fields = line.split()
                # Without an inode it is what remains of one that its owner has closed.
                if (fields[1], fields[2]) == pair and fields[9] != "0":
                    return int(fields[7])
    return None


def _owner_by_lsof(*ends: tuple[str, int]) -> int | None:
    """Return the user who holds the first end of a connection, None if this user may not know."""
    line = "n" + "->".join(f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address, port in ends)
    uid = None
    for said in told("lsof", "-nP", "-w", f"-iTCP:{ends[0][1]}", "-Fun").splitlines():  # a user, then the files
        uid = int(said[1:]) if said[:1] == "u" else uid
        if said == line:
            return uid
    return None


def _hex(address: str, port: int, *, wide: bool) -> str | None:
    """Write an address as the tables do: words of four bytes as this processor reads them. None if it cannot be."""
    found = ip_address(address.partition("%")[0])
    if wide and found.version == 4:
        found = IPv6Address(b"\0" * 10 + b"\xff\xff" + found.packed)
    elif not wide and isinstance(found, IPv6Address):
        if found.ipv4_mapped is None:
            return None
        found = found.ipv4_mapped
    words = struct.unpack(f"={len(found.packed) // 4}I", found.packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
