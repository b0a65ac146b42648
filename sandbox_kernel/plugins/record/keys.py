"""The key of the record: one secret in a file that only its owner reads, and what is derived from it.

One half seals every line (HMAC), the other signs anchors and receipts (Ed25519, by `cryptography`, which is imported
with the first signature). The public half may be given to anybody.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import stat
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...core.codes import FileCode
from ...core.errors import ConfigurationError, FileRefused
from ...core.home_folder import home_folder
from ...files.host_paths import Folder, open_folder, require_regular
from .codes import RecordCode
from .locks import take

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BEGINS = "sandbox-kernel audit key v1 "
MAKE_SECONDS = 5.0
_FORM = re.compile(BEGINS + r"([0-9a-f]{64})\n?")
_PUBLIC = re.compile(r"\s*([0-9a-fA-F]{64})\s*")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RecordKey:
    def __init__(self, secret: bytes, path: Path) -> None:
        self.path = path
        """Where it lies; the folder also remembers the last line of each audit (`remembered_head`)."""
        self.mac = hmac.digest(secret, b"sandbox_kernel audit mac v1", "sha256")
        self._seed = hmac.digest(secret, b"sandbox_kernel audit signature v1", "sha256")
        self.id = hashlib.sha256(b"sandbox_kernel audit key v1\0" + self.mac).hexdigest()[:32]
        """Says which key it is, and nothing of it."""

    @cached_property
    def _private(self) -> Ed25519PrivateKey | None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Private
        except ImportError:
            return None
        return Private.from_private_bytes(self._seed)

    @cached_property
    def public(self) -> str | None:
        """The public half, as 64 hexadecimal digits; None without `cryptography`."""
        return None if self._private is None else self._private.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes) -> bytes | None:
        """Return a signature of 64 bytes; None without `cryptography`."""
        return None if self._private is None else self._private.sign(data)


def signed_by(public: str, data: bytes, signature: bytes) -> bool:
    """Return whether a signature is that of a public key. Raises ImportError without `cryptography`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def default_path() -> str:
    """Return where the key lies that no setting names: in the home folder of the system's table, not of a variable."""
    return f"{home_folder() or '/'}/.local/share/sandbox-kernel/audit.key"


def open_key(path: str | None) -> RecordKey:
    """Return the key of a file; where there is none, it is made. Raises `ConfigurationError`."""
    return _read(path or default_path(), make=True)


def read_key(path: str | None) -> RecordKey:
    """Return the key of a file that is there. Raises `ConfigurationError`."""
    return _read(path or default_path(), make=False)


def check_key(path: str) -> Path:
    """Return the path of a key that can be used, or made: its folder exists. Raises OSError and `FileRefused`."""
    parent, name = os.path.split(path)
    if name in {"", ".", ".."}:
        raise FileRefused(FileCode.FOLDER_NOT_FILE)
    with open_folder(parent or ".") as folder:
        _load(folder, name)
        return folder.path / name


def parse_public(text: str) -> str | None:
    """Return a public key that is written as text, None for any other text."""
    match = _PUBLIC.fullmatch(text)
    return match[1].lower() if match else None


def _read(path: str, *, make: bool) -> RecordKey:
    parent, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 (no link is followed)
    try:
        with _folder(parent, make=make and path == default_path()) as folder:
            found = _load(folder, name)
            if found is None and make:
                found = _make(folder, name)
    except FileNotFoundError:
        found = None
    except OSError as error:
        _refuse(path, error.strerror or str(error))
    except FileRefused as error:
        _refuse(path, error.message)
    if found is None:
        _refuse(path, "its folder is not there" if make else "there is no such file")
    return found


def _folder(path: str, *, make: bool) -> Folder:
    if make:
        with suppress(FileExistsError):
            os.makedirs(path, 0o700)  # noqa: PTH103 (as it is named; a link on it is refused by the next line)
    return open_folder(path)


def _load(folder: Folder, name: str) -> RecordKey | None:
    """Return the key in a folder, None if there is none. Raises `FileRefused` for one that others can read."""
    try:
        handle = os.open(name, _READ, dir_fd=folder.handle)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(handle)
        require_regular(status)
        if status.st_uid != os.geteuid():
            raise FileRefused(RecordCode.KEY_OF_OTHERS)
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise FileRefused(RecordCode.KEY_READABLE, value=f"mode {stat.S_IMODE(status.st_mode):04o}")
        match = _FORM.fullmatch(os.read(handle, 200).decode("ascii", "replace"))
    finally:
        os.close(handle)
    if match is None:
        raise FileRefused(RecordCode.KEY_MALFORMED)
    return RecordKey(bytes.fromhex(match[1]), folder.path / name)


def _make(folder: Folder, name: str) -> RecordKey | None:
    """Make a key, unless another process makes it just now; it is there whole, or not at all."""
    lock = folder.opened()
    try:
        if not take(lock, MAKE_SECONDS):
            raise OSError(errno.EDEADLK, "another process holds its folder locked")
        if found := _load(folder, name):
            return found
        partial = f".{name}.{os.urandom(8).hex()}"
        handle = os.open(partial, _NEW, 0o600, dir_fd=folder.handle)
        try:
            os.write(handle, f"{BEGINS}{os.urandom(32).hex()}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(partial, name, src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
        return _load(folder, name)
    finally:
        os.close(lock)


def _refuse(path: str, why: str) -> NoReturn:
    words = f"the key of the audit, {path}, cannot be used: {why}"
    raise ConfigurationError(RecordCode.KEY_UNFIT, words, setting="audit_key")
