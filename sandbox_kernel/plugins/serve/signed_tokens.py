"""Tokens that LibreChat signs for each of its users (`CODEAPI_JWT_ENABLED`), in place of one of the token file.

The key says which algorithm counts, never the token. Whose requests they are says the operator, beside the key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigurationError
from ..mcp.server_process import require_packages
from .codes import ServeCode

ISSUER, AUDIENCE = "librechat", "codeapi"
"""What LibreChat says unless it is configured otherwise."""
MAX_SECONDS = 300
"""How long a token may count from its making; LibreChat makes none that counts for longer."""
SKEW_SECONDS = 30
"""By which the clocks of both machines may differ."""
MAX_TOKEN = 4096
MAX_KEY = 16 << 10
MIN_RSA_BITS = 2048


class Signer(NamedTuple):
    """Who signs: whose requests they are, and how the signature is checked."""

    name: str
    algorithm: str
    key: Any


class Signers:
    """Whose a signed token is."""

    def __init__(self, signers: Sequence[Signer] = ()) -> None:
        self._signers = tuple(signers)

    def name_of(self, token: str) -> str | None:
        """Return whose token it is, None for one that none of the keys signed, or that does not count now."""
        if token.count(".") != 2 or len(token) > MAX_TOKEN:
            return None
        return next((one.name for one in self._signers if _counts(token, one)), None)


def _counts(token: str, signer: Signer) -> bool:
    import jwt  # a server without signers needs none of it

    try:
        claims = jwt.decode(
            token,
            signer.key,
            algorithms=[signer.algorithm],
            issuer=ISSUER,
            audience=AUDIENCE,
            leeway=SKEW_SECONDS,
            options={"require": ["exp", "iat", "sub"]},
        )
        return bool(0 < claims["exp"] - claims["iat"] <= MAX_SECONDS)
    except (jwt.PyJWTError, TypeError, ValueError, OverflowError, RecursionError):
        return False


def signers_of(given: Sequence[str], names: Collection[str]) -> Signers:
    """Return the signers of `NAME=FILE`, a public key in PEM each. Raises `ConfigurationError`."""
    if not given:
        return Signers()
    require_packages(("cryptography", "jwt"), "serve", "LibreChat's own tokens")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found = []
    for one in given:
        name, _, path = one.partition("=")
        if name not in names or not path:
            raise _unfit(f"{one!r} is no name of the token file and a file: librechat=/etc/librechat.pem")
        try:
            with Path(path).open("rb") as file:
                key = load_pem_public_key(file.read(MAX_KEY))
        except (OSError, ValueError) as error:
            raise _unfit(f"{path} is no public key in PEM: {error}") from None
        if isinstance(key, Ed25519PublicKey):
            found.append(Signer(name, "EdDSA", key))
        elif isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS:
            found.append(Signer(name, "RS256", key))
        else:
            raise _unfit(f"{path} is no key of Ed25519 and none of RSA with {MIN_RSA_BITS} bits or more")
    return Signers(found)


def _unfit(words: str) -> ConfigurationError:
    return ConfigurationError(ServeCode.SERVE_TOKENS_UNFIT, words, setting="librechat-key")
