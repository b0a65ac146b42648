"""What the process that owns a sandbox is for: its notebook, or its command. For people who read a list of sandboxes.

Linux only; of a process of another user nothing is seen but by root.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NAME = b"--display-name="
NOTEBOOK = b"JPY_SESSION_NAME="
"""A variable in which a Jupyter Server tells a kernel the path of its notebook."""


def name_of(pid: int | None) -> str:
    """Return the name that a kernel's process was given by its kernelspec; empty if it has none, or is no kernel."""
    with suppress(OSError):
        words = _words(pid)
        given = [word.removeprefix(NAME) for word in words if word.startswith(NAME)]
        return os.fsdecode(given[-1]) if given and b"sandbox_kernel" in words else ""
    return ""


def work_of(pid: int | None) -> str:
    """Return the notebook of a kernel's process, the folder it was started in, or a command; empty if unknown."""
    if pid is None:
        return ""
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


def _words(pid: int | None) -> list[bytes]:
    return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
