"""The first moments of the sandbox: its kernel is started before anything is loaded that the kernel does not need.

ipykernel's imports are most of a start. While they run, the agent loads itself. Runs inside the container, where the
host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from . import process, syscall_filters
from .kernel import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

STDIN, STDOUT = 0, 1
SCRATCH = "/mnt/data"
CACHE = ".cache"
"""Of an image's home, what is copied when the kernel is on its way: nothing has to be there, and it may be large."""
LARGE = 1 << 16
"""Bytes from which on a file of the cache is a link to the image's: a copy would fill memory that few cells use."""


def close_namespaces() -> None:
    """Close what bubblewrap leaves open of the namespace of users that it was given; no call of a cell's takes it."""
    for name in os.listdir(syscall_filters.OWN + "/fd"):
        with suppress(OSError):  # that folder itself, which is closed by now
            if os.readlink(syscall_filters.OWN + "/fd/" + name).startswith("user:["):
                os.close(int(name))


def main(calls: bytes, config: dict[str, Any], forget: Callable[[], object] = int) -> None:
    """Start the kernel, and then the agent; `calls` is the host's filter of system calls.

    `forget` lets go of what was there for the start: most of a megabyte, which each sandbox would keep.
    """
    close_namespaces()
    prepare(config)
    os.umask(0o022)  # of files that cells and the host write; all are of one user
    wake_read = process.prepare_pipes(STDIN, STDOUT)
    give_back_memory = process.settle()
    status = process.read(syscall_filters.OWN + "/status")
    watch = None
    if "watch" in config:
        import importlib

        watch = importlib.import_module(".call_watch", __package__).CallWatch(config["watch"])
    filters = syscall_filters.install(calls, watch)
    if "kernelspec" in config:
        from . import kernelspecs

        kernelspecs.choose(config)
    kernel = None if "missing" in config else Kernel(config, 1)
    cache = os.path.join(config["home"], CACHE)
    if os.path.isdir(cache):
        copy(cache, os.path.join(config["environment"]["HOME"], CACHE), large=LARGE)

    from .agent import Agent

    kind = Agent
    if "port" in config:
        import importlib

        kind = importlib.import_module(".stream_relay", __package__).StreamingAgent
    if "extension" in config:
        import importlib

        kind = importlib.import_module(".extension", __package__).extended(kind)
    agent = kind(config, kernel)
    agent.watch = watch
    agent.begin(wake_read, status, filters)
    if syscall_filters.threads() != filters["threads"]:
        sys.stderr.write("the agent has threads that its filter does not know\n")
        os._exit(1)
    forget()
    give_back_memory()
    agent.run(wake_read, give_back_memory)


def prepare(config: dict[str, Any]) -> None:
    """Make the folders that the kernel expects; the image may bring a prepared home."""
    os.umask(0o077)
    home = config["environment"]["HOME"]
    os.makedirs(config["runtime"], 0o700, exist_ok=True)
    os.makedirs(config["environment"]["TMPDIR"], 0o700, exist_ok=True)
    for name, text in config["accounts"].items():  # where an image's /etc leads
        with open(os.path.join(config["runtime"], name), "w") as file:
            file.write(text.format(uid=os.getuid()))
    if config["scratch"] != SCRATCH and not os.path.lexists(SCRATCH):  # where no engine has made it
        os.symlink(config["scratch"], SCRATCH)
    if os.path.isdir(config["home"]):
        copy(config["home"], home, (CACHE,))
    os.makedirs(home, 0o700, exist_ok=True)


def copy(source: str, target: str, but: tuple[str, ...] = (), large: int | None = None) -> None:
    """Copy a folder, but for some names in it, as shutil does, which takes longer to load than this to run.

    Files of `large` bytes or more are linked.
    """
    os.makedirs(target, 0o700, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.name in but:
                continue
            path = os.path.join(target, entry.name)
            if entry.is_dir():
                copy(entry.path, path, large=large)
                continue
            if large is not None and entry.stat().st_size >= large:
                try:
                    os.symlink(entry.path, path)
                except FileExistsError:  # the kernel was quicker, and wrote its own
                    pass
                continue
            with open(entry.path, "rb") as read, open(path, "wb") as write:
                while data := read.read(1 << 20):
                    write.write(data)
            keep(entry.stat(), path)
    keep(os.stat(source), target)


def keep(status: os.stat_result, path: str) -> None:
    """Give a copy the mode and the times of the original."""
    os.chmod(path, status.st_mode & 0o7777)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
