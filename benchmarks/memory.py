"""What one session holds in memory: every process of it on the host, and those in its sandbox.

A broker and the sandboxes that wait are no session's: they are left out, also where one session started them. What
such a sandbox had imported while it waited is the session's once it has it.
Read from /proc and from the engine, both needing the rights of root for the container's part.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import psutil  # type: ignore[import-untyped]

from sandbox_kernel.engines.owner_process import OwnerProcess

from .kernels import MARK, STOCK, TWIN, BenchmarkError, Kernel

SHARED = b"broker"
"""An argument of a process that is there for all sessions of a user."""
COUNTED = (
    "counted: the kernel's processes on the host, its sandbox with what that had imported while it waited, and the\n"
    "  engine's process over it; not counted: a broker, and the sandboxes that wait"
)

if TYPE_CHECKING:
    from docker.models.containers import Container


def session_bytes(kernel: Kernel) -> int:
    """Return the proportional set size of all processes of a session: host, container, and the engine's shim."""
    return sum(proportional(process) for process in session_processes(kernel))


def session_processes(kernel: Kernel) -> set[psutil.Process]:
    """Return a session's processes: on the host, what those started, the container's, and the engine's shim."""
    host = host_processes(kernel)
    started = {child for process in host for child in process.children(recursive=True)}
    containers = () if kernel.name in (STOCK, TWIN) else containers_of(host)  # the usual engine may not be there
    inside = {process for container in containers for process in container_processes(container)}
    return host | started | inside


def container_bytes(kernel: Kernel) -> int:
    """Return what the memory limit counts: the container's cgroup, less file pages that can be dropped at once."""
    found = containers_of(host_processes(kernel))
    if not found:
        raise BenchmarkError(f"{kernel.name}: it has no container")
    usage = 0
    for container in found:
        memory = container.stats(stream=False)["memory_stats"]
        usage += memory["usage"] - memory["stats"].get("total_inactive_file", memory["stats"].get("inactive_file", 0))
    return usage


def host_processes(kernel: Kernel) -> set[psutil.Process]:
    """Return the processes that inherited the kernel's mark, wherever in the process tree they are now."""
    mark, file = f"{MARK}={kernel.mark}".encode(), str(kernel.manager.connection_file).encode()
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            words = [Path(f"/proc/{process.pid}/{name}").read_bytes().split(b"\0") for name in ("environ", "cmdline")]
            if (mark in words[0] or file in words[1]) and SHARED not in words[1]:
                found.add(process)
    if not found:
        raise BenchmarkError(f"{kernel.name}: none of its processes is found")
    return found


def engine_of(host: set[psutil.Process]) -> str | None:
    """Return the address of the engine that one of these processes was given; None is the usual one."""
    words = (word for process in host for word in process.cmdline())
    return next((word for word in words if word.startswith("unix://")), None)


def containers_of(host: set[psutil.Process]) -> list[Container]:
    """Return the containers that one of these processes owns."""
    pids = {process.pid for process in host}
    client: Any = docker.DockerClient(base_url=address) if (address := engine_of(host)) else docker.from_env()
    try:
        names = (
            (container, OwnerProcess.parse(container.name)) for container in client.containers.list(ignore_removed=True)
        )
        return [container for container, owner in names if owner and owner.pid in pids]
    finally:
        client.close()


def container_processes(container: Container) -> Iterator[psutil.Process]:
    """Yield the container's processes, and the engine's process that stands over them."""
    first = psutil.Process(container.attrs["State"]["Pid"])
    yield first
    yield from first.children(recursive=True)
    shim = first.parent()
    if shim is not None:
        yield shim


def shims(kernel: Kernel) -> set[psutil.Process]:
    """Return the engine's processes that stand over the containers of a session."""
    found = {
        psutil.Process(container.attrs["State"]["Pid"]).parent() for container in containers_of(host_processes(kernel))
    }
    return found - {None}


def proportional(process: psutil.Process) -> int:
    """Return a process's share of memory in bytes: its own pages, and its part of those it shares."""
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    except PermissionError as error:
        raise BenchmarkError(f"the memory of process {process.pid} may not be read; run as root") from error
    return int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]
