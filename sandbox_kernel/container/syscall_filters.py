"""Two system call filters around all that the agent starts: the host's list, and what keeps cells off the agent.

The first is compiled by the host, and holds on every engine: on one that takes no list, and within gVisor, where the
engine's is not in force. The second is assembled here, for only the agent knows which threads are its own: the cells
share its uid, so a kernel would let them slow, stop or limit it. A filter is for ever and for all descendants.
Runs inside the container, where the host ships its source: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Sequence
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EPERM = 1

OF_A_USER = ((resource.RLIMIT_SIGPENDING, 256), (resource.RLIMIT_MEMLOCK, 65536))
"""What a kernel counts by user, and how much of it cells may have: the user may be another sandbox's as well."""
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The number that the kernel has for it (linux/audit.h), and the column in the table below."""
X32 = 0x40000000
"""Calls of the x32 architecture have this bit, and the same number for the architecture."""

THREADS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    # name: number on x86_64, on aarch64, the arguments that name a thread or a process
    "kill": (62, 129, (0,)),
    "tkill": (200, 130, (0,)),
    "tgkill": (234, 131, (0, 1)),
    "rt_sigqueueinfo": (129, 138, (0,)),
    "rt_tgsigqueueinfo": (297, 240, (0, 1)),
    "pidfd_open": (434, 434, (0,)),
    "sched_setparam": (142, 118, (0,)),
    "sched_setscheduler": (144, 119, (0,)),
    "sched_setaffinity": (203, 122, (0,)),
    "sched_setattr": (314, 274, (0,)),
    "prlimit64": (302, 261, (0,)),
    "migrate_pages": (256, 238, (0,)),
    "move_pages": (279, 239, (0,)),
    "ptrace": (101, 117, (1,)),
}
"""Calls that act on a thread or process which an argument names: none of the agent's. 0 is the caller's own."""

KINDS = {
    # name: number on x86_64, on aarch64, the only kind that may be named
    "setpriority": (141, 140, 0),
    "ioprio_set": (251, 30, 1),
}
"""The first argument says whether the second is a thread, a group or a user; the agent is one of the last two."""

FCNTL, F_SETOWN, F_SETOWN_EX = (72, 25), 8, 15
"""A file's owner is sent a signal of the setter's choice; a negative number is a group. The second takes a pointer."""
IOCTL, OWNERS = (16, 29), (0x8901, 0x8902)
"""FIOSETOWN and SIOCSPGRP say the same by a pointer."""

NEVER = {"pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "pidfd_getfd": (438, 438)}
"""They name a process by a file, so its number cannot be compared."""

ASKED = ("ptrace", "pidfd_getfd")
"""Which of all these the host's list refuses as well, and asks about where somebody watches."""

SETSOCKOPT, SOL_SOCKET, SO_LINGER = (54, 208), 1, 13
"""A descriptor that is sent to the agent is closed by it, and with SO_LINGER closing waits for an unread rest.

The call does nothing and says that it succeeded: a connection is then closed in the background, as by default.
"""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
_ALLOW, _REFUSE, _IGNORE = 0x7FFF0000, 0x00050000 | EPERM, 0x00050000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_AF_NETLINK, _SOCK_RAW = 16, 3
OWN = "/proc/self" if os.path.exists("/proc/self") else "/proc/1"
"""This process's folder; that of process 1, with the machine's numbers, where bubblewrap can mount no /proc."""
STEP_BYTES = 8
"""Of one instruction of such a program."""

Instruction = tuple[int, int, int, int]


def install(calls: bytes, watch: Any = None) -> dict[str, Any]:
    """Put both filters around this thread and what it starts from now on; `calls` is the host's.

    Return how many the system took; how many more it counts than before, None where it does not count them; with which
    error it refused a netlink socket before, which is the work of the engine's filter alone; and its threads.
    Call when all threads of this process run: they stay without them, and are those that the second one protects.
    `watch` listens at the host's filter, if the system lets it.
    """
    for name, most in OF_A_USER:
        with suppress(OSError, ValueError):  # gVisor, which has none to give
            least = min(each for each in (most, *resource.getrlimit(name)) if each >= 0)
            resource.setrlimit(name, (least, least))
    before = _counted()
    known = threads()
    try:
        # A question is heard if no other filter refuses the call.
        own = _packed(assemble(os.uname().machine, known, but=ASKED if watch is not None else ()))
    except LookupError:
        own = b""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # the engine has done so, and else no filter would be taken
    alone = _netlink(libc)
    given = calls if watch is None else watch.listen(calls)
    taken = sum(code is None or put(libc, code) for code in (given, own))
    after = _counted()
    counted = None if before is None or after is None else after - before
    found = {"taken": taken, "counted": counted, "netlink before": alone, "threads": known}
    return found if watch is None else dict(found, watching=watch.works)


def threads() -> list[int]:
    """Return the threads of this process, by the numbers that its calls have for them."""
    found = []
    for name in os.listdir(OWN + "/task"):
        with open("%s/task/%s/status" % (OWN, name), encoding="ascii", errors="replace") as file:
            numbers = [line.split()[-1] for line in file if line.startswith("NSpid:")]
        found.append(int(numbers[0] if numbers else name))
    return sorted(found)


def _packed(steps: list[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _netlink(libc: ctypes.CDLL) -> int:
    """Return the number of the error with which a netlink socket is refused, 0 if it is not."""
    opened = int(libc.socket(_AF_NETLINK, _SOCK_RAW, 0))
    if opened < 0:
        return ctypes.get_errno()
    os.close(opened)
    return 0


def put(libc: ctypes.CDLL, code: bytes) -> bool:
    """Put one filter around this thread, for ever; return whether the system took it."""
    if not code:
        return False
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        """struct sock_fprog."""

        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    argument = Program(len(code) // STEP_BYTES, ctypes.addressof(buffer))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(argument), 0, 0) == 0)


def _counted() -> int | None:
    """Return how many filters this thread has; None where the system does not say (before Linux 5.9, and gVisor)."""
    with open(OWN + "/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("Seccomp_filters:"):
                return int(line.split()[1])
    return None


def protect(process: int) -> bool:
    """Put a filter around this process and what it starts, by which none of these acts on it, `process`.

    Nor on all processes at once: only process 1 is spared by that. Return whether the system took it.
    """
    try:
        steps = assemble(os.uname().machine, [process], groups=[-process & 0xFFFFFFFF, -1 & 0xFFFFFFFF])
    except LookupError:
        return False
    return put(ctypes.CDLL(None, use_errno=True), _packed(steps))


def assemble(
    machine: str, threads: list[int], groups: Sequence[int] = (), but: Sequence[str] = ()
) -> list[Instruction]:
    """Return the filter as classic BPF: (code, jump if true, jump if false, constant). Raises LookupError.

    `groups` are numbers that mean several processes to `kill`, which is refused for them, too. The calls `but` are
    refused by another filter.
    """
    architecture, column = ARCHITECTURES[machine]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _REFUSE), (_LOAD, 0, 0, 0)]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, X32), (_RETURN, 0, 0, _REFUSE)]
    for name, entry in NEVER.items():
        program += [] if name in but else _for(entry[column], [(_RETURN, 0, 0, _REFUSE)])
    for name, (*numbers, arguments) in THREADS.items():
        if name in but:
            continue
        refused = [*threads, *groups] if name == "kill" else threads
        program += _for(numbers[column], [step for index in arguments for step in _none_of(index, refused)])
    for *numbers, kind in KINDS.values():
        only = [_argument(0), (_EQUAL, 1, 0, kind), (_RETURN, 0, 0, _REFUSE)]
        program += _for(numbers[column], [*only, *_none_of(1, threads)])
    owners = threads + [-thread & 0xFFFFFFFF for thread in threads]
    owned = [(_EQUAL, 0, 1, F_SETOWN_EX), (_RETURN, 0, 0, _REFUSE), (_EQUAL, 1, 0, F_SETOWN), (_RETURN, 0, 0, _ALLOW)]
    program += _for(FCNTL[column], [_argument(1), *owned, *_none_of(2, owners)])
    program += _for(IOCTL[column], _none_of(1, list(OWNERS)))
    lingers = [_argument(2), (_EQUAL, 0, 1, SO_LINGER), (_RETURN, 0, 0, _IGNORE)]
    program += _for(SETSOCKOPT[column], [_argument(1), (_EQUAL, 0, len(lingers), SOL_SOCKET), *lingers])
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _for(number: int, block: list[Instruction]) -> list[Instruction]:
    """Return a block that is skipped for other calls, and leaves the verdict open for none of its own."""
    block = [*block, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(block), number), *block]


def _none_of(argument: int, refused: list[int]) -> list[Instruction]:
    steps = [_argument(argument)]
    for value in refused:
        steps += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _REFUSE)]
    return steps


def _argument(index: int) -> Instruction:
    """Load the half of an argument that the kernel reads of an int; both architectures have it first."""
    return (_LOAD, 0, 0, 16 + 8 * index)
