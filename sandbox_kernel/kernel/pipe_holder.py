"""Holds a container's pipe for the seconds between two kernel processes, so that a restart keeps the files.

A restart by `jupyter_client` ends the process and starts a new one with the same connection file. The old process
leaves the pipe with this one, which gives it to the new one and ends; if none comes in time it just ends, and the
container with it. Runs as a script of its own (`python -I -S pipe_holder.py ...`), so it imports the standard library
only.

The meeting place is a socket file in a folder in which nobody else can write: beside the connection file, where the
front end keeps the key, else in the user's own runtime folder or home. So no other user can take it, before or after,
and both ends check that the other is the same user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

CLAIM = b'{"op": "claim"}'
"""What a successor says; it is answered with the names of descriptors, which come along behind that of the state."""
MAX_BYTES = 4096
MAX_FILES = 16
HOLD_SECONDS = 20.0
"""How long a successor may take to come: starting a Python process, on a busy machine."""
MEET_SECONDS = 2.0
NO_ROOM_SECONDS = 0.1
MAX_STATE = 64 << 20


class MeetingPlace(NamedTuple):
    """Where the old and the new process of a connection file meet: a name in the first folder that will do."""

    folders: tuple[str, ...]
    name: str


def place(connection_file: str, key: str) -> MeetingPlace:
    """Return the meeting place; the name needs the key, so that two connection files never share one."""
    path = os.path.abspath(connection_file)  # noqa: PTH100 (pathlib is slow to import)
    uid = os.geteuid()
    folders = [os.path.dirname(path), f"/run/user/{uid}"]  # noqa: PTH120 (as above)
    with contextlib.suppress(KeyError):  # a user that no table names
        folders.append(pwd.getpwuid(uid).pw_dir)
    return MeetingPlace(tuple(folders), "sandbox-kernel-" + hashlib.sha256(f"{path}\0{key}".encode()).hexdigest()[:32])


def _own_folders(meeting: MeetingPlace) -> Iterator[tuple[str, int]]:
    """Yield the folders that belong to this user and that nobody else can write in, each with an open descriptor."""
    for path in meeting.folders:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            status = os.fstat(fd)
            if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                yield path, fd
        finally:
            os.close(fd)


def _beneath(path: str, folder: int, name: str) -> str:
    # An address holds 107 bytes, which the path of a folder alone can have. macOS has no other name for a folder, and
    # 103 bytes: that a folder was swapped is seen by the user of the other end.
    return f"/proc/self/fd/{folder}/{name}" if sys.platform == "linux" else f"{path}/{name}"


def listen(meeting: MeetingPlace) -> tuple[socket.socket, str]:
    """Return a socket at the meeting place, and the path of its file. Raises `OSError` if no folder will do.

    A file of that name is one that a killed pipe holder left: no other user can have put it there.
    """
    problem = OSError("no folder of this user is closed to others")
    for path, folder in _own_folders(meeting):
        listener = socket.socket(socket.AF_UNIX)
        try:
            _unlink(meeting.name, folder)
            listener.bind(_beneath(path, folder, meeting.name))
            os.chmod(meeting.name, 0o600, dir_fd=folder)  # before anybody can connect
            listener.listen(1)
        except OSError as error:  # some file systems hold no sockets
            listener.close()
            problem = error
        else:
            return listener, f"{path}/{meeting.name}"
    raise problem


def forget(path: str) -> None:
    """Remove the file of a meeting place."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 (as above)


def keep(listener: socket.socket, state: int, files: Mapping[str, int], seconds: float) -> bool:
    """Give `files` and the file `state` to the first process of the same user that claims them.

    Returns whether one came.
    """
    deadline = time.monotonic() + seconds  # of all tries: who comes again and again must not keep a container
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            peer, _ = listener.accept()
        except TimeoutError:
            break
        except OSError:  # no room for a descriptor: retry, since the awaited process is connecting
            time.sleep(min(left, NO_ROOM_SECONDS))
            continue
        with peer:
            if not _same_user(peer):
                continue
            peer.settimeout(MEET_SECONDS)
            with contextlib.suppress(OSError):
                if peer.recv(len(CLAIM) + 1) == CLAIM:
                    socket.send_fds(peer, [json.dumps([*files]).encode()], [state, *files.values()])
                    with contextlib.suppress(OSError):
                        peer.recv(1)  # until they are taken: macOS may lose what its sender closes before
                    return True
    return False


def collect(meeting: MeetingPlace) -> tuple[dict[str, int], dict[str, Any]] | None:
    """Return the descriptors by name and the state that were left at the meeting place, None if there is nothing."""
    for path, folder in _own_folders(meeting):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(MEET_SECONDS)
            try:
                peer.connect(_beneath(path, folder, meeting.name))
            except OSError as error:
                if isinstance(error, ConnectionRefusedError):  # a pipe holder was killed and left its file
                    _unlink(meeting.name, folder)
                continue
            _unlink(meeting.name, folder)
            return _received(peer) if _same_user(peer) else None
    return None


def left(meeting: MeetingPlace) -> bool:
    """Return whether something may have been left at the meeting place."""
    return any(os.path.lexists(_beneath(path, folder, meeting.name)) for path, folder in _own_folders(meeting))


def _unlink(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _received(peer: socket.socket) -> tuple[dict[str, int], dict[str, Any]] | None:
    fds: list[int] = []
    try:
        peer.send(CLAIM)
        data, fds, _, _ = socket.recv_fds(peer, MAX_BYTES, MAX_FILES, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for fd in fds:
            os.set_inheritable(fd, False)
        names, state = json.loads(data), _read(fds[0])
        if not isinstance(state, dict) or len({*names}) != len(names):
            raise ValueError("that is no state")
        files = dict(zip(names, fds[1:], strict=True))
        os.close(fds[0])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        for fd in fds:
            os.close(fd)
        return None
    return files, state


def _read(fd: int) -> Any:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_STATE:  # one that is read cannot be waited for
        raise ValueError("that is no state")
    return json.loads(os.pread(fd, status.st_size, 0))


def peer_uid(peer: socket.socket) -> int:
    """Return the user of the process at the other end of a socket with a path. Raises `OSError`."""
    if sys.platform == "linux":
        return int(struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
    version, uid = struct.unpack_from("=2I", peer.getsockopt(0, socket.LOCAL_PEERCRED, 76))  # SOL_LOCAL, struct xucred
    if version != 0:
        raise OSError(f"credentials of an unknown form, {version}")
    return int(uid)


def _same_user(peer: socket.socket) -> bool:
    return peer_uid(peer) == os.geteuid()


def set_limits() -> None:
    """Have this process write no core, for the state may hold a key, and have as many open files as it may.

    Linux compares its limit with the descriptors on their way of all processes of the user: a cell may have some.
    """
    import resource  # the kernel process, which imports this module, has no use for it

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str]) -> int:
    """Run as the pipe holder. Arguments: the listener's descriptor and path, and files by name; the state is stdin."""
    set_limits()
    listener_fd, path, files = int(argv[0]), argv[1], dict(word.split("=") for word in argv[2:])
    file = inode_of(path)
    with socket.socket(fileno=listener_fd) as listener:
        given = keep(listener, sys.stdin.fileno(), {name: int(fd) for name, fd in files.items()}, HOLD_SECONDS)
        # Unlinked by who collected; else by this process, unless a later one has put its own there.
        if not given and inode_of(path) == file:
            forget(path)
    return 0


def inode_of(path: str) -> int:
    """Return the number of a file, -1 if there is none."""
    try:
        return os.stat(path).st_ino  # noqa: PTH116 (as above)
    except OSError:
        return -1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
