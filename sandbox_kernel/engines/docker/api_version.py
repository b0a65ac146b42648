"""Which version of the Engine API is spoken: the smaller one of ours and the engine's.

A request without a version in its path gets the engine's newest, whose words this package may not know.
Standard library only: the reaper's process loads this file by its path.
"""

from __future__ import annotations

import re
import socket
import time

OURS = (1, 52)
"""What the requests of this package are written for: Docker 29's. Docker 29 may speak none below 1.44."""
OLDEST = (1, 41)
"""Docker 20.10, the oldest that knows `CgroupnsMode`."""
HEAD_BYTES = 64 << 10

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_prefixes: dict[str, str] = {}


def number(said: str) -> tuple[int, int] | None:
    """Return a version of the API as it can be compared; None for what is none."""
    found = _VERSION.fullmatch(said)
    return found and (int(found[1]), int(found[2]))


def prefix(said: str) -> str:
    """Return what paths begin with for an engine with this header `Api-Version`; nothing where it has none."""
    found = number(said)
    return "" if found is None else "/v{}.{}".format(*min(OURS, found))


def note(path: str, said: str) -> str:
    """Keep for this process what the engine behind a socket said last of itself; return what paths begin with."""
    if said or path not in _prefixes:
        _prefixes[path] = prefix(said)
    return _prefixes[path]


def known(path: str) -> str | None:
    """Return what paths begin with for the engine behind a socket, None if this process has not asked it yet."""
    return _prefixes.get(path)


def ask(path: str, seconds: float) -> str:
    """Ask the engine behind a socket, which takes 0.1 ms, and return what paths begin with. Raises OSError."""
    return note(path, _header(_head(path, seconds), "api-version"))


def product(path: str, seconds: float) -> str:
    """Ask in the same way, and return what listens: "Docker" or "Libpod", which is Podman. Raises OSError."""
    head = _head(path, seconds)
    note(path, _header(head, "api-version"))
    return _header(head, "server").partition("/")[0]


def is_too_old(path: str) -> bool:
    """Return whether the engine behind a socket that was asked has said a version before `OLDEST`."""
    found = number(_prefixes.get(path, "").removeprefix("/v"))
    return found is not None and found < OLDEST


def _header(head: str, name: str) -> str:
    found = re.search(rf"^{name}:(.*)$", head, re.IGNORECASE | re.MULTILINE)
    return found[1].strip() if found else ""


def _head(path: str, seconds: float) -> str:
    data, end = b"", time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
        engine.settimeout(seconds)
        engine.connect(path)
        engine.sendall(b"HEAD /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
        while b"\r\n\r\n" not in data and len(data) < HEAD_BYTES and (piece := engine.recv(4096)):
            data += piece
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError(f"no whole answer within {seconds:g} s")
            engine.settimeout(left)
    return data.decode("latin-1")
