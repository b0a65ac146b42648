"""Names of files: one that passes is a plain path beneath its folder; what is printed of one is a line."""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections.abc import Iterator

from sandbox_kernel.core.errors import FileRefused
from sandbox_kernel.files.file_rules import check_copied_name, check_downloaded_name, check_name, printable

from ..judge import require
from ..words import NAMES

ROOT = "/folder/of/a/person"


def run(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    line = printable(name)
    require(line.isprintable() and len(line) <= 12 * 160, line)
    try:
        path = check_name(name)
    except FileRefused as error:
        require(error.message and str(error).isprintable() and len(str(error)) < 300, error)
        try:
            check_copied_name(name)
        except FileRefused:
            return
        require(False, "refused by one rule, and let through by the stricter one")
    require(str(path) == name, (str(path), name))
    joined = posixpath.join(ROOT, name)
    require(posixpath.normpath(joined) == joined and joined.startswith(ROOT + "/"), joined)
    require(os.fsencode(name) == data and b"\0" not in data and b"\\" not in data, data)
    require(len(data) <= 1024 and all(0 < len(part) <= 255 for part in data.split(b"/")), data)
    require(not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in name), name)
    try:
        check_copied_name(name)
    except FileRefused:
        return
    require(not any(part.startswith(".") for part in path.parts), name)
    try:
        check_downloaded_name(name)
    except FileRefused:
        return
    plain = [unicodedata.normalize("NFKC", part) for part in path.parts]
    require(not any(part.startswith((".", "-", " ")) or part.endswith((".", " ")) for part in plain), name)
    require(path.suffix.lower() not in (".pth", ".pyc", ".desktop", ".lnk", ".url", ".scf"), name)


def seeds() -> Iterator[bytes]:
    for name in NAMES:
        yield name.encode("utf-8", "surrogatepass")
    yield b"\xff\xfe.csv"
