"""Attacks on PID 1, the agent, which has the same user as the cells: its memory, its files, its life. Runs in a cell.

The controls run against another PID 1 in an unaltered sandbox, one that does not protect itself.
"""

from __future__ import annotations

import ctypes
import os
import signal

from inside import attack, call, check, libc

LIKE_ANY = "a process like any other"


@attack("EACCES EPERM", control=LIKE_ANY)
def memory_of_the_agent() -> object:
    with open("/proc/1/maps") as file:
        address = int(next(file).split("-")[0], 16)
    with open("/proc/1/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        return memory.read(16)


@attack("EACCES EPERM", control=LIKE_ANY)
def opening_the_memory_of_the_agent() -> object:
    os.close(os.open("/proc/1/mem", os.O_RDWR))
    return "opened"


@attack("EACCES EPERM", control=LIKE_ANY)
def pipe_of_the_agent() -> object:
    """Whoever writes there speaks to the host as the agent."""
    return os.open("/proc/1/fd/1", os.O_WRONLY)


@attack("EACCES EPERM", control=LIKE_ANY)
def input_of_the_agent() -> object:
    return os.open("/proc/1/fd/0", os.O_RDONLY | os.O_NONBLOCK)


@attack("EACCES EPERM", control=LIKE_ANY)
def environment_of_the_agent() -> object:
    with open("/proc/1/environ") as file:
        return file.read()


@attack("EACCES EPERM", control=LIKE_ANY)
def root_folder_of_the_agent() -> object:
    return os.listdir("/proc/1/root")


@attack("EPERM")
def ptrace_of_the_agent() -> object:
    check(libc.ptrace(16, 1, 0, 0))
    return "attached"


@attack("EPERM ENOSYS")
def reading_the_agent_s_memory_by_system_call() -> object:
    copy = ctypes.create_string_buffer(16)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(copy), 16)
    return check(libc.process_vm_readv(1, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0))


@attack("EPERM ENOSYS")
def taking_the_agent_s_pipe() -> object:
    return call("pidfd_getfd", os.pidfd_open(1), 1, 0)


@attack("EACCES EPERM")
def sparing_the_kernel_instead_of_the_agent() -> object:
    with open("/proc/1/oom_score_adj", "w") as file:
        return file.write("1000")


@attack("nothing")
def signals_to_the_agent() -> object:
    """PID 1 gets no signal from inside that it has no handler for: not SIGKILL, not SIGSTOP, and none of these."""
    for number in signal.valid_signals() - {signal.SIGCHLD}:
        try:
            os.kill(1, number)
        except OSError:
            pass
    with open("/proc/1/stat") as file:
        state = file.read().rpartition(")")[2].split()[0]
    return state in "TtZX" and state
