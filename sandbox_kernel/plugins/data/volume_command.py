"""`sandbox-kernel volumes`: the volumes of this user, listed, made, removed, and as archives.

What a volume holds was written by cells: only sandboxes walk it and unpack archives. This process moves bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ...config.forms import size
from ...core.codes import Code, UsageCode
from ...core.errors import ConfigurationError, EngineError
from ...core.model import GIB, MIB, Settings, format_bytes
from ...core.package_files import PACKAGE
from ...engines.attachment import Volume
from ...engines.select import is_service, make_engine
from ...files.file_rules import printable
from . import disk_images, volumes
from .codes import DataCode
from .volumes import VolumeKeeper, Volumes

ACTIONS = ("ls", "create", "rm", "export", "import")
PIECE_BYTES = 16 * MIB
"""Of an archive that are in memory at a time, on both sides."""
MAX_BYTES = 1024 * GIB
EMPTY_BYTES = 8 * 1024
"""What the root folder of an empty volume may take."""
ARCHIVE_FACTOR = 2
"""An archive is at most so many times as long as its volume: a small file takes a little more than its block. What is
longer has holes, which would be written out."""
STDIO = "-"
LINGER_SECONDS = 10.0
"""For a machine to let go of a volume whose sandbox has ended."""
PAUSE_SECONDS = 0.1


def add_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("action", nargs="?", choices=ACTIONS, default="ls", metavar="ACTION", help=", ".join(ACTIONS))
    one.add_argument("name", nargs="?", metavar="NAME", help="of the volume")
    one.add_argument("file", nargs="?", metavar="FILE", help="a tar archive; - is stdout, or stdin")
    one.add_argument(
        "--size", metavar="SIZE", help="create, import: the largest size (default: 10G), which is reserved"
    )
    one.add_argument("--yes", action="store_true", help="rm: remove a volume that has content")
    one.add_argument(
        "--engine", metavar="ENGINE", help="a broker has volumes of its own; else: of the sandbox of export and import"
    )
    one.add_argument("--json", action="store_true", help="ls: print JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the action says; `plugin.volumes` has the words for people."""
    archive = options.action in {"export", "import"}
    if (options.name is None) != (options.action == "ls") or (options.file is None) == archive:
        words = {"ls": "takes no NAME", "export": "needs a NAME and a FILE", "import": "needs a NAME and a FILE"}
        said = words.get(options.action, "needs a NAME, and nothing else")
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"volumes {options.action} {said}")
    do = {"ls": _list, "create": _create, "rm": _remove, "export": _export, "import": _import}
    return do[options.action](options)


class _OfBroker:
    def __init__(self, keeper: VolumeKeeper) -> None:
        self._keeper = keeper

    def list(self) -> tuple[Volume, ...]:
        return asyncio.run(self._keeper.volumes())

    def size(self, name: str) -> int:
        for one in self.list():
            if one.name == name:
                return one.size_bytes
        raise EngineError(DataCode.VOLUME_NOT_HERE.note(name=name), setting="volumes")

    def create(self, name: str, size: int | None = None) -> None:
        asyncio.run(self._keeper.create_volume(name, size))

    def remove(self, name: str) -> None:
        asyncio.run(self._keeper.remove_volume(name))

    def rename(self, name: str, new: str) -> None:
        asyncio.run(self._keeper.rename_volume(name, new))


def _kept(options: argparse.Namespace) -> Volumes | _OfBroker:
    """Return this user's volumes: those of a broker if one is named. Raises `SandboxError`."""
    if options.engine is not None and is_service(options.engine):
        engine = make_engine(Settings(engine=options.engine))
        if not isinstance(engine, VolumeKeeper):
            raise volumes.unusable(f"{options.engine} keeps none")
        return _OfBroker(engine)
    volumes.check()
    return volumes.of_user()


def _list(options: argparse.Namespace) -> int:
    found = _kept(options).list()
    if options.json:
        _say(json.dumps([one._asdict() for one in found], indent=2))
    for one in () if options.json else found:
        used = "no file system" if one.used_bytes is None else format_bytes(one.used_bytes)
        _say(f"{one.name}  {used} of {format_bytes(one.size_bytes)}  {one.used_by or 'not in use'}")
    if not found and not options.json:
        _say("there is no volume")
    return 0


def _create(options: argparse.Namespace) -> int:
    _kept(options).create(options.name, *_size(options))
    _say(f"made {options.name}")
    return 0


def _remove(options: argparse.Namespace) -> int:
    mine = _kept(options)
    size = mine.size(options.name)
    used = next((one.used_bytes for one in mine.list() if one.name == options.name), None)
    if not options.yes and (used is None or used > EMPTY_BYTES):
        shown = format_bytes(size if used is None else used)
        raise EngineError(DataCode.VOLUME_NOT_EMPTY.note(name=options.name), value=shown)
    mine.remove(options.name)
    _say(f"removed {options.name}")
    return 0


def _export(options: argparse.Namespace) -> int:
    most = _kept(options).size(options.name) * ARCHIVE_FACTOR + PIECE_BYTES
    with _to(options) as file, _sandbox(options, options.name, "ro", DataCode.VOLUME_NOT_EXPORTED) as ask:
        ask(f"archive = export('/mnt/volumes/{options.name}')")
        total = 0
        while int(ask(f"print(archive.take({PIECE_BYTES}))")):
            data = ask.read()
            total += len(data)
            if total > most:
                words = "files with holes make it too long"
                raise _failed(options, DataCode.VOLUME_NOT_EXPORTED, words, format_bytes(most))
            file.write(data)
        skipped = ask("assert archive.error is None, archive.error\nprint(archive.skipped)")
    if skipped != "0":
        sys.stderr.write(f"left out, because nobody may read it or its path is too long: {skipped}\n")
    return 0 if skipped == "0" else 1


def _import(options: argparse.Namespace) -> int:
    """Fill a volume of another name first: one that is cut off here is never taken for what was asked for."""
    mine = _kept(options)
    if same := [one.name for one in mine.list() if one.name.lower() == options.name.lower()]:
        raise EngineError(DataCode.VOLUME_EXISTS.note(name=same[0]), setting="volumes")
    part = f"{options.name[:40]}.part-{secrets.token_hex(4)}"
    with _from(options) as file:
        mine.create(part, *_size(options))
        try:
            with _sandbox(options, part, "rw", DataCode.VOLUME_NOT_IMPORTED) as ask:
                ask(f"archive = fill('/mnt/volumes/{part}')")
                while data := file.read(PIECE_BYTES):
                    ask.write(data)
                    ask("archive.give()\nassert archive.error is None, archive.error")
                ask("archive.finish()\nassert archive.error is None, archive.error")
            mine.rename(part, options.name)
        except BaseException as error:
            if not _removed(mine, part):
                raise EngineError(DataCode.VOLUME_HALF_FILLED.note(name=part)) from error
            raise
    _say(f"made {options.name}")
    return 0


def _removed(mine: Volumes | _OfBroker, name: str) -> bool:
    """Remove a volume whose sandbox has ended, which its device may outlive for a moment; return whether it is gone."""
    until = time.monotonic() + LINGER_SECONDS
    while True:
        try:
            mine.remove(name)
        except EngineError as error:
            if error.code is not DataCode.VOLUME_IN_USE or time.monotonic() > until:
                return False
            time.sleep(PAUSE_SECONDS)
        else:
            return True


class _VolumeShell:
    """Runs lines in a sandbox that has the volume, and moves pieces."""

    def __init__(self, sandbox: Any, options: argparse.Namespace, code: Code) -> None:
        self._sandbox, self._options, self._code = sandbox, options, code

    def __call__(self, lines: str) -> str:
        done = self._sandbox.run_code(lines)
        if (error := done.error) is not None:
            # What an archive says of itself comes as the words of an assertion.
            why = error.value if error.name == "AssertionError" else f"{error.name}: {error.value}"
            raise _failed(self._options, self._code, printable(why, 300))
        return "".join(done.logs.stdout).strip()

    def read(self) -> bytes:
        data: bytes = self._sandbox.files.read("piece", "bytes")
        return data

    def write(self, data: bytes) -> None:
        self._sandbox.files.write("piece", data)


@contextmanager
def _sandbox(options: argparse.Namespace, name: str, mode: str, code: Code) -> Iterator[_VolumeShell]:
    from ...sdk.blocking import Sandbox

    engine = {} if options.engine is None else {"engine": options.engine}
    source = (PACKAGE / "plugins" / "data" / "inside" / "volume_archive.py").read_text(encoding="utf-8")
    # Of the other settings of this user's files, none has a say in how bytes are moved.
    with Sandbox(volumes={name: mode}, datasets=(), network=(), screen="off", **engine) as sandbox:
        ask = _VolumeShell(sandbox, options, code)
        ask(source)
        yield ask


@contextmanager
def _to(options: argparse.Namespace) -> Iterator[IO[bytes]]:
    """Open a new file for an archive, which is there only if all of it is."""
    if options.file == STDIO:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(options.file)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{path}: {error.strerror}") from error
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 (a descriptor)
            yield file
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


@contextmanager
def _from(options: argparse.Namespace) -> Iterator[IO[bytes]]:
    if options.file == STDIO:
        yield sys.stdin.buffer
        return
    try:
        file = Path(options.file).open("rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{options.file}: {error.strerror}") from error
    with file:
        yield file


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _size(options: argparse.Namespace) -> tuple[int, ...]:
    if options.size is None:
        return ()
    return (size(disk_images.LEAST_BYTES, MAX_BYTES).read("--size", options.size),)


def _failed(options: argparse.Namespace, code: Code, why: str, limit: str | None = None) -> EngineError:
    return EngineError(code, f"{code.note(name=options.name).text}: {why}", limit=limit)
