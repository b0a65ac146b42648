"""Hosts to reach from a sandbox: an API and files, plain and over TLS, on the loopback, under invented names.

The resolver of the tests knows the names. The system's is not asked, and nothing leaves the loopback.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandbox_kernel.plugins.network import egress
from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.policy import Address, RefusedConnection

ROWS = [{"region": "north", "sales": 3}, {"region": "south", "sales": 5}]
CSV = "region,sales\nnorth,3\nsouth,5\n"
LOOPBACK = ipaddress.ip_address("127.0.0.1")
DAY = datetime.timedelta(days=1)


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
        self.certificates = folder / "authority.pem"
        context = make_certificates(folder, self.certificates)
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


def make_certificates(folder: Path, authority: Path) -> ssl.SSLContext:
    """Make an authority, whose certificate goes to `authority`, and return the server side of its one host."""
    chain = folder / "server.pem"
    write_certificates(authority, chain, "api.example.test", "*.example.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    chain.unlink()
    return context


def write_certificates(authority: Path, chain: Path, *names: str) -> None:
    """Make an authority, whose certificate goes to `authority`, and one host with `names`: its key and its certificate.

    Both go to `chain`.
    """
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    ours = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the tests")])
    theirs = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])

    def begin(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ours)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key()), critical=False)
        )

    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    root = (
        begin(ours, keys[0])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(keys[0], hashes.SHA256())
    )
    others = x509.SubjectAlternativeName([x509.DNSName(one) for one in names])
    leaf = begin(theirs, keys[1]).add_extension(others, critical=False).sign(keys[0], hashes.SHA256())
    pem = serialization.Encoding.PEM
    authority.write_bytes(root.public_bytes(pem))
    private = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain.write_bytes(private + leaf.public_bytes(pem))
