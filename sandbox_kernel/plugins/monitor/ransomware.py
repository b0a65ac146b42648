"""Files that were given to a sandbox, and noise in their place: what ransomware leaves. Pure.

Only what passes the host is seen: files on their way in and out, and listings. Noise that is written as text (Base64)
is not told from text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

MAX_FILES = 2000
"""Inputs that are remembered, and as many of the others."""
SAMPLE_BYTES = 4096
MIN_BYTES = 1024
"""Of a smaller piece nothing can be said."""
NOISE, ORDER = 7.5, 7.0
"""Bits per byte from which a piece is noise, and below which it is not. 1024 random bytes have 7.8."""
_KNOWN = (
    b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK", b"7z\xbc\xaf", b"\x89PNG", b"\xff\xd8\xff", b"GIF8",
    b"RIFF", b"OggS", b"ID3", b"PAR1", b"ARROW1", b"\x89HDF", b"\x93NUMPY",
    b"%PDF", b"SQLite", b"wOF2", b"\x80\x04", b"\x80\x05",
)  # fmt: skip
"""How files begin that honest code compresses: gzip, bzip2, xz, zstd, ZIP, 7z, images, sound, tables, pickles."""


def bits(data: bytes) -> float:
    """Return the entropy of some bytes in bits per byte, 0 to 8."""
    return -sum(count / len(data) * math.log2(count / len(data)) for count in Counter(data).values())


def _sample(data: bytes) -> bytes:
    half = SAMPLE_BYTES // 2
    middle = max(half, len(data) // 2)
    return data[:half] + data[middle : middle + half]


def noise(data: bytes) -> bool:
    """Return whether the beginning of a file is noise, and not of a kind that is meant to be."""
    if len(data) < MIN_BYTES or data.startswith(_KNOWN) or data[4:8] == b"ftyp":
        return False
    return bits(_sample(data)) >= NOISE


class RansomwareDetector:
    """What became of the files of one sandbox. Each method returns how many more inputs were scrambled."""

    def __init__(self) -> None:
        self._given: dict[str, bool] = {}
        """Inputs, and whether they are gone."""
        self._rewritten: set[str] = set()
        self._noise: set[str] = set()
        """Files that cells made, and that are noise."""
        self._told = 0

    def given(self, path: str, data: bytes) -> int:
        """Note a file on its way in, by its beginning; one that is noise already is of no account."""
        self._rewritten.discard(path)
        self._noise.discard(path)
        orderly = len(data) >= MIN_BYTES and bits(_sample(data)) < ORDER
        if orderly and (path in self._given or len(self._given) < MAX_FILES):
            self._given[path] = False
        else:
            self._given.pop(path, None)
        return self._more()

    def taken(self, path: str, data: bytes) -> int:
        """Note a file on its way out, by its beginning; a question for its size alone brings none, and says nothing."""
        if not data:
            return self._more()
        if not noise(data):
            self._rewritten.discard(path)
            self._noise.discard(path)
        elif path in self._given:
            self._rewritten.add(path)
        elif len(self._noise) < MAX_FILES:
            self._noise.add(path)
        return self._more()

    def listed(self, paths: Collection[str]) -> int:
        """Note all files that there are."""
        self._given = {path: path not in paths for path in self._given}
        return self._more()

    def removed(self, path: str) -> int:
        """Note that a front end removed a file, which no cell did then."""
        self._given.pop(path, None)
        return self._more()

    def _more(self) -> int:
        gone = sum(self._given.values())
        count = len(self._rewritten) + min(gone, len(self._noise))
        more, self._told = max(0, count - self._told), max(self._told, count)
        return more
