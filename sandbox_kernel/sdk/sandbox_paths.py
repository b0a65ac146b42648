"""Paths of a sandbox, as callers write them, and refusals that name them.

Public: plugins may import it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import PurePath
from typing import TypeVar

from ..core.errors import FileRefused, wrong_argument
from ..core.model import SCRATCH
from ..files.file_rules import safe_name, safe_place

T = TypeVar("T")
Name = str | PurePath
FOLDERS = (SCRATCH, "/home/user")
"""How callers name the folder of the cells: by its place, or as hosted interpreters call it. In cells, the second is a
link to the first."""


def relative(path: Name) -> str:
    """Return a path as one relative to /mnt/data; a name with characters that are refused becomes its safe one.

    Raises `FileRefused`.
    """
    if not isinstance(path, (str, PurePath)):
        raise wrong_argument("path", f"a path must be text, not {type(path).__name__}")
    text = str(path)
    text = next((text[len(folder) + 1 :] for folder in FOLDERS if text.startswith(f"{folder}/")), text)
    while text.startswith("./"):
        text = text[2:]
    try:
        return safe_name(text)
    except FileRefused as error:
        if text.startswith("/"):
            raise error.about(f"{text!r}: the sandbox's files are in {SCRATCH}") from None
        raise about(text, error) from None


def place(path: Name) -> str:
    """Return a path as one relative to /mnt/data if it lies there, and else as a whole one. Raises `FileRefused`."""
    text = str(path)
    is_elsewhere = text.startswith("/") and not text.startswith(tuple(f"{folder}/" for folder in FOLDERS))
    if not is_elsewhere or not isinstance(path, (str, PurePath)):
        return relative(path)
    try:
        return safe_place(text)
    except FileRefused as error:
        raise about(text, error) from None


def about(name: str, error: FileRefused) -> FileRefused:
    """Return a refusal that says which file it is about."""
    return error.about(f"{name!r}: {error.message}")


async def named(name: str, work: Awaitable[T]) -> T:
    """Wait for something that is done with a file, and name the file where it is refused."""
    try:
        return await work
    except FileRefused as error:
        raise about(name, error) from None


def folder_of(path: Name) -> str:
    """Return a folder's path as `place` does, "" for /mnt/data itself. Raises `FileRefused`."""
    text = str(path).rstrip("/") or str(path)[:1]
    return "" if text in {"", ".", *FOLDERS} else place(text)
