"""Holds a container's pipe for the seconds between two kernel processes, so that a restart keeps the files.

A restart by `jupyter_client` ends the process and starts a new one with the same connection file. The old process
leaves the pipe with this one, which gives it to the new one and ends; if none comes in time it just ends, and the
container with it. Runs as a script of its own (`python -I -S keeper.py ...`), so it imports the standard library only.

The meeting place is an abstract unix socket: nothing in the file system can be left behind or be planted. Its name is a
hash that needs the connection's secret key, and both ends check that the other is the same user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import sys
import time
from typing import Any

HOLD_SECONDS = 20.0
"""How long a successor may take to come: starting a Python process, on a busy machine."""
MEET_SECONDS = 2.0
MAX_STATE = 64 << 20


def address(connection_file: str, key: str) -> str:
    """Return where the old and the new process of one connection file meet."""
    secret = f"{os.path.abspath(connection_file)}\0{key}".encode()  # noqa: PTH100 (pathlib is slow to import)
    return "\0sandbox-kernel-" + hashlib.sha256(secret).hexdigest()


def listen(name: str) -> socket.socket:
    """Return a socket at the meeting place. Raises `OSError` when somebody is there already."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(name)
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener


def keep(listener: socket.socket, fd: int, state: bytes, seconds: float) -> bool:
    """Give `fd` and `state` to the first process of the same user that comes; return whether one came."""
    deadline = time.monotonic() + seconds  # of all tries: who comes again and again must not keep a container
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            peer, _ = listener.accept()
        except TimeoutError:
            break
        with peer:
            if not _same_user(peer):
                continue
            peer.settimeout(MEET_SECONDS)
            with contextlib.suppress(OSError):
                socket.send_fds(peer, [struct.pack("!I", len(state))], [fd])
                peer.sendall(state)
                return True
    return False


def collect(name: str) -> tuple[int, dict[str, Any]] | None:
    """Return the file descriptor and the state that were left at the meeting place, None if there is nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(MEET_SECONDS)
        try:
            peer.connect(name)
            if not _same_user(peer):
                return None
            head, fds, _, _ = socket.recv_fds(peer, 4, 1)
        except OSError:
            return None
        if len(head) != 4 or len(fds) != 1:
            for fd in fds:
                os.close(fd)
            return None
        (size,) = struct.unpack("!I", head)
        data = bytearray()
        try:
            while len(data) < min(size, MAX_STATE) and (chunk := peer.recv(1 << 16)):
                data += chunk
            state = json.loads(data)
        except (OSError, ValueError, RecursionError):
            state = None
        if not isinstance(state, dict):
            os.close(fds[0])
            return None
        return fds[0], state


def _same_user(peer: socket.socket) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.geteuid())


def main(argv: list[str]) -> int:
    """Run as the keeper: file descriptors of the listener and the pipe as arguments, the state on stdin."""
    listener_fd, fd = (int(argument) for argument in argv)
    state = sys.stdin.buffer.read()
    with socket.socket(fileno=listener_fd) as listener:
        keep(listener, fd, state, HOLD_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
