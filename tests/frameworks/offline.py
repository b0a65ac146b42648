"""Refuses whatever would leave this machine, and remembers it: an audit hook that sees every socket of the process."""

from __future__ import annotations

import ipaddress
import sys

attempts: list[str] = []
"""What was tried since `watch()`."""
_watching = False


def watch(on: bool = True) -> None:
    """Begin, or end, to refuse."""
    global _watching  # noqa: PLW0603 (a hook is one of the process, and stays for good)
    _watching = on
    attempts.clear()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching or not event.startswith("socket."):
        return
    host: object = None
    if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = arguments[0]
    elif event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
        host = arguments[1][0]  # a unix socket has a path, and no tuple
    if host is not None and not _is_here(host):
        attempts.append(f"{event} {host!r}")
        raise OSError(f"a test may not reach {host!r}")


def _is_here(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


sys.addaudithook(_hook)
