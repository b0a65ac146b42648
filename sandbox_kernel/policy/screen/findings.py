"""The findings of one cell while it is read: each code once, at its first line; and the texts to search at the end."""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right

from ...core.finding import Finding, Screened
from ...core.screen_codes import ScreenCode
from .index import Row, RuleIndex

MAX_DETAIL = 120
MAX_SEARCHED = 1 << 16
"""Characters of texts that are searched for one cell."""
MAX_LINE = 2000
_WORD = re.compile(r"([\w+/=-]{160})[\w+/=-]+")
_SPACES = re.compile(r"[ \t]{3,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
_CODE = re.compile(
    r"\b(import|exec|eval|system|subprocess|socket|__import__|getattr|open|curl|wget|bash|/bin/|chmod|sudo|powershell|"
    r"http|os\.|rm -|nc -|sh -|cat /|etc/)\b|/etc/|/bin/sh|rm -rf"
)


def squeezed(text: str) -> tuple[str, bool]:
    """Return a text without the middle of what is endlessly long in it, and whether more than that was left out.

    So no pattern has much to go back and forth in, whatever a cell holds.
    """
    if len(text) < MAX_LINE and "   " not in text:
        return text, False
    text = _SPACES.sub("  ", _WORD.sub(r"\1", text))
    if len(text) <= MAX_LINE:
        return text, False
    lines = text.split("\n")
    cut = any(len(line) > MAX_LINE for line in lines)
    return ("\n".join(line[:MAX_LINE] for line in lines) if cut else text), cut


class Findings:
    """The findings of one cell while it is read."""

    def __init__(self, index: RuleIndex) -> None:
        self.index = index
        self._found: dict[str, Finding] = {}
        self._texts: list[str] = []
        self._lines: list[int] = []
        self._size = 0

    def add(self, code: ScreenCode, line: int, detail: str = "") -> None:
        """Note a finding, unless its rule is switched off."""
        row = self.index.rows.get(code.code)
        if row is not None:
            self.row(row, line, detail)

    def row(self, row: Row, line: int, detail: str = "") -> None:
        known = self._found.get(row.code)
        if known is None or line < known.line:
            self._found[row.code] = Finding(
                row.code, row.family, row.weight, max(line, 1), row.reason, row.remedy, _cut(detail), row.cwe
            )

    def text(self, text: str, line: int) -> None:
        """Have a text searched at the end, with what it is when it is decoded."""
        if len(text) < 3:
            return
        if self._size >= MAX_SEARCHED:
            self.add(ScreenCode.CELL_UNPARSED, line)
            return
        if len(text) >= 16 and (hidden := _revealed(text)) is not None:
            self.add(ScreenCode.HIDDEN_TEXT, line, hidden)
            self._kept(hidden, line)
        self._kept(text, line)

    def _kept(self, text: str, line: int) -> None:
        short, cut = squeezed(text[: MAX_SEARCHED * 4])
        if cut or len(short) > MAX_SEARCHED - self._size:
            self.add(ScreenCode.CELL_UNPARSED, line)
            short = short[: max(0, MAX_SEARCHED - self._size)]
        self._texts.append(short)
        self._lines.append(line)
        self._size += len(short) + 2

    def search(self) -> None:
        """Search the texts that were noted, each pattern once through all of them."""
        if not self._texts:
            return
        whole = "\n\x1f".join(self._texts)
        starts: list[int] = []
        at = 0
        for text in self._texts:
            starts.append(at)
            at += len(text) + 2
        for pattern, row in self.index.text:
            if row.code not in self._found and (match := pattern.search(whole)) is not None:
                number = bisect_right(starts, match.start()) - 1
                inside = self._texts[number].count("\n", 0, match.start() - starts[number])
                self.row(row, self._lines[number] + inside, match[0].strip("\n\x1f"))
        self._texts, self._lines, self._size = [], [], 0

    def done(self) -> Screened:
        self.search()
        return Screened(tuple(sorted(self._found.values(), key=lambda one: (one.line, -one.weight, one.code))))


def _cut(text: str) -> str:
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: MAX_DETAIL * 4]).split())
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"


def _revealed(text: str) -> str | None:
    """Return what an encoded text says, if that reads as code or as a command."""
    if text.startswith(("data:", "iVBOR", "/9j/", "R0lGOD")):
        return None
    for match in (*_BASE64.finditer(text[:8192]),)[:8]:
        word = match[0]
        for decode in (_of_base64, _of_hex):
            said = decode(word)
            if said is not None and _CODE.search(said):
                return said
    if len(text) < 2000 and _CODE.search(text[::-1]) and not _CODE.search(text):
        return text[::-1]
    return None


def _of_base64(word: str) -> str | None:
    try:
        data = base64.b64decode(word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return _printable(data)


def _of_hex(word: str) -> str | None:
    return _printable(bytes.fromhex(word)) if _HEX.fullmatch(word) else None


def _printable(data: bytes) -> str | None:
    try:
        said = data.decode("ascii")
    except UnicodeDecodeError:
        return None
    return said if all(sign.isprintable() or sign in "\r\n\t" for sign in said) else None
