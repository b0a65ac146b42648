"""The system calls a cell may make: a list of rules, and what no rule names is refused. Data; imports nothing.

The engine's own profile depends on its age (Docker 20.10 leaves AF_VSOCK and io_uring open), so the sandbox brings one.
It allows what CPython, the data libraries of the image, ipykernel and debugpy call, and what their C libraries fall
back to. A call that is not named here fails with EPERM; those in `ABSENT` fail with ENOSYS, as on a kernel without
them, because libraries then take another way. Only the native architecture's calls exist; a
32-bit call ends its process.
"""

from __future__ import annotations

from typing import NamedTuple

EPERM, ENOSYS = 1, 38

FILES = """
    access faccessat faccessat2 open openat openat2 creat close close_range read readv pread64 preadv write
    writev pwrite64 pwritev pwritev2 lseek _llseek stat stat64 fstat fstat64 lstat lstat64 newfstatat fstatat64 statx
    statfs statfs64 fstatfs fstatfs64 getdents getdents64 mkdir mkdirat mknod mknodat rmdir unlink unlinkat rename
    renameat renameat2 link linkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 chown chown32
    fchown fchown32 fchownat lchown lchown32 umask truncate truncate64 ftruncate ftruncate64 fallocate fadvise64
    fadvise64_64 arm_fadvise64_64 readahead flock fsync fdatasync sync syncfs sync_file_range utime utimes utimensat
    futimesat getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr
    lremovexattr fremovexattr getcwd chdir fchdir dup dup2 dup3 pipe pipe2 sendfile sendfile64 copy_file_range
    splice tee
"""
WAITING = """
    poll ppoll select _newselect pselect6 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old
    epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime
    restart_syscall pause
"""
MEMORY = """
    brk munmap mremap mprotect madvise msync mlock mlock2 munlock mlockall munlockall membarrier
    mseal pkey_alloc pkey_free pkey_mprotect get_mempolicy map_shadow_stack shmat shmdt shmctl semget semop
    semtimedop semctl msgget msgsnd msgrcv msgctl
"""
PROCESSES = """
    fork vfork execve execveat exit exit_group wait4 waitid waitpid kill tkill tgkill pidfd_open pidfd_send_signal
    getpid getppid gettid getpgid setpgid getpgrp getsid setsid getrusage times arch_prctl set_tid_address
    set_thread_area get_thread_area set_robust_list get_robust_list rseq futex futex_time64 futex_waitv futex_wake
    futex_wait futex_requeue getcpu sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam
    sched_getscheduler sched_setscheduler sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval getpriority ioprio_get getrlimit setrlimit ugetrlimit prlimit64
    rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo
    rt_sigreturn sigreturn sigaltstack seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""
IDENTITY = """
    getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getresuid getresuid32 getresgid getresgid32
    getgroups getgroups32 setuid setuid32 setgid setgid32 setreuid setreuid32 setregid setregid32 setresuid
    setresuid32 setresgid setresgid32 setgroups setgroups32 setfsuid setfsuid32 setfsgid setfsgid32 capget capset
    uname sysinfo
"""
TIME = """
    time gettimeofday clock_gettime clock_gettime64 clock_getres clock_getres_time64 clock_nanosleep
    clock_nanosleep_time64 nanosleep alarm getitimer setitimer timer_create timer_settime timer_gettime
    timer_getoverrun timer_delete getrandom
"""
SOCKETS = """
    bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt send sendto sendmsg sendmmsg recv
    recvfrom recvmsg recvmmsg recvmmsg_time64 shutdown
"""

ALLOWED = tuple(f"{FILES}{WAITING}{MEMORY}{PROCESSES}{IDENTITY}{TIME}{SOCKETS}".split())

SHOWING = ("inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch")
"""They show who uses a file, and their queues are counted by user: for sandboxes that share neither with another."""

RESIDENT = ("mincore", "cachestat")
"""They show which pages of a file are in memory because somebody read them."""

ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "userfaultfd")
"""glibc takes clone() when clone3() is not there; a filter cannot see clone3's flags, which lie in memory."""

WATCHED = tuple(
    """
    mount umount2 pivot_root chroot fsopen fsmount move_mount open_tree mount_setattr unshare setns
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd open_by_handle_at name_to_handle_at
    init_module finit_module delete_module kexec_load kexec_file_load bpf perf_event_open fanotify_init
    keyctl add_key request_key iopl ioperm modify_ldt vmsplice quotactl swapon reboot syslog acct
    settimeofday clock_settime sethostname
    lookup_dcookie
    """.split()  # noqa: SIM905 (one line a kind says no more)
)
"""Refused calls that honest code does not make: where calls are watched, who tries one is seen. The last does nothing
on any kernel of today: by it, what watches within Python says what it saw (`secret_watch` of the monitor)."""

WATCHED_IN_PART = ("clone", "socket", "connect", "mknod", "mknodat", "setuid", "setgid")
"""Calls that are seen with some arguments alone; `connect` always, and it is made."""
WATCHED_FAMILIES = (17, 38, 40, 44)
"""AF_PACKET, AF_ALG, AF_VSOCK and AF_XDP."""
SOCK_RAW, WATCHED_PROTOCOLS = 3, (1, 58, 255)
"""ICMP, ICMPv6, and packets with a head of one's own."""
NEW_LISTENER = 0x8
"""A flag of seccomp(2): the caller decides on calls of others, and might let one pass that an engine has left to it."""
S_IFMT, S_IFCHR, S_IFBLK = 0o170000, 0o020000, 0o060000
LISTENING = (0xC0502100, 0xC0182101, 0x40082102)
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ID_VALID, which only such a listener takes."""

OF_HUGE_PAGES = (("mmap", 3, 0x40000), ("memfd_create", 1, 0x4), ("shmget", 2, 0o4000))
"""Calls with an argument whose bit asks for the machine's own huge pages: no limit of a sandbox counts these."""

PRIO_PROCESS, IOPRIO_WHO_PROCESS = 0, 1
"""Of one thread. The other kinds name process groups and all threads of a user, so those of the agent as well, which
has the cells' uid. That the one thread is none of the agent's is for a filter that knows them:
`container/syscall_filters.py`."""

PRCTL_BITS = 0x3E
"""Of these bits, one at least is clear in each option of prctl that there is, but in 62 and 63.

62 is PR_SCHED_CORE: it keeps whatever else the machine runs off the other half of a processor's core. 63 is for arm64's
SME. A list of all the others would be ten times as long.
"""

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
FAMILIES = (AF_UNIX, AF_INET, AF_INET6)
"""Without a network, AF_INET reaches the loopback of the sandbox only: the debugger and asyncio's tests need that."""

PROTOCOLS = (0, 6, 17)
"""The type's own, TCP, UDP. Any other (ICMP, SCTP, MPTCP, …) is one more piece of the host's
kernel within reach, which is even loaded when it is asked for."""

AF_NETLINK, EINVAL = 16, 22
"""libzmq asks getifaddrs() before it binds to an address, and aborts the process on any error but this one."""

NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""

PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32-bit address space, uname 2.6, both, and the query: those that the engines allow, too."""

IOCTLS = {
    "TCGETS": 0x5401,
    "TCSETS": 0x5402,
    "TCSETSW": 0x5403,
    "TCSETSF": 0x5404,
    "TCSBRK": 0x5409,
    "TCXONC": 0x540A,
    "TCFLSH": 0x540B,
    "TIOCSCTTY": 0x540E,
    "TIOCGPGRP": 0x540F,
    "TIOCSPGRP": 0x5410,
    "TIOCOUTQ": 0x5411,
    "TIOCGWINSZ": 0x5413,
    "TIOCSWINSZ": 0x5414,
    "FIONREAD": 0x541B,
    "FIONBIO": 0x5421,
    "TIOCNOTTY": 0x5422,
    "TIOCGSID": 0x5429,
    "TCGETS2": 0x802C542A,
    "TCSETS2": 0x402C542B,
    "TCSETSW2": 0x402C542C,
    "TCSETSF2": 0x402C542D,
    "TIOCGPTN": 0x80045430,
    "TIOCSPTLCK": 0x40045431,
    "TIOCGPTPEER": 0x5441,
    "FIONCLEX": 0x5450,
    "FIOCLEX": 0x5451,
    "FIOASYNC": 0x5452,
    "SIOCGIFNAME": 0x8910,
    "SIOCGIFCONF": 0x8912,
    "SIOCGIFFLAGS": 0x8913,
    "SIOCGIFADDR": 0x8915,
    "SIOCGIFMTU": 0x8921,
    "SIOCGIFINDEX": 0x8933,
    "FICLONE": 0x40049409,
    "FICLONERANGE": 0x4020940D,
    "FS_IOC_GETFLAGS": 0x80086601,
    "FS_IOC_FIEMAP": 0xC020660B,
}
"""A list of what may, not of what may not: TIOCSTI (types into a terminal) and every driver's own calls stay out."""


FCNTLS = {
    "F_DUPFD": 0,
    "F_GETFD": 1,
    "F_SETFD": 2,
    "F_GETFL": 3,
    "F_SETFL": 4,
    "F_GETLK": 5,
    "F_SETLK": 6,
    "F_SETLKW": 7,
    "F_SETOWN": 8,
    "F_GETOWN": 9,
    "F_SETSIG": 10,
    "F_GETSIG": 11,
    "F_SETOWN_EX": 15,
    "F_GETOWN_EX": 16,
    "F_OFD_GETLK": 36,
    "F_OFD_SETLK": 37,
    "F_OFD_SETLKW": 38,
    "F_GETLEASE": 1025,
    "F_DUPFD_QUERY": 1027,
    "F_DUPFD_CLOEXEC": 1030,
    "F_SETPIPE_SZ": 1031,
    "F_GETPIPE_SZ": 1032,
    "F_ADD_SEALS": 1033,
    "F_GET_SEALS": 1034,
    "F_GET_RW_HINT": 1035,
    "F_SET_RW_HINT": 1036,
}
"""Allowed operations on a descriptor. An allow-list: F_SETLEASE stops a process that opens the file, F_NOTIFY shows who
does, and newer kernels have more of both (F_SETDELEG)."""

RWF_NOWAIT, EOPNOTSUPP = 0x8, 95
"""A read that says whether the pages are in memory; a file system may lack it, and programs read without it then."""


class ArgumentCondition(NamedTuple):
    """One argument of a call, counted from 0: its bits in `mask` are `value`; without a mask, all of them are."""

    argument: int
    value: int
    mask: int | None = None


class SyscallRule(NamedTuple):
    """What happens to calls of these names that meet every condition: they are made, or fail with an error number."""

    names: tuple[str, ...]
    conditions: tuple[ArgumentCondition, ...] = ()
    error: int | None = None
    watched: bool = False
    """Whether who watches is asked first: the agent's filter hands the call to it. An engine's leaves it to a tracer
    (SECCOMP_RET_TRACE), and there is none: it fails with ENOSYS, unless a filter within says more."""


def rules(*, shared: bool = False, watched: bool = False) -> tuple[SyscallRule, ...]:
    """Return all rules; what meets none of them fails with `EPERM`.

    `shared`: other sandboxes have the same files, or the same user. `watched`: a filter within may hear of what is
    refused. The kernel takes the strictest word of all filters, and an error is stricter than a question.
    """
    return (
        *(_watched() if watched else ()),
        SyscallRule(ALLOWED),
        SyscallRule(ABSENT, error=ENOSYS),
        SyscallRule(SHOWING, error=ENOSYS if shared else None),
        SyscallRule(RESIDENT, error=ENOSYS if shared else None),
        *(
            (SyscallRule(("preadv2",), (ArgumentCondition(5, 0, RWF_NOWAIT),)),)
            if shared
            else (SyscallRule(("preadv2",)),)
        ),
        *(
            (SyscallRule(("preadv2",), (ArgumentCondition(5, RWF_NOWAIT, RWF_NOWAIT),), error=EOPNOTSUPP),)
            if shared
            else ()
        ),
        *(SyscallRule((name,), (ArgumentCondition(argument, 0, bit),)) for name, argument, bit in OF_HUGE_PAGES),
        *(SyscallRule(("fcntl",), (_int(1, command),)) for command in FCNTLS.values()),
        *(
            SyscallRule(("socket",), (ArgumentCondition(0, family), ArgumentCondition(2, protocol)))
            for family in FAMILIES
            for protocol in PROTOCOLS
        ),
        SyscallRule(("socket",), (ArgumentCondition(0, AF_NETLINK),), error=EINVAL),
        SyscallRule(("socketpair",), (ArgumentCondition(0, AF_UNIX),)),
        SyscallRule(("clone",), (ArgumentCondition(0, 0, NEW_NAMESPACES),)),
        *(SyscallRule(("personality",), (ArgumentCondition(0, value),)) for value in PERSONALITIES),
        SyscallRule(("setpriority",), (_int(0, PRIO_PROCESS),)),
        SyscallRule(("ioprio_set",), (_int(0, IOPRIO_WHO_PROCESS),)),
        *(SyscallRule(("prctl",), (ArgumentCondition(0, 0, 1 << bit),)) for bit in range(8) if PRCTL_BITS >> bit & 1),
        # The kernel reads 32 bits of an ioctl's number; comparing all 64 would let 0x100005412 pass for another.
        *(SyscallRule(("ioctl",), (_int(1, number),)) for number in IOCTLS.values()),
    )


def _watched() -> tuple[SyscallRule, ...]:
    bits = [1 << bit for bit in range(32) if NEW_NAMESPACES >> bit & 1]
    kinds = [(family, one) for family in (AF_INET, AF_INET6) for one in WATCHED_PROTOCOLS]
    return (
        SyscallRule(WATCHED, error=EPERM, watched=True),
        *(_seen("clone", ArgumentCondition(0, bit, bit)) for bit in bits),
        *(_seen("socket", ArgumentCondition(0, family)) for family in WATCHED_FAMILIES),
        *(_seen("socket", ArgumentCondition(0, family), ArgumentCondition(2, one)) for family, one in kinds),
        *(SyscallRule(("ioctl",), (_int(1, number),)) for number in LISTENING),
    )


def _seen(name: str, *conditions: ArgumentCondition) -> SyscallRule:
    return SyscallRule((name,), conditions, EPERM, watched=True)


def rules_of_the_agent() -> tuple[SyscallRule, ...]:
    """Return the rules of the agent's own filter where it watches.

    It hears of connections, too, which are made, and of what the kernel itself would refuse: raw sockets, device nodes
    and the rights of root. No cell may listen in its place.
    """
    anything = ArgumentCondition(0, 0, 0)
    devices = [(name, at, kind) for name, at in (("mknod", 1), ("mknodat", 2)) for kind in (S_IFCHR, S_IFBLK)]
    raw = ArgumentCondition(1, SOCK_RAW, 0xF)
    own = (
        *(_seen("socket", ArgumentCondition(0, one), raw) for one in (AF_INET, AF_INET6)),
        *(_seen(name, ArgumentCondition(at, kind, S_IFMT)) for name, at, kind in devices),
        SyscallRule(("setuid", "setgid"), (_int(0, 0),), EPERM, watched=True),
        SyscallRule(("mknod", "mknodat", "setuid", "setgid"), (anything,)),
        SyscallRule(("connect",), watched=True),
        SyscallRule(("seccomp",), (ArgumentCondition(1, 0, NEW_LISTENER),)),
    )
    first, *others = rules(watched=True)[len(_watched()) :]
    known = {name for rule in own for name in rule.names}
    allowed = first._replace(names=tuple(name for name in first.names if name not in known))
    return (*own, *_watched(), allowed, *others)


def _int(argument: int, value: int) -> ArgumentCondition:
    """Compare the 32 bits that the kernel reads of an int."""
    return ArgumentCondition(argument, value, 0xFFFFFFFF)
