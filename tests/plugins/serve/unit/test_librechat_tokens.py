"""What LibreChat of today proves itself with: a token in the address, or one that it signs. No sandbox starts here."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jwt
import pytest
from cryptography.hazmat.primitives import serialization as written
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve.signed_tokens import signers_of
from sandbox_kernel.plugins.serve.token_file import METRICS, Tokens
from tests.plugins.serve import stand_ins
from tests.plugins.serve.stand_ins import MINE, THEIRS
from tests.plugins.serve.unit.test_librechat import ROUTES, UNKNOWN

SLASHED, FIGURES = "ab/cd+ef==/gh~1234", "e2b_" + "c" * 40
KEY = ed25519.Ed25519PrivateKey.generate()


def pem(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(written.Encoding.PEM, written.PublicFormat.SubjectPublicKeyInfo)
    return found


class Served(stand_ins.Served):
    """The application, with a key of LibreChat's."""

    def __init__(self, folder: Path) -> None:
        (folder / "key.pem").write_bytes(pem(KEY))
        tokens = Tokens([("mine", MINE), ("theirs", THEIRS), ("third", SLASHED), (METRICS, FIGURES)])
        tokens.signers = signers_of([f"mine={folder / 'key.pem'}"], tokens.names)
        super().__init__(tokens=tokens)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def signed(key: Any = KEY, algorithm: str = "EdDSA", **changes: Any) -> dict[str, str]:
    """Return the header that LibreChat sends, with the claims that it makes."""
    now = int(time.time())
    claims = {"iss": "librechat", "aud": "codeapi", "sub": "u1", "iat": now, "nbf": now, "exp": now + 300}
    claims |= {"tenant_id": "legacy", "role": "USER", "principal_source": "librechat_jwt", "jti": "j"} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    return {"Authorization": f"Bearer {jwt.encode(claims, key, algorithm, headers={'kid': 'lc-codeapi-2026-05'})}"}


# --- in the address ---


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("token", [MINE, SLASHED, quote(SLASHED, safe="")])
async def test_a_token_in_the_address_opens_its_tenant_s_files(
    served: Served, token: str, method: str, path: str
) -> None:
    answer = await served.ask(method, f"/librechat/{token}/v1{path}")
    assert answer.status_code in {400, 404}, answer.text
    assert answer.json()["error"] in {"request-improper", "wrong-argument", "file-not-kept", "not-offered"}
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert served.tenants.strangers == 0
    for wrong in (MINE[:-1], "x", "%2e%2e", "a" * 3000, FIGURES):
        assert (await served.ask(method, f"/librechat/{wrong}/v1{path}")).status_code in {401, 403, 404}, wrong


async def test_a_token_in_the_address_opens_one_wire_alone(served: Served) -> None:
    for path in (
        f"/{MINE}/sandboxes",
        f"/jupyter/{MINE}/api/kernels",
        f"/open-terminal/{MINE}/v1/system",
        f"/mcp/{MINE}",
    ):
        assert (await served.ask("GET", path)).status_code in {401, 404}, path
    assert (await served.ask("GET", f"/sandboxes?token={MINE}")).status_code == 401
    assert (await served.ask("GET", f"/librechat/{MINE}/v1/../../sandboxes")).status_code in {401, 404}
    assert (await served.ask("GET", f"/librechat/v1/files/{UNKNOWN}", headers={"X-API-Key": MINE})).status_code == 404


async def test_a_token_in_the_address_beside_others_is_as_in_a_header(served: Served) -> None:
    path = f"/librechat/{MINE}/v1/files/{UNKNOWN}"
    assert (await served.ask("GET", path, headers={"X-API-Key": MINE})).status_code == 404
    assert (await served.ask("GET", path, headers=signed())).status_code == 404
    for other in ({"X-API-Key": THEIRS}, {"Authorization": f"Bearer {THEIRS}"}):
        assert (await served.ask("GET", path, headers=other)).status_code == 400
    assert (await served.ask("GET", path, headers={"Origin": "http://evil.example"})).status_code == 403


async def test_nothing_that_is_kept_or_said_has_the_token_of_an_address(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    loud = logging.getLogger("httpx2"), logging.getLogger("httpcore2")  # the client's own, which has the address
    for one in loud:
        monkeypatch.setattr(one, "disabled", True)
    seen: list[Any] = []
    inner = served.app.build_middleware_stack

    def stack() -> Any:
        app = inner()

        async def look(scope: Any, receive: Any, send: Any) -> None:
            async def sent(message: Any) -> None:
                seen.append(message)
                await send(message)

            await app(scope, receive, sent)

        return look

    monkeypatch.setattr(served.app, "build_middleware_stack", stack)
    for method, path in (
        ("GET", f"/files/{UNKNOWN}"),
        ("GET", "/nothing"),
        ("PUT", "/exec"),
        ("POST", "/exec"),
        ("GET", "/files/"),
    ):
        await served.ask(method, f"/librechat/{MINE}/v1{path}")
    figures = (await served.ask("GET", "/metrics", headers={"X-API-Key": FIGURES})).text
    assert 'wire="librechat"' in figures  # which counts them
    told = repr(seen) + figures + caplog.text
    assert MINE not in told
    assert quote(MINE) not in told
    assert len([one for one in seen if one["type"] == "http.response.start"]) == 6


# --- signed ---


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_token_that_librechat_signs_opens(served: Served, method: str, path: str) -> None:
    assert (await served.ask(method, f"/librechat/v1{path}", headers=signed())).status_code in {400, 404}
    assert (await served.ask("GET", "/sandboxes", headers=signed())).status_code == 401  # and no other wire


RSA = rsa.generate_private_key(65537, 2048)
SIGNATURE = re.compile(r"(?<=\.)[^.](?=[^.]*\Z)")
"""Where it begins."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "header",
    [
        lambda: signed(ed25519.Ed25519PrivateKey.generate()),
        lambda: signed(RSA, "RS256"),
        lambda: signed(pem(KEY).replace(b"-----", b"").strip(), "HS256"),
        lambda: signed(None, "none"),
        lambda: signed(iss="other"),
        lambda: signed(iss=None),
        lambda: signed(aud="other"),
        lambda: signed(aud=None),
        lambda: signed(sub=None),
        lambda: signed(exp=None),
        lambda: signed(iat=None),
        lambda: signed(exp=int(time.time()) - 60),
        lambda: signed(iat=int(time.time()) - 600, nbf=None, exp=int(time.time()) + 200),
        lambda: signed(exp=1 << 40),
        lambda: signed(iat=int(time.time()) + 100, exp=int(time.time()) + 200),
        lambda: signed(nbf=int(time.time()) + 100),
        lambda: signed(more="x" * 5000),
        lambda: {"Authorization": f"Bearer {'W' * 3000}.e30.e30"},
        lambda: {"Authorization": "Bearer .."},
    ],
)
async def test_a_signed_token_that_does_not_count_is_none(served: Served, header: Callable[[], dict[str, str]]) -> None:
    answer = await served.ask("GET", f"/librechat/v1/files/{UNKNOWN}", headers=header())
    assert (answer.status_code, answer.json()["error"]) == (401, "token-unknown")
    # Its last character has bits that mean nothing, and one signature of 256 ends with what would be put there.
    changed = {name: SIGNATURE.sub(lambda of: "AB"[of[0] == "A"], value) for name, value in signed().items()}
    assert (await served.ask("GET", f"/librechat/v1/files/{UNKNOWN}", headers=changed)).status_code == 401


def test_a_key_is_one_that_librechat_signs_with(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    for key in (KEY, RSA):
        file.write_bytes(pem(key))
        assert signers_of([f"mine={file}"], ["mine"]).name_of("a.b.c") is None
    assert signers_of([], []).name_of("a.b.c") is None
    unfit = [
        pem(ec.generate_private_key(ec.SECP256R1())),
        pem(rsa.generate_private_key(65537, 1024)),  # noqa: S505 (which is refused)
        b"",
        os.urandom(99),
    ]
    for content in unfit:
        file.write_bytes(content)
        with pytest.raises(ConfigurationError):
            signers_of([f"mine={file}"], ["mine"])
    for given in (f"other={file}", "mine=", "mine", f"mine={tmp_path / 'missing'}"):
        with pytest.raises(ConfigurationError):
            signers_of([given], ["mine"])
