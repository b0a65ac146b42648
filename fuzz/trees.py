"""JSON trees as bytes of which every string means something: a fuzzer's mutation is a change of the tree, not a typo.

Texts end with 0xFF, which no UTF-8 holds, and objects and lists with a tag, so that bytes that are put in or left out
shift nothing else.
"""

from __future__ import annotations

import struct
from typing import Any

import orjson

from .words import SNIPPETS, WORDS

END_OF_TEXT = b"\xff"
MAX_DEPTH = 120
"""More than the filters take, and less than makes Python's own recursion the subject."""

NONE, TRUE, FALSE, SMALL, LARGE, FLOAT, WORD, TEXT, SNIPPET, LIST, DICT, END = range(12)
_TAGS = 12
_NUMBERS = struct.Struct("!q")
_FLOATS = struct.Struct("!d")


class Reader:
    """Reads choices and trees from a fuzzer's bytes; at their end everything is zero, none or empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def choice(self, options: Any) -> Any:
        """Return one of at most 65,536 options."""
        number = self.byte()
        if len(options) > 256:
            number = number << 8 | self.byte()
        return options[number % len(options)]

    def raw(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def block(self) -> bytes:
        """Return the bytes up to the next end of a text."""
        end = self._data.find(END_OF_TEXT, self._at)
        end = len(self._data) if end < 0 else end
        taken = self._data[self._at : end]
        self._at = end + 1
        return taken

    def text(self) -> str:
        return self.block().decode("utf-8", "replace")

    def rest(self) -> bytes:
        return self.raw(max(self.left, 0))

    def tree(self, depth: int = 0) -> Any:
        """Return the next tree, of what JSON has."""
        tag = self.byte() % _TAGS if self.left > 0 else NONE
        return None if tag == END else self._tree(tag, depth)

    def object(self) -> dict[str, Any]:
        """Return the next tree if it is an object, else one that holds it."""
        tree = self.tree()
        return tree if isinstance(tree, dict) else {} if tree is None else {"data": tree}

    def json(self) -> Any:
        """Return the next tree as the wire's parser would give it."""
        return orjson.loads(orjson.dumps(self.tree()))

    def _tree(self, tag: int, depth: int) -> Any:
        if tag in (TRUE, FALSE):
            return tag == TRUE
        if tag == SMALL:
            return self.byte() - 64
        if tag == LARGE:
            return _NUMBERS.unpack(self.raw(8).ljust(8, b"\0"))[0]
        if tag == FLOAT:
            value = _FLOATS.unpack(self.raw(8).ljust(8, b"\0"))[0]
            return value if value - value == 0 else 0.5  # what JSON has not cannot arrive
        if tag == WORD:
            return self.choice(WORDS)
        if tag == TEXT:
            return self.text()
        if tag == SNIPPET:
            return self.choice(SNIPPETS)
        if tag == LIST:
            return self._list(depth + 1)
        if tag == DICT:
            return self._dict(depth + 1)
        return None

    def _list(self, depth: int) -> list[Any]:
        items = []
        while self.left > 0:
            tag = self.byte() % _TAGS
            if tag == END or depth > MAX_DEPTH:
                break
            items.append(self._tree(tag, depth))
        return items

    def _dict(self, depth: int) -> dict[str, Any]:
        items = {}
        while self.left > 0:
            tag = self.byte() % _TAGS
            if tag == END or depth > MAX_DEPTH:
                break
            key = self._tree(tag, MAX_DEPTH)
            items[key if isinstance(key, str) else str(key)[:100]] = self.tree(depth)
        return items


def encode(tree: Any) -> bytes:
    """Return bytes that a `Reader` takes for `tree`; for seeds."""
    if tree is None or isinstance(tree, bool):
        return bytes([{None: NONE, True: TRUE, False: FALSE}[tree]])
    if isinstance(tree, int):
        return bytes([SMALL, tree + 64]) if -64 <= tree < 192 else bytes([LARGE]) + _NUMBERS.pack(tree)
    if isinstance(tree, float):
        return bytes([FLOAT]) + _FLOATS.pack(tree)
    if isinstance(tree, str):
        for tag, known in ((WORD, WORDS), (SNIPPET, SNIPPETS)):
            if tree in known:
                return bytes([tag]) + option(known, tree)
        return bytes([TEXT]) + tree.encode("utf-8", "replace") + END_OF_TEXT
    if isinstance(tree, list):
        return bytes([LIST]) + b"".join(map(encode, tree)) + bytes([END])
    return bytes([DICT]) + b"".join(encode(key) + encode(value) for key, value in tree.items()) + bytes([END])


def option(options: Any, value: Any) -> bytes:
    """Return the bytes with which `Reader.choice` chooses `value`."""
    return options.index(value).to_bytes(2 if len(options) > 256 else 1, "big")
