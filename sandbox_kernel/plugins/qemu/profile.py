"""What QEMU has of the host's: a sandbox of bubblewrap's with itself in it, its libraries and the machine's files.

Pure but for looking where things are.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...core.model import SandboxSpec
from ...engines.bubblewrap.launcher import Root
from ...engines.hardening import Protections, protections
from . import hardware, syscalls
from .artifacts import SHARES, Machine

FOLDER = "/machine"
"""Where QEMU sees the machine's files."""
OPEN_FILES = 256
THREADS = 64
SMALL = 65536
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LINKS = {"/lib": "usr/lib", "/lib64": "usr/lib64"}


def root(program: str, machine: Machine) -> Root:
    """Return what QEMU sees of the host, all read-only."""
    return root_of(program, machine.folder, machine.contents)


def root_of(program: str, folder: str = "", contents: str = "") -> Root:
    """Return the same for the files of a machine in a folder, which are at the same place for each."""
    binds = [(path, path) for path in LIBRARIES if Path(path).is_dir()]
    inside = tuple(f"{path}/" for path in LIBRARIES)
    binds += [(path, path) for path in SHARES if Path(path).is_dir() and not path.startswith(inside)]
    binds += [(program, program), (folder, FOLDER)]
    links = [(says, path) for path, says in LINKS.items() if Path(path).is_symlink()]
    binds += [(path, path) for path in LINKS if Path(path).is_dir() and not Path(path).is_symlink()]
    return Root("qemu", folder, contents, "", 0, tuple(binds), tuple(links), {}, etc=False)


def wanted(spec: SandboxSpec) -> Protections:
    """Return what keeps QEMU from the host, and what it may use."""
    limits = spec.limits
    return protections(spec)._replace(
        system_calls=syscalls.rules(),
        environment={},
        working_folder="/",
        writable=(),
        shm_bytes=SMALL,
        memory_bytes=hardware.process_bytes(limits.memory),
        pids=THREADS,
        open_files=OPEN_FILES,
    )


def count_of(spec: SandboxSpec) -> int:
    """Return the processors of a spec's machine."""
    return hardware.processors(spec.limits.cpus, len(os.sched_getaffinity(0)))
