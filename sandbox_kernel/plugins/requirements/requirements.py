"""A user's requirements file, read here and not by pip: names, versions, markers, hashes, and wheels in files.

To pip such a file is a program. It names source trees and addresses, whose building runs their code on this machine;
it chooses the index that is asked, and puts variables of the environment, such as tokens, into addresses. The file may
have come with a notebook: what it may say is therefore little, and pip is given a file of our own that says just this.

packaging parses names and versions, as in pip.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import IO, NoReturn

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ...core.errors import ConfigurationError, FileRefused
from ...core.model import MIB
from ...files.file_rules import printable
from ...files.host_paths import open_file
from .codes import RequirementCode

SETTING = "requirements"
MAX_BYTES = 4 * MIB
MAX_LINES = 20_000
"""Of all files together."""
MAX_DEPTH = 5
"""Of files that name files."""
MAX_METADATA = 8 * MIB
MAX_ASKED = 500
"""Characters of one text that a caller asks with."""

_COMMENT = re.compile(r"(^|\s+)#.*$")
_HASH = re.compile(r"\s+--hash(?:=|\s+)(\S+)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_NESTED = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s+|=|(?<=-[rc]))(\S.*)")
_FLAGS = re.compile(r"(--no-index|--pre|--require-hashes)|--prefer-binary|--only-binary(?:=|\s+)\S+")
_PLAIN = re.compile(r"[\t\x20-\x5b\x5d-\x7e]*")
"""Printable ASCII without the backslash: a text of a marker is a Python string, whose escapes can be ends of lines."""
_TEXT = re.compile(r"\"([^\"]*)\"")
_WORDS = re.compile(r"[\w.+!*,/-]*( [\w.+!*,/][\w.+!*,/-]*)*", re.ASCII)
"""What a text of a marker may hold: versions and names of platforms, and nothing that pip reads as an option."""
_WHEEL_NAME = re.compile(r"[\w.+!-]+", re.ASCII)
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".lzma", ".tlz", ".egg")
"""Ends of names that pip takes for files."""
_REFUSED = {
    "-e": "a source tree would be built, which runs its code on this machine",
    "--editable": "a source tree would be built, which runs its code on this machine",
    "--no-binary": "a package would be built, which runs its code on this machine",
}
_OTHERS = "where packages come from, and how, is said in your own pip configuration, and not by the file"


class NamedWheel:
    """A wheel that was named by path, kept open as it was read."""

    def __init__(self, name: str, handle: int) -> None:
        """Take over a handle. Raises `_Refused`."""
        self.name = name
        self._handle = handle
        weakref.finalize(self, os.close, handle)
        with self._opened() as file:
            for address in _addresses(file):
                _refuse(f"the wheel asks for an address ({printable(address)}), which is not asked")
        with self._opened() as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()

    def copy(self, folder: Path) -> Path:
        """Copy it into `folder`. Raises `ConfigurationError` if it was changed meanwhile."""
        target = folder / self.name
        with self._opened() as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy)
        with target.open("rb") as copy:
            if hashlib.file_digest(copy, "sha256").hexdigest() != self.sha256:
                raise _unreadable(f"{self.name} is being changed")
        return target

    def _opened(self) -> io.BufferedReader:
        file = os.fdopen(os.dup(self._handle), "rb")
        file.seek(0)
        return file


@dataclass(slots=True)
class Wanted:
    """What a requirements file asks for."""

    lines: list[str] = field(default_factory=list)
    """As we write them: no line of the file is handed on."""
    flags: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    wheels: list[NamedWheel] = field(default_factory=list)

    @property
    def has_hashes(self) -> bool:
        return "--require-hashes" in self.flags or any(" --hash=" in line for line in (*self.lines, *self.constraints))

    @property
    def identity(self) -> str:
        """What stands for it in a digest."""
        named = [f"{wheel.name} {wheel.sha256}" for wheel in self.wheels]
        return "\0".join([*self.flags, "", *self.lines, "", *self.constraints, "", *named])


def read(path: Path) -> Wanted:
    """Read a requirements file. Raises `ConfigurationError` with the line that is not taken, and why."""
    wanted = Wanted()
    _RequirementReader(wanted).file(os.fspath(path), constraints=False, depth=0)
    return wanted


def asked(texts: Sequence[str], *, paths: bool) -> Wanted:
    """Read what a caller asks for, a text each: a name with versions and hashes or, with `paths`, the path of a wheel.

    Raises `ConfigurationError`.
    """
    wanted = Wanted()
    reader = _RequirementReader(wanted, paths=paths)
    for text in texts:
        try:
            if not isinstance(text, str) or len(text) > MAX_ASKED or not text.isprintable():
                _refuse("it is no line of text")
            if text.lstrip().startswith("-"):
                _refuse("it is no name of a package")
            reader.line(text.strip(), "", constraints=False, depth=0)
        except _Refused as reason:
            what = f"{printable(str(text)[:MAX_ASKED])!r} is not taken: {reason}"
            raise ConfigurationError(RequirementCode.PACKAGE_IMPROPER, what) from None
    return wanted


class _RequirementReader:
    def __init__(self, wanted: Wanted, *, paths: bool = True) -> None:
        """Without `paths`, no file of this machine is opened for what a line names."""
        self.wanted = wanted
        self.paths = paths
        self.lines_left = MAX_LINES

    def file(self, path: str, *, constraints: bool, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _unreadable("the requirements name files too deep", str(MAX_DEPTH))
        for number, line in _logical_lines(_text(path)):
            self.lines_left -= 1
            if self.lines_left < 0:
                limit = f"{MAX_LINES} lines"
                raise _unreadable("the requirements are too long", limit)
            try:
                self.line(line, os.path.dirname(path), constraints=constraints, depth=depth)  # noqa: PTH120 (as written)
            except _Refused as reason:
                where = f"line {number} of {printable(path)}"
                message = f"{where} is not taken: {reason}. It says: {printable(line)}"
                raise _unreadable(message) from None

    def line(self, line: str, folder: str, *, constraints: bool, depth: int) -> None:
        if "${" in line:
            _refuse("no variable of the environment is put into it")
        if nested := _NESTED.fullmatch(line):
            name = os.path.join(folder, nested[2].strip())  # noqa: PTH118 (as written)
            self.file(name, constraints=constraints or "c" in nested[1][:3], depth=depth + 1)
        elif flag := _FLAGS.fullmatch(line):
            if flag[1] and flag[1] not in self.wanted.flags:
                self.wanted.flags.append(flag[1])
        elif line.startswith("-"):
            option = re.split(r"[\s=]", line)[0]
            _refuse(_REFUSED.get("-e" if line.startswith("-e") else option, _OTHERS))
        else:
            hashes = _HASH.findall(line)
            if not all(map(_DIGEST.fullmatch, hashes)):
                _refuse("a hash is sha256:, sha384: or sha512: and its digits")
            self.requirement(_HASH.sub("", line).strip(), hashes, folder, constraints=constraints)

    def requirement(self, text: str, hashes: list[str], folder: str, *, constraints: bool) -> None:
        if self.paths and text.lower().endswith(".whl") and "://" not in text and "@" not in text:
            if constraints:
                _refuse("a constraint has a name and a version")
            wheel = _wheel(os.path.join(folder, text))  # noqa: PTH118 (as written)
            if hashes and f"sha256:{wheel.sha256}" not in hashes:
                _refuse("the wheel does not have this sha256")
            self.wanted.wheels.append(wheel)
            return
        try:
            parsed = Requirement(text)
        except InvalidRequirement:
            _refuse("it is neither a name with versions, such as `polars>=1.2`, nor the path of a wheel")
        if parsed.name.lower().endswith(_ARCHIVES):
            _refuse("it is neither a name with versions nor the path of a wheel, and nothing is built from source")
        if parsed.url is not None:
            _refuse("an address is not asked; name the package, or the path of its wheel")
        into = self.wanted.constraints if constraints else self.wanted.lines
        into.append(" ".join([_written(text, parsed), *(f"--hash={one}" for one in hashes)]))


def _unreadable(why: str, limit: str | None = None) -> ConfigurationError:
    return ConfigurationError(RequirementCode.REQUIREMENTS_UNREADABLE, why, limit=limit, setting=SETTING)


class _Refused(Exception):
    """Why a line is not taken."""


def _refuse(reason: str) -> NoReturn:
    raise _Refused(reason)


def _written(text: str, parsed: Requirement) -> str:
    """Return a requirement, written again as one line: pip reads what was parsed here and nothing else."""
    line = str(parsed)
    if not _PLAIN.fullmatch(text) or not _PLAIN.fullmatch(line) or "${" in line:
        _refuse("a name, a version or a marker has no escapes, and no characters beyond ASCII")
    if not all(map(_WORDS.fullmatch, _TEXT.findall(line))) or re.search("['#`$]", line) or " -" in line:
        _refuse("a text of a marker is a version, or the name of a platform")
    if str(Requirement(line)) != line:
        _refuse("it does not mean the same when it is written anew")
    return line


def _text(path: str) -> str:
    try:
        with os.fdopen(open_file(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _unreadable(f"there is no requirements file {printable(path)}") from None
    except (OSError, FileRefused) as error:
        reason = error.message if isinstance(error, FileRefused) else error.strerror
        raise _unreadable(f"{printable(path)} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise _unreadable("the requirements are too long", f"{MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable(f"{printable(path)} is not UTF-8 text") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line, without comments, those joined that a backslash continues."""
    joined, first = "", 0
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        first = first or number
        if line.endswith("\\") and not _COMMENT.match(line):
            joined += line[:-1] + " "
            continue
        whole = _COMMENT.sub("", joined + line).strip()
        if whole:
            yield first, whole
        joined, first = "", 0
    if joined.strip():
        yield first, joined.strip()


def _wheel(path: str) -> NamedWheel:
    name = path.rpartition("/")[2]
    if not _WHEEL_NAME.fullmatch(name):  # pip is given it as a part of a line
        _refuse("that is no name of a wheel")
    try:
        parse_wheel_filename(name)
        return NamedWheel(name, open_file(path))
    except InvalidWheelFilename:
        _refuse("that is no name of a wheel")
    except FileRefused as error:
        _refuse(error.message.rstrip("."))
    except OSError as error:
        _refuse(f"the wheel cannot be read: {error.strerror}")


def _addresses(file: IO[bytes]) -> Iterator[str]:
    """Yield what a wheel needs that has no name but an address: pip would fetch and build that."""
    try:
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(".dist-info/METADATA"):
                    if entry.file_size > MAX_METADATA:
                        _refuse("the wheel's metadata are too large")
                    for needed in BytesHeaderParser().parsebytes(archive.read(entry)).get_all("Requires-Dist", []):
                        if Requirement(str(needed)).url is not None:  # what is no ASCII is no text yet
                            yield needed
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        _refuse("it is no proper wheel")
