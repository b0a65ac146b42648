"""File rules with a real folder of the host, links in it, and an agent that answers whatever it likes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sandbox_kernel.core.errors import FileRefused, SandboxDied, SandboxError
from sandbox_kernel.files import folder_sync, scratch_files
from sandbox_kernel.files.file_rules import FileLimits, check_name
from sandbox_kernel.files.folder_sync import Downloads, SyncState, Uploads
from sandbox_kernel.files.host_tree import DownloadFolder, UploadFolder
from sandbox_kernel.files.scratch_files import Stamp
from tests.support.descriptors import open_now

from ..judge import require
from ..trees import Reader, encode, option
from ..words import NAMES

LIMITS = FileLimits(file_bytes=64, total_bytes=200, files=4, seconds=20)
SECRET = b"a secret of the host"
MAX_ASKED = 500

DOWNLOAD, UPLOAD, READ, WRITE, LIST = range(5)
HONEST, SHORT, LONG, CHANGED, TREE, REFUSED, DIES, SWAP = range(8)
LAYOUTS = ("empty", "link", "linked folder", "folder in the way", "fifo", "file")
STAMP = [4, 1, 1, 1]


async def _at_once(self: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


_loop: asyncio.AbstractEventLoop
_base: Path


@contextmanager
def prepared() -> Iterator[None]:
    """Make a folder. The steps of a disk are run here and not in a thread: the fuzzer sees where they have been."""
    global _loop, _base  # noqa: PLW0603 (one of each for a million cases)
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-files-") as folder,
        contextlib.closing(asyncio.new_event_loop()) as _loop,
        patch.object(folder_sync.DiskThread, "run", _at_once),
        patch.object(folder_sync.DiskThread, "finish", _at_once),
    ):
        _base = Path(folder)
        yield


class Agent:
    """Answers from a script; every question is counted."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self._reader = reader
        self._folder = folder
        self.asked = 0

    async def __call__(self, op: str, data: bytes = b"", **fields: Any) -> Any:
        self.asked += 1
        require(self.asked <= MAX_ASKED, "the host asks for ever")
        if path := fields.get("path"):
            require(str(check_name(path)) == path, path)
        reader = self._reader
        how = reader.byte() % 8 if reader.left else HONEST
        if how == DIES:
            raise SandboxDied("it is gone")
        if how == REFUSED:
            return {"ok": False, "error": reader.json(), "message": "x\x1b[2J"}, b""
        if how == TREE:
            return reader.json(), reader.block()
        if how == SWAP:
            swap(self._folder, reader.byte(), reader.choice(NAMES[:2] + NAMES[2:3]))
        if op == "file.list":
            return {"ok": True, "files": [_entry(reader) for _ in range(reader.byte() % 6)], "complete": how == HONEST,
                    "others": reader.json()}, b""  # fmt: skip
        if op == "file.read":
            size = {SHORT: 3, LONG: 5}.get(how, 4)
            return {"ok": True, "stamp": [4, 1, 1, 2] if how == CHANGED else STAMP}, b"x" * size
        return {"ok": True, "stamp": STAMP}, b""


def _entry(reader: Reader) -> Any:
    what = reader.byte() % 4
    if what == 0:
        return [reader.text(), *STAMP]
    if what == 1:
        return [reader.choice(NAMES[:1] + NAMES), *STAMP]
    if what == 2:
        return reader.json()
    return [reader.choice(NAMES[:2]), reader.byte(), 1, 1, 1]


def swap(folder: Path, what: int, name: str) -> None:
    """Put something else in the place of an entry of the host's folder, as a racing person or program might."""
    place = folder / name.partition("/")[0]
    if ".." in name or name.startswith("/") or place == folder:
        return
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    if what % 3 == 1:
        place.symlink_to(_base / "outside")
    elif what % 3 == 2:
        place.symlink_to(_base / "outside" / "secret")


def lay_out(layout: int) -> Path:
    """Make a folder with something in it that must not be followed or replaced."""
    down = _base / "down"
    shutil.rmtree(down, ignore_errors=True)
    outside = _base / "outside"
    if not outside.exists():
        outside.mkdir()
        (outside / "secret").write_bytes(SECRET)
    down.mkdir()
    kind = LAYOUTS[layout % len(LAYOUTS)]
    if kind == "link":
        (down / "link").symlink_to(outside / "secret")
        (down / "a").symlink_to(outside / "secret")
    elif kind == "linked folder":
        (down / "out").symlink_to(outside)
        (down / "a").symlink_to(outside)
    elif kind == "folder in the way":
        (down / "a").mkdir()
        (down / "chart.png").mkdir()
    elif kind == "fifo":
        os.mkfifo(down / "a")
        os.mkfifo(down / "fifo")
    elif kind == "file":
        (down / "a").write_bytes(b"of a person")
        (down / "chart.png").write_bytes(b"old")
    return down


def run(data: bytes) -> None:
    reader = Reader(data)
    what, down = reader.byte() % 5, lay_out(reader.byte())
    agent = Agent(reader, down)
    try:
        _loop.run_until_complete(_case(what, down, agent, reader))
    except FileRefused as error:
        require(str(error).isprintable(), str(error))
    except SandboxError:
        pass
    left = [target for _, target in open_now() if Path(target).is_relative_to(_base)]
    require(not left, left)
    require(os.listdir(_base / "outside") == ["secret"], os.listdir(_base / "outside"))
    require((_base / "outside" / "secret").read_bytes() == SECRET, "a file of the host was written")
    require(set(os.listdir(_base)) <= {"down", "outside"}, os.listdir(_base))
    for folder, _, files in os.walk(down):
        for name in files:
            require(not name.startswith(".sandbox-"), "half a file is left")
            place = Path(folder) / name
            if what == DOWNLOAD and place.is_file() and not place.is_symlink():
                require(place.read_bytes() in (b"xxxx", b"old", b"of a person", b""), place.read_bytes())


async def _case(what: int, down: Path, agent: Agent, reader: Reader) -> None:
    to, of = DownloadFolder(down), UploadFolder(down, LIMITS)
    with closing(to.held), closing(of.held):
        await _use(what, to, of, agent, reader)


async def _use(what: int, to: DownloadFolder, of: UploadFolder, agent: Agent, reader: Reader) -> None:
    if what == DOWNLOAD:
        state = SyncState()
        downloads = Downloads(to, state, LIMITS)
        for _ in range(2):
            report = await downloads.sync(agent)
            for path, size in report.copied:
                require(size <= LIMITS.file_bytes, report)
                parts = check_name(path).parts
                require(not any(part.startswith(".") for part in parts), path)
            for text in (text for pair in report.refused for text in pair):
                require(text.isprintable() and len(text) < 6000, text)
        require(sum(state.held.values()) <= LIMITS.total_bytes, state.held)
        require(len(state.held) <= LIMITS.files, state.held)
    elif what == UPLOAD:
        report = await Uploads(of, SyncState(), LIMITS).sync(agent)
        require(all(path in ("a", "chart.png") for path, _ in report.copied), report)
    elif what == READ:
        content = b"".join([data async for data in scratch_files.stream(agent, reader.choice(NAMES), 16)])
        require(len(content) <= 16, content)
    elif what == WRITE:
        await scratch_files.write(agent, reader.choice(NAMES), b"x" * (reader.byte() % 32), 16)
    else:
        for file in (await scratch_files.scan(agent, 8))[0]:
            require(str(check_name(file.path)) == file.path and isinstance(file.stamp, Stamp), file)


def seeds() -> Iterator[bytes]:
    for layout in range(len(LAYOUTS)):
        for name in NAMES:
            entry = bytes([0]) + name.encode("utf-8", "replace") + b"\xff"
            yield (
                bytes([DOWNLOAD, layout, HONEST, 2])
                + entry
                + bytes([1])
                + option(NAMES[:1] + NAMES, "a/b")
                + encode([])
            )
        for how in range(8):
            listing = (
                bytes([HONEST, 2, 1]) + option(NAMES[:1] + NAMES, "chart.png") + b"\1" + option(NAMES[:1] + NAMES, "a")
            )
            yield bytes([DOWNLOAD, layout]) + listing + encode([["l", "link"]]) + bytes([how, how, 1, 1])
            yield bytes([UPLOAD, layout, how, how])
            yield bytes([DOWNLOAD, layout, how, 1, 1, 1])
    for name in NAMES:
        yield bytes([READ, 0]) + option(NAMES, name) + bytes([HONEST])
        yield bytes([WRITE, 0]) + option(NAMES, name) + bytes([20, HONEST])
        yield bytes([LIST, 0, HONEST, 1, 0]) + name.encode("utf-8", "replace") + b"\xff"
    for tree in (
        {"ok": True, "files": [["a", 1 << 62, -1, 0, 0], None, 1, ["b"], ["c", "1"]]},
        [],
        {"ok": True, "files": "abc", "others": 7},
    ):
        yield bytes([LIST, 0, TREE]) + encode(tree)
        yield bytes([DOWNLOAD, 0, TREE]) + encode(tree)
