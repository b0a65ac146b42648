"""What a kernel says of itself: asked once, before the first cell, and read against a table of short strings.

Pure. A kernel that has run a cell, or what a cell left for it to run at its start, is never asked: what it says would
be written into notebooks, and a program of the host may act on that later.

Public: plugins may import it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from ..core.model import PYTHON_KERNEL, Message
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
NAME = re.compile(r"[A-Za-z0-9+#. _-]{1,40}", re.ASCII)
FIELDS = {
    "name": NAME,
    "mimetype": re.compile(r"[a-z]{1,20}/[A-Za-z0-9.+-]{1,60}", re.ASCII),
    "file_extension": re.compile(r"\.[A-Za-z0-9_]{1,12}", re.ASCII),
    "pygments_lexer": NAME,
    "codemirror_mode": NAME,
}
"""What is passed on of another language, if it has this form. The others stay out: an exporter is code of the host."""
MAX_ANSWER = 1 << 16
"""Bytes of the answer; ipykernel's has 2,000."""

_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,5}){1,3}(?:\.?(?:a|b|c|rc|dev|post)[0-9]{1,5})?", re.ASCII)


class KernelHandshake:
    """One question to the first kernel of a session, and what is known from its answer."""

    def __init__(self, kernel: str = PYTHON_KERNEL) -> None:
        self._kernel = kernel
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
        return Message(channel=self._channel, header=header)

    @property
    def _channel(self) -> Literal["control", "shell"]:
        """The channel of the question: some kernels answer nothing on control but a shutdown."""
        return "control" if self._kernel == PYTHON_KERNEL else "shell"

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
        if message.type != "kernel_info_reply" or message.channel != self._channel or self.known:
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
        if self._kernel != PYTHON_KERNEL:
            features = []  # nobody has tried them with it
        version = _version(language.get("version") if isinstance(language, Mapping) else None)
        info = language_of(self._kernel, language)
        self.known = {
            "language_info": info | ({"version": version} if version else {}),
            "implementation_version": _version(content.get("implementation_version")),
            "supported_features": [name for name in FEATURES if isinstance(features, list) and name in features],
        }


def language_of(kernel: str, said: object = None) -> dict[str, Any]:
    """Return what front ends are told of a kernel's language, without its version; `said` is what the kernel says."""
    if kernel == PYTHON_KERNEL:
        return LANGUAGE
    given = said if isinstance(said, Mapping) else {}
    found: dict[str, Any] = {"name": kernel[:40], "version": "", "mimetype": "text/plain", "file_extension": ".txt"}
    for field, form in FIELDS.items():
        value = given.get(field)
        if isinstance(value, Mapping):  # a mode may have options, which nothing needs
            value = value.get("name")
        if isinstance(value, str) and form.fullmatch(value):
            found[field] = value
    return found


def _version(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= 40 and _VERSION.fullmatch(value) else ""
