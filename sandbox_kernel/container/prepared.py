"""What a kernel's start loads, as one file that is made with an image: nothing of it is searched for or read by itself.

It has the bytecode of modules, which is Python's own, and the programs of regular expressions. It counts for one Python
with one path, whose folders are as they were; and each module's for the source that it was made of.
Runs inside the container, in a kernel's process: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import importlib.util
import marshal
import mmap
import os
import re
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

PREPARED = "/opt/sandbox/home/.prepared/kernel"
FORM = 1
"""Of the file; `images/prepare.py` writes it."""
EXPRESSIONS: Any = getattr(re, "_compiler", None)
"""Where expressions are compiled, since Python 3.11."""
MADE: Callable[..., Any] | None = getattr(getattr(EXPRESSIONS, "_sre", None), "compile", None)


class Prepared:
    """Finds the modules that such a file has, while a kernel starts."""

    def __init__(self, data: Any, index: dict[str, Any], expressions: dict[Any, Any]) -> None:
        self.data, self.index, self.expressions = data, index, expressions
        self.loaders: list[Loader] = []

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return where a module is, if its file is the one that was there."""
        found = self.index.get(name)
        if found is None:
            return None
        origin, time, size, package, begin, end = found
        folder = os.path.dirname(origin)
        if path is not None and (os.path.dirname(folder) if package else folder) not in path:
            return None
        try:
            status = os.stat(origin)
        except OSError:
            return None
        if (int(status.st_mtime), status.st_size) != (time, size):
            return None
        loader: Any = ExtensionFileLoader(name, origin)
        if end:
            loader = Loader(name, origin)
            loader.bytecode = self.data[begin:end]
            self.loaders.append(loader)
        places = [folder] if package else None
        return importlib.util.spec_from_file_location(name, origin, loader=loader, submodule_search_locations=places)

    def compile(self, pattern: Any, flags: int = 0) -> Any:
        """Return a regular expression."""
        made = self.expressions.pop((type(pattern) is str, pattern, int(flags)), None)  # each is remembered by `re`
        return MADE(pattern, *made) if made is not None and MADE is not None else self.compiled(pattern, flags)

    def begin(self) -> None:
        sys.meta_path.insert(0, self)
        if EXPRESSIONS is not None:
            self.compiled, EXPRESSIONS.compile = EXPRESSIONS.compile, self.compile

    def end(self) -> None:
        """Leave all that is not loaded yet to Python, and let go of the file."""
        sys.meta_path.remove(self)
        if EXPRESSIONS is not None:
            EXPRESSIONS.compile = self.compiled
        for loader in self.loaders:
            if type(loader) is Loader:
                loader.become_plain()
        self.data, self.loaders, self.index, self.expressions = b"", [], {}, {}  # another thread may be in the midst


class Loader(SourceFileLoader):
    """Becomes Python's own when it has given the bytecode."""

    bytecode: Any = None

    def get_code(self, fullname: str) -> Any:
        try:
            code = marshal.loads(self.bytecode)  # noqa: S302 (the image's own, as Python's files of it are)
        except (EOFError, ValueError, TypeError):
            code = None  # it was not written to its end
        self.become_plain()
        return code if code is not None else self.get_code(fullname)  # by Python's own way now

    def become_plain(self) -> None:
        vars(self).pop("bytecode", None)
        self.__class__ = SourceFileLoader  # type: ignore[assignment]


def given_by(place: str) -> Prepared | None:
    """Return what a file has; None if there is none, or if it is another Python's or another image's."""
    try:
        with open(place, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        head = 8 + int.from_bytes(data[:8], "little")
        form, of, index, expressions = marshal.loads(data[8:head])  # noqa: S302
        if form != FORM or of != here():
            return None
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return Prepared(data[head:], index, expressions)


def here() -> list[Any]:
    """Return what Python this is and what it has on its path."""
    folders = []
    for name in sys.path:
        try:
            folders.append((name, int(os.stat(name).st_mtime)))
        except OSError:
            folders.append((name, -1))
    return [sys.version, sys.flags.optimize, folders]
