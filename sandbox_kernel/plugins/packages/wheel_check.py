"""What is in a wheel, looked at before it goes into a sandbox: names, sizes and whose it is. Nothing is unpacked here.

It would be unpacked inside only, where it can do what any cell can. What is refused here is what nobody honest makes.
"""

from __future__ import annotations

import stat
import zipfile
from email.parser import BytesHeaderParser
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.model import MIB, format_bytes
from ...files.file_rules import printable
from .codes import PackageCode

MAX_ENTRIES = 20_000
MAX_NAME_BYTES = 400
MAX_DEPTH = 30
MAX_METADATA = 8 * MIB


def check_wheel(path: Path, name: str, version: str, limit: int) -> int:
    """Return how many bytes a wheel takes unpacked. Raises `ConfigurationError` for one that is none, or too large."""
    try:
        if canonicalize_name(parse_wheel_filename(path.name)[0]) != canonicalize_name(name):
            raise _improper(path, "it has the name of another package")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise _improper(path, f"it has more than {MAX_ENTRIES} files")
            seen: set[str] = set()
            for entry in entries:
                if (why := _wrong(entry, seen)) is not None:
                    raise _improper(path, f"its file {printable(entry.filename)[:100]!r} {why}")
                seen.add(entry.filename)
            if sum(entry.compress_size for entry in entries) > path.stat().st_size:
                raise _improper(path, "its files lie over each other")
            total = sum(entry.file_size for entry in entries)
            if total > limit:
                raise ConfigurationError(
                    PackageCode.PACKAGE_TOO_LARGE,
                    f"{name} {version} is too large when it is unpacked",
                    limit=format_bytes(limit),
                    value=format_bytes(total),
                    setting="packages_size",
                )
            _check_metadata(archive, path, name, version)
    except (zipfile.BadZipFile, InvalidWheelFilename, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        raise _improper(path, "it cannot be read") from None
    return total


def _wrong(entry: zipfile.ZipInfo, seen: set[str]) -> str | None:
    """Return what is wrong with an entry, None if nothing is."""
    name = entry.filename
    parts = name.removesuffix("/").split("/")
    # zipfile cuts a name at a NUL; what stood there is another name to others.
    if name != entry.orig_filename or not name.isprintable() or "\\" in name or ":" in name:
        return "has a name with characters that have no place there"
    if any(part in ("", ".", "..") for part in parts):
        return "leads somewhere else"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        return "has a name that is too long"
    if name in seen:
        return "is there twice"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed in a way that wheels are not"
    return None


def _check_metadata(archive: zipfile.ZipFile, path: Path, name: str, version: str) -> None:
    found = [one for one in archive.infolist() if one.filename.count("/") == 1 and one.filename.endswith("/METADATA")]
    if len(found) != 1 or not found[0].filename.endswith(".dist-info/METADATA") or found[0].file_size > MAX_METADATA:
        raise _improper(path, "it does not say what it is")
    said = BytesHeaderParser().parsebytes(archive.read(found[0]))
    if canonicalize_name(str(said["Name"])) != canonicalize_name(name) or str(Version(str(said["Version"]))) != version:
        raise _improper(path, "it says that it is another package")


def _improper(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(UsageCode.PACKAGE_IMPROPER, f"{printable(path.name)} is no proper wheel: {why}")
