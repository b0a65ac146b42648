"""Checkpoints of a guest: its memory as it was, as the pages that are not the image's and those that changed since.

A guest's memory is a file, copy on write. Linux says which of its pages are the process's own by now, so a checkpoint
costs what was written, and not all that there is. Linux; standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .machine import map_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .machine import WasmGuest

PAGE = 4096
LONG = 256
"""Pages in a row that the guest reads from the copy once they are in it, until it writes them. Fewer stay its own, and
are compared each time: a row of its own costs an entry in the process's table of mappings."""
FEW = 4
"""The same in a guest that goes on, which has written nothing yet."""
MAX_TURNS, MAX_NAMED = 10, 20
"""Checkpoints that are kept, without a name and with one."""
PIECE = 1 << 20
"""Bytes of a saved state that go in one message."""
_OWN = re.compile(rb"[\x40-\x5f\x80-\x9f\xc0-\xdf]+", re.DOTALL)
"""The highest bytes of entries in a page map: of pages in memory (128) or swapped (64) that are not a file's (32)."""
_HELD = re.compile(rb"\x01+")
_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass
class Checkpoint:
    name: str
    """Empty for one that was taken before a cell."""
    size: int
    """Of the guest's memory."""
    pages: dict[int, bytes | None] = field(default_factory=dict)
    """What changed until the next checkpoint, as it was here; None is as in the image."""


class Checkpoints:
    """Those of one session, which has one guest after the other. All of it belongs to the guest's thread."""

    def __init__(self, shown: int, most: int, image: int, image_bytes: int) -> None:
        """Make room for `most` bytes, which a guest may have; all checkpoints together have as much.

        `shown` is this process's page map, `image` the file of a guest's first memory. Call before files have a limit.
        """
        self._shown, self._most, self._image, self._image_bytes = shown, most, image, image_bytes
        self._copy = os.memfd_create("checkpoint", os.MFD_CLOEXEC)
        os.ftruncate(self._copy, most)
        self._at = map_file(None, most, self._copy, 0)
        self._view = memoryview((ctypes.c_ubyte * most).from_address(self._at)).cast("B")
        self._held = bytearray(most // PAGE)
        """1 for a page that the copy has, as at the last checkpoint or the way back; others are as in the image."""
        self._size = image_bytes
        self.kept: list[Checkpoint] = []

    # --- what is kept -----------------------------------------------------------------------------------------------

    def take(self, guest: WasmGuest, name: str) -> None:
        """Keep a guest's memory as it is. Those that there is no room for are forgotten, the oldest first."""
        self.follow(guest)
        for old in [one for one in self.kept if name and one.name == name]:
            self._drop(old)
        self.kept.append(Checkpoint(name, self._size))
        for is_named, most in ((False, MAX_TURNS), (True, MAX_NAMED)):
            for old in [one for one in self.kept if bool(one.name) is is_named][:-most]:
                self._drop(old)
        room = self._most - os.fstat(self._copy).st_blocks * 512
        while len(self.kept) > 1 and sum(len(one.pages) for one in self.kept) * PAGE > room:
            self._drop(self.kept[0])

    def follow(self, guest: WasmGuest) -> None:
        """Have the copy be as a guest's memory is."""
        base, self._size = guest.base, guest.size
        for one in _OWN.finditer(os.pread(self._shown, self._size // PAGE * 8, base // PAGE * 8)[7::8]):
            self._take_row(base, *one.span())

    def _take_row(self, base: int, start: int, end: int) -> None:
        """Note what of a row of the guest's own pages differs from the copy, and take it over."""
        held, is_long = self._held, end - start >= LONG
        if not is_long and held.count(1, start, end) == end - start and not self._differs(base, start, end):
            return
        for page in range(start, end):
            if not held[page] or self._differs(base, page, page + 1):
                self._note(page)
                if not is_long:
                    ctypes.memmove(self._at + page * PAGE, base + page * PAGE, PAGE)
                    held[page] = 1
        if is_long:
            ctypes.memmove(self._at + start * PAGE, base + start * PAGE, (end - start) * PAGE)
            held[start:end] = b"\1" * (end - start)
            map_file(base + start * PAGE, (end - start) * PAGE, self._copy, start * PAGE)

    def _note(self, page: int) -> None:
        """Have the last checkpoint keep a page, which is about to change in the copy."""
        if self.kept and page not in self.kept[-1].pages:
            was = bytes(self._view[page * PAGE : (page + 1) * PAGE]) if self._held[page] else None
            self.kept[-1].pages[page] = was

    def _drop(self, one: Checkpoint) -> None:
        """Forget a checkpoint; what is after the one before it is then what was after this one."""
        place = self.kept.index(one)
        if place:
            before = self.kept[place - 1].pages
            for page, was in one.pages.items():
                before.setdefault(page, was)
        del self.kept[place]

    def _differs(self, base: int, start: int, end: int) -> bool:
        return bool(_libc.memcmp(base + start * PAGE, self._at + start * PAGE, (end - start) * PAGE))

    # --- the way back -----------------------------------------------------------------------------------------------

    def find(self, name: str) -> Checkpoint | None:
        """Return the checkpoint of a name, without one the last that was taken before a cell."""
        return next((one for one in reversed(self.kept) if one.name == name), None)

    def before_last(self) -> Checkpoint | None:
        """Return what was taken before the last cell, while one runs that has a checkpoint of its own."""
        turns = [one for one in self.kept if not one.name]
        return turns[-2] if len(turns) > 1 else None

    def go_back(self, to: Checkpoint) -> None:
        """Have the copy be as it was then; what was taken later is gone. Call when the guest is."""
        while self.kept[-1] is not to:
            self._undo(self.kept.pop())
        self._undo(to)
        if not to.name:  # one that was taken before a cell is returned to once: then comes the one before it
            self.kept.pop()
        self._size = to.size
        self._held[to.size // PAGE :] = bytes(len(self._held) - to.size // PAGE)

    def _undo(self, one: Checkpoint) -> None:
        for page, was in one.pages.items():
            self._held[page] = was is not None
            if was is not None:
                self._view[page * PAGE : (page + 1) * PAGE] = was
        one.pages = {}

    def forget(self) -> None:
        """Have the copy be the image, for a guest that begins anew. Checkpoints are kept."""
        for start, end in self._rows():
            for page in range(start, end):
                self._note(page)
            self._held[start:end] = bytes(end - start)
        self._size = self._image_bytes

    def fill(self, guest: WasmGuest) -> None:
        """Give a new guest the memory that the copy has."""
        guest.map(self._image, self._image_bytes)
        guest.grow_to(self._size)
        base = guest.base
        for start, end in self._rows():
            place, size = start * PAGE, (end - start) * PAGE
            if end - start >= FEW:
                map_file(base + place, size, self._copy, place)
            else:
                ctypes.memmove(base + place, self._at + place, size)

    def _rows(self) -> list[tuple[int, int]]:
        return [one.span() for one in _HELD.finditer(self._held)]

    # --- on a disk --------------------------------------------------------------------------------------------------

    def saved(self, folders: Sequence[str]) -> Iterator[bytes]:
        """Yield the memory that the copy has, and the files of folders that nobody writes to meanwhile, in pieces."""
        found = bytearray()
        for piece in self._pieces(folders):
            found += piece
            if len(found) >= PIECE:
                yield bytes(found)
                found.clear()
        yield bytes(found)

    def _pieces(self, folders: Sequence[str]) -> Iterator[bytes]:
        files = [one for number, folder in enumerate(folders) for one in _walk(number, folder, "")]
        head = json.dumps({"size": self._size, "rows": self._rows(), "files": files}).encode()
        yield len(head).to_bytes(8, "big")
        for place in range(0, len(head), PIECE):
            yield head[place : place + PIECE]
        for start, end in self._rows():
            for place in range(start * PAGE, end * PAGE, PIECE):
                yield bytes(self._view[place : min(place + PIECE, end * PAGE)])
        for number, path, mode, size, _ in files:
            if stat.S_ISREG(mode):
                with open(f"{folders[number]}/{path}", "rb") as file:  # noqa: PTH123
                    for place in range(0, size, PIECE):
                        yield file.read(min(PIECE, size - place)).ljust(min(PIECE, size - place), b"\0")

    def load(self, fd: int, folders: Sequence[str]) -> None:
        """Take over what `saved` has yielded, from a file. Raises `ValueError` and `OSError`."""
        with open(fd, "rb") as source:
            head: dict[str, Any] = json.loads(source.read(int.from_bytes(source.read(8), "big")))
            for start, end in head["rows"]:
                if source.readinto(self._view[start * PAGE : end * PAGE]) != (end - start) * PAGE:
                    raise ValueError("the state is cut short")
                self._held[start:end] = b"\1" * (end - start)
            self._size = head["size"]
            for number, path, mode, size, target in head["files"]:
                place = f"{folders[number]}/{path}"
                if stat.S_ISDIR(mode):
                    os.makedirs(place, exist_ok=True)  # noqa: PTH103
                elif stat.S_ISLNK(mode):
                    os.symlink(target, place)  # noqa: PTH211
                else:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                    with open(os.open(place, flags, 0o600), "wb") as file:  # noqa: PTH123
                        for at in range(0, size, PIECE):
                            file.write(source.read(min(PIECE, size - at)))
                    os.chmod(place, stat.S_IMODE(mode) & 0o777)  # noqa: PTH101


def _walk(number: int, folder: str, inside: str) -> Iterator[tuple[int, str, int, int, str]]:
    """Yield what lies in a folder, and each folder before what is in it; links last, so that none is followed."""
    links = []
    for entry in os.scandir(f"{folder}/{inside}"):
        known, path = entry.stat(follow_symlinks=False), f"{inside}{entry.name}"
        if entry.is_symlink():
            links.append((number, path, known.st_mode, 0, os.readlink(entry.path)))  # noqa: PTH115
        elif stat.S_ISDIR(known.st_mode):
            yield number, path, known.st_mode, 0, ""
            yield from _walk(number, folder, f"{path}/")
        elif stat.S_ISREG(known.st_mode):
            yield number, path, known.st_mode, known.st_size, ""
    yield from links
