"""From an execution to what a model reads: text without colours, images as images, and links to what is too long.

Everything in here has passed the output policy of the session.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from mcp_types import ContentBlock, ImageContent, ResourceLink, TextContent

from ...core.codes import Survived
from ...core.model import format_bytes
from ...policy.safe_text import plain as cleaned
from ...sdk.execution import Execution, ExecutionError, Result
from .output_store import KEPT, KEPT_BYTES, OUTPUT_BYTES, OutputStore

IMAGE_CHARACTERS = 5_000_000
"""Base64 text of one image in an answer: what the interfaces of large models take."""
MAX_IMAGES = 20
MAX_BLOCKS = 100
"""Displays of one cell that an answer shows."""
TRACEBACK_LINES = 30
RESERVED_BYTES = 200_000
"""Of an answer: what images leave for text."""

_OBJECT = re.compile(r"<[\w.<>]+(?: object)? at 0x[0-9a-f]+>|<[\w.]+ object>|<Figure size .*>")
"""What stands in for a representation that is not text: as Python has it, as IPython has it, and matplotlib's."""

_HINTS = {
    "CellTimeout": "Do the work in smaller steps, or ask for more time with `timeout` as far as the limit allows.",
    "OutOfMemory": "Load less at a time: fewer columns or rows, smaller types, chunks.",
    "OutputLimit": "Print or display less, or write it to a file in /mnt/data.",
}
_LOST = {
    Survived.BEFORE_CELL: "All variables are as before this call; the files in /mnt/data are as it left them.",
    Survived.FILES: "All variables and imports are gone; the files in /mnt/data are still there.",
    Survived.NOTHING: "All variables and all files are gone: the next call starts with an empty sandbox; "
    "upload files again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """How long an answer may be."""

    text_characters: int = 20_000
    """One text; all texts together may have four times as many."""
    answer_bytes: int = 16_000_000
    """The whole of it, images as base64."""


class Writer:
    """Puts the parts of one answer together and keeps what does not fit."""

    def __init__(self, outputs: OutputStore, limits: AnswerLimits) -> None:
        self._outputs = outputs
        self._limits = limits
        self._blocks: list[ContentBlock] = []
        self._images = self._kept = self._kept_size = 0
        self._characters = 4 * limits.text_characters
        self._bytes = limits.answer_bytes

    def execution(self, execution: Execution, notes: Sequence[str] = ()) -> list[ContentBlock]:
        """Return the answer to a call that ran a cell."""
        self._stream("stdout", execution.logs.stdout)
        self._stream("stderr", execution.logs.stderr)
        for number, result in enumerate(execution.results):
            if number == MAX_BLOCKS:
                rest = len(execution.results) - MAX_BLOCKS
                self._blocks.append(TextContent(text=f"[{rest} more displays are left out]"))
                break
            if not result.is_picture:
                self._words(result)
            for mime, data in result.pictures:
                self._image(data, mime)
        if execution.error is not None:
            self._text(error_text(execution.error), ".txt")
        if not self._blocks:
            self._blocks.append(TextContent(text="[the code ran and printed nothing]"))
        if notes:  # last: what takes the first block of an answer for all of it wants the result
            self._blocks.append(TextContent(text="\n".join(f"[{note}]" for note in notes)))
        return self._blocks

    def _stream(self, name: str, pieces: list[str]) -> None:
        text = plain("".join(pieces))
        if text.strip():
            self._text(text if name == "stdout" else f"stderr:\n{text}", f"-{name}.txt")

    def _words(self, result: Result) -> None:
        text = next((t for t in (result.text, result.markdown, result.latex) if t and not _OBJECT.fullmatch(t)), None)
        if text is None and result.markdown:
            text = result.markdown
        if text is None and result.json is not None:
            text = orjson.dumps(result.json, default=str).decode()  # indented, what is deep would be mostly spaces
        page = result.html
        if page is not None and (text is None or "<iframe" in page):
            if "<iframe" in page or "<img" in page or ";base64," in page or len(page) > self._limits.text_characters:
                self._keep(page, "text/html", ".html", "an HTML display, for a person's browser")
            else:
                text = page
        if text is None and page is None:
            text = result.text or f"[a display of type {', '.join(result.formats())}]"
        if text:
            self._text(plain(text), "-result.txt")

    def _image(self, data: str, mime: str) -> None:
        data = "".join(data.split())
        if len(data) <= min(IMAGE_CHARACTERS, self._bytes - RESERVED_BYTES) and self._images < MAX_IMAGES:
            self._images += 1
            self._bytes -= len(data)
            self._blocks.append(ImageContent(data=data, mime_type=mime))
            return
        try:
            raw = base64.b64decode(data, validate=True)
        except ValueError:
            self._blocks.append(TextContent(text="[an image that cannot be decoded]"))
            return
        if len(raw) > OUTPUT_BYTES:
            self._blocks.append(TextContent(text=f"[an image of {format_bytes(len(raw))}: too large to be shown]"))
        else:
            self._keep(
                raw,
                mime,
                "." + mime.removeprefix("image/"),
                "an image too large for an answer; drawn smaller, it fits",
            )

    def _text(self, text: str, suffix: str) -> None:
        limit = max(200, min(self._limits.text_characters, self._characters))
        if len(text) > limit or len(text.encode()) * 2 > self._bytes:
            # Six bytes are the most that a character takes in JSON.
            shown, left = shorten(text, max(200, min(limit, self._bytes // 6)))
            self._add_text(shown)
            self._keep(text, "text/plain", suffix, f"the whole text, of which {left:,} characters are left out above")
        else:
            self._add_text(text)

    def _add_text(self, text: str) -> None:
        text = cleaned(text)
        self._characters -= len(text)
        self._bytes -= 2 * len(text.encode())
        self._blocks.append(TextContent(text=text))

    def _keep(self, data: str | bytes, mime: str, suffix: str, what: str) -> None:
        self._kept += 1
        self._kept_size += min(len(data), OUTPUT_BYTES)
        if self._kept > KEPT // 2 or self._kept_size > KEPT_BYTES:
            # What one answer links to must not push out what it linked to before.
            self._blocks.append(TextContent(text=f"[{what}: one call brought too much for this to be kept]"))
            return
        uri = self._outputs.put(data, mime, suffix)
        size = len(data.encode()) if isinstance(data, str) else len(data)
        name = uri.rpartition("/")[2]
        self._blocks.append(ResourceLink(uri=uri, name=name, mime_type=mime, size=size, description=what))
        self._blocks.append(TextContent(text=f"[{what}: resource {uri}]"))


def figures(execution: Execution, session: str) -> dict[str, Any]:
    """Return what a program may want to know of a cell; models read the text."""
    error = execution.error
    return {
        "session": session,
        "execution_count": execution.execution_count,
        "seconds": round(execution.seconds, 3),
        "cpu_seconds": execution.usage.cpu_seconds,
        "memory_peak_bytes": execution.usage.memory_peak_bytes,
        "error": None
        if error is None
        else {
            "name": error.name[:200],
            "value": error.value[:2000],
            "from_sandbox": error.from_sandbox,
            "fault": error.fault,
            "limit": error.limit,
            "survived": error.survived,
            "kept": error.kept,
            "code": error.code,
            "setting": error.setting,
        },
        "behaviour": execution.behaviour.to_json(),
        **({"denied": [asdict(denial) for denial in execution.denied]} if execution.denied else {}),
        **({"findings": [finding.to_json() for finding in execution.findings]} if execution.findings else {}),
    }


def error_text(error: ExecutionError) -> str:
    """Return an error as a model reads it best: name and value first, then what is left, and a short traceback."""
    return plain(_error_text(error))


def _error_text(error: ExecutionError) -> str:
    if not error.from_sandbox:
        return f"Error: {error}\n\n{short_traceback(error.traceback)}".rstrip()
    lines = [f"Error: {error.name}: {error.value}"]
    if error.kept in _LOST:
        lines.append(_LOST[error.kept])
    if error.name in _HINTS:
        lines.append(_HINTS[error.name])
    # The last lines repeat what is said above; those before them tell where the code was.
    where = error.traceback.partition(f"\n{error.name}: ")[0]
    if "\n" in where and not where.startswith(f"{error.name}:"):
        lines += ["", short_traceback(where)]
    return "\n".join(lines)


def short_traceback(text: str) -> str:
    lines = [line[:500] for line in plain(text).splitlines() if not re.fullmatch(r"-{20,}", line)]
    if len(lines) > TRACEBACK_LINES:
        head, tail = TRACEBACK_LINES // 3, TRACEBACK_LINES - TRACEBACK_LINES // 3
        lines = [*lines[:head], f"    ... {len(lines) - head - tail} lines ...", *lines[-tail:]]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return text without colours, and of a line that was overwritten (a progress bar) its last state."""
    text = cleaned(text)
    if "\r" not in text:
        return text
    return "\n".join(next((part for part in reversed(line.split("\r")) if part), "") for line in text.split("\n"))


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Return the beginning and the end of a text, and how many characters are left out between them."""
    limit = min(limit, len(text))
    head, tail = limit * 2 // 3, limit // 3
    left = len(text) - head - tail
    return f"{text[:head]}\n[... {left:,} characters are left out ...]\n{text[-tail:]}", left


def rows(names: Sequence[str], values: Iterator[Sequence[Any]]) -> str:
    cells = [list(names), *([str(value) for value in row] for row in values)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
