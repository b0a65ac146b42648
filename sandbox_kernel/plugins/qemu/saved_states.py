"""The states that machines start from: one for each machine and sandbox, in a folder that is this user's alone.

    ~/.local/share/sandbox-kernel/states/KEY/state        the machine's memory and devices, mode 0600
    ~/.local/share/sandbox-kernel/states/KEY/facts.json   what it is of, its digest, and how the file looked then

A state is refused, removed and taken again if another user owns it or can read it, or if it has changed. The digest of
200 MB is computed where the file's own times and number say that it may have changed, which no ordinary user can undo.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...config.sources import LIMITS_OF_A_SANDBOX
from ...core.descriptors import is_locked
from ...core.home_folder import home_folder
from ...core.model import SandboxSpec
from ...core.package_files import PACKAGE
from ...core.version import __version__
from .artifacts import MachineParts

FORMAT = 3
STATE, FACTS = "state", "facts.json"
KEPT = 6
"""How many there are at most; the one that was used longest ago goes first."""
LARGEST_FACTS = 1 << 16
MAKING, FAILED = ".making-", ".failed"
FAILED_SECONDS = 3600.0
"""How long nobody tries again by himself; `build` does at once."""
LONGEST_REASON = 500
TRIES, TRY_SECONDS = 5, 0.02
"""How often, and after how long, a lock is tried again."""
IN_LIMITS = tuple(name for name in LIMITS_OF_A_SANDBOX if name != "message_limit")
"""The limits that a machine is made with, besides the one in its program."""
GATE = PACKAGE / "plugins" / "qemu" / "inside" / "gate.py"
"""What runs in a state besides what its sandboxes are asked for with."""


class SavedState(NamedTuple):
    """One that fits: an open file, which the caller closes, and what was said of it."""

    fd: int
    facts: dict[str, Any]


class ChangedState(Exception):
    """A state is not what was written; the text says how."""


def folder_of_user() -> Path:
    """Return where states lie. Raises LookupError for a user without a home."""
    if (home := home_folder()) is None:
        raise LookupError("this user has no home")
    return Path(home, ".local/share/sandbox-kernel/states")


def key_of(spec: SandboxSpec, machine: MachineParts, program: str, processors: int, preload: tuple[str, ...]) -> str:
    """Return a name for all that a state depends on."""
    status = os.stat(program)  # noqa: PTH116 (as a string)
    parts = [
        *(__version__, FORMAT, machine.identity, machine.contents, program, status.st_size, status.st_mtime_ns),
        *(
            processors,
            *(getattr(spec.limits, name) for name in IN_LIMITS),
            spec.command,
            spec.program,
            sorted(spec.environment.items()),
            preload,
        ),
        _processor(),
        GATE.read_bytes(),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def find(folder: Path, key: str) -> SavedState | None:
    """Return a state that is there and unchanged, None where there is none. Raises `ChangedState`."""
    place = folder / key
    try:
        with (place / FACTS).open("rb") as file:
            _own(os.fstat(file.fileno()))
            facts = json.loads(file.read(LARGEST_FACTS))
        fd = os.open(place / STATE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ChangedState(str(error)) from error
    try:
        status = os.fstat(fd)
        _own(status)
        if facts["format"] != FORMAT or facts["key"] != key:
            raise ChangedState("it is another one's")
        if facts["looked"] != look(status) and facts["digest"] != _digest(fd):
            raise ChangedState("its digest is not the one that was written down")
        os.utime(place)
        made = facts["made"]
        if not isinstance(made, dict):
            raise ChangedState("nothing is said of it")
        return SavedState(fd, made)
    except (OSError, LookupError, TypeError) as error:
        os.close(fd)
        raise ChangedState(str(error)) from error
    except BaseException:
        os.close(fd)
        raise


def remove(folder: Path, key: str) -> None:
    """Remove a state, as far as it is there."""
    shutil.rmtree(folder / key, ignore_errors=True)


@contextlib.contextmanager
def making(folder: Path, key: str) -> Iterator[Path | None]:
    """Yield an empty folder for a state that is about to be made; None if another process makes it."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    lock = _locked(folder / f".{key}.lock", TRIES)
    if lock is None:
        yield None
        return
    try:
        _sweep(folder, key)
        with tempfile.TemporaryDirectory(prefix=f"{MAKING}{key}-", dir=folder) as scratch:
            yield Path(scratch)
    finally:
        with contextlib.suppress(OSError):
            (folder / f".{key}.lock").unlink()
        os.close(lock)


def is_one_being_made(folder: Path) -> bool:
    """Return whether any process makes a state here."""
    return any(is_locked(path) for path in folder.glob(".*.lock"))


def _locked(path: Path, tries: int = 1) -> int | None:
    """Return a lock of a file, open; None if others have it. It is the file's that has the name when it is returned."""
    for turn in range(tries):
        if turn:
            time.sleep(TRY_SECONDS)  # who only asks whether it is held holds it for a moment
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == path.stat().st_ino:  # else whoever had it has removed it meanwhile
                return lock
        os.close(lock)
    return None


def note_failure(folder: Path, key: str, why: str) -> None:
    with contextlib.suppress(OSError):
        path = folder / f".{key}{FAILED}"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(why[:LONGEST_REASON])


def failed(folder: Path, key: str) -> str:
    """Return why a state could not be taken not long ago, "" where nothing is known of that."""
    return _reason(folder / f".{key}{FAILED}")


def failures(folder: Path) -> list[str]:
    """Return why states could not be taken of late."""
    return sorted({why for path in folder.glob(f".*{FAILED}") if (why := _reason(path))})


def _reason(path: Path) -> str:
    try:
        old = abs(time.time() - path.stat().st_mtime) > FAILED_SECONDS
        if not old:
            return path.read_text(encoding="utf-8", errors="replace")[:LONGEST_REASON]
        path.unlink()
    except OSError:
        pass
    return ""


def _sweep(folder: Path, key: str) -> None:
    """Remove what processes left that ended while they made a state; whoever makes one holds the lock of its name."""
    for left in folder.glob(f"{MAKING}*"):
        other = left.name.removeprefix(MAKING).partition("-")[0]
        if other == key:
            shutil.rmtree(left, ignore_errors=True)
            continue
        with contextlib.suppress(OSError):
            if (lock := _locked(folder / f".{other}.lock")) is None:
                continue  # somebody is at it
            try:
                shutil.rmtree(left, ignore_errors=True)
                (folder / f".{other}.lock").unlink(missing_ok=True)
            finally:
                os.close(lock)


def keep(folder: Path, key: str, scratch: Path, made: dict[str, Any]) -> None:
    """Put a state that was written into `scratch` in its place, whole. Raises OSError."""
    fd = os.open(scratch / STATE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        place = scratch / key
        place.mkdir(mode=0o700)
        (scratch / STATE).rename(place / STATE)
        # The rename is the file's last change: what is looked at now is what is there from now on.
        facts = {"format": FORMAT, "key": key, "digest": _digest(fd), "looked": look(os.fstat(fd)), "made": made}
    finally:
        os.close(fd)
    with os.fdopen(os.open(place / FACTS, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        json.dump(facts, file)
    remove(folder, key)
    place.rename(folder / key)
    (folder / f".{key}{FAILED}").unlink(missing_ok=True)
    there = sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=_used)
    for path in there[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _used(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _own(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o600:
        raise ChangedState("it is not a file that only this user may read and write")


def look(status: os.stat_result) -> list[int]:
    """Return what tells that a file is another one, or was written to."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _digest(fd: int) -> str:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        return digest


def _processor() -> str:
    """Return what the host's processor is called: what an emulated one offers may depend on it."""
    with contextlib.suppress(OSError):
        for row in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if row.startswith("model name"):
                return row
    return ""
