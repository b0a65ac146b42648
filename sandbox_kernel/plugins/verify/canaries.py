"""What a hostile cell would like to reach on this machine: sockets, a file, shared memory, a name in a folder.

All of it is laid out by the host for a while, and says afterwards whether anybody came: that is the host's own word.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

PLACES = ("/", "/dev/shm", "/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr/local", "/var/tmp")  # noqa: S108
"""Folders of the host in which a name from inside is looked for, besides those that are told."""
TOKEN_BYTES = 256
"""What is read of one who comes: the session's name, which is shorter, and nothing else counts."""
CALLS = 10_000
"""How many who come are listened to at one socket; more than a queue of the system's holds."""


@dataclass(slots=True)
class Canaries:
    """What lies ready, and what the sandbox is told of it."""

    given: dict[str, Any]
    untold: str
    """A word that lies in the file, and that the sandbox is not told."""
    listeners: dict[str, socket.socket] = field(default_factory=dict)

    def arrived(self) -> tuple[str, ...]:
        """Return at which of the sockets the sandbox has come: it has the word, and nobody else of this machine."""
        word = str(self.given["session"]).encode()
        return tuple(name for name, listener in self.listeners.items() if word in islice(_heard(listener), CALLS))

    def planted(self, folders: Iterable[Path] = ()) -> tuple[Path, ...]:
        """Remove the files that the sandbox has planted on this machine, and return where they lay."""
        found = []
        for folder in {*map(Path, PLACES), Path(self.given["folder"]), Path.home(), Path.cwd(), *folders}:
            path = folder / self.given["marker"]
            with contextlib.suppress(OSError):
                if path.read_text(encoding="utf-8") in (self.given["secret"], self.given["marker"]):
                    found.append(path)
                    path.unlink()
        return tuple(sorted(found))


def _heard(listener: socket.socket) -> Iterator[bytes]:
    """Yield the beginning of all that was sent to a socket, without waiting for more."""
    listener.setblocking(False)
    with contextlib.suppress(OSError):
        while listener.type is socket.SOCK_DGRAM:
            yield listener.recv(TOKEN_BYTES)
        while True:
            with listener.accept()[0] as way, contextlib.suppress(OSError):
                way.setblocking(False)
                yield way.recv(TOKEN_BYTES)


@contextlib.contextmanager
def laid(session: str, folder: Path) -> Iterator[Canaries]:
    """Lay it out, in part in an empty folder of the caller's, and take it away at the end."""
    libc, key = ctypes.CDLL(None, use_errno=True), 0x5A000000 + secrets.randbelow(1 << 24)
    mode = 0o1666 | 0o2000  # IPC_CREAT | IPC_EXCL, for everybody
    untold = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        file = folder / "file"
        file.write_text(f"{session} {untold}", encoding="utf-8")
        at_path = stack.enter_context(socket.socket(socket.AF_UNIX))
        at_path.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        at_path.listen()
        if sys.platform == "linux":  # macOS has neither: there is nothing to be reached
            abstract.bind(f"\0{session}")
            abstract.listen()
            shared = Path("/dev/shm", session)  # noqa: S108
            shared.write_text("shared", encoding="utf-8")
            stack.callback(shared.unlink)
        stack.callback((folder / "socket").unlink)
        for name, arguments, remove in (
            ("shmget", (key, 4096, mode), lambda number: libc.shmctl(number, 0, None)),
            ("msgget", (key, mode), lambda number: libc.msgctl(number, 0, None)),
            ("semget", (key, 1, mode), lambda number: libc.semctl(number, 0, 0)),
        ):
            if (number := getattr(libc, name)(*arguments)) >= 0:
                stack.callback(remove, number)
        yield Canaries(
            {
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                "abstract": f"\0{session}",
                "file": str(file),
                "folder": str(folder),
                "secret": session,
                "session": session,
                "marker": f"planted-{session}",
                "key": key,
                "pid": os.getpid(),
            },
            untold,
            {"tcp": tcp, "udp": udp, "abstract": abstract, "path": at_path},
        )
