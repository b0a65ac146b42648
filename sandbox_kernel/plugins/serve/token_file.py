"""Names and tokens of those who may use the server: a file with a line for each, `NAME TOKEN`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import ConfigurationError
from ...files.host_paths import open_file, open_parent, usable
from .codes import ServeCode
from .signed_tokens import Signers

_LINE = re.compile(r"([A-Za-z0-9._-]{1,64})[ \t]+([A-Za-z0-9._~+/=-]{16,512})")
FIRST_NAME = "default"
"""Whose token it is that a new file has."""
LOOK_SECONDS = 1.0
"""From one look at the file to the next."""
FILE_BYTES = 64 << 10
"""Bytes of a token file."""
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
                raise _unfit(f"{path} is gone")
            read = _parsed(path, _read(path))  # one that goes just now is not made anew: it is being replaced
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
    return _parsed(path, _lines(path))


def _parsed(path: Path, lines: Sequence[str]) -> Tokens:
    found = [_LINE.fullmatch(line) for line in lines]
    pairs = [(match[1], match[2]) for match in found if match is not None]
    if not pairs or len(pairs) != len(found) or len({token for _, token in pairs}) != len(pairs):
        raise _unfit(
            f"{path} must hold lines of a name and a token (NAME TOKEN), no token twice: a name of up to 64 letters, "
            "digits and any of ._-, a space, and 16 to 512 letters, digits and any of ._~+/=-"
        )
    return Tokens(pairs)


def _lines(path: Path) -> list[str]:
    """Return the lines of a token file, without comments; if there is no file, make it with a first line."""
    with usable(ServeCode.SERVE_TOKENS_UNFIT, f"{path} cannot be made", setting="token-file"):
        folder, name = open_parent(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, 0o600, dir_fd=folder.handle)
        except FileExistsError:
            return _read(path)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        line = f"{FIRST_NAME} {new_token()}"
        file.write(line + "\n")
    return [line]


def _read(path: Path) -> list[str]:
    with usable(ServeCode.SERVE_TOKENS_UNFIT, f"{path} cannot be read", setting="token-file"):
        descriptor = open_file(path)
    status = os.fstat(descriptor)
    with os.fdopen(descriptor, "rb") as file:
        if status.st_mode & 0o077 or status.st_uid not in {0, os.geteuid()}:
            raise _unfit(f"{path} can be read or changed by others: `chmod 600 {shlex.quote(str(path))}`")
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise _unfit(f"{path} is larger than a token file may be, {FILE_BYTES:,} bytes")
    lines = content.decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _unfit(words: str) -> ConfigurationError:
    return ConfigurationError(ServeCode.SERVE_TOKENS_UNFIT, words, setting="token-file")
