"""What may enter and leave scratch, by name and size: pure rules, never a refusal without its reason.

What is downloaded is hostile content in a place of the user's choice. Names that a tool acts upon by itself (hidden
files such as .git or .envrc, `__pycache__`, .pth, .desktop, ...) are therefore not copied, and no file is made
executable; but a cell can still write a `pandas.py`, and replace any other file of the folder. So `downloads` should
be a folder of its own, not one from which trusted code runs.

Imports errors and model only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from .errors import ConfigurationError, FileRefused
from .model import MIB, Limits, format_bytes

MAX_COMPONENT_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 16
CHUNK_BYTES = MIB
"""What is read, sent or written in one step."""

_UNREADABLE = (
    ("a control character", re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")),
    ("a text direction mark", re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")),
    # not the joiners U+200C and U+200D, without which Persian and many emoji cannot be written
    ("an invisible mark", re.compile(r"[\u00ad\u180e\u200b\u2060-\u2065\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")),
)

_ACTED_UPON = re.compile(
    r"__pycache__|(site|user)customize\.py|.*\.(pth|pyc|desktop|lnk|url|scf)|desktop\.ini|autorun\.inf|thumbs\.db",
    re.IGNORECASE,
)


_DEFAULTS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What one direction may move. Sizes in bytes, times in seconds."""

    file_bytes: int = _DEFAULTS.file_bytes
    total_bytes: int = _DEFAULTS.folder_bytes
    """Of an upload folder; of all that a session has in its download folder."""
    files: int = _DEFAULTS.folder_files
    """Of an upload folder; of all that a session has in its download folder."""
    seconds: float = 60.0
    """One synchronisation; what is left then follows with the next one."""

    @classmethod
    def of(cls, limits: Limits) -> FileLimits:
        """Return those that a session was given."""
        return cls(file_bytes=limits.file_bytes, total_bytes=limits.folder_bytes, files=limits.folder_files)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be positive, not {getattr(self, name)}", setting=name)


def check_name(path: str) -> PurePosixPath:
    """Return `path` as the relative path of a file. Raises `FileRefused` with the reason if it is not a plain one."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise FileRefused("its name is not UTF-8") from None
    if size > MAX_PATH_BYTES:
        raise FileRefused("its path is too long", limit=f"{MAX_PATH_BYTES} bytes", value=f"{size} bytes")
    for what, pattern in _UNREADABLE:
        if pattern.search(path):
            raise FileRefused(f"its name contains {what}")
    if "\\" in path:  # a plain character here, but a separator where the folder may be opened next
        raise FileRefused("its name contains a backslash")
    if path.startswith("/"):
        raise FileRefused("its path is absolute")
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        raise FileRefused("it lies too deep", limit=f"{MAX_DEPTH} levels", value=f"{len(parts)} levels")
    for part in parts:
        length = len(part.encode())
        if not part:
            raise FileRefused("its name is empty, or a part of its path is")
        if part in {".", ".."}:
            raise FileRefused(f"its path contains {part!r}")
        if length > MAX_COMPONENT_BYTES:
            raise FileRefused("its name is too long", limit=f"{MAX_COMPONENT_BYTES} bytes", value=f"{length} bytes")
    return PurePosixPath(path)


def check_copied_name(path: str) -> PurePosixPath:
    """Return `path` if it may be copied without being asked for by name. Raises `FileRefused`.

    Hidden files hold what no one sees: keys and histories on the way in, hooks and settings of tools on the way out.
    """
    checked = check_name(path)
    for part in checked.parts:
        if part.startswith("."):
            raise FileRefused("it is hidden, or in a hidden folder")
        if _ACTED_UPON.fullmatch(part):
            raise FileRefused("programs act upon files of its name by themselves")
    return checked


def is_habitual(path: str, reason: str) -> bool:
    """Return whether a refusal of `check_copied_name` is of what honest tools leave behind: hidden files, caches."""
    cached = "__pycache__" in path.split("/") and reason.startswith("programs act upon")
    return cached or reason.startswith("it is hidden")


def check_size(size: int, limit: int) -> None:
    """Raise `FileRefused` if `size` bytes are more than `limit`."""
    if size > limit:
        limits, reached = format_bytes(limit), format_bytes(size)
        raise FileRefused("it is too large", limit=limits, value=reached, setting="file_limit")


def printable(text: str, limit: int = 160) -> str:
    """Return `text` on one line, with everything escaped that a terminal or a reader could mistake."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
