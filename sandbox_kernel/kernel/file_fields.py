"""The fields of a file message, read one by one: what is missing, of another type or not asked for is refused.

Pure; imports codes, errors and names. What the fields mean is said in file_messages.
"""

from __future__ import annotations

import base64
from typing import Any, TypeVar

from ..core.codes import MessageCode
from ..core.errors import ProtocolError
from ..core.model import SCRATCH, Message, format_bytes
from ..files.names import CHUNK_BYTES, printable

VERSION = 1
"""Of the file messages."""

D = TypeVar("D", int, None)


class Fields:
    """The content of a request, field by field; one that is not asked for is refused rather than overlooked."""

    def __init__(self, request: Message) -> None:
        self.given: dict[str, Any] = dict(request.content)
        self._left = dict(self.given)
        self._buffers = request.buffers

    def version(self) -> None:
        if self.number("version", VERSION) != VERSION:
            raise ProtocolError(
                MessageCode.FILE_VERSION_UNKNOWN,
                limit=f"version {VERSION}",
            )

    def text(self, name: str, default: str = "") -> str:
        return str(self._take(name, str, default, "text"))

    def path(self, name: str = "path") -> str:
        """A path relative to scratch, or an absolute one in it; its rules are those of `check_name`."""
        if name not in self._left:
            raise ProtocolError(MessageCode.FILE_REQUEST_IMPROPER, f"the request has no {name}")
        return self.text(name).removeprefix(SCRATCH + "/")

    def number(self, name: str, default: D) -> int | D:
        value: int | D = self._take(name, int, default, "a whole number")
        if value is not None and not 0 <= value < 1 << 62:
            raise ProtocolError(MessageCode.FILE_REQUEST_IMPROPER, f"{name} is not a whole number of 0 or more")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._take(name, bool, default, "true or false"))

    def data(self) -> bytes:
        """The one buffer, or the text in base64 of front ends that cannot send buffers; none is an empty chunk."""
        text, buffers, self._buffers = self.text("data"), self._buffers, ()
        if len(buffers) > 1 or (buffers and text):
            raise ProtocolError(MessageCode.FILE_REQUEST_IMPROPER, "a chunk is one buffer, or base64 in data")
        size = len(buffers[0]) if buffers else len(text) * 3 // 4 - 2
        if size > CHUNK_BYTES:
            raise ProtocolError(
                MessageCode.CHUNK_TOO_LARGE,
                limit=format_bytes(CHUNK_BYTES),
                value=format_bytes(size),
            )
        try:
            return bytes(buffers[0]) if buffers else base64.b64decode(text, validate=True)
        except ValueError:
            raise ProtocolError(MessageCode.FILE_REQUEST_IMPROPER, "data is not base64") from None

    def end(self) -> None:
        if self._left:
            raise ProtocolError(
                MessageCode.FILE_REQUEST_IMPROPER, f"this request has no field {printable(min(self._left))!r}"
            )
        if self._buffers:
            raise ProtocolError(MessageCode.FILE_REQUEST_IMPROPER, "this request has no use for a buffer")

    def _take(self, name: str, kind: type, default: object, what: str) -> Any:
        value = self._left.pop(name, None)
        if value is None:  # as many front ends write what is not given
            return default
        if type(value) is not kind:
            raise ProtocolError(MessageCode.FILE_REQUEST_IMPROPER, f"{name} is not {what}")
        return value
