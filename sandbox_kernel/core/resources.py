"""Where this package lies, and what it brings along besides code.

Every place that asks "which files are this kernel's own" starts here, so that the answer is the whole package wherever
the asking module may lie in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from .codes import UsageCode
from .errors import ConfigurationError

if TYPE_CHECKING:
    import subprocess


def stamp(package: str) -> str:
    """Return 64 hexadecimal digits of where the package lies, and of its sources and recipes of images as they are.

    Of each file its name, size and time count: two checkouts of the same version have two stamps, and so has one before
    and after an update. `package` is its folder. Raises OSError.
    """
    place = os.stat(package)  # noqa: PTH116 (there are hundreds of files)
    lines = [f"{place.st_dev} {place.st_ino}", *_files(package, ".py")]
    for images in (f"{package}/resources/images", f"{package.rpartition('/')[0]}/images"):
        try:
            lines += _files(images, "")
        except OSError:
            continue  # an installed package brings them, a checkout has them beside it
        break
    return sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _files(folder: str, suffix: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        for entry in sorted(found, key=lambda one: one.name):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path, suffix)
            elif entry.name.endswith(suffix):
                status = entry.stat()
                yield f"{folder.rpartition('/')[2]}/{entry.name} {status.st_size} {status.st_mtime_ns}"


PACKAGE = Path(__file__).resolve().parent.parent
"""The folder of the whole package."""


def brought(name: str) -> Path:
    """Return the folder `name` (`images`, `kernelspec`): within an installed package, or beside it in a checkout.

    Raises `ConfigurationError` where it is missing.
    """
    for folder in (PACKAGE / "resources" / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise ConfigurationError(
        UsageCode.INSTALLATION_UNFIT, f"this installation lacks its folder {name!r}; install sandbox-kernel again"
    )


@cache
def installation() -> str:
    """Return the stamp of this installation of the package, as it was when this process first asked (`stamp.py`)."""
    return stamp(str(PACKAGE))


_FOR_HELPERS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def environment_of_helpers() -> dict[str, str]:
    """Return the variables that a small process of ours needs; one of the others may be a secret."""
    return {name: os.environ[name] for name in _FOR_HELPERS if name in os.environ}


def keep_ends_of_children() -> None:
    """Have the system keep how this process's children end until that was asked for.

    Whoever started it may have been one that ignores SIGCHLD, which is passed on to children; the ends are lost then.
    """
    import signal  # a start of a kernel loads it later, and meanwhile

    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def is_locked(path: str | os.PathLike[str], folder: int | None = None) -> bool:
    """Return whether somebody has a lock of a file, which goes with its process; False where there is no such file.

    `folder` is the handle of the one that the path begins in. What cannot be told counts as locked.
    """
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


APART = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"


def start_apart(module: str, *arguments: str, seconds: float) -> None:
    """Start a module of ours as a process that is nobody's child: whoever starts it need not be there at its end.

    Raises `OSError`, and `subprocess.SubprocessError` where it cannot be started within so many seconds.
    """
    import subprocess

    python = (sys.executable, "-I")
    subprocess.run(
        [*python, "-S", "-c", APART, *python, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment_of_helpers(),
        start_new_session=True,  # what ends this process's group is to leave it alone
        timeout=seconds,
        check=True,
    )


def start_helper(
    script: str, *arguments: str, stdin: int | None = None, files: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a script of ours, which imports the standard library only, as a process that outlives this one.

    It reads `stdin`, a pipe unless a file is given, and gets `files` under their numbers. Raises OSError.
    """
    import subprocess  # a start of a kernel may need none

    process = subprocess.Popen(
        [sys.executable, "-I", "-S", script, *arguments],
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment_of_helpers(),
        pass_fds=files,
        start_new_session=True,  # what kills this process's group, as a front end may, is to leave it alone
    )
    process.returncode = 0  # it outlives this process; nobody here waits for it
    return process
