"""How others read a host and an address, to judge a decision by: the C library, curl, urllib, urllib3 and `ipaddress`.

Nothing here imports what is judged. A program on the way, or the resolver, reads one of these ways.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import socket
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

import idna
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

Address = IPv4Address | IPv6Address

NO_TOPS = ("localhost", "local", "localdomain", "onion", "alt", "invalid")
"""Last labels that the standards keep for something else than hosts of the domain name system."""

_URL, _HOST, _PORT = 0, 5, 6
"""Parts of an address to curl."""


class _Curl:
    """The part of libcurl that takes addresses apart."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.curl_url.restype = ctypes.c_void_p
        self._library.curl_url_cleanup.argtypes = [ctypes.c_void_p]
        self._library.curl_url_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
        self._library.curl_url_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint]
        self._library.curl_free.argtypes = [ctypes.c_void_p]

    def parts(self, url: bytes) -> tuple[str, int | None] | None:
        """Return host and port of an address, None if curl refuses it."""
        handle = self._library.curl_url()
        try:
            if self._library.curl_url_set(handle, _URL, url, 0):
                return None
            host, port = self._part(handle, _HOST), self._part(handle, _PORT)
            return (host or b"").decode("latin-1"), int(port) if port else None
        finally:
            self._library.curl_url_cleanup(handle)

    def _part(self, handle: int, part: int) -> bytes | None:
        found = ctypes.c_char_p()
        if self._library.curl_url_get(handle, part, ctypes.byref(found), 0):
            return None
        value = found.value
        self._library.curl_free(ctypes.cast(found, ctypes.c_void_p))
        return value


@cache
def curl() -> _Curl | None:
    """Return libcurl, None on a machine without it."""
    path = ctypes.util.find_library("curl")
    return _Curl(path) if path else None


def taken_for_an_address(name: str) -> list[str]:
    """Return who reads a name as an address."""
    found = []
    for text in (name, name + "."):
        try:
            socket.inet_aton(text)
            found.append("inet_aton")
        except OSError:
            pass
    try:
        socket.getaddrinfo(name.encode(), None, flags=socket.AI_NUMERICHOST)
        found.append("getaddrinfo")
    except OSError:
        pass
    try:
        ip_address(name)
        found.append("ipaddress")
    except ValueError:
        pass
    library = curl()
    parts = library.parts(b"http://%b/" % name.encode()) if library else None
    if parts and parts[0] != name:
        found.append(f"curl, which reads {parts[0]!r}")
    return found


def readings(authority: bytes) -> dict[str, tuple[str, int | None] | None]:
    """Return host and port as each reads them, None if it refuses. Hosts are in small letters, without a final dot."""
    url = b"http://%b/" % authority
    found: dict[str, tuple[str, int | None] | None] = {}
    library = curl()
    if library:
        parts = library.parts(url)
        found["curl"] = (_bare(parts[0]), parts[1]) if parts else None
    try:
        split = urlsplit(url.decode("latin-1"))
        found["urllib"] = (_bare(split.hostname or ""), split.port)
    except ValueError:
        found["urllib"] = None
    try:
        three = parse_url(url.decode("latin-1"))
        found["urllib3"] = (_bare(three.host or ""), three.port)
    except (HTTPError, ValueError):
        found["urllib3"] = None
    return found


def _bare(host: str) -> str:
    return host.strip("[]").lower().removesuffix(".")


def same_letters(name: str) -> bool:
    """Return whether the letters that a name stands for are written as this name again."""
    labels = name.split(".")
    return all(
        idna.alabel(idna.ulabel(label)).decode() == label and not idna.ulabel(label).isascii()
        for label in labels
        if label.startswith("xn--")
    )


def harmless(address: Address) -> bool:
    """Return whether an address is public to `ipaddress`, and leads to no other that it knows of."""
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_link_local:
        return False
    if isinstance(address, IPv6Address):
        if address.packed[8:12] in (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe"):  # ISATAP, which `ipaddress` does not know
            return False
        return not (address.ipv4_mapped or address.sixtofour or address.teredo or address.scope_id)
    return True
