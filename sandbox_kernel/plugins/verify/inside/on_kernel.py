"""Interfaces of the kernel: namespaces, mounts, other processes, keyrings, programs in it.

Runs inside. Arguments are such that the call does its work where nothing forbids it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Callable

from .kit import GIVEN, attack, call, check, ends, libc, status, user_of

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
    """Those of another user: all in a sandbox is of one, and of a user that nothing else has."""
    users = {pid: user_of(int(pid)) for pid in os.listdir("/proc") if pid.isdigit()}
    return [pid for pid, user in users.items() if user not in (os.getuid(), None)]


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
    return [call("finit_module", os.open("/etc/nsswitch.conf", os.O_RDONLY), b"", 0)]


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
