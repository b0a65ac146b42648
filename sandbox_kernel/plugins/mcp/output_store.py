"""What is too large for an answer waits here, in the host's memory and within bounds, to be read as a resource.

Also the addresses of resources: `sandbox://SESSION/files/PATH` is a file of the sandbox, `sandbox://SESSION/outputs/N`
is something that a cell printed or displayed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote

from ...core.errors import ConfigurationError
from ...core.model import MIB, format_bytes
from .codes import McpCode

SCHEME = "sandbox://"
SESSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEPT = 128
"""Outputs of one session."""
KEPT_BYTES = 32 * MIB
"""All outputs of one session together."""
OUTPUT_BYTES = 16 * MIB
"""One output; what is longer is cut."""


@dataclass(frozen=True, slots=True)
class Output:
    """Something that a cell printed or displayed."""

    name: str
    mime: str
    data: str | bytes

    @property
    def size(self) -> int:
        """Bytes, or characters of text."""
        return len(self.data)


class OutputStore:
    """The outputs of one session that are kept; the oldest go first."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._outputs: OrderedDict[str, Output] = OrderedDict()
        self._size = self._count = 0

    def put(self, data: str | bytes, mime: str, suffix: str) -> str:
        """Keep an output and return its address."""
        if len(data) > OUTPUT_BYTES:
            if not isinstance(data, str):
                raise ConfigurationError(
                    McpCode.OUTPUT_NOT_KEPT,
                    limit=format_bytes(OUTPUT_BYTES),
                )
            data = data[:OUTPUT_BYTES] + f"\n[cut after {format_bytes(OUTPUT_BYTES)}]\n"
        self._count += 1
        output = Output(f"{self._count}{suffix}", mime, data)
        self._outputs[output.name] = output
        self._size += output.size
        while self._outputs and (self._size > KEPT_BYTES or len(self._outputs) > KEPT):
            self._size -= self._outputs.popitem(last=False)[1].size
        return output_address(self._session, output.name)

    def get(self, name: str) -> Output | None:
        return self._outputs.get(name)

    def all(self) -> list[Output]:
        return list(self._outputs.values())


@dataclass(frozen=True, slots=True)
class Address:
    session: str
    kind: str
    """`files` or `outputs`."""
    name: str
    offset: int = 0
    length: int | None = None


def file_address(session: str, path: str) -> str:
    return f"{SCHEME}{session}/files/{quote(path)}"


def output_address(session: str, name: str) -> str:
    return f"{SCHEME}{session}/outputs/{name}"


def parse(uri: str) -> Address | None:
    """Return what an address names, None if it is none of ours. The path of a file is not checked here."""
    place, _, query = uri.removeprefix(SCHEME).partition("?")
    session, _, rest = place.partition("/")
    kind, _, name = rest.partition("/")
    if not uri.startswith(SCHEME) or not SESSION_NAME.fullmatch(session) or kind not in {"files", "outputs"}:
        return None
    if not name or "#" in name or len(uri) > 8192:
        return None
    numbers: dict[str, int] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in {"offset", "length"} or not re.fullmatch(r"[0-9]{1,12}", value):
            return None
        numbers[key] = int(value)
    return Address(session, kind, unquote(name), numbers.get("offset", 0), numbers.get("length"))
