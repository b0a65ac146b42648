"""A folder with one of each thing that may not go in, and why not."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from sandbox_kernel.core.model import GIB


def fill_with_odd_things(folder: Path, secret: Path) -> None:
    """One of each thing that may not go in."""
    (folder / "link.txt").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    os.mknod(folder / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    with (folder / "sparse.bin").open("wb") as file:
        file.truncate(10 * GIB)
    (folder / "two\nlines").write_text("2")
    (folder / ".env").write_text("SECRET=1")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.csv")).write_text("3")


RENAMED = {"two_lines~b8957a1f": b"2", "__~20c948b8.csv": b"3"}
"""Those that go in by other names, and their contents."""
ODD = {
    "link.txt": "a link", "linked": "a link", "dangling": "a link", "pipe": "a FIFO", "null": "a device",
    "socket": "a socket", "sparse.bin": "too large", ".env": "hidden", ".git": "hidden",
}  # fmt: skip
