"""Pictures of scratch that HTML and Markdown name become part of the output, which has no other way to them.

Runs in the kernel, from source that the host ships: standard library only. The host looks at what comes as at any
picture, and believes nothing of it.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from typing import Any

SCRATCH = "/mnt/data"
MAX_SOURCE = 1_000_000
"""Characters of a text in which pictures are looked for."""
MAX_PICTURES = 50
MAX_BYTES = 8 << 20
"""Of the pictures of one output."""

_HTML = re.compile(
    r"(<img\b[^<>]{0,2000}?\ssrc\s{0,9}=\s{0,9})(\"[^\"<>]{1,1000}\"|'[^'<>]{1,1000}'|[^\s\"'<>]{1,1000})",
    re.IGNORECASE,
)
_MARKDOWN = re.compile(r"(!\[[^\]\n]{0,1000}\]\(\s{0,9})(<[^<>\n]{1,1000}>|[^\s()<>]{1,1000})")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"RIFF", "webp"),
)


def install(shell: Any) -> None:
    """Have whatever a cell shows looked through for pictures."""
    formatter, publisher = shell.display_formatter, shell.display_pub
    plain_format, plain_publish = formatter.format, publisher.publish

    def format_(*arguments: Any, **named: Any) -> Any:
        data, metadata = plain_format(*arguments, **named)
        return with_pictures(data), metadata

    def publish(data: Any, *arguments: Any, **named: Any) -> Any:
        return plain_publish(with_pictures(data), *arguments, **named)

    formatter.format, publisher.publish = format_, publish


def install_here() -> None:
    """Do it in the kernel that this runs in."""
    from IPython import get_ipython

    install(get_ipython())


def with_pictures(data: Any) -> Any:
    """Return a bundle whose HTML and Markdown hold the pictures that they name."""
    try:
        return _with_pictures(data)
    except Exception:
        return data  # what is shown without its pictures is better than nothing


def _with_pictures(data: dict[str, Any]) -> dict[str, Any]:
    room = [MAX_PICTURES, MAX_BYTES]
    changed = {}
    for kind, patterns in (("text/html", (_HTML,)), ("text/markdown", (_MARKDOWN, _HTML))):
        source = data.get(kind)
        if not isinstance(source, str) or len(source) > MAX_SOURCE or ("<" not in source and "![" not in source):
            continue
        for pattern in patterns:
            source = pattern.sub(lambda match: match[1] + _embedded(match[2], room), source)
        if source != data[kind]:
            changed[kind] = source
    return {**data, **changed} if changed else data


def _embedded(written: str, room: list[int]) -> str:
    """Return the address of a picture as it is written, or one that holds the picture itself."""
    path = written[1:-1] if written[0] in "\"'<" else written
    if _ADDRESS.match(path) or room[0] <= 0:
        return written
    from urllib.parse import unquote  # a kernel's start need not wait for it

    room[0] -= 1
    for name in (path, unquote(path), unquote(path.partition("?")[0])):
        data = _read(name, room[1])
        if data is None:
            continue
        kind = next((kind for magic, kind in _BEGINNINGS if data.startswith(magic)), None)
        if kind is None and b"<svg" in data[:1000]:
            kind = "svg+xml"
        if kind is not None:
            room[1] -= len(data)
            address = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
            return address if written[0] not in "\"'" else f"{written[0]}{address}{written[0]}"
    return written


def _read(path: str, most: int) -> bytes | None:
    """Return a regular file of scratch of `most` bytes, None for anything else."""
    real = os.path.realpath(path)
    if not real.startswith(os.path.realpath(SCRATCH) + "/"):
        return None
    try:
        file = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with open(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        return opened.read(most) if stat.S_ISREG(status.st_mode) and status.st_size <= most else None
