"""The signatures of Jupyter's messages: who may send one, and that none is sent twice.

Own code of a few lines, for jupyter_client's takes along all its managers and clients: a quarter of what a kernel
process imports. On `hmac` alone; knows no sockets.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any

from ..core.codes import EndCode, MessageCode
from ..core.errors import ConfigurationError, ProtocolError

DELIMITER = b"<IDS|MSG>"
"""Stands between a message's routing identities and its signature."""
REMEMBERED = 1 << 16
"""Signatures of messages that came; the oldest is forgotten for one more."""
SIGNED_PARTS = 4
"""Header, parent header, metadata and content. Buffers are not signed, says the protocol."""


class Signatures:
    """Signs what goes and checks what comes, with the key of a connection file; an empty one lets everybody send."""

    def __init__(self, key: bytes, scheme: str = "hmac-sha256") -> None:
        """`scheme` is "hmac-" and a hash of Python's. Raises `ConfigurationError` for any other."""
        family, _, name = scheme.partition("-")
        try:
            if family != "hmac":
                raise ValueError(scheme)
            keyed = hmac.new(key, digestmod=name)
            keyed.hexdigest()  # a hash without a length of its own cannot be one
        except (ValueError, TypeError):
            raise ConfigurationError(
                EndCode.WRONG_SETTING.note(), limit="hmac-sha256", value=repr(scheme), setting="signature_scheme"
            ) from None
        self._keyed = keyed if key else None
        self._seen: dict[bytes, None] = {}

    def sign(self, parts: Iterable[Any]) -> bytes:
        """Return the signature of the four parts of a message, which is empty without a key."""
        if self._keyed is None:
            return b""
        mac = self._keyed.copy()
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def verified(self, parts: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the identity of a message's sender, and its parts after the signature.

        Raises `ProtocolError` for a message without the four parts, with a wrong signature, or that came before.
        """
        try:
            middle = parts.index(DELIMITER)
        except ValueError:
            raise ProtocolError(MessageCode.NOT_A_REQUEST.note(why="it has no delimiter")) from None
        if middle != 1:
            raise ProtocolError(MessageCode.NOT_A_REQUEST.note(why=f"it has {middle} routing identities"))
        rest = parts[middle + 2 :]
        if len(rest) < SIGNED_PARTS:
            raise ProtocolError(MessageCode.NOT_A_REQUEST.note(why=f"it has {len(rest)} parts of 4"))
        if self._keyed is not None:
            self._check(parts[middle + 1], rest[:SIGNED_PARTS])
        return parts[0], rest

    def _check(self, signature: bytes, parts: list[bytes]) -> None:
        if not hmac.compare_digest(signature, self.sign(parts)):
            raise ProtocolError(MessageCode.WRONG_SIGNATURE)
        if signature in self._seen:  # only what was signed is remembered: nobody else can fill the memory
            raise ProtocolError(MessageCode.SENT_TWICE)
        self._seen[signature] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
