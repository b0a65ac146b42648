"""Taking more than one's share. Runs inside; each returns what it got when that is more than the sandbox's limits say.

The host tells the limits, in bytes and in numbers.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import threading

from .kit import GIVEN, MIB, attack, check, ends, libc


def limit(name: str) -> int:
    return int(GIVEN["limits"][name])


@attack("SIGKILL", control="more memory")
def memory_beyond_the_limit() -> object:
    memory = mmap.mmap(-1, limit("memory") + 64 * MIB)
    for position in range(0, len(memory), 4096):
        memory[position] = 1
    return len(memory)


@attack("SIGKILL", control="more memory")
def memory_beyond_the_limit_in_several_processes() -> object:
    told, tell = os.pipe()
    os.set_blocking(told, False)
    for _ in range(4):
        if not os.fork():
            memory = mmap.mmap(-1, limit("memory") // 3)
            for position in range(0, len(memory), 4096):
                memory[position] = 1
            os.write(tell, b"x")
            signal.pause()
    # Each tells when it has all it wants; without a limit that is more than the limit. This one dies as the first does.
    have = 0
    while have < 4:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if pid:
            os.kill(os.getpid(), os.WTERMSIG(code) if os.WIFSIGNALED(code) else signal.SIGKILL)
        os.sched_yield()
        try:
            have += len(os.read(told, 4))
        except BlockingIOError:
            pass
    return have


@attack("SIGKILL SIGBUS ENOMEM ENOSPC EINVAL", control="more memory")
def shared_memory_segments_beyond_the_limit() -> object:
    size = limit("memory") + 64 * MIB
    segment = check(libc.shmget(0, size, 0o1600))
    address = libc.shmat(segment, None, 0)
    libc.shmctl(segment, 0, None)
    libc.memset(address_of(address), 1, size)
    return size


def address_of(address: int) -> object:
    import ctypes

    return ctypes.c_void_p(address)


@attack("SIGKILL ENOMEM ENOSPC", control="more memory")
def memory_file_beyond_the_limit() -> object:
    fd, written = os.memfd_create("big"), 0
    while written < limit("memory") + 64 * MIB:
        written += os.write(fd, bytes(MIB))
    return written


@attack("EPERM", control="no filter")
def huge_pages_of_the_machine() -> object:
    """No limit of memory counts them. That they are there is seen when they are used, and not asked for."""
    return len(mmap.mmap(-1, 2 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x44000))  # HUGETLB, NORESERVE


@attack("EPERM", control="no filter")
def file_of_huge_pages() -> object:
    return os.memfd_create("huge", 0x4)  # HUGETLB


@attack("nothing SIGKILL EMFILE EPERM ENFILE")
def pipes_beyond_the_memory_limit() -> object:
    total = 0
    for _ in range(400):
        _, write = os.pipe()
        try:
            fcntl.fcntl(write, 1031, MIB)  # F_SETPIPE_SZ
        except PermissionError:
            pass
        os.set_blocking(write, False)
        try:
            while True:
                total += os.write(write, bytes(65536))
        except BlockingIOError:
            pass
    return total > limit("memory") and total


@attack("nothing SIGKILL EMFILE ENOBUFS ENOMEM")
def sockets_beyond_the_memory_limit() -> object:
    total, kept = 0, []
    for _ in range(500):
        near, far = socket.socketpair()
        kept += [near, far]
        for end in (near, far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
            end.setblocking(False)
            try:
                while True:
                    total += end.send(bytes(65536))
            except BlockingIOError:
                pass
    return total > limit("memory") and total


@attack("nothing SIGKILL", control="no limit of sockets")
def connections_beyond_the_memory_limit() -> object:
    """What TCP holds of the loopback: a machine may count it beside memory, and bound it for all together."""
    total = 0
    kept: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    try:
        while total <= limit("memory"):
            near = socket.create_connection(listener.getsockname(), timeout=2)
            listener.settimeout(2)
            far = listener.accept()[0]
            kept += [near, far]
            for end in (near, far):
                total += _filled(end)
    except OSError:  # no more descriptors, or no more room
        pass
    return total > limit("memory") and total


def _filled(end: socket.socket) -> int:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MIB)
    end.setblocking(False)
    total = 0
    try:
        while True:
            total += end.send(bytes(65536))
    except BlockingIOError:
        return total


@attack("nothing SIGKILL", control="no limit of sockets")
def datagrams_beyond_the_memory_limit() -> object:
    """The same of UDP: each socket keeps what nobody reads, and the rest is dropped."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    kept: list[socket.socket] = []
    try:
        while len(kept) * 300_000 <= limit("memory"):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            kept.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
            one.bind(("127.0.0.1", 0))
            for _ in range(8):
                sender.sendto(bytes(60000), one.getsockname())
    except OSError:
        kept.pop().close()
    try:
        with open("/proc/self/net/udp") as file:
            total = sum(int(row.split()[4].partition(":")[2], 16) for row in file.readlines()[1:])
    except FileNotFoundError:
        return False
    return total > limit("memory") and total


def fill(folder: str, size: int) -> object:
    fd, written = os.open(folder + "/big", os.O_CREAT | os.O_WRONLY), 0
    while written < size:
        written += os.write(fd, bytes(MIB))
    return written


@attack("ENOSPC", control="larger file systems")
def files_in_tmp_beyond_its_size() -> object:
    return fill("/tmp", limit("tmp_size") + 8 * MIB)


@attack("ENOSPC", control="larger file systems")
def files_in_scratch_beyond_its_size() -> object:
    return fill("/mnt/data", limit("scratch_size") + 8 * MIB)


@attack("ENOSPC", control="larger file systems")
def files_in_shared_memory_beyond_its_size() -> object:
    return fill("/dev/shm", limit("shm_size") + 8 * MIB)


@attack("ENOSPC", control="no limit of files")
def empty_files_without_end() -> object:
    count = max(1024, limit("tmp_size") // 4096) + 1000
    for number in range(count):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT))
    return f"{count} files"


@attack("EMFILE", control="more open files")
def open_files_without_end() -> object:
    return [os.open("/dev/null", os.O_RDONLY) for _ in range(limit("open_files") + 400)]


@attack("RuntimeError EAGAIN", control="no process limit")
def threads_without_end() -> object:
    threading.stack_size(65536)
    done = threading.Event()
    for _ in range(limit("pids") + 44):
        threading.Thread(target=done.wait, daemon=True).start()
    return "more threads than processes may be"


@attack("EAGAIN", control="no process limit")
def processes_without_end() -> object:
    for _ in range(limit("pids") + 44):
        if not os.fork():
            signal.pause()
    return "more processes than there may be"


@attack("nothing")
def core_file_of_a_crash() -> object:
    os.chdir("/mnt/data")
    if not (child := os.fork()):
        os.abort()
    ends(child)
    return [name for name in os.listdir() if "core" in name]
