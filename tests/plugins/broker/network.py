"""Callers of the network for tests: an authority with certificates, and a broker in this process, on loopback."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox_kernel.plugins.api import TokenReview
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from sandbox_kernel.plugins.broker.daemon import Broker
from sandbox_kernel.plugins.broker.network_listener import CertificateFiles, Secured, bound
from sandbox_kernel.plugins.broker.settings import BrokerSettings
from tests.plugins.broker.brokers import shared, told_to_end
from tests.support import ROOT

HOST = "localhost"
DAY = datetime.timedelta(days=1)
SIGNS = x509.KeyUsage(
    **dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    ),
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""What an authority's certificate has to say, for Python from 3.13 on."""


@dataclass(frozen=True)
class Files:
    """A certificate and its key."""

    certificate: str
    private_key: str


class Authority:
    """It vouches for whom it is asked to, with files in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _begun(subject, subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = str(folder / f"{name}.crt")
        Path(self.file).write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = HOST, *others: str) -> Files:
        return self._made(name, [NameOID.COMMON_NAME], ExtendedKeyUsageOID.SERVER_AUTH, others)

    def client(self, name: str, *, names: int = 1) -> Files:
        return self._made(name, [NameOID.COMMON_NAME] * names, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _made(
        self,
        name: str,
        attributes: list[x509.ObjectIdentifier],
        usage: x509.ObjectIdentifier,
        others: Sequence[str] = (),
    ) -> Files:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(one, name) for one in attributes])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        found = (
            _begun(subject, self._certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in (name, *others)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        kind = "server" if usage == ExtendedKeyUsageOID.SERVER_AUTH else "client"
        begin = f"{self._name}-{name.replace(':', '-')}-{kind}"
        certificate, private = self._folder / f"{begin}.crt", self._folder / f"{begin}.key"
        certificate.write_bytes(found.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        private.chmod(0o600)
        return Files(str(certificate), str(private))


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)


class Place:
    """A broker's address, its authority, and those who may ask it."""

    def __init__(self, address: str, authority: Authority) -> None:
        self.address, self.authority = address, authority

    def certified(self, name: str, **settings: Any) -> BrokerSettings:
        """Return the settings of a caller with a certificate."""
        files = self.authority.client(name)
        return self.settings(broker_certificate=files.certificate, broker_private_key=files.private_key, **settings)

    def settings(self, **settings: Any) -> BrokerSettings:
        return BrokerSettings(**{"broker_authority": self.authority.file, "broker_token": "/nonexistent", **settings})

    def keywords(self, name: str, **others: Any) -> dict[str, Any]:
        """Return the keywords of a sandbox whose caller has a certificate."""
        files = self.authority.client(name)
        return {
            "engine": f"broker://{self.address}",
            "broker_authority": self.authority.file,
            "broker_certificate": files.certificate,
            "broker_private_key": files.private_key,
            **others,
        }

    def engine(self, settings: BrokerSettings) -> BrokerEngine:
        return BrokerEngine(f"broker://{self.address}", settings=settings)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def tls(self, files: Files | None = None) -> ssl.SSLContext:
        """Return a client's TLS that believes the authority."""
        found = ssl.create_default_context(cafile=self.authority.file)
        if files is not None:
            found.load_cert_chain(files.certificate, files.private_key)
        return found


@contextlib.asynccontextmanager
async def a_listener(
    folder: Path,
    *,
    policy: Policy | None = None,
    review: TokenReview | None = None,
    certificates: bool = True,
    engine: Any = None,
) -> AsyncIterator[tuple[Broker, Place]]:
    """Yield a broker with an engine that makes nothing, unless one is given, and where it listens."""
    authority = Authority(folder)
    server = authority.server()
    files = CertificateFiles(server.certificate, server.private_key, authority.file if certificates else None)
    made = engine or cast("Any", SimpleNamespace(address="an engine"))
    broker = Broker(made, policy or Policy(everybody=Ceiling()))
    sock = bound("127.0.0.1:0")
    broker.listen_on_network(sock, Secured(files, tokens=review is not None, say=lambda line: None), review)
    try:
        yield broker, Place(f"{HOST}:{sock.getsockname()[1]}", authority)
    finally:
        await broker.close()


class NetworkDaemon:
    """`sandbox-kernel broker --listen` in a process of its own, as an operator starts it."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        ceilings: str = "",
        engine: str = "docker",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Callers need a certificate, unless `options` say how else they are known."""
        self.authority = Authority(folder)
        server = self.authority.server()
        file = folder / "broker.toml"
        file.write_text(ceilings, encoding="utf-8")
        known = options if "--token-review" in options else ("--client-authority", self.authority.file, *options)
        command = [sys.executable, "-m", "sandbox_kernel", "broker", "--engine", engine, "--listen", "127.0.0.1:0"]
        command += ["--certificate", server.certificate, "--private-key", server.private_key, "--file", str(file)]
        command += ["--socket", str(folder / "own" / "broker.sock"), *known]
        environment = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=environment)
        self.said = ""
        address = self._until(r"listening on the network at \S+:(\d+)")
        self.place = Place(f"{HOST}:{address}", self.authority)

    @property
    def address(self) -> str:
        return f"broker://{self.place.address}"

    def settings(self, name: str, **others: Any) -> dict[str, Any]:
        return self.place.keywords(name, **others)

    def _until(self, pattern: str) -> str:
        assert self.process.stderr is not None
        while (found := re.search(pattern, self.said)) is None:
            line = self.process.stderr.readline()
            self.said += line.decode()
            if not line:
                self.end()
                raise AssertionError(f"no broker came up: {self.said}")
        return found[1]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        told_to_end(self.process, self.process.stderr)


@contextlib.contextmanager
def a_network_daemon(folder: Path, *options: str, **arguments: Any) -> Iterator[NetworkDaemon]:
    daemon = NetworkDaemon(folder, *options, **arguments)
    try:
        yield daemon
    finally:
        daemon.end()


@cache
def shared_place(engine: str) -> tuple[Place, BrokerSettings]:
    """Return where the one broker that all tests of this process share listens, and a caller of it.

    Callers may name a program of their own to run inside.
    """
    folder = Path(tempfile.mkdtemp(prefix="network-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    authority = files_in(folder)
    shared("--anything", "--engine", engine, "--network", str(folder))
    place = place_in(folder, authority)
    return place, place.certified("tester")


def files_in(folder: Path) -> Authority:
    """Write what a broker of `brokers` takes to listen on the network."""
    authority = Authority(folder)
    server = authority.server()
    for path, name in ((server.certificate, "server.crt"), (server.private_key, "server.key")):
        shutil.copy(path, folder / name)
    return authority


def place_in(folder: Path, authority: Authority) -> Place:
    """Return where such a broker listens."""
    return Place(f"{HOST}:{(folder / 'port').read_text(encoding='ascii')}", authority)
