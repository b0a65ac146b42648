"""The authority of a session vouches for the hosts of its secrets and for no others, and its keys lie nowhere."""

from __future__ import annotations

import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from sandbox_kernel.plugins.network.tls import LEAF, RENEWED, CertificateAuthority
from tests.support.descriptors import open_files

from .hosts import HOST, trusting


def accepted(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> bool:
    """Return whether a client takes a server for `host`; everything happens in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    done: set[int] = set()
    for _ in range(6):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
    return done == {0, 1}


def test_a_strict_client_takes_its_certificates() -> None:
    authority = CertificateAuthority([HOST, "b.example.test"])
    client = trusting(authority.certificate)
    assert accepted(client, authority.context(HOST), HOST)
    assert accepted(client, authority.context("b.example.test"), "b.example.test")
    assert not accepted(client, authority.context(HOST), "b.example.test")


@pytest.mark.parametrize("host", ["other.example.test", "example.test", "127.0.0.1"])
def test_whoever_had_its_key_could_be_no_other_host(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own certificate names the hosts, and clients hold it to that."""
    authority = CertificateAuthority([HOST])
    monkeypatch.setattr(authority, "hosts", frozenset([host]))
    assert not accepted(trusting(authority.certificate), authority.context(host), host)


def test_control_the_same_authority_for_that_host_is_believed() -> None:
    authority = CertificateAuthority(["other.example.test"])
    assert accepted(trusting(authority.certificate), authority.context("other.example.test"), "other.example.test")


def test_no_certificate_is_made_for_a_host_without_a_secret() -> None:
    with pytest.raises(ValueError, match="none of the hosts"):
        CertificateAuthority([HOST]).context("other.example.test")


def test_another_session_has_another_authority() -> None:
    first, second = CertificateAuthority([HOST]), CertificateAuthority([HOST])
    assert not accepted(trusting(first.certificate), second.context(HOST), HOST)


def test_a_process_that_takes_over_goes_on_with_the_authority() -> None:
    first = CertificateAuthority([HOST])
    second = CertificateAuthority([HOST], key=first.key(), certificate=first.certificate)
    assert second.certificate == first.certificate
    assert accepted(trusting(first.certificate), second.context(HOST), HOST)


def test_a_certificate_is_made_anew_before_its_end() -> None:
    now = [datetime.now(UTC)]
    authority = CertificateAuthority([HOST], clock=lambda: now[0])
    made = authority.context(HOST)
    now[0] += LEAF - RENEWED - timedelta(minutes=1)
    assert authority.context(HOST) is made
    now[0] += timedelta(minutes=2)
    assert authority.context(HOST) is not made


def test_what_the_certificate_of_the_authority_says() -> None:
    certificate = x509.load_pem_x509_certificate(CertificateAuthority([HOST]).certificate.encode())
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    names = certificate.extensions.get_extension_for_oid(ExtensionOID.NAME_CONSTRAINTS)
    assert (basic.critical, basic.value.ca, basic.value.path_length, names.critical) == (True, True, 0, True)
    assert isinstance(names.value, x509.NameConstraints)
    assert [one.value for one in names.value.permitted_subtrees or ()] == [HOST]
    assert certificate.not_valid_before_utc < datetime.now(UTC)


def test_no_key_lies_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no files in memory, one with a password that nobody has lies there for a moment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = open_files()
    authority = CertificateAuthority([HOST])
    authority.context(HOST)
    assert not open_files() - before
    seen: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def noting(self: ssl.SSLContext, path: str, **options: str) -> None:
        seen.append(Path(path).read_text(encoding="ascii"))
        load(self, path, **options)

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noting)
    other = CertificateAuthority([HOST])
    assert accepted(trusting(other.certificate), other.context(HOST), HOST)
    assert "BEGIN ENCRYPTED PRIVATE KEY" in seen[0]
    assert list(tmp_path.iterdir()) == []
