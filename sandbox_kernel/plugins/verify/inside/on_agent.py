"""Attacks on PID 1, the agent, which has the same user as the cells: its memory, its files, its life. Runs in a cell.

The controls run against another PID 1 in an unaltered sandbox, one that does not protect itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable

from .kit import attack, call, check, libc, user_of

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
    if user_of(1) != os.getuid():
        return "it is no process of this sandbox"  # then it is left alone
    for number in signal.valid_signals() - {signal.SIGCHLD}:
        try:
            os.kill(1, number)
        except OSError:
            pass
    with open("/proc/1/stat") as file:
        state = file.read().rpartition(")")[2].split()[0]
    return state in "TtZX" and state


# --- making it slow ---------------------------------------------------------------------------------------------------

UNSHIELDED = "no filter"


def threads_of_the_agent() -> list[int]:
    """By the numbers that calls of this sandbox have for them: not every /proc is its own."""
    found = []
    for name in os.listdir("/proc/1/task"):
        with open(f"/proc/1/task/{name}/status") as file:
            found.append(int(next((line.split()[-1] for line in file if line.startswith("NSpid:")), name)))
    return found


def each_thread(change: Callable[[int], object]) -> object:
    """Do it to each thread of the agent: the end of one that is starved holds up the end of all."""
    changed, refused = [], None
    for thread in threads_of_the_agent():
        try:
            change(thread)
            changed.append(thread)
        except OSError as error:
            refused = error
    if refused is not None and not changed:
        raise refused
    return changed


@attack("EPERM", control=UNSHIELDED)
def scheduling_class_of_the_agent() -> object:
    return each_thread(lambda thread: os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0)))


@attack("EPERM", control=UNSHIELDED)
def scheduling_parameters_of_the_agent() -> object:
    return each_thread(lambda thread: os.sched_setparam(thread, os.sched_param(0)))


@attack("EPERM ENOSYS", control=UNSHIELDED)
def scheduling_attributes_of_the_agent() -> object:
    """As above by the newer call; the upper half of an argument is not looked at by the kernel."""
    attributes = (ctypes.c_uint32 * 12)(48, os.SCHED_IDLE)
    return each_thread(lambda thread: call("sched_setattr", thread | 1 << 32, ctypes.byref(attributes), 0))


@attack("EPERM", control=UNSHIELDED)
def processors_of_the_agent() -> object:
    return each_thread(lambda thread: os.sched_setaffinity(thread, {min(os.sched_getaffinity(0))}))


@attack("EPERM", control=UNSHIELDED)
def priority_of_the_agent() -> object:
    return each_thread(lambda thread: os.setpriority(os.PRIO_PROCESS, thread, 19))


@attack("EPERM ESRCH", control=UNSHIELDED)
def priority_of_the_agent_s_group() -> object:
    os.setpriority(os.PRIO_PGRP, 1, 19)
    return "done"


@attack("EPERM", control=UNSHIELDED)
def priority_of_all_threads_of_the_user() -> object:
    for user in (0, os.getuid()):
        os.setpriority(os.PRIO_USER, user, 19)
    return "done"


@attack("EPERM ENOSYS", control=UNSHIELDED)
def disk_priority_of_the_agent() -> object:
    return each_thread(lambda thread: call("ioprio_set", 1, thread, 3 << 13) == 0)


@attack("EPERM ENOSYS", control=UNSHIELDED)
def disk_priority_of_all_threads_of_the_user() -> object:
    return call("ioprio_set", 3, os.getuid(), 3 << 13) == 0


@attack("EPERM", control=UNSHIELDED)
def limits_of_the_agent() -> object:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    return each_thread(lambda thread: resource.prlimit(thread, resource.RLIMIT_NOFILE, files))


@attack("EPERM", control=UNSHIELDED)
def signals_to_each_thread_of_the_agent() -> object:
    return each_thread(lambda thread: os.kill(thread, signal.SIGCHLD))


@attack("EPERM", control=UNSHIELDED)
def signals_to_the_agent_by_a_file_s_owner() -> object:
    """Whoever owns a socket gets a signal with each byte; the signal can be chosen."""
    near, far = socket.socketpair()
    with near, far:
        fcntl.fcntl(near, fcntl.F_SETSIG, signal.SIGSTOP)
        return each_thread(lambda thread: fcntl.fcntl(near, fcntl.F_SETOWN, thread))


@attack("EPERM", control=UNSHIELDED)
def signals_to_the_agent_s_group_by_a_file_s_owner() -> object:
    near, far = socket.socketpair()
    with near, far:
        fcntl.fcntl(near, fcntl.F_SETOWN, -1)
    return "owned"


@attack("nothing", control=UNSHIELDED)
def a_close_that_waits() -> object:
    """Whoever closes the last descriptor waits, and that may be the agent, to whom a descriptor was sent."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
        return any(struct.unpack("ii", connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))


@attack("EPERM EINVAL", control=None)
def what_else_runs_on_the_core_kept_off_it() -> object:
    """PR_SCHED_CORE_CREATE. A machine may lack it and say EINVAL, or not have two threads a core, ENODEV."""
    return check(libc.prctl(62, 1, 0, 0, 0)) == 0


@attack("nothing")
def files_of_the_agent_in_proc() -> object:
    """Those that everybody may open for writing change the writer, or nothing."""
    opened = []
    for folder in ("/proc/1", *(f"/proc/1/task/{name}" for name in os.listdir("/proc/1/task"))):
        for name in os.listdir(folder):
            try:
                fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                continue
            for word in (b"1", b"19", b"-1000", b"0x7f", b"sandbox"):
                try:
                    os.write(fd, word)
                    opened.append(f"{folder}/{name}")
                except OSError:
                    pass
            os.close(fd)
    return opened
