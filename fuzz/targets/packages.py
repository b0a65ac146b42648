"""What a wheel may hold, and what a sandbox or a cell may say of packages: what passes means the same to everybody.

An input is a sort, and then entries of a wheel, or what is asked for, or what a sandbox says that it has.
"""

from __future__ import annotations

import contextlib
import io
import json
import os.path
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.packages.inside import sandbox_packages as inside
from sandbox_kernel.plugins.packages.installation import Has, check_wheel
from sandbox_kernel.plugins.requirements.requirements import asked

from ..judge import require

LIMIT = 1 << 16
META = "a-1.dist-info/METADATA"

_folder: Path


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Have one folder for all wheels."""
    global _folder  # noqa: PLW0603
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two files of one name
        _folder = Path(place)
        yield


def run(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    try:
        if kind == b"n":
            _name(rest.decode("utf-8", "surrogateescape"))
        elif kind == b"h":
            _has(rest)
        else:
            _wheel(rest if kind == b"r" else _packed(rest))
    except ConfigurationError as error:
        require(str(error).isprintable() and len(str(error)) < 3000, str(error))


def _name(text: str) -> None:
    wanted = asked([text], paths=False)
    require(not wanted.wheels and not wanted.flags and len(wanted.lines) == 1, (text, wanted))
    line = wanted.lines[0]
    require(line.isascii() and line.isprintable() and not line.startswith("-") and "://" not in line, line)
    require(Requirement(line.partition(" --hash=")[0]).url is None, line)


def _has(data: bytes) -> None:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    has = Has.read(said)
    for name, version in has.versions.items():
        line = f"{name}=={version}"
        require(line.isascii() and line.isprintable() and " " not in line and not line.startswith("-"), line)
        require(str(Version(version)) == version, line)


def _packed(data: bytes) -> bytes:
    """Return a wheel with entries of these names."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(META, "Name: a\nVersion: 1\n")
        for raw in data.split(b"\xff")[:20]:
            info = zipfile.ZipInfo("x")
            info.filename = raw[2:].decode("utf-8", "replace") or "x"
            info.external_attr = int.from_bytes(raw[:2], "big") << 16
            archive.writestr(info, b"")
    return whole.getvalue()


def _wheel(data: bytes) -> None:
    path = _folder / "a-1-py3-none-any.whl"
    path.write_bytes(data)
    require(check_wheel(path, "a", "1", LIMIT) <= LIMIT, data)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        require(len(set(names)) == len(names), names)
        for entry in archive.infolist():
            name = entry.filename
            require(os.path.normpath(f"/x/{name}").rstrip("/") == f"/x/{name}".rstrip("/"), name)
            require(name.isprintable() and "\\" not in name, name)
            require((entry.external_attr >> 28) in (0, 4, 8), (name, entry.external_attr))
            place = inside.place_of(name)
            require(place is None or os.path.normpath(place).startswith(f"{inside.PLACE}/"), (name, place))


def seeds() -> Iterator[bytes]:
    for name in (
        b"a",
        b"a>=1,<2",
        b"a[b]",
        b"a; python_version > '3'",
        b"a --hash=sha256:" + b"0" * 64,
        b"-e .",
        b"../a",
    ):
        yield b"n" + name
    for said in ({"a": "1"}, {"a b": "1"}, {"a": "1 --pre"}, {"a": "1.0+x"}, {"-r": "1"}):
        yield b"h" + json.dumps({"python": "3.13", "architecture": "x86_64", "glibc": 41, "versions": said}).encode()
    for entries in (
        [b"\x81\xa4a.py"],
        [b"\x81\xa4a/b.py", b"\x41\xeda/"],
        [b"\0\0../x"],
        [b"\0\0/etc/x"],
        [b"\0\0a\\..\\b"],
        [b"\xa1\xfflink"],
        [b"\0\0a-1.data/purelib/../../x"],
        [b"\0\0a", b"\0\0a"],
        [b"\0\0a\nb"],
    ):
        yield b"w" + b"\xff".join(entries)
    yield b"r" + _packed(b"\0\0a.py")
