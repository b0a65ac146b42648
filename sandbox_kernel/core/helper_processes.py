"""Small processes of ours: how they are started, which variables they get, and that their ends can be asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_FOR_HELPERS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def environment_of_helpers() -> dict[str, str]:
    """Return the variables that a small process of ours needs; one of the others may be a secret."""
    return {name: os.environ[name] for name in _FOR_HELPERS if name in os.environ}


def keep_ends_of_children() -> None:
    """Have the system keep how this process's children end until that was asked for.

    Its parent may ignore SIGCHLD, which children inherit. Exit statuses are lost then.
    """
    import signal  # a start of a kernel loads it later, and meanwhile

    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


APART = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"


def start_apart(module: str, *arguments: str, seconds: float) -> None:
    """Start a module of ours as a detached process, which may outlive its parent.

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


SHELL = "/bin/sh"


def start_helper(
    script: str, *arguments: str, stdin: int | None = None, files: Sequence[int] = (), waits: str = ""
) -> subprocess.Popen[bytes]:
    """Start a script of ours, which imports the standard library only, as a process that outlives this one.

    It reads `stdin`, a pipe unless a file is given, and gets `files` under their numbers. Where the machine has a
    shell, `waits` is a script of it that comes first, with the command of the other. Raises OSError.
    """
    import subprocess  # a start of a kernel may need none

    shell = (SHELL, waits) if waits and os.access(SHELL, os.X_OK) else ()
    process = subprocess.Popen(
        [*shell, sys.executable, "-I", "-S", script, *arguments],
        stdin=subprocess.PIPE if stdin is None else stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment_of_helpers(),
        pass_fds=files,
        start_new_session=True,  # what kills this process's group, as a front end may, is to leave it alone
    )
    process.returncode = 0  # it outlives this process, which does not wait for it
    return process
