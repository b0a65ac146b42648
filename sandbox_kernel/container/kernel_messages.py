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
PORTS = ((wire.SHELL, 1), (wire.STDIN, 3), (wire.CONTROL, 4), (wire.IOPUB, 2))
"""In the order in which a kernel opens them."""
PIECE = 4 << 20
"""Bytes of a stream that go in one message."""
SHORT = 64
MAX_HEADER = 4096
"""Bytes that hold the content of a status message."""

_STREAM = re.compile(rb'\{"name": ?"std(?:out|err)", ?"text": ?"')
_PLAIN = re.compile(rb"[^\\\x80-\xff]{12}")


def channels(address: str, number: int, most: int, poller: Any) -> dict[int, zmtp.Channel]:
    """Return what connects to a kernel; of a message of it, `most` bytes are kept."""
    identity = b"agent-%d" % number  # ipykernel sends input_request on stdin to the identity that asked on shell
    kinds = {wire.IOPUB: zmtp.SUB}
    return {
        kind: zmtp.Channel("%s-%d" % (address, port), kinds.get(kind, zmtp.DEALER), identity, most, poller)
        for kind, port in PORTS
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
