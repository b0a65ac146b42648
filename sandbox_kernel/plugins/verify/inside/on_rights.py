"""Rights, identity, devices, clocks, names, priorities: what a process may ask for itself. Runs inside.

Arguments are such that the call does its work where nothing forbids it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import time

from .kit import MIB, attack, call, check, in_child, libc, status

ADMIN = "root and SYS_ADMIN, no filter"
NEWUSER = 0x10000000
SECRET = ctypes.create_string_buffer(b"something in memory")


@attack("EPERM", control="root and SETUID")
def another_user_s_id() -> object:
    os.setresuid(1234, 1234, 1234)
    return os.getresuid()


@attack("EPERM")
def root_by_setuid() -> object:
    os.setuid(0)
    return os.getuid() == 0


@attack("EPERM", control="root and SETUID")
def groups_of_others() -> object:
    os.setgroups([0, 4, 27])
    return os.getgroups()


@attack("EPERM", control="root and SYS_ADMIN")
def capabilities_by_asking() -> object:
    header, wanted = struct.pack("Ii", 0x20080522, 0), 1 << 21  # CAP_SYS_ADMIN
    call("capset", header, struct.pack("6I", wanted, wanted, 0, 0, 0, 0))
    return int(status("CapEff"), 16)


@attack("EPERM")
def ambient_capabilities() -> object:
    return [check(libc.prctl(47, 2, 13, 0, 0))]  # raises CAP_NET_RAW


@attack("EINVAL EPERM")
def taking_no_new_privileges_back() -> object:
    return [check(libc.prctl(38, 0, 0, 0, 0))]


@attack("EINVAL EPERM")
def taking_the_filter_back() -> object:
    return [check(libc.prctl(22, 0, 0, 0, 0))]


@attack("EPERM")
def forging_what_proc_says_of_the_process() -> object:
    check(libc.prctl(35, 8, ctypes.c_ulong(ctypes.addressof(SECRET)), 0, 0))  # PR_SET_MM
    return "changed"


SEES = "import sys; sys.stdout.write(open('/proc/self/status').read())"


def rights(program: list[str], **options: object) -> object:
    """Run a program; return what it may that a cell may not."""
    text = subprocess.run(program, capture_output=True, text=True, check=True, **options).stdout  # type: ignore[call-overload]
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    found = [name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(lines.get(name, "0"), 16)]
    found += [name for name in ("Uid", "Gid") if set(lines[name].split()) != {str(os.getuid())}]
    return found + [name for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")) if lines.get(name) != value]


@attack("nothing", control="no filter")
def program_in_memory_with_more_rights() -> object:
    """Execution from a memory file is allowed, and confined as everything else is."""
    fd = os.memfd_create("program", 0)
    with open(sys.executable, "rb") as source:
        os.sendfile(fd, source.fileno(), 0, os.fstat(source.fileno()).st_size)
    return rights([f"/proc/self/fd/{fd}", "-I", "-c", SEES], pass_fds=[fd], env={"PYTHONHOME": sys.prefix})


@attack("nothing", control="no filter")
def setuid_program_with_more_rights() -> object:
    path = "/tmp/program"
    with open("/bin/cat", "rb") as source, open(path, "wb") as copy:
        copy.write(source.read())
    os.chmod(path, 0o6755)
    return rights([path, "/proc/self/status"])


@attack("nothing")
def setuid_programs_of_the_image() -> object:
    found = []
    for folder, _, names in os.walk("/usr"):
        for path in (os.path.join(folder, name) for name in names):
            try:
                mode = os.lstat(path).st_mode
                if stat.S_ISREG(mode) and (mode & 0o6000 or "security.capability" in os.listxattr(path)):
                    found.append(path)
            except OSError:
                pass
    return found


# --- devices, clocks, names, priorities, limits -----------------------------------------------------------------------


@attack("EPERM", control="root and MKNOD")
def device_node_for_the_memory() -> object:
    os.mknod("/tmp/mem", stat.S_IFCHR | 0o666, os.makedev(1, 1))
    return "made"


@attack("EPERM", control="root and MKNOD")
def device_node_for_a_disk() -> object:
    os.mknod("/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    return "made"


@attack("EPERM")
def reading_through_a_device_node() -> object:
    os.mknod("/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    return os.open("/tmp/disk", os.O_RDONLY)


@attack("nothing", control="root and a device")
def devices_of_the_host() -> object:
    found = []
    names = "mem kmem port kmsg kvm fuse net/tun vhost-net vhost-vsock vsock loop0 loop-control mapper/control"
    for name in (*names.split(), *("sda", "vda", "nvme0n1", "dri/card0", "input/event0", "uinput", "hpet", "snapshot")):
        try:
            found.append(os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            pass
    return found


@attack("EPERM")
def setting_the_clock() -> object:
    """To what it shows: whoever may do that may set it to anything."""
    return [call("clock_settime", 0, struct.pack("2q", int(time.time()), 0))]


@attack("EPERM", control=ADMIN)
def setting_the_hostname() -> object:
    """To what it is already, which needs the same right."""
    socket.sethostname(socket.gethostname())
    return "set"


@attack("EPERM")
def realtime_scheduling() -> object:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return "realtime"


@attack("EACCES EPERM", control="root and SYS_NICE")
def highest_priority() -> object:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return os.getpriority(os.PRIO_PROCESS, 0)


@attack("EPERM", control="root and SYS_NICE")
def realtime_disk_access() -> object:
    call("ioprio_set", 1, 0, 1 << 13)
    return call("ioprio_get", 1, 0)


@attack("EPERM ENOMEM EAGAIN", control=ADMIN)
def memory_that_cannot_be_swapped() -> object:
    memory = mmap.mmap(-1, 64 * MIB)
    return [check(libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), len(memory)))]


@attack("EPERM")
def higher_limits() -> object:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    check(libc.prlimit64(0, resource.RLIMIT_NOFILE, struct.pack("2Q", hard + 1, hard + 1), None))
    return "raised"


@attack("EACCES EPERM")
def being_spared_when_memory_ends() -> object:
    with open("/proc/self/oom_score_adj", "w") as file:
        return file.write("-1000")


@attack("EPERM", control=ADMIN)
def typing_into_a_terminal() -> object:
    """Into a terminal of its own; with a terminal of the host on the other side it would be a command there."""
    _, child = os.openpty()
    fcntl.ioctl(child, 0x540E, 0)  # TIOCSCTTY
    fcntl.ioctl(child, 0x5412, b"x")  # TIOCSTI
    return "typed"


@attack("nothing")
def program_text_overwritten_for_others() -> object:
    """/proc/self/mem writes to read-only mappings, in copies: neither the file nor another process sees it."""
    path = "/etc/nsswitch.conf"
    with open(path, "rb") as file:
        text = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
        before = file.read()
    with open("/proc/self/maps") as file:
        address = int(next(line for line in file if path in line).split("-")[0], 16)
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(b"pwned")
    except OSError:
        pass
    with open(path, "rb") as file:
        return file.read() != before and text[:5]


@attack("EACCES EROFS EPERM")
def shared_writable_mapping_of_a_system_file() -> object:
    fd = os.open("/etc/nsswitch.conf", os.O_RDONLY)
    return len(mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))


@attack("EACCES EROFS", control="root and a writable root")
def writable_mapping_of_a_system_file_opened_for_it() -> object:
    """Nothing is written through it."""
    with open("/etc/nsswitch.conf", "r+b") as file:
        return len(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))


@attack("EPERM", control="no filter")
def crossing_the_filter_by_a_child() -> object:
    in_child(lambda: check(libc.unshare(NEWUSER)))
    return "crossed"
