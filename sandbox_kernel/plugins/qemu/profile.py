"""What QEMU has of the host's: a sandbox of bubblewrap's with itself in it, its libraries and the machine's files.

Pure but for looking where things are.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...core.model import SandboxSpec
from ...engines.hardening import Protections, protections
from ...engines.seccomp import (
    ABSENT,
    ENOSYS,
    EOPNOTSUPP,
    IOCTLS,
    MEMORY,
    NEW_NAMESPACES,
    OF_HUGE_PAGES,
    TIME,
    WAITING,
    ArgumentCondition,
    SyscallRule,
)
from ..bubblewrap.interface import Root
from . import hardware
from .artifacts import SHARES

FOLDER = "/machine"
"""Where QEMU sees the machine's files."""
OPEN_FILES = 256
THREADS = 96
"""QEMU has up to 64 that read and write, besides a thread for each processor; one that it cannot start is its end."""
SMALL = 65536
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LINKS = {"/lib": "usr/lib", "/lib64": "usr/lib64"}
FILES = """
    access faccessat faccessat2 open openat close close_range read readv pread64 preadv preadv2 write writev pwrite64
    pwritev pwritev2 lseek stat fstat lstat newfstatat statx statfs fstatfs getdents64 readlink readlinkat getcwd dup
    dup2 dup3 fcntl pipe pipe2 fadvise64 fallocate ftruncate fsync fdatasync flock umask
"""
PROCESS = """
    execve exit exit_group getpid gettid getppid tgkill kill futex set_tid_address set_robust_list rseq arch_prctl
    sched_yield sched_getaffinity rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigreturn
    sigaltstack getrlimit prlimit64 getrusage getuid geteuid getgid getegid uname sysinfo seccomp wait4 setsid
"""
SOCKETS = "getsockname getpeername getsockopt setsockopt sendto sendmsg recvfrom recvmsg shutdown"
THREAD = 0x10000
"""CLONE_THREAD: with it, what is started is no process."""
SET_NAME, GET_SECCOMP, SET_SECCOMP, SET_NO_NEW_PRIVS, SET_TIMERSLACK = 15, 21, 22, 38, 29


def system_calls() -> tuple[SyscallRule, ...]:
    """Return the rules of what QEMU may call: it opens, waits and starts threads. All else fails with EPERM.

    No socket is made, no program started but itself, no process traced, no namespace made.
    """
    return (
        SyscallRule(tuple(f"{FILES}{PROCESS}{SOCKETS}{WAITING}{MEMORY}{TIME}".split())),
        *(SyscallRule((name,), (ArgumentCondition(argument, 0, bit),)) for name, argument, bit in OF_HUGE_PAGES),
        SyscallRule(ABSENT, error=ENOSYS),
        SyscallRule(
            ("lgetxattr", "llistxattr"), error=EOPNOTSUPP
        ),  # files of datasets have none: programs that copy ask
        SyscallRule(("clone",), (ArgumentCondition(0, THREAD, NEW_NAMESPACES | THREAD),)),
        *(
            SyscallRule(("prctl",), (ArgumentCondition(0, number, 0xFFFFFFFF),))
            for number in (SET_NAME, GET_SECCOMP, SET_SECCOMP, SET_NO_NEW_PRIVS, SET_TIMERSLACK)
        ),
        *(
            SyscallRule(("ioctl",), (ArgumentCondition(1, IOCTLS[name], 0xFFFFFFFF),))
            for name in ("FIONBIO", "FIONREAD", "TCGETS")
        ),
    )


def root_of(program: str, folder: str = "", contents: str = "") -> Root:
    """Return what QEMU sees of the host, all read-only, with the files of a machine in a folder."""
    binds = [(path, path) for path in LIBRARIES if Path(path).is_dir()]
    inside = tuple(f"{path}/" for path in LIBRARIES)
    binds += [(path, path) for path in SHARES if Path(path).is_dir() and not path.startswith(inside)]
    binds += [(program, program), (folder, FOLDER)]
    links = [(says, path) for path, says in LINKS.items() if Path(path).is_symlink()]
    binds += [(path, path) for path in LINKS if Path(path).is_dir() and not Path(path).is_symlink()]
    return Root("qemu", folder, contents, "", 0, tuple(binds), tuple(links), {}, etc=False)


def wanted(spec: SandboxSpec) -> Protections:
    """Return what keeps QEMU from the host, and what it may use. It has datasets as a sandbox has them."""
    limits = spec.limits
    return protections(spec)._replace(
        system_calls=system_calls(),
        environment={},
        working_folder="/",
        writable=(),
        disks=(),
        shm_bytes=SMALL,
        memory_bytes=hardware.process_bytes(limits.memory),
        pids=THREADS,
        open_files=OPEN_FILES,
    )


def count_of(spec: SandboxSpec) -> int:
    """Return the processors of a spec's machine."""
    return hardware.processors(spec.limits.cpus, len(os.sched_getaffinity(0)))
