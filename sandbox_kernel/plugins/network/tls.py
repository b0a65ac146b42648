"""TLS over any connection: towards a cell, in the name of a host; towards the host, whose certificate is verified.

The library's own state machine, fed from memory; nothing here knows sockets. The certificates that a cell is shown come
from an authority of its session, which vouches for the hosts of the session's secrets and for no others. Its key is in
memory only. Needs the library cryptography, which is the extra `secrets`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.remedies import install_words
from .interfaces import Duplex

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
    raise ConfigurationError(
        UsageCode.PACKAGE_MISSING,
        f"secrets need the library cryptography: {install_words('secrets')}",
        setting="secrets",
    ) from missing

PIECE = 128 << 10
"""Bytes that are decrypted, or encrypted, at a time: several records, for each has to be carried."""
ALPN = ["http/1.1"]
"""The relay speaks nothing else."""


def towards_hosts(certificates: str | None = None) -> ssl.SSLContext:
    """Return what verifies hosts: with the certificates of this machine, and of a file if one is given.

    Unlike the library's default it writes no keys to a file that a variable names. Raises OSError for the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certificates is not None:
        context.load_verify_locations(cafile=certificates)
    context.set_alpn_protocols(ALPN)
    return context


def as_host(context: ssl.SSLContext, host: str) -> ssl.SSLContext:
    """Let a server's context take connections for one host, and no others; returns it."""

    def named(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        return None if name is None or name.lower() == host else int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)

    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # a cell's client would have nothing of them
    context.set_alpn_protocols(ALPN)
    context.sni_callback = named
    return context


class TlsInside:
    """The inside of a TLS connection: a `Duplex` over another one. One task may receive while another one sends."""

    def __init__(self, outside: Duplex, context: ssl.SSLContext, *, server: bool, host: str | None = None) -> None:
        """Be the server; or the client, of `host`."""
        self._outside = outside
        self._server = server
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=server, server_hostname=host)
        self._sending = asyncio.Lock()
        self._failed: ssl.SSLError | None = None
        """What came behind bytes that were read."""

    async def shake_hands(self) -> None:
        """Begin. Raises ssl.SSLError, after the other side was told, and what the connection raises."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()
                raise
            else:
                await self._flush()
                return

    async def receive(self) -> bytes:
        """Return the next piece; `b""` at the end. A host that ends without a farewell broke off: it may be cut."""
        while True:
            try:
                data = self._read()
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                if self._server:  # the usual end of a client; what a request misses is seen by its length
                    return b""
                raise
            else:
                if self._goes.pending:
                    await self._flush()
                return data

    def _read(self) -> bytes:
        """Return what can be read at once: the library gives one record at a time. Raises ssl.SSLError."""
        if self._failed is not None:
            raise self._failed
        data = self._tls.read(PIECE)
        pieces, size = [data], len(data)
        try:
            while data and size < PIECE and self._came.pending:
                data = self._tls.read(PIECE - size)
                pieces.append(data)
                size += len(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._failed = error  # for the next one who asks: what was read before it counts
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view[:PIECE]) :]
            await self._flush()

    async def finish(self) -> None:
        """Say farewell."""
        with suppress(ssl.SSLError):  # the other side has not said its own yet
            self._tls.unwrap()
        await self._flush()
        await self._outside.finish()

    def reset(self, code: str) -> None:
        self._outside.reset(code)

    async def _more(self) -> None:
        await self._flush()
        data = await self._outside.receive()
        if data:
            self._came.write(data)
        else:
            self._came.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._goes.read():
                await self._outside.send(data)


def reason(error: ssl.SSLError) -> str:
    """Return why a handshake failed, in the library's words: a bounded text without anything that was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)[:200]
    return str(getattr(error, "reason", None) or "it ended").lower().replace("_", " ")[:100]


SKEW = timedelta(hours=1)
"""How far the clock of a sandbox may be behind."""
LEAF = timedelta(hours=24)
RENEWED = timedelta(hours=12)
"""Before its end, a certificate is made anew."""
LIFE = timedelta(days=366)
"""Of the authority: longer than a session, which cannot be given another one."""


class CertificateAuthority:
    """Makes a certificate for each of a few hosts, when it is first needed."""

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        key: str | None = None,
        certificate: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """With `key` and `certificate`, PEM, this is one that was made before, of the same hosts."""
        self.hosts = frozenset(hosts)
        self._clock = clock
        self._contexts: dict[str, tuple[datetime, SSLContext]] = {}
        if key is not None and certificate is not None:
            loaded = load_pem_private_key(key.encode(), None)
            if not isinstance(loaded, ec.EllipticCurvePrivateKey):
                raise TypeError("the key of the authority is none of ours")
            self._key, self._certificate = loaded, x509.load_pem_x509_certificate(certificate.encode())
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._own()

    @property
    def certificate(self) -> str:
        """What the sandbox trusts, in PEM."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def key(self) -> str:
        """Return the key in PEM, for the process that takes over the sandbox; it is written nowhere."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def context(self, host: str) -> SSLContext:
        """Return what a server needs to be `host` towards the sandbox, for HTTP/1.1."""
        now = self._clock()
        made = self._contexts.get(host)
        if made is None or now > made[0] + LEAF - RENEWED:
            if host not in self.hosts:
                raise ValueError(f"{host} is none of the hosts of a secret")
            made = self._contexts[host] = now, self._server(host, now)
        return made[1]

    def _own(self) -> x509.Certificate:
        now = self._clock()
        # A name of its own: a client that has another one says that it does not know the authority.
        own = f"secrets of a sandbox_kernel session, {os.urandom(4).hex()}"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, own)])
        usage = x509.KeyUsage(
            key_cert_sign=True, crl_sign=False, digital_signature=False, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        return (
            self._begun(name, name, self._key, now, LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.NameConstraints(
                    permitted_subtrees=[x509.DNSName(host) for host in sorted(self.hosts)],
                    excluded_subtrees=[x509.IPAddress(ip_network(every)) for every in ("0.0.0.0/0", "::/0")],
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )

    def _begun(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
    ) -> x509.CertificateBuilder:
        public = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + life + SKEW)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        )

    def _server(self, host: str, now: datetime) -> SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=False, crl_sign=False, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        certificate = (
            # A common name has 64 characters at most, and nobody looks at it.
            self._begun(x509.Name([]), self._certificate.subject, key, now, LEAF)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        context = SSLContext(PROTOCOL_TLS_SERVER)
        _load(context, certificate, key)
        return context


def _load(context: SSLContext, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Give a context its key. It takes files only: one in memory, or else one under a password that is kept nowhere."""
    public = certificate.public_bytes(Encoding.PEM)
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("certificate")
        with os.fdopen(handle, "wb") as file:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + public)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{handle}")
        return
    password = os.urandom(16).hex()
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            encryption = BestAvailableEncryption(password.encode())
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + public)
        context.load_cert_chain(path, password=password)
    finally:
        with suppress(OSError):
            Path(path).unlink()
