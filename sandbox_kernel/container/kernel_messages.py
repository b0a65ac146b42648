"""What the agent does with a kernel's messages: taking them, cutting large ones, letting some wait.

Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import wire, zmtp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DELIMITER = b"<IDS|MSG>"
NAMES = 64
"""Parts that may come before: the topic of what is published, or who is meant."""
PLACES = ((wire.SHELL, 0), (wire.STDIN, 2), (wire.CONTROL, 3), (wire.IOPUB, 1))
"""The channels in the order in which a kernel opens them, each with its place among the kernel's addresses."""
PIECE = 4 << 20
"""Bytes of a stream that go in one message."""
SHORT = 64
MAX_HEADER = 4096
"""Bytes that hold the content of a status message."""

_STREAM = re.compile(rb'\{"name": ?"std(?:out|err)", ?"text": ?"')
_PLAIN = re.compile(rb"[^\\\x80-\xff]{12}")


def channels(addresses: Sequence[Any], number: int, most: int, poller: Any) -> dict[int, zmtp.Channel]:
    """Return what connects to a kernel; of a message of it, `most` bytes are kept."""
    identity = b"agent-%d" % number  # ipykernel sends input_request on stdin to the identity that asked on shell
    kinds = {wire.IOPUB: zmtp.SUB}
    return {
        kind: zmtp.Channel(addresses[place], kinds.get(kind, zmtp.DEALER), identity, most, poller)
        for kind, place in PLACES
    }


def precedes(kind: int, parts: Sequence[bytes]) -> bool:
    """Return whether a message says little without the next one: a cell's first words, or a reply.

    The host keeps a reply until its request is idle in any case.
    """
    if kind != wire.IOPUB or len(parts) < 4:
        return bool(kind == wire.SHELL)
    # Of something long, these would be looked for item by item.
    if len(parts[0]) < MAX_HEADER and b'"execute_input"' in bytes(parts[0]):
        return True
    return len(parts[3]) < SHORT and b'"busy"' in bytes(parts[3])


def whole(parts: list[Any]) -> list[Any] | None:
    """Return the parts of a message from its header on, or None if it is none of Jupyter's."""
    try:
        # Few stand before: of a message with too many parts, enough are left for it to be known as one.
        return parts[parts.index(DELIMITER, 0, NAMES) + 2 :]
    except ValueError:
        return None


def cut(parts: list[Any]) -> Sequence[list[Any]]:
    """Return a message as several if it is a large stream: ipykernel joins whatever is printed in 0.2 s.

    The host then never holds much of a flood at once. A cut never splits a character or an escape of JSON.
    """
    content = parts[3] if len(parts) == 4 else b""
    head = _STREAM.match(content) if len(content) > 2 * PIECE else None
    if head is None or bytes(content[-2:]) != b'"}':
        return (parts,)
    cuts = [head.end()]
    for end in range(PIECE, len(content) - PIECE, PIECE):
        found = [place.end() for place in _PLAIN.finditer(content[end - 4096 : end])]
        if found:
            cuts.append(end - 4096 + found[-1])
    cuts.append(len(content) - 2)
    pairs = zip(cuts, cuts[1:])  # noqa: B905, RUF007 (Python 3.9 has neither)
    return [[*parts[:3], b"".join((head[0], content[start:end], b'"}'))] for start, end in pairs]


def request(kind: str, token: str) -> list[bytes]:
    """Return a request of the agent's own, without a content; what answers it has the token in its parent header."""
    header = '{"msg_id": "%s", "msg_type": "%s", "session": "%s", "username": "", "date": "%s", "version": "5.3"}'
    return [DELIMITER, b"", (header % (token, kind, token, "2000-01-01T00:00:00Z")).encode(), b"{}", b"{}", b"{}"]


def answers(parts: Sequence[Any], token: bytes) -> bool:
    """Return whether a message, from its header on, answers a request with this token."""
    return len(parts) > 1 and len(parts[1]) < MAX_HEADER and token in bytes(parts[1])


def is_idle(kind: int, parts: Sequence[Any]) -> bool:
    """Return whether a message says that a request is done with."""
    return kind == wire.IOPUB and len(parts) > 3 and len(parts[3]) < SHORT and b'"idle"' in bytes(parts[3])
