"""The text of a cell before it is a tree: odd letters, brackets without an end, parts that can be read apart."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence

from ...core.screen_codes import ScreenCode
from .notes import Notes
from .rules.rule import words

MOST_NESTING = 150
"""Of brackets: Python takes 200."""


_TURNS = re.compile(r"[\u202a-\u202e\u2066-\u2069\u200e\u200f]")


_ODD = re.compile(r"[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u2100-\u214f\u1d2c-\u1d6a\u24b6-\u24e9]")


_STRINGS = re.compile(r"(\"\"\"|''').*?\1|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.DOTALL)


_RISKY = frozenset(
    words(
        "os subprocess shutil socket ctypes sys pickle base64 marshal pty builtins importlib requests "
        "threading multiprocessing codecs binascii zlib glob pathlib time platform signal urllib.request "
        "smtplib ftplib itertools"
    )
)


_USUAL = {
    "ctypes": ("CDLL", "cdll", "c_int", "string_at", "memmove", "pythonapi", "windll", "create_string_buffer"),
    "scapy.all": ("sniff", "send", "IP", "ARP", "sr1"),
    "requests": ("get", "post"),
}


def starred(module: str) -> Sequence[str]:
    """Return the names that `from module import *` brings, of the modules that are worth it."""
    loaded = sys.modules.get(module)
    if module not in _RISKY or loaded is None:
        return _USUAL.get(module, ())
    return [name for name in dir(loaded) if not name.startswith("_")]


def automatic(code: str) -> bool:
    """Return whether a cell is one line that may be a magic without its sign."""
    return code.strip().count("\n") == 0 and code.strip().partition(" ")[0].isidentifier()


def bounded(code: str) -> None:
    """Raise RecursionError for brackets that are nested deeper than anybody writes."""
    depth = deepest = 0
    if code.count("(") + code.count("[") + code.count("{") < MOST_NESTING:
        return
    for sign in re.findall(r"[(\[{)\]}]", code):
        depth += 1 if sign in "([{" else -1
        deepest = max(deepest, depth)
        if deepest > MOST_NESTING:
            raise RecursionError


def parts(code: str) -> list[tuple[str, int]]:
    """Split code at lines that begin at the margin, with the number of the first line of each from 0."""
    found: list[tuple[str, int]] = []
    lines = code.split("\n")
    start = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or (
            lines[at]
            and lines[at][0] not in " \t)]}#"
            and not lines[at].startswith(("else", "elif", "except", "finally"))
        ):
            part = "\n".join(lines[start:at])
            if part.strip():
                found.append((part, start))
            start = at
    return found[:500]


def letters(notes: Notes, code: str) -> None:
    if code.isascii():
        return
    if (match := _TURNS.search(code)) is not None:
        notes.add(ScreenCode.HIDDEN_LETTERS, code.count("\n", 0, match.start()) + 1, f"U+{ord(match[0]):04X}")
    bare = _STRINGS.sub("", code)
    for match in _ODD.finditer(bare):
        if unicodedata.normalize("NFKC", match[0]).isascii():
            notes.add(ScreenCode.HIDDEN_LETTERS, 1, f"U+{ord(match[0]):04X}")
            return
