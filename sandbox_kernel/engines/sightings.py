"""What the process that owns a sandbox is for: its notebook, or its command. For people who read a list of sandboxes.

A kernel that was forked from a prepared process shows the arguments of that one. What it is for is seen at its
launcher, which waits for its end by a pidfd. Linux only; of a process of another user nothing is seen but by root.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NAME = b"--display-name="
PREPARED = b"sandbox_kernel.kernel.prepared"
"""The module of the process that kernels are forked from."""
IN_VAIN = b"--Launcher.asked="
"""An argument of a kernel that asked a broker in vain to be forked, with the reason (`kernel/launch.py`)."""
NOTEBOOK = b"JPY_SESSION_NAME="
"""A variable in which a Jupyter Server tells a kernel the path of its notebook."""


def name_of(pid: int | None) -> str:
    """Return the name that a kernel's process was given by its kernelspec; empty if it has none, or is no kernel."""
    with suppress(OSError):
        words = _words(launcher_of(pid))
        given = [word.removeprefix(NAME) for word in words if word.startswith(NAME)]
        return os.fsdecode(given[-1]) if given and b"sandbox_kernel" in words else ""
    return ""


def work_of(pid: int | None) -> str:
    """Return the notebook of a kernel's process, the folder it was started in, or a command; empty if unknown."""
    if pid is None:
        return ""
    pid = launcher_of(pid)
    place = Path("/proc", str(pid))
    words: list[str] = []
    with suppress(OSError):
        words = [os.fsdecode(word) for word in _words(pid) if word]
    with suppress(OSError):
        for variable in (place / "environ").read_bytes().split(b"\0"):
            if variable.startswith(NOTEBOOK) and "-f" in words:
                return os.fsdecode(variable.removeprefix(NOTEBOOK))
    if "-f" in words and "sandbox_kernel" in words:
        with suppress(OSError):
            return f"a kernel in {(place / 'cwd').readlink()}"
    return " ".join([os.path.basename(word) for word in words[:1]] + words[1:])[:60]  # noqa: PTH119 (any text)


def start_of(pid: int | None) -> str:
    """Return how a kernel's process came to be, where a broker forks kernels: forked, or why not; else empty."""
    with suppress(OSError):
        if launcher_of(pid) != pid:
            return "forked"
        why = [word.removeprefix(IN_VAIN) for word in _words(pid) if word.startswith(IN_VAIN)]
        return f"not forked: {os.fsdecode(why[-1])}" if why else ""
    return ""


def launcher_of(pid: int | None) -> int | None:
    """Return the process that a front end started for a kernel that was forked; of any other process its own number."""
    with suppress(OSError):
        if PREPARED not in _words(pid):
            return pid
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = _words(int(place.name))
                if b"-f" in words and b"sandbox_kernel" in words and pid in waits_for(int(place.name)):
                    return int(place.name)
    return pid


def waits_for(pid: int) -> set[int]:
    """Return the processes of which a process holds a pidfd. Raises OSError for one that is gone, or another's."""
    found = set()
    for file in Path("/proc", str(pid), "fdinfo").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            lines = (line.split() for line in file.read_text(encoding="ascii", errors="replace").splitlines())
            found |= {int(words[1]) for words in lines if len(words) == 2 and words[0] == "Pid:"}
    return found


def _words(pid: int | None) -> list[bytes]:
    return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
