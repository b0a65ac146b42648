"""What one answer of a sandbox may make this process build: one allowance, passed to all that builds something from it.

Each part of an answer may be small. So what all parts become is counted together, in bytes of memory and before any of
it is built; what takes time instead of memory (nesting, long numbers, equal hashes) has a bound beside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from . import json_memory
from .codes import EndCode
from .errors import AnswerError
from .model import Limits, format_bytes

MEMORY_FACTOR = 4
"""Bytes of memory for each that a cell may send. A text takes no more, whatever its characters are."""
MAX_DEPTH = 100
MAX_DIGITS = 4_300
"""Of one number, as Python has it: reading and writing it takes a time that grows with the square of that."""
MAX_EQUAL_HASHES = 16
"""Values of one set or mapping. Honest points of a grid have eight in three dimensions: -1 and -2 hash alike."""
MAX_KEYED = 2
"""Sets within sets: looking for equal ones takes a time that each level multiplies."""


class AnswerAllowance:
    """What is left for one answer. Each method counts first and builds then, and raises `AnswerError`."""

    def __init__(self, limits: Limits) -> None:
        self._limit = MEMORY_FACTOR * limits.output_limit
        self._used = self._keyed = 0

    def take(self, nbytes: int) -> None:
        """Count the memory of what is about to be built."""
        self._used += nbytes
        if self._used > self._limit:
            limit = f"{format_bytes(self._limit)} of memory, {MEMORY_FACTOR} times output_limit"
            raise AnswerError(
                EndCode.ANSWER_TOO_LARGE, limit=limit, value=format_bytes(self._used), setting="output_limit"
            )

    def json(self, text: str, copies: int = 1) -> Any:
        """Return what JSON holds, charged for so many copies at once."""
        self.take(copies * json_memory.kept(text.encode(errors="surrogatepass")))
        with improper(RecursionError):
            level = [value := json.loads(text, parse_int=lambda number: int(digits(number)))]
        depth = 0
        while level := [
            one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))
        ]:
            at_most(depth := depth + 1, MAX_DEPTH, "levels")
            level = [item for holder in level for item in holder]
        return value

    def last_line(self, pieces: Iterable[str]) -> dict[str, Any]:
        """Return the JSON object that an internal cell printed last."""
        reply = self.json("".join(pieces).strip().rpartition("\n")[2])
        if not isinstance(reply, dict):
            raise AnswerError(EndCode.ANSWER_UNREADABLE.note(why="it is no object"))
        return reply

    def base64(self, text: str) -> bytes:
        """Return the bytes of base64, in one line or several."""
        self.take(len(text))
        with improper():
            return base64.b64decode(text.replace("\n", ""), validate=True)

    def distinct(self, items: Iterable[Any]) -> list[Any]:
        """Return what will be a set, or keys. Numbers hash as their sender likes, so all of an answer may collide."""
        self._keyed += 1
        at_most(self._keyed, MAX_KEYED, "sets within sets")
        hashes = sorted(map(hash, found := list(items)))
        self._keyed -= 1
        runs = (len(list(run)) for _, run in groupby(hashes))
        at_most(max(runs, default=0), MAX_EQUAL_HASHES, "values with one hash")
        return found


def digits(number: str) -> str:
    """Return a number in text if it is not too long. Raises `AnswerError`."""
    at_most(len(number), MAX_DIGITS, "digits")
    return number


def at_most(value: int, limit: int, what: str, setting: str | None = None) -> None:
    """Raise `AnswerError` for a value above a limit, which most often no setting changes."""
    if value > limit:
        words = f"{limit:,} {what}", f"{value:,} {what}"
        raise AnswerError(EndCode.ANSWER_TOO_LARGE, limit=words[0], value=words[1], setting=setting)


@contextmanager
def improper(*more: type[Exception]) -> Iterator[None]:
    """Make an `AnswerError` of what an answer that is not properly written makes a reader raise."""
    kinds: tuple[type[Exception], ...] = (ValueError, *more)
    try:
        yield
    except AnswerError:
        raise
    except kinds as error:
        raise AnswerError(EndCode.ANSWER_UNREADABLE.note(why=type(error).__name__)) from error
