"""Hosts to reach from a sandbox: an API and files, plain and over TLS, on the loopback, under invented names.

The resolver of the tests knows the names. The system's is not asked, and nothing leaves the loopback.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.plugins.network import egress
from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.policy import Address, RefusedConnection
from tests.support.authority import Authority

ROWS = [{"region": "north", "sales": 3}, {"region": "south", "sales": 5}]
CSV = "region,sales\nnorth,3\nsouth,5\n"
LOOPBACK = ipaddress.ip_address("127.0.0.1")


class Origin:
    """One server, and what it was asked."""

    def __init__(self, folder: Path, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers of each."""
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                origin.requests.append((self.command, self.path, dict(self.headers)))
                if "Sec-WebSocket-Key" in self.headers:
                    self.greet()
                    return
                if self.path.startswith("/away/"):
                    self.send_response(302)
                    self.send_header("Location", self.path.removeprefix("/away/"))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                kind, body = origin.answer(self.path.partition("?")[0], dict(self.headers))
                first, last = _range(self.headers.get("Range"), len(body))
                part = body[first : last + 1]
                self.send_response(206 if "Range" in self.headers else 200)
                self.send_header("Content-Type", kind)
                self.send_header("Accept-Ranges", "bytes")
                if "Range" in self.headers:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(part)

            def greet(self) -> None:
                """Open a web socket, say one word, and close."""
                key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
                self.send_response(101)
                self.send_header("Upgrade", "websocket")
                self.send_header("Connection", "Upgrade")
                accept = base64.b64encode(hashlib.sha1(key.encode()).digest())  # noqa: S324 (RFC 6455 has it)
                self.send_header("Sec-WebSocket-Accept", accept.decode())
                self.end_headers()
                self.wfile.write(b"\x81\x05hello\x88\x00")
                self.close_connection = True

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._folder = folder
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def answer(self, path: str, headers: dict[str, str]) -> tuple[str, bytes]:
        if (file := self._folder / path.lstrip("/")).is_file():
            return "application/octet-stream", file.read_bytes()
        if path == "/sales.csv":
            return "text/csv", CSV.encode()
        if path == "/headers":
            return "application/json", json.dumps(headers).encode()
        return "application/json", json.dumps(ROWS).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Origins:
    """A plain server and one with TLS, and how sandboxes may reach both."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        self.certificates = authority.bundle
        context = authority.server("api.example.test", "*.example.test")
        self.plain, self.tls = Origin(folder), Origin(folder, context)

    @property
    def http(self) -> str:
        return f"http://api.example.test:{self.plain.port}"

    @property
    def https(self) -> str:
        return f"https://api.example.test:{self.tls.port}"

    @property
    def rules(self) -> list[str]:
        """Both servers by their name, and the loopback that the name leads to."""
        ports = (self.plain.port, self.tls.port)
        return [f"{host}:{port}" for port in ports for host in ("api.example.test", "127.0.0.1")]

    def close(self) -> None:
        self.plain.close()
        self.tls.close()


class Names:
    """The resolver of the tests: every name below example.test is on the loopback, and nothing else has an address."""

    def __init__(self, most: int = 0, seconds: float = 0) -> None:
        """Take what the resolver of the system is made with."""

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        if host == "example.test" or host.endswith(".example.test"):
            return [LOOPBACK]
        raise RefusedConnection(NetworkCode.NO_ADDRESS.note(host=host))


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[Origins]:
    """Serve what is in `folder`, under names that the resolver of the tests knows meanwhile."""
    origins = Origins(folder)
    try:
        with invented_names():
            yield origins
    finally:
        origins.close()


@contextlib.contextmanager
def invented_names() -> Iterator[None]:
    """Have sandboxes of this process resolve names as the tests invent them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(egress, "Lookups", Names)
        yield


def _range(header: str | None, size: int) -> tuple[int, int]:
    """Return the first and the last byte that are asked for."""
    if header is None:
        return 0, size - 1
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last) if last else size - 1, size - 1)
