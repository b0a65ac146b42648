"""The value of a secret: read once on the host, held by one object that shows it only through `reveal`.

No error of this module repeats what was read.
"""

from __future__ import annotations

import math
import os
import shlex
import stat
from collections.abc import Mapping
from typing import NoReturn

from ...core.codes import EndCode
from ...core.errors import ConfigurationError, FileRefused
from ...files.host_paths import open_file
from .settings import SecretSource

MIN_CHARACTERS = 8
"""Besides spaces and what else stands between digits: a shorter value cannot be told from other text."""
MIN_BITS = 40
"""A value that has fewer can be found by a cell that sends guesses and sees which of them is taken out of an answer."""
MAX_CHARACTERS = 4096


class SecretValue:
    """The bytes of a secret. Its text, its repr and its copies through pickle say nothing of them."""

    __slots__ = ("_bytes",)

    def __init__(self, value: bytes) -> None:
        self._bytes = value

    def reveal(self) -> bytes:
        """Return the value. Whoever calls this puts it into a request, or takes it out of an answer."""
        return self._bytes

    def __repr__(self) -> str:
        return "<the value of a secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the value of a secret is not written down")


def read(source: SecretSource, environment: Mapping[str, str]) -> SecretValue:
    """Read the value of a secret where its source says. Raises `ConfigurationError`."""
    where = f"secrets.{source.name}"
    if source.kind == "env":
        variable = environment.get(source.place)
        if variable is None:
            raise _wrong(where, f"has its value in the variable {source.place}, which is not set on the host")
        raw = os.fsencode(variable)
    else:
        raw = _file(where, source.place)
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")  # what editors and `echo` add
    if not raw:
        raise _wrong(where, "has an empty value")
    if len(raw) > MAX_CHARACTERS:
        raise _wrong(where, "has a value that is too long for a header", limit=f"{MAX_CHARACTERS} characters")
    if not all(0x20 <= char < 0x7F for char in raw) or raw.strip() != raw:
        raise _wrong(where, "has a value that no header can hold: it is one line of ASCII, with no space around it")
    told_apart = bytes(char for char in raw if char not in b" -:,")
    if len(told_apart) < MIN_CHARACTERS:
        what = "has a value that is too short to be found in answers, so that it cannot be kept from cells"
        raise _wrong(where, what, limit=f"{MIN_CHARACTERS} characters or more, without spaces and - : ,")
    if bits(told_apart.lower()) < MIN_BITS:  # it is taken out in any case
        raise _wrong(where, "has a value that can be found by guessing", limit=f"{MIN_BITS} bits or more")
    return SecretValue(raw)


def _file(where: str, path: str) -> bytes:
    try:
        handle = open_file(path)
    except FileRefused as error:
        raise _wrong(where, f"has its value in a file that is not opened: {error.message}") from None
    except OSError as error:
        raise _wrong(where, f"has its value in a file that cannot be opened: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if status.st_uid not in {0, os.geteuid()}:
            raise _wrong(where, "has its value in a file that belongs to another user")
        if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise _wrong(
                where, f"has its value in a file that others can read or change: `chmod 600 {shlex.quote(path)}`"
            )
        return file.read(MAX_CHARACTERS + 3)


def bits(value: bytes) -> float:
    """Return how many bits a value has at most, by its length, the alphabet it is from, and how often it repeats."""
    classes = ((b"0123456789", 10), (b"abcdef", 6), (b"ghijklmnopqrstuvwxyz", 20), (b"ABCDEF", 6))
    size = sum(count for members, count in classes if any(char in members for char in value))
    size += 20 * any(char in b"GHIJKLMNOPQRSTUVWXYZ" for char in value)
    size += 33 * any(not chr(char).isalnum() for char in value)
    different = len(set(value))
    return min(len(value) * math.log2(max(size, 2)), different * math.log2(95))


def _wrong(where: str, what: str, *, limit: str | None = None) -> ConfigurationError:
    return ConfigurationError(
        EndCode.WRONG_SETTING, f"{where} {what}", limit=limit, value="not shown", setting="secrets"
    )
