"""The system calls that QEMU may make: it opens what it was given, waits, starts threads, and nothing else.

No socket is made, no program started but itself, no process traced, no namespace made.
"""

from __future__ import annotations

from ...engines.seccomp import ABSENT, ENOSYS, IOCTLS, MEMORY, NEW_NAMESPACES, TIME, WAITING, Condition, Rule

FILES = """
    access faccessat faccessat2 open openat close close_range read readv pread64 preadv preadv2 write writev pwrite64
    pwritev pwritev2 lseek stat fstat lstat newfstatat statx statfs fstatfs getdents64 readlink readlinkat getcwd dup
    dup2 dup3 fcntl pipe pipe2 fadvise64 fallocate ftruncate fsync fdatasync flock memfd_create umask
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


def rules() -> tuple[Rule, ...]:
    """Return all rules; what meets none of them fails with EPERM."""
    return (
        Rule(tuple(f"{FILES}{PROCESS}{SOCKETS}{WAITING}{MEMORY}{TIME}".split())),
        Rule(ABSENT, error=ENOSYS),
        Rule(("clone",), (Condition(0, THREAD, NEW_NAMESPACES | THREAD),)),
        *(
            Rule(("prctl",), (Condition(0, number, 0xFFFFFFFF),))
            for number in (SET_NAME, GET_SECCOMP, SET_SECCOMP, SET_NO_NEW_PRIVS, SET_TIMERSLACK)
        ),
        *(Rule(("ioctl",), (Condition(1, IOCTLS[name], 0xFFFFFFFF),)) for name in ("FIONBIO", "FIONREAD", "TCGETS")),
    )
