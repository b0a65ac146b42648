"""Doors into the kernel: namespaces, mounts, other processes, keyrings, programs in it, rights, devices, clocks.

Runs inside. Arguments are such that the call does its work where nothing forbids it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable

from inside import GIVEN, MIB, attack, call, check, ends, in_child, libc, status

AT_FDCWD = -100
ADMIN = "root and SYS_ADMIN, no filter"
NEWUSER = 0x10000000
SECRET = ctypes.create_string_buffer(b"a secret of another process")


def of_a_victim(function: Callable[[int], object]) -> object:
    """Run a function on a process that is not an ancestor and holds `SECRET`."""
    victim = os.fork()
    if not victim:
        signal.pause()
    try:
        return function(victim)
    finally:
        os.kill(victim, signal.SIGKILL)
        ends(victim)


# --- other processes --------------------------------------------------------------------------------------------------


@attack("EPERM", control="no filter")
def ptrace_of_another_process() -> object:
    def attach(victim: int) -> object:
        check(libc.ptrace(16, victim, 0, 0))
        os.waitpid(victim, 0)
        return "attached"

    return of_a_victim(attach)


class Vector(ctypes.Structure):
    """One struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def vector(buffer: object) -> object:
    return ctypes.byref(Vector(ctypes.addressof(buffer), ctypes.sizeof(buffer)))  # type: ignore[arg-type]


@attack("EPERM", control="no filter")
def reading_another_process_s_memory() -> object:
    copy = ctypes.create_string_buffer(len(SECRET))
    of_a_victim(lambda victim: check(libc.process_vm_readv(victim, vector(copy), 1, vector(SECRET), 1, 0)))
    return copy.value


@attack("EPERM", control="no filter")
def writing_another_process_s_memory() -> object:
    return of_a_victim(lambda victim: check(libc.process_vm_writev(victim, vector(SECRET), 1, vector(SECRET), 1, 0)))


@attack("EPERM", control="no filter")
def taking_another_process_s_file() -> object:
    return of_a_victim(lambda victim: call("pidfd_getfd", os.pidfd_open(victim), 1, 0))


@attack("EPERM", control="no filter")
def comparing_kernel_objects() -> object:
    return [call("kcmp", os.getpid(), os.getpid(), 0, 0, 1)]


@attack("ESRCH")
def signal_to_a_process_of_the_host() -> object:
    os.kill(GIVEN["pid"], 0)
    return "it is there"


@attack("nothing", control="the host's processes")
def processes_of_the_host() -> object:
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in {1, os.getpid()}]


# --- namespaces -------------------------------------------------------------------------------------------------------


def _unshare(kind: str, flag: int) -> None:
    def function() -> object:
        check(libc.unshare(NEWUSER | flag))
        return status("CapEff")

    function.__name__ = f"new_{kind}_namespace"
    attack("EPERM", control="no filter")(function)


for _kind, _flag in {
    "user": 0,
    "mount": 0x20000,
    "cgroup": 0x02000000,
    "hostname": 0x04000000,
    "ipc": 0x08000000,
    "process": 0x20000000,
    "network": 0x40000000,
}.items():
    _unshare(_kind, _flag)


@attack("EPERM", control="no filter")
def child_in_a_new_user_namespace() -> object:
    child = call("clone", NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if not child:
        os._exit(0)
    return ends(child) == 0


@attack("ENOSYS", control="no filter")
def child_in_a_new_user_namespace_by_clone3() -> object:
    arguments = struct.pack("8Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    child = call("clone3", arguments, len(arguments))
    if not child:
        os._exit(0)
    return ends(child) == 0


@attack("EPERM", control=ADMIN)
def entering_a_namespace() -> object:
    check(libc.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0))
    return "entered"


# --- mounts -----------------------------------------------------------------------------------------------------------


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> object:
    check(libc.mount(source, target, kind, ctypes.c_ulong(flags), None))
    return "mounted"


@attack("EPERM", control=ADMIN)
def mount_of_a_file_system() -> object:
    return mount(b"none", b"/media", b"tmpfs", 0)


@attack("EPERM", control=ADMIN)
def mount_of_a_fresh_proc() -> object:
    return mount(b"proc", b"/media", b"proc", 0)


@attack("EPERM", control=ADMIN)
def bind_mount() -> object:
    return mount(b"/usr", b"/media", None, 4096)


@attack("EPERM", control=ADMIN)
def remounting_the_root_writable() -> object:
    mount(b"none", b"/", None, 32 | 4096)  # MS_REMOUNT | MS_BIND
    return os.access("/", os.W_OK)


@attack("EPERM", control=ADMIN)
def uncovering_a_masked_path() -> object:
    return [check(libc.umount2(b"/proc/keys", 2))]


@attack("EPERM", control=ADMIN)
def mount_by_the_new_calls() -> object:
    context = call("fsopen", b"tmpfs", 0)
    call("fsconfig", context, 6, None, None, 0)
    return call("move_mount", call("fsmount", context, 0, 0), b"", AT_FDCWD, b"/media", 4) == 0


@attack("EPERM", control=ADMIN)
def copy_of_the_mount_tree() -> object:
    return call("open_tree", AT_FDCWD, b"/", 0x8001)


@attack("EPERM", control=ADMIN)
def making_mounts_writable_by_attribute() -> object:
    attributes = struct.pack("4Q", 0, 1, 0, 0)  # clears MOUNT_ATTR_RDONLY
    call("mount_setattr", AT_FDCWD, b"/", 0, attributes, len(attributes))
    return "changed"


@attack("EPERM", control=ADMIN)
def another_root_by_pivot() -> object:
    check(libc.unshare(0x20000))
    mount(b"none", b"/", None, 0x44000)  # private, all of them
    mount(b"none", b"/media", b"tmpfs", 0)
    return [call("pivot_root", b"/media", b"/media")]


@attack("EPERM", control=ADMIN)
def another_root_by_chroot() -> object:
    os.chroot("/usr")
    return os.listdir("/")


@attack("EPERM", control=ADMIN)
def file_by_its_handle() -> object:
    """Inode numbers of the host's disk can be guessed where this works."""
    handle, where = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.c_int()
    os.mkdir("/tmp/folder")
    call("name_to_handle_at", AT_FDCWD, b"/tmp/folder", handle, ctypes.byref(where), 0)
    return call("open_by_handle_at", os.open("/tmp", os.O_RDONLY), handle, os.O_RDONLY)


# --- code and objects in the kernel -----------------------------------------------------------------------------------


@attack("EPERM", control="no filter")
def key_in_a_keyring() -> object:
    return call("add_key", b"user", b"name", b"secret", 6, -2)


@attack("EPERM", control="no filter")
def reading_a_keyring() -> object:
    return [call("keyctl", 0, -4, 1)]


@attack("EPERM", control=ADMIN)
def bpf_map() -> object:
    attributes = struct.pack("5I", 2, 4, 8, 1, 0).ljust(128, b"\0")
    return call("bpf", 0, attributes, len(attributes))


@attack("EPERM", control=ADMIN)
def performance_counters() -> object:
    attributes = struct.pack("IIQQQQQ", 1, 128, 0, 0, 0, 0, 1 << 5).ljust(128, b"\0")  # the CPU clock, no kernel
    return call("perf_event_open", attributes, 0, -1, -1, 0)


@attack("ENOSYS", control="no filter")
def page_faults_handled_by_the_user() -> object:
    return call("userfaultfd", 1)


@attack("ENOSYS", control="no filter")
def io_uring() -> object:
    return call("io_uring_setup", 4, ctypes.create_string_buffer(120))


@attack("EPERM", control="no filter")
def asynchronous_io_by_the_old_calls() -> object:
    return [call("io_setup", 1, ctypes.create_string_buffer(8))]


@attack("EPERM")
def loading_a_module() -> object:
    return [call("init_module", b"no module", 9, b"")]


@attack("EPERM")
def loading_a_module_from_a_file() -> object:
    return [call("finit_module", os.open("/etc/passwd", os.O_RDONLY), b"", 0)]


@attack("EPERM")
def loading_another_kernel() -> object:
    return [call("kexec_load", 0, 0, 0, 0)]


@attack("EPERM")
def restarting_the_machine() -> object:
    return [call("reboot", 0xFEE1DEAD, 0x28121969, 0, 0)]  # would only allow Ctrl-Alt-Del to nobody


@attack("EPERM", control="no filter")
def local_descriptor_table() -> object:
    call("modify_ldt", 0, ctypes.create_string_buffer(64), 64)
    return "read"


@attack("EPERM ENOSYS")
def ports_of_the_hardware() -> object:
    return [call("iopl", 3)]


@attack("EPERM", control="no filter")
def addresses_that_are_not_random() -> object:
    check(libc.personality(ctypes.c_ulong(0x0040000)))
    return "not random"


@attack("EPERM", control="no filter")
def user_pages_spliced_into_a_pipe() -> object:
    return call("vmsplice", os.pipe()[1], vector(SECRET), 1, 0)


@attack("EPERM", control="no filter")
def message_queue_by_name() -> object:
    return call("mq_open", b"queue", os.O_CREAT | os.O_RDWR, 0o600, 0)


# --- rights -----------------------------------------------------------------------------------------------------------


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
    return [call("clock_settime", 0, struct.pack("2q", 1, 0))]


@attack("EPERM", control=ADMIN)
def setting_the_hostname() -> object:
    socket.sethostname("other")
    return socket.gethostname() == "other"


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
    path = "/etc/passwd"
    with open(path, "rb") as file:
        text = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
        before = file.read()
    with open("/proc/self/maps") as file:
        address = int(next(line for line in file if line.rstrip().endswith(path)).split("-")[0], 16)
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
    fd = os.open("/etc/passwd", os.O_RDONLY)
    return len(mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))


@attack("EPERM", control="no filter")
def crossing_the_filter_by_a_child() -> object:
    in_child(lambda: check(libc.unshare(NEWUSER)))
    return "crossed"
