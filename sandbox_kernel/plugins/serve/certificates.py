"""Certificates for a domain of this machine: an authority that is made once and kept, and a server's for each start.

The authority vouches for names below its domain and for loopback, and for nothing else: a client that trusts it trusts
nobody's other pages. Needs the library cryptography.
"""

from __future__ import annotations

import os
import secrets
import shlex
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...core.codes import EndCode
from ...core.errors import ConfigurationError

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
"""What clients take at most, and how long a server can run before it must start again."""
LOOPBACK = ("127.0.0.1", "::1")

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files that a server and its clients use."""

    server: Path
    """The certificate of the server with its key; closed to others."""
    authority: Path
    """What clients trust besides the authorities that they know."""
    bundle: Path
    """The same with this machine's authorities, for clients that trust one file."""


def certificates_for(domain: str, folder: Path) -> Certificates:
    """Return the certificates for a domain. Raises `ConfigurationError` if they can neither be read nor made."""
    own = folder / domain
    try:
        own.mkdir(parents=True, exist_ok=True)
        key, authority = _authority(own / "authority.key", domain)
        public = authority.public_bytes(Encoding.PEM)
        made = Certificates(server=own / "server.pem", authority=own / "ca.pem", bundle=own / "ca-bundle.pem")
        _write(made.server, _server(domain, key, authority), 0o600)
        _write(made.authority, public, 0o644)
        _write(made.bundle, _authorities_of_this_machine() + public, 0o644)
    except (OSError, ValueError) as error:
        words = f"the certificates in {own} cannot be used: {error}"
        raise ConfigurationError(EndCode.WRONG_SETTING, words, setting="domain") from None
    return made


def _authority(path: Path, domain: str) -> tuple[Key, x509.Certificate]:
    """Return the authority of a file; if there is none, or its time is over before the server's, make it."""
    found = _read(path)
    if found is None:
        _write(path, _new_authority(domain), 0o600, only_new=True)
        found = _read(path)
        if found is None:
            raise ValueError(f"{path} is no key with its certificate for the time from now on")
    return found


def _read(path: Path) -> tuple[Key, x509.Certificate] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_mode & 0o077 or status.st_uid not in {0, os.geteuid()}:
            raise ValueError(f"{path} can be read or changed by others: `chmod 600 {shlex.quote(str(path))}`")
        content = file.read(1 << 16)
    key, authority = load_pem_private_key(content, None), x509.load_pem_x509_certificate(content)
    if not isinstance(key, Key) or key.public_key() != authority.public_key():
        raise ValueError(f"{path} is no key with its certificate")
    if authority.not_valid_after_utc - datetime.now(UTC) < timedelta(days=SERVER_DAYS):
        path.unlink()
        return None
    return key, authority


def _new_authority(domain: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sandbox-kernel {domain}"[:64])])
    allowed: list[x509.GeneralName] = [x509.DNSName(domain), x509.DNSName("localhost")]
    allowed += [x509.IPAddress(ip_network(address)) for address in LOOPBACK]
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _begun(name, key.public_key(), AUTHORITY_DAYS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(permitted_subtrees=allowed, excluded_subtrees=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(key) + made.public_bytes(Encoding.PEM)


def _server(domain: str, key_of_authority: Key, authority: x509.Certificate) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(one) for one in (f"*.{domain}", domain, "localhost")]
    names += [x509.IPAddress(ip_address(address)) for address in LOOPBACK]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key_of_authority.public_key())
    made = (
        _begun(x509.Name([]), key.public_key(), SERVER_DAYS)
        .issuer_name(authority.subject)
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(key_of_authority, hashes.SHA256())
    )
    return _pem(key) + made.public_bytes(Encoding.PEM)


def _begun(name: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _authorities_of_this_machine() -> bytes:
    path = ssl.get_default_verify_paths().cafile
    if path is None:
        return b""
    content = Path(path).read_bytes()
    return content if content.endswith(b"\n") else content + b"\n"


def _write(path: Path, content: bytes, mode: int, *, only_new: bool = False) -> None:
    """Put a file there whole. With `only_new`, the file of another server that is there first stays."""
    fresh = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
        if only_new:
            with suppress(FileExistsError):
                os.link(fresh, path)
        else:
            fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
