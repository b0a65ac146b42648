"""Names and tokens of those who may use the server: a file with a line for each, `NAME TOKEN`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import ConfigurationError
from ..mcp.web_server import token_lines
from .codes import ServeCode
from .signed_tokens import Signers

_LINE = re.compile(r"([A-Za-z0-9._-]{1,64})[ \t]+([A-Za-z0-9._~+/=-]{16,512})")
FIRST_NAME = "default"
"""Whose token it is that a new file has."""
LOOK_SECONDS = 1.0
"""From one look at the file to the next."""
METRICS = "metrics"
"""The name whose token opens the figures of all tenants, and nothing else."""


def new_token() -> str:
    """Return a token in the form of E2B's keys, which some of its clients insist on."""
    return f"e2b_{secrets.token_hex(20)}"


class Tokens:
    """Which tokens there are, and whose: compared in a time that tells nothing about them."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.signers = Signers()
        """Of one wire: see `Guard.signed`."""
        self.names = tuple(dict.fromkeys(name for name, _ in pairs))
        self._digests = [(name, _digest(token)) for name, token in pairs]

    def name_of(self, token: str) -> str | None:
        """Return whose token it is, None for nobody's."""
        given = _digest(token)
        found = [name for name, digest in self._digests if hmac.compare_digest(given, digest)]
        return found[0] if found else None

    def take(self, other: Tokens) -> None:
        """Have the names and tokens of another one from now on."""
        self.names, self._digests = other.names, other._digests


async def follow(path: Path, tokens: Tokens, tell: Callable[[str], None]) -> None:
    """Read a token file again whenever it changes, for ever. One that cannot be used is told, and changes nothing."""
    seen = _stamp(path)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if (now := _stamp(path)) == seen:
            continue
        seen = now
        try:
            if now is None:
                raise ConfigurationError(ServeCode.SERVE_TOKENS_UNFIT, f"{path} is gone", setting="token-file")
            read = tokens_of(path)
        except ConfigurationError as error:
            tell(f"the tokens stay as they were: {error}")
            continue
        new, gone = set(read.names) - set(tokens.names), set(tokens.names) - set(read.names)
        tokens.take(read)
        words = [f"{kind}: {', '.join(sorted(names))}" for kind, names in (("new", new), ("gone", gone)) if names]
        tell(f"read the tokens again; {'; '.join(words) or 'the names are the same'}")


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="backslashreplace")).digest()


def tokens_of(path: Path) -> Tokens:
    """Return the tokens of a file; if there is no file, make it with a new one.

    Raises `ConfigurationError`, also for a file that others may read or write.
    """
    found = [
        _LINE.fullmatch(line)
        for line in token_lines(path, ServeCode.SERVE_TOKENS_UNFIT, lambda: f"{FIRST_NAME} {new_token()}")
    ]
    pairs = [(match[1], match[2]) for match in found if match is not None]
    if not pairs or len(pairs) != len(found) or len({token for _, token in pairs}) != len(pairs):
        raise ConfigurationError(
            ServeCode.SERVE_TOKENS_UNFIT,
            f"{path} must hold lines of a name and a token, no token twice: a name of up to 64 letters, digits and any "
            "of ._-, a space, and 16 to 512 letters, digits and any of ._~+/=-",
            setting="token-file",
        )
    return Tokens(pairs)
