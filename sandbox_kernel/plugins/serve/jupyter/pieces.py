"""Messages for clients that close their connection over a large one: in pieces, or with a file for what is large.

Such a bound is its library's, and no client tells it: Open WebUI has that of `websockets`.
"""

from __future__ import annotations

import base64
import mimetypes
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson

from ....core.codes import EndCode
from ....core.errors import SandboxError
from ....core.model import MIB, SCRATCH, format_bytes
from .messages import Outgoing

LIMITS = (("websockets/", MIB), ("aiohttp/", 4 * MIB), ("Tornado/", 10 * MIB))
"""What libraries take in one message, in bytes, by what they call themselves in `User-Agent`."""
FOLDER = "outputs"
"""In scratch: where what was not shown lies, as on the kernel."""
ENVELOPE = 1024
"""Bytes of a message beside its parts."""
ESCAPED = 6
"""Bytes of a character in JSON, at most."""
SHOWN = frozenset({"display_data", "execute_result", "update_display_data"})
Keep = Callable[[str, bytes], Awaitable[object]]
"""Writes a file of the sandbox. Raises `SandboxError`."""


def limit_of(agent: str) -> int | None:
    """Return how large a message may be for a client that calls itself so; None if nothing is known of a limit."""
    return next((limit for name, limit in LIMITS if name in agent), None)


def fits(message: Outgoing, limit: int | None) -> bool:
    return limit is None or message.size + ENVELOPE <= limit


async def pieces(message: Outgoing, limit: int, keep: Keep) -> list[Outgoing]:
    """Return messages that fit, in place of one that does not."""
    content: Any = orjson.loads(message.content)
    room = max(0, limit - ENVELOPE - message.size + len(message.content))
    found = [message]
    if message.type == "stream":
        found = [message.having({**content, "text": text}) for text in _cut(content["text"], room // (2 * ESCAPED))]
    elif message.type == "execute_input":  # a client knows what it sent
        found = [message.having({**content, "code": content["code"][: room // (2 * ESCAPED)]})]
    elif message.type in SHOWN:
        data = await _smaller(content["data"], room - ENVELOPE, limit, keep)
        found = [message.having({**content, "data": data})]
    elif "traceback" in content:
        text, some = "\n".join(content["traceback"]), room // (8 * ESCAPED)
        left = [f"[{len(text) - 2 * some} characters are left out]"] if len(text) > 2 * some else []
        ends = [text[:some], *left, text[-some:]] if left else [text]
        known = {name: content[name] for name in ("status", "execution_count", "ename") if name in content}
        found = [message.having({**known, "evalue": str(content.get("evalue"))[:some], "traceback": ends})]
    if all(fits(one, limit) for one in found):
        return found
    words = f"a message ({message.type}) of {format_bytes(message.size)} is left out: {_why(limit)}"
    if message.channel == "iopub":
        return [message.having({"name": "stderr", "text": f"{words}\n"}, "stream")]
    error = {"status": "error", "ename": EndCode.OUTPUT_TOO_LARGE.code, "evalue": words, "traceback": []}
    return [message.having(error)]


def _why(limit: int) -> str:
    return f"this client takes {format_bytes(limit)} in one message"


def _cut(text: str, size: int) -> Iterator[str]:
    for begin in range(0, len(text), max(1, size)):
        yield text[begin : begin + max(1, size)]


async def _smaller(data: dict[str, Any], room: int, limit: int, keep: Keep) -> dict[str, Any]:
    """Return the forms of an output that fit; if no picture is among them, what is left out becomes a file."""
    found, left = {}, room - 2 * ENVELOPE
    sizes = {kind: len(orjson.dumps(value)) + len(kind) + 8 for kind, value in data.items()}
    for kind in sorted(sizes, key=lambda one: (sizes[one], one)):
        if sizes[kind] <= left:
            left -= sizes[kind]
            found[kind] = data[kind]
    out = [kind for kind in sizes if kind not in found]
    if out and not any(kind.startswith("image/") for kind in found):
        kind = max(out, key=lambda one: (one.startswith("image/"), sizes[one]))
        path = f"{FOLDER}/shown-{secrets.token_hex(4)}{_suffix(kind)}"
        words = f"[{kind} of {format_bytes(sizes[kind])} is not shown: {_why(limit)}. "
        try:
            await keep(path, _bytes_of(kind, data[kind]))
            words += f"It is the file {SCRATCH}/{path}]"
        except (SandboxError, TimeoutError, ValueError) as error:
            words += f"It could not be kept as a file: {str(error)[:200]}]"
        text = found.get("text/plain")
        found["text/plain"] = f"{text}\n{words}" if isinstance(text, str) else words
    return found


def _suffix(kind: str) -> str:
    return mimetypes.guess_extension(kind) or (".json" if kind.endswith("json") else ".txt")


def _bytes_of(kind: str, value: Any) -> bytes:
    if not isinstance(value, str):
        return orjson.dumps(value)
    if kind.endswith("+xml") or not kind.startswith(("image/", "audio/", "video/", "application/pdf")):
        return value.encode(errors="replace")
    return base64.b64decode(value)  # which the policy wrote
