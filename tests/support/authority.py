"""A certificate authority of a test's own, and certificates of the hosts that it vouches for."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """An authority, whose certificate is the file `bundle`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
        certificate = (
            self._begun(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(USAGE, critical=True)
        )
        self.bundle = folder / "authority.pem"
        self.bundle.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def _begun(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=3))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def chain(self, *hosts: str, days: int = 1) -> Path:
        """Return a file with the key and the certificate of a host with these names; it is valid for `days`."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        certificate = (
            self._begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]), key, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._made += 1
        path = self._folder / f"{self._made}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        return path

    def server(self, *hosts: str, days: int = 1) -> ssl.SSLContext:
        """Return the context of a server with these names; it speaks HTTP/1.1."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain(*hosts, days=days))
        context.set_alpn_protocols(["http/1.1"])
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.bundle))
