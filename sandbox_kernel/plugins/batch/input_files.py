"""Files of the host: what goes in before the first cell, and what was copied out, with sizes and hashes.

Of what is copied out, cells chose the names; it is opened through no link. Which files code reads by names that stand
in it is said before the run: that is help, and nothing is decided by it.
"""

from __future__ import annotations

import ast
import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...core.errors import ConfigurationError, FileRefused
from ...core.model import format_bytes
from ...files.file_rules import CHUNK_BYTES, FileLimits, check_name, check_size, printable, safe_name
from ...files.host_paths import Folder, Held, is_folder, open_folder, open_parent
from ...files.host_tree import HostFile, HostSource, HostStamp, UploadFolder
from .. import index
from .codes import BatchCode


@dataclass(frozen=True, slots=True)
class Input:
    """One file that goes in: its path in /mnt/data, and where it is read."""

    path: str
    folder: Held
    file: HostFile


@dataclass(slots=True)
class Inputs:
    """What the user named with `--input`, looked at before anything starts."""

    files: list[Input] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    """Files in a folder that are left out: hidden ones, links, devices."""


def plan(names: Iterable[str], limits: FileLimits) -> Inputs:
    """Look at files and folders. Raises `ConfigurationError` for one that was named and cannot go in.

    A file keeps its name. A folder comes with its own name, as with `cp -r`; `FOLDER/.` is its content. The user typed
    these names, but what has them may come from elsewhere: no link is followed, and the folders stay open.
    """
    found = Inputs()
    for name in names:
        path = Path(name)
        try:
            if is_folder(name):
                prefix = "" if name.rstrip("/").split("/")[-1] in (".", "..") else f"{path.name}/"
                _folder(open_folder(name), prefix, found, limits)
            else:
                folder, last = open_parent(name, follow=True)
                stamp = HostStamp.of(folder.require_readable(last))
                check_size(stamp.size, limits.file_bytes)
                found.files.append(Input(safe_name(path.name), Held(folder, "--input"), HostFile(last, stamp, last)))
        except OSError as error:
            raise ConfigurationError(
                BatchCode.INPUT_REFUSED, f"the input {name} cannot be read: {error.strerror}", setting="--input"
            ) from None
        except FileRefused as error:
            raise ConfigurationError(
                BatchCode.INPUT_REFUSED,
                f"the input {name} cannot go in: {error.message}",
                limit=error.limit,
                value=error.value,
                setting=error.setting,
            ) from None
    paths = [file.path for file in found.files]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise ConfigurationError(BatchCode.INPUT_REFUSED, f"two inputs have the same name: {twice}", setting="--input")
    total = sum(file.file.stamp.size for file in found.files)
    if len(paths) > limits.files or total > limits.total_bytes:
        raise ConfigurationError(
            BatchCode.INPUT_REFUSED,
            "the inputs are too many, or too large together",
            limit=f"{limits.files} files, {format_bytes(limits.total_bytes)}",
            value=f"{len(paths)} files, {format_bytes(total)}",
            setting="folder_files or folder_limit",
        )
    return found


def _folder(opened: Folder, prefix: str, found: Inputs, limits: FileLimits) -> None:
    folder = UploadFolder(opened, limits)
    scan = folder.scan()
    found.files += [Input(prefix + file.path, folder.held, file) for file in scan.files]
    for path, reason in scan.refused:
        if reason.limit is not None:  # what was named would not be there as a whole
            raise reason
        found.refused.append({"path": printable(prefix + path), "reason": str(reason)})


class InputFile:
    """A file that goes in, hashed as it is read; opened beneath its folder, through no link."""

    def __init__(self, item: Input, heard: Callable[[int], None] = lambda count: None) -> None:
        """`heard` is called with the number of bytes that were read so far."""
        self._heard = heard
        self._source = HostSource(item.folder, item.file)
        self._bytes = 0
        self.path = item.path

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Give the open file, as far as a copy needs it: something with `read`."""
        self._source.open()
        try:
            yield cast("BinaryIO", self)
        finally:
            self._source.close()

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        """Return the next chunk, whatever size was asked for."""
        data = self._source.read()
        self._bytes += len(data)
        self._heard(self._bytes)
        return data

    def row(self) -> dict[str, Any]:
        return {"path": self.path, "bytes": self._bytes, "sha256": self._source.hash.hexdigest()}


def produced(folder: Folder, paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return path, size and hash of files that were copied out; one that is gone meanwhile is left out."""
    rows = []
    for path in sorted(paths):
        try:
            descriptor = folder.open_file(str(check_name(path)))
        except (OSError, FileRefused):
            continue
        with os.fdopen(descriptor, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            rows.append({"path": path, "bytes": file.tell(), "sha256": digest.hexdigest()})
    return rows


MAX_PATHS = 100
MAX_CHARACTERS = 200_000
"""Of one cell; a longer one is left out."""
SCRATCH = "/mnt/data"

_READERS = re.compile(
    r"(?:read|scan)_(?:csv|excel|parquet|json|ndjson|table|fwf|feather|orc|pickle|hdf|sas|spss|stata|xml|html|ipc|avro|file"
    r"|text|bytes|delta)|loadtxt|genfromtxt|fromfile|imread|loadmat|open_dataset|load_workbook|read_sheet|ExcelFile|HDFStore"
)
_LOADERS = frozenset({"np.load", "numpy.load", "joblib.load", "pd.ExcelFile", "Image.open", "sf.read", "wavfile.read"})
_WRITERS = re.compile(r"to_\w+|write_\w+|savefig|save|savetxt|savez|dump|imsave|imwrite|makedirs|mkdir")
_NAMES = ("filepath_or_buffer", "io", "path", "path_or_buf", "source", "file", "fname", "filename")
"""What the argument with the path is called."""


def literal_paths(cells: Iterable[str]) -> list[str]:
    """Return the paths below the working folder that some code cells read and none of them writes, in order."""
    finder = _found(cells)
    found = [path for path in finder.read if path not in finder.written]
    return found[:MAX_PATHS]


def modules(cells: Iterable[str]) -> list[str]:
    """Return the first parts of the names of all modules that some code cells import, in order."""
    return list(_found(cells).imported)[:MAX_PATHS]


def _found(cells: Iterable[str]) -> _Finder:
    finder, read = _Finder(), index.cell_reader()
    for code in cells:
        if len(code) > MAX_CHARACTERS:
            continue
        try:
            finder.visit(ast.parse(code if read is None else read(code)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # the run will say what is wrong with it
    return finder


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.read: dict[str, None] = {}
        self.written: set[str] = set()
        self.imported: dict[str, None] = {}
        self._texts: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        self.imported |= dict.fromkeys(alias.name.partition(".")[0] for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            self.imported[node.module.partition(".")[0]] = None

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                text = self._text(node.value)
                if text is None:
                    self._texts.pop(target.id, None)
                else:
                    self._texts[target.id] = text

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        full = _dotted(node.func)
        name = full.rpartition(".")[2]
        given = next((one.value for one in node.keywords if one.arg in _NAMES), node.args[0] if node.args else None)
        if (
            isinstance(node.func, ast.Attribute)
            and name in ("read_text", "read_bytes", "open")
            and full != "Image.open"
        ) and (path := self._path_of(node.func.value)) is not None:
            self._note(path, writes=name == "open" and _writes(node, 0))
            return
        if name == "open" and full in ("open", "gzip.open", "bz2.open", "lzma.open", "codecs.open", "io.open"):
            self._note(self._text(given), writes=_writes(node, 1))
        elif _READERS.fullmatch(name) or full in _LOADERS:
            self._note(self._text(given), writes=False)
        elif _WRITERS.fullmatch(name):
            self._note(self._text(given), writes=True)

    def _note(self, text: str | None, *, writes: bool) -> None:
        if text is None or "://" in text or "\n" in text or "\0" in text or not text or text.startswith("~"):
            return
        path = posixpath.normpath(posixpath.join(SCRATCH, text))
        if not path.startswith(f"{SCRATCH}/") or "*" in path:
            return
        path = path.removeprefix(f"{SCRATCH}/")
        if writes:
            self.written.add(path)
        elif path not in self.written:
            self.read[path] = None

    def _path_of(self, node: ast.expr) -> str | None:
        """Return the text of a value that is a path and nothing else."""
        if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] == "Path":
            return self._text(node)
        if isinstance(node, ast.BinOp) or (isinstance(node, ast.Name) and node.id in self._texts):
            return self._text(node)
        return None

    def _text(self, node: ast.expr | None) -> str | None:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                return self._texts.get(name)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined([left, right])
            case ast.Call(func=func, args=[*args], keywords=[]) if args and _joins(_dotted(func)):
                return self._joined(args)
        return None

    def _joined(self, nodes: list[ast.expr]) -> str | None:
        texts = [text for text in map(self._text, nodes) if text is not None]
        return posixpath.join(*texts) if len(texts) == len(nodes) else None


def _joins(name: str) -> bool:
    return name in ("Path", "pathlib.Path", "os.path.join", "osp.join", "path.join", "str")


def _writes(node: ast.Call, at: int) -> bool:
    mode = next((one.value for one in node.keywords if one.arg == "mode"), None)
    mode = mode or (node.args[at] if len(node.args) > at else None)
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set(mode.value) & set("wax+"))


def _dotted(node: ast.expr) -> str:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join(reversed([*names, node.id if isinstance(node, ast.Name) else ""]))
