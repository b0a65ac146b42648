"""What the machine's own kernel says of a sandbox: a sample of its processes, and what its cgroup has counted.

Where a program's file lies is the kernel's word; names and paths are still of the sandbox's choice, so they are made
printable and cut. A sample is bounded, however many processes there are. Standard library and the model only.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..core.model import ProcessSample, SandboxSample
from .limit_watch import CgroupPlace, refused_processes

MAX_PROCESSES = 64
"""Processes that one sample looks at, drawn at random where there are more: no process knows when it is missed."""
MAX_LIST_BYTES, MAX_MAPS_BYTES = 1 << 20, 1 << 18
MAX_FILES, MAX_TEXT = 4, 120
"""Files of one process, and characters of a name or a path."""
LOADERS = ("ld-", "ld.so", "ld64.so")
"""How the names of programs begin that load another program; what they have loaded is looked up as well."""
_TICKS = os.sysconf("SC_CLK_TCK")


def of_cgroup(places: Mapping[str, CgroupPlace], but: int = 0) -> SandboxSample:
    """Return a sample of the cgroup of a sandbox, by its controllers; what is unknown is None.

    `places` has those of `pids`, `cpuacct` and `memory`. `but` is a process of the engine's that is in it.
    """
    pids = places.get("pids")
    refused = programs = None
    with contextlib.suppress(OSError, ValueError):
        refused = refused_processes(pids) if pids is not None else None
    with contextlib.suppress(OSError, ValueError):
        programs = of_processes(pid for pid in _listed(pids) if pid != but) if pids is not None else None
    return use_of_cgroup(places)._replace(refused_processes=refused, programs=programs)


def use_of_cgroup(places: Mapping[str, CgroupPlace]) -> SandboxSample:
    """Return what a cgroup uses, by its controllers `cpuacct` and `memory`, and nothing of its processes."""
    cpu, memory = places.get("cpuacct"), places.get("memory")
    seconds = used = None
    with contextlib.suppress(OSError, ValueError, LookupError):
        seconds = _cpu_seconds(cpu) if cpu is not None else None
    with contextlib.suppress(OSError, ValueError, LookupError):
        used = _memory_bytes(memory) if memory is not None else None
    return SandboxSample(cpu_seconds=seconds, memory_bytes=used)


def of_processes(pids: Iterable[int]) -> tuple[ProcessSample, ...] | None:
    """Return what can be said of processes; None if this process may see the program of none of them."""
    known = list(pids)
    looked_at = random.sample(known, MAX_PROCESSES) if len(known) > MAX_PROCESSES else known
    found = tuple(_looks(looked_at))
    return found if any(one.files for one in found) else None


def _looks(pids: Iterable[int]) -> Iterator[ProcessSample]:
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, LookupError):  # it has ended
            name, fields = _status(pid)
            yield ProcessSample(f"{pid}-{int(fields[19])}", _text(name), _seconds(fields), tuple(_files(pid)))


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process. Raises OSError, ValueError or LookupError once it is gone."""
    return _seconds(_status(pid)[1])


def _status(pid: int) -> tuple[bytes, list[bytes]]:
    """Return what a process calls itself, and the fields of /proc/PID/stat behind its name."""
    name, _, rest = _read(f"/proc/{pid}/stat", 4096).partition(b"(")[2].rpartition(b")")
    return name, rest.split()


def _seconds(fields: list[bytes]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _files(pid: int) -> Iterator[str]:
    """Yield the file of a process's program; of a loader's, also those that are mapped to be executed."""
    with contextlib.suppress(OSError):
        program = os.readlink(os.fsencode(f"/proc/{pid}/exe"))  # noqa: PTH115 (bytes: the name may be any)
        yield _text(program)
        if os.path.basename(program).decode("latin-1").startswith(LOADERS):  # noqa: PTH119 (as above)
            mapped = dict.fromkeys(_mapped(pid))
            mapped.pop(program, None)
            yield from map(_text, list(mapped)[: MAX_FILES - 1])


def _mapped(pid: int) -> Iterator[bytes]:
    for line in _read(f"/proc/{pid}/maps", MAX_MAPS_BYTES).splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and b"x" in fields[1] and fields[5].startswith(b"/"):
            yield fields[5]


def _listed(place: CgroupPlace) -> list[int]:
    """Return the processes of a cgroup; those of another namespace, which are 0, are left out."""
    text = _read(f"{place.folder}/cgroup.procs", MAX_LIST_BYTES)
    return [pid for pid in map(int, text.rpartition(b"\n")[0].split()) if pid]


def _cpu_seconds(place: CgroupPlace) -> float:
    if place.version == 1:
        return int(_read(f"{place.folder}/cpuacct.usage", 64)) / 1e9
    rows = dict(line.split() for line in _read(f"{place.folder}/cpu.stat", 4096).splitlines())
    return int(rows[b"usage_usec"]) / 1e6


def _memory_bytes(place: CgroupPlace) -> int:
    usage, cache = ("memory.usage_in_bytes", b"total_inactive_file")
    if place.version != 1:
        usage, cache = "memory.current", b"inactive_file"
    rows = dict(line.split() for line in _read(f"{place.folder}/memory.stat", 16384).splitlines())
    return max(0, int(_read(f"{place.folder}/{usage}", 64)) - int(rows[cache]))


def _read(path: str, most: int) -> bytes:
    with Path(path).open("rb", buffering=0) as file:
        pieces = b""
        while len(pieces) < most and (piece := file.read(most - len(pieces))):
            pieces += piece
        return pieces


def _text(data: bytes) -> str:
    return ascii(data.decode("utf-8", "surrogateescape"))[1:-1][:MAX_TEXT]
