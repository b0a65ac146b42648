"""What a kernel says of itself: asked once, before the first cell, and read against a table of short strings.

Pure; imports model and protocol. A kernel that has run a cell, or what a cell left for it to run at its start, is never
asked: what it says would be written into notebooks, and a program of the host may act on that later.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from ..core.model import Message
from . import protocol

FEATURES = ("debugger", "kernel subshells")
LANGUAGE = {
    "name": "python",
    "version": "3",
    "mimetype": "text/x-python",
    "codemirror_mode": {"name": "ipython", "version": 3},
    "pygments_lexer": "ipython3",
    "nbconvert_exporter": "python",
    "file_extension": ".py",
}
"""What front ends are told of the language. Only the version is the kernel's: the others name code of the host."""
MAX_ANSWER = 1 << 16
"""Bytes of the answer; ipykernel's has 2,000."""

_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,5}){1,3}(?:\.?(?:a|b|c|rc|dev|post)[0-9]{1,5})?", re.ASCII)


class KernelHandshake:
    """One question to the first kernel of a session, and what is known from its answer."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        """`language_info`, `implementation_version` and `supported_features`; empty until there was an answer."""
        self._id = ""
        self._states = 0
        """Statuses that the question may still bring: busy and idle."""

    def question(self, session: str) -> Message:
        """Return a request with an unguessable id; the one before it is void."""
        self._id, self._states = secrets.token_hex(16), 2
        header = {"msg_id": self._id, "msg_type": "kernel_info_request", "session": session, "username": ""}
        header |= {"version": protocol.PROTOCOL_VERSION, "date": "2000-01-01T00:00:00Z"}
        return Message(channel="control", header=header)

    @property
    def pending(self) -> bool:
        return bool(self._id) and not self.known

    def forget(self) -> None:
        """Note that the kernel that was asked is gone."""
        self._id = ""

    def takes(self, message: Message, size: int) -> bool:
        """Take in what belongs to the question: one answer and two statuses; False for everything else."""
        if not self._id or message.parent.get("msg_id") != self._id or size > MAX_ANSWER:
            return False
        if message.type == "status":
            self._states -= 1
            return self._states >= 0
        if message.type != "kernel_info_reply" or message.channel != "control" or self.known:
            return False
        self.restore(message.content)
        return True

    def told(self, said: Mapping[str, Any] | None) -> None:
        """Take what a kernel said to who made its sandbox ahead; nothing leaves it to be asked."""
        if said is not None and not self.known:
            self.restore(said)

    def restore(self, said: object) -> None:
        """Go on with what a kernel said, or with what another process knew of it; nonsense counts as nothing said."""
        content = said if isinstance(said, Mapping) else {}
        language, features = content.get("language_info"), content.get("supported_features")
        version = _version(language.get("version") if isinstance(language, Mapping) else None)
        self.known = {
            "language_info": LANGUAGE | ({"version": version} if version else {}),
            "implementation_version": _version(content.get("implementation_version")),
            "supported_features": [name for name in FEATURES if isinstance(features, list) and name in features],
        }


def _version(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= 40 and _VERSION.fullmatch(value) else ""
