"""Names below the operator's domain: each leads to the server or to one sandbox, and no other name leads anywhere."""

from __future__ import annotations

import base64
import hashlib
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtensionOID

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve import certificates
from sandbox_kernel.plugins.serve.certificates import certificates_for
from sandbox_kernel.plugins.serve.domain import DomainNames, checked
from tests.plugins.serve.stand_ins import MINE, THEIRS, Served, cells_of, files_of

DOMAIN = "box.example.org"
NAMES = DomainNames(domain=DOMAIN)


@pytest.fixture
def named() -> Served:
    return Served(known=NAMES)


def url(label: str) -> str:
    return f"https://{label}.{DOMAIN}:8809"


def test_the_host_of_a_request_is_a_name_of_the_server_or_of_a_sandbox() -> None:
    for host in (DOMAIN, f"api.{DOMAIN}", f"API.{DOMAIN}:8443", f"49999-s1.{DOMAIN}", "localhost:1", "127.0.0.1"):
        assert NAMES.host([host]), host
    for host in (
        *(f"{label}.{DOMAIN}" for label in ("x", "s1-49999", "49999-", "-s1", "0-s1", "049-s1", "499999-s1")),
        *(f"{label}.{DOMAIN}" for label in ("49999-s1.api", "api.49999-s1", "49999-s_1", "49999-é")),
        *(
            f"49999-s1.{rest}"
            for rest in (f"{DOMAIN}.", "example.org", f"x{DOMAIN}", f"{DOMAIN}.evil.com", "localhost")
        ),
    ):
        assert not NAMES.host([host]), host
    assert not NAMES.host([f"49999-s1.{DOMAIN}", f"49999-s1.{DOMAIN}"])
    assert not DomainNames().host([f"49999-s1.{DOMAIN}"])
    assert not NAMES.origin([f"https://49999-s1.{DOMAIN}"])


async def test_a_sandbox_is_found_by_its_name_alone(named: Served) -> None:
    tokens = {name: value for name, value in cells_of(named.mine).items() if not name.startswith("E2b-")}
    assert (await named.ask("GET", "/contexts", headers=tokens, url=url("49999-s1"))).status_code == 200
    tokens = {"X-Access-Token": named.mine.access_token}
    assert (await named.ask("GET", "/health", headers=tokens, url=url("49983-s1"))).status_code == 204
    for label, status in (("49999-s1", 502), ("8000-s1", 502), ("49983-s2", 502), ("49983-s9", 502), ("x-s1", 421)):
        assert (await named.ask("GET", "/health", headers=tokens, url=url(label))).status_code == status, label
    assert (await named.ask("GET", "/health", url=url("49983-s1"))).status_code == 401


async def test_headers_that_say_something_else_than_the_name_are_refused(named: Served) -> None:
    headers = files_of(named.mine)
    assert (await named.ask("GET", "/health", headers=headers, url=url("49983-s1"))).status_code == 204
    for label, more in (
        ("49983-s2", {}),
        ("49999-s1", {}),
        ("49983-s1", {"E2b-Sandbox-Id": "s2"}),
        ("49983-s1", {"E2b-Sandbox-Id": "S1"}),
        ("49983-s1", {"E2b-Sandbox-Port": "049983"}),
        ("49983-s2", {"X-Access-Token": named.theirs.access_token}),
    ):
        answer = await named.ask("GET", "/health", headers={**headers, **more}, url=url(label))
        assert (answer.status_code, answer.json()["error"]) == (400, "request-improper"), (label, more)
    twice = [*headers.items(), ("E2b-Sandbox-Id", "s2")]
    assert (await named.ask("GET", "/health", headers=twice, url=url("49983-s1"))).status_code == 400


async def test_what_is_outside_of_sandboxes_is_not_below_their_names(named: Served) -> None:
    key = {"X-API-Key": MINE}
    for label, status in (("api", 200), ("49983-s1", 404), ("49999-s1", 404)):
        assert (await named.ask("GET", "/sandboxes", headers=key, url=url(label))).status_code == status
    assert (await named.ask("GET", "/sandboxes", headers=key, url=f"https://{DOMAIN}")).status_code == 200
    assert (await named.ask("GET", "/sandboxes/s1", headers={"X-API-Key": THEIRS}, url=url("api"))).status_code == 404
    assert (await named.ask("GET", "/healthz", url=url("49983-s1"))).status_code == 404
    page = {**key, "Origin": "https://evil.example.org"}
    assert (await named.ask("GET", "/sandboxes", headers=page, url=url("api"))).status_code == 403


async def test_a_signed_address_opens_at_the_name_of_its_own_sandbox_alone(named: Served) -> None:
    digest = hashlib.sha256(f"f:write::{named.mine.access_token}".encode()).digest()
    signature = "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
    asked = {"path": "f", "signature": signature}
    for label, status in (("49983-s1", 200), ("49983-s2", 401)):
        form = {"file": ("f", b"content")}
        answer = await named.ask("POST", "/files", params=asked, files=form, url=url(label))
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    "wrong", ["localhost", "", "box.example.org:1", "*.example.org", "-a.b", "a..b", "1.2.3.4", "é.b"]
)
def test_a_domain_is_one_that_clients_can_use(wrong: str) -> None:
    assert checked("Sandbox.Localhost") == "sandbox.localhost"
    with pytest.raises(ConfigurationError, match="two labels"):
        checked(wrong)


def test_an_authority_is_made_once_kept_and_vouches_for_its_domain_alone(tmp_path: Path) -> None:
    first = certificates_for(DOMAIN, tmp_path)
    authority, server = first.authority.read_bytes(), first.server.read_bytes()
    again = certificates_for(DOMAIN, tmp_path)
    assert (again, again.authority.read_bytes()) == (first, authority)
    assert again.server.read_bytes() != server
    modes = {path.name: path.stat().st_mode & 0o777 for path in first.authority.parent.iterdir()}
    assert modes == {"authority.key": 0o600, "server.pem": 0o600, "ca.pem": 0o644, "ca-bundle.pem": 0o644}
    assert b"PRIVATE" not in first.bundle.read_bytes()
    made = x509.load_pem_x509_certificate(authority)
    allowed = made.extensions.get_extension_for_oid(ExtensionOID.NAME_CONSTRAINTS)
    assert isinstance(allowed.value, x509.NameConstraints)
    names = [str(one.value) for one in allowed.value.permitted_subtrees or ()]
    assert (allowed.critical, names) == (True, [DOMAIN, "localhost", "127.0.0.1/32", "::1/128"])
    leaf = x509.load_pem_x509_certificate(again.server.read_bytes())
    leaf.verify_directly_issued_by(made)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(again.server)
    ssl.create_default_context(cafile=str(first.bundle))
    assert certificates_for("other.example.org", tmp_path).authority.read_bytes() != authority


def test_an_authority_that_is_open_to_others_or_old_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "AUTHORITY_DAYS", certificates.SERVER_DAYS - 1)
        with pytest.raises(ConfigurationError, match="for the time from now on"):
            certificates_for(DOMAIN, tmp_path)
    made = certificates_for(DOMAIN, tmp_path)
    found = x509.load_pem_x509_certificate(made.authority.read_bytes())
    assert found.not_valid_after_utc > datetime.now(UTC) + timedelta(days=certificates.AUTHORITY_DAYS - 1)
    key = made.authority.with_name("authority.key")
    for unfit, mode in ((key.read_bytes(), 0o640), (b"no key", 0o600)):
        key.write_bytes(unfit)
        key.chmod(mode)
        with pytest.raises(ConfigurationError, match="cannot be used"):
            certificates_for(DOMAIN, tmp_path)


@pytest.mark.parametrize(("site", "fault"), [(DOMAIN, None), ("evil.example.com", "permitted subtree violation")])
def test_a_client_takes_no_other_site_of_the_authority(tmp_path: Path, site: str, fault: str | None) -> None:
    made = certificates_for(DOMAIN, tmp_path)
    content = made.authority.with_name("authority.key").read_bytes()
    key, authority = load_pem_private_key(content, None), x509.load_pem_x509_certificate(content)
    assert isinstance(key, EllipticCurvePrivateKey)
    forged = tmp_path / "forged.pem"
    forged.write_bytes(certificates._server(site, key, authority))  # noqa: SLF001 (as whoever has the key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(forged)
    trusting = ssl.create_default_context(cafile=str(made.authority))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there, server_hostname=f"api.{site}")
    server = serving.wrap_bio(there, back, server_side=True)
    seen = None
    try:
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        seen = error.verify_message
    assert seen == fault
