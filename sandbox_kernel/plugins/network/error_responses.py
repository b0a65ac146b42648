"""What a cell is answered in the place of a host: a status, the code and what a person can do, in plain text.

The first line has the words too, since many libraries show nothing else of a refused tunnel.
"""

from __future__ import annotations

import re

from ...core.codes import Code, Note
from .codes import NetworkCode

_STATUS: dict[Code, tuple[int, str]] = {
    code: (status, words)
    for status, words, codes in (
        (
            400,
            "Bad request",
            (
                NetworkCode.NOT_HTTP, NetworkCode.HEAD_IMPROPER, NetworkCode.LENGTH_AMBIGUOUS,
                NetworkCode.BODY_IMPROPER, NetworkCode.TARGET_IMPROPER, NetworkCode.SCHEME_OTHER,
            ),
        ),
        (408, "Too slow", (NetworkCode.HEAD_TOO_SLOW,)),
        (429, "Too much", (NetworkCode.TOO_MANY_CONNECTIONS, NetworkCode.CELL_TRAFFIC, NetworkCode.SESSION_TRAFFIC)),
        (431, "Too large", (NetworkCode.HEAD_TOO_LARGE, NetworkCode.HEAD_TOO_MANY)),
        (501, "Not spoken", (NetworkCode.UPGRADE_REFUSED,)),
        (505, "Not spoken", (NetworkCode.HTTP_VERSION,)),
        (
            502,
            "Bad gateway",
            (
                NetworkCode.LOOKUP_FAILED, NetworkCode.NO_ADDRESS, NetworkCode.DIAL_FAILED, NetworkCode.PROXY_FAILED,
                NetworkCode.HOST_BROKE, NetworkCode.ANSWER_IMPROPER,
            ),
        ),
        (504, "Too slow", (NetworkCode.LOOKUP_SLOW, NetworkCode.DIAL_SLOW, NetworkCode.CONNECTION_SILENT)),
    )
    for code in codes
}  # fmt: skip
"""What is not here is a matter of the rules."""
DENIED = 403

_PLAIN = re.compile(r"[^\x20-\x7e]")
MAX_REASON = 200
"""Characters of a first line's words."""


def status_of(code: Code) -> int:
    return _STATUS.get(code, (DENIED, ""))[0]


def is_denial(code: Code) -> bool:
    """Return whether a note says that something was not let out, and not that it was or failed on its way."""
    return code is not NetworkCode.CONNECTED and status_of(code) == DENIED


def refusal(note: Note) -> bytes:
    """Return a whole answer that says why something was refused, and ends the connection."""
    status, words = _STATUS.get(note.code, (DENIED, "Not allowed"))
    text = _PLAIN.sub("?", note.text)
    body = f"{note.code}: {text}\n{note.code.remedy}\n".encode()
    return (
        f"HTTP/1.1 {status} {words}: {text[:MAX_REASON]}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Sandbox-Kernel-Code: {note.code}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body
