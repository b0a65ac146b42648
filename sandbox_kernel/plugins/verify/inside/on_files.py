"""Files of the host and of the system: to write outside of scratch, to read what /proc and /sys tell. Runs inside."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable

from .kit import FOLDERS, GIVEN, attack, call, check, libc

DENIED = "EACCES EROFS EPERM"
GONE = "EACCES EROFS EPERM ENOENT ENOTDIR EISDIR"


@attack(DENIED, control="root and a writable root")
def file_beside_the_interpreter() -> object:
    with open("/usr/local/lib/escaped", "w") as file:
        return file.write("x")


@attack(DENIED, control="root and a writable root")
def other_source_of_users() -> object:
    """What a user is called is the sandbox's own affair; where the system looks for users is not."""
    with open("/etc/nsswitch.conf", "a") as file:
        return file.write("passwd: compat\n")


@attack(DENIED, control="root and a writable root")
def other_rights_for_a_system_folder() -> object:
    os.chmod("/usr/local", 0o777)
    return "changed"


@attack(DENIED, control="root and a writable root")
def name_servers_of_its_own() -> object:
    """This file lies on the host's disk, beside what the engine keeps of the container."""
    with open("/etc/resolv.conf", "a") as file:
        return file.write("nameserver 192.0.2.1\n")


@attack(GONE + " EXDEV", control="root and a writable root")
def hard_link_out_of_scratch() -> object:
    os.link("/etc/passwd", "/etc/passwd2")
    return "linked"


@attack("nothing", control="a folder of the host")
def file_of_the_host() -> object:
    """By its path, above the root, and through every link to a root or a working folder that /proc has."""
    found = []
    starts = [
        "",
        "/..",
        "/proc/self/root",
        "/proc/self/cwd/../../../..",
        "/proc/thread-self/root/..",
        "/dev/fd/../../..",
    ]
    starts += glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd/../../..") + glob.glob("/proc/*/task/*/root")
    os.symlink("/proc/self/root/../../..", "/tmp/link")
    for start in [*starts, "/tmp/link"]:
        for path in (start + GIVEN["file"], start + "/." + GIVEN["file"]):
            try:
                with open(path) as file:
                    text = file.read()
                found += [(path, text[:100])] if GIVEN["secret"] in text else []
            except OSError:
                pass
    return found


@attack("nothing", control="root and a writable root")
def file_in_any_other_folder() -> object:
    """A small file with a name that the host looks for later, in every folder of the tree, the topmost first."""
    planted, folders = [], ["/"]
    for folder in folders:
        try:
            with open(os.path.join(folder, GIVEN["marker"]), "x") as file:
                file.write(GIVEN["secret"])
            planted.append(folder)
        except OSError:
            pass
        if len(planted) == 100:
            break
        try:
            below = [each.path for each in os.scandir(folder) if each.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        folders += [path for path in below if path not in {*FOLDERS, "/proc", "/sys"}]
    return planted


@attack("nothing")
def file_descriptors_of_the_host() -> object:
    return [fd for fd in GIVEN["open files"] if fd > 2]


@attack("nothing")
def folder_behind_a_standard_stream() -> object:
    """Streams are pipes; a file or terminal of the host there could be opened again, with other rights."""
    return [target for fd in (0, 1, 2) if not (target := os.readlink(f"/proc/self/fd/{fd}")).startswith(PIPES)]


PIPES = ("pipe:", "host:", "socket:", "/dev/null")


@attack("nothing", control="a secret in the environment")
def environment_of_the_host() -> object:
    found = [name for name, value in os.environ.items() if GIVEN["session"] in value]
    wanted = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PROXY", "CREDENTIAL")
    names = set(os.environ) - set(GIVEN.get("variables", ()))
    return found + [name for name in names if any(word in name.upper() for word in wanted)]


# --- /proc and /sys: reading ------------------------------------------------------------------------------------------


def reading(name: str, control: str | None, *paths: str) -> None:
    """Add an attack that reads files, or lists folders; whatever it gets is a find."""

    def function() -> object:
        found = []
        for path in paths:
            try:
                if os.path.isdir(path):
                    found += os.listdir(path)
                else:
                    with open(path, "rb", buffering=0) as file:
                        found += [(path, data[:40])] if (data := file.read(4096)) else []  # type: ignore[list-item]
            except OSError:
                pass
        return found

    function.__name__ = name
    attack("nothing", control=control)(function)


UNMASKED, ROOT_UNMASKED = "nothing masked", "root, nothing masked"
CGROUPS = "root and the host's control groups"
reading("the_machine_s_memory", None, "/proc/kcore", "/dev/mem")
reading("the_kernel_s_symbols", UNMASKED, "/proc/kallsyms")
reading("the_kernel_s_modules", None, "/proc/modules", "/sys/kernel/notes")
reading("the_kernel_s_configuration", None, "/proc/config.gz", "/proc/kconfig")
reading("the_keys_of_others", UNMASKED, "/proc/keys", "/proc/key-users")
reading("interrupts_of_the_machine", UNMASKED, "/proc/interrupts")
reading("timers_of_the_machine", ROOT_UNMASKED, "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug")
reading("the_machine_s_firmware", UNMASKED, "/sys/firmware", "/sys/devices/virtual/dmi")
reading("the_kernel_s_own_files", UNMASKED, "/sys/kernel")
reading("debug_and_trace_files", None, "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf", "/sys/fs/pstore")
reading("buses_and_drivers_of_the_machine", UNMASKED, "/proc/bus", "/proc/irq", "/proc/tty", "/proc/sys/dev")
reading("file_systems_of_the_machine", UNMASKED, "/proc/filesystems", "/proc/fs")
reading("the_boot_of_the_machine", UNMASKED, "/proc/sys/kernel/random/boot_id")
reading("page_frames", ROOT_UNMASKED, "/proc/kpagecount", "/proc/kpageflags")


@attack("nothing", control=ROOT_UNMASKED)
def physical_addresses() -> object:
    with open("/proc/iomem") as file:
        return [line for line in file if int(line.split("-")[0], 16)]


@attack(GONE, control=ROOT_UNMASKED)
def the_kernel_s_log() -> object:
    """Opened and not read: reading would take the lines from the host."""
    return os.open("/proc/kmsg", os.O_RDONLY)


@attack("EPERM", control="root and SYS_ADMIN, no filter")
def the_kernel_s_log_by_system_call() -> object:
    return check(libc.klogctl(10, None, 0))


# --- /proc and /sys: writing. Opened only: what a write does there, it does to the whole machine ----------------------


def opening(name: str, control: str | None, *patterns: str) -> None:
    """Add an attack that opens files for writing, and writes nothing."""

    def function() -> object:
        found = []
        for path in [path for pattern in patterns for path in glob.glob(pattern)]:
            try:
                os.close(os.open(path, os.O_WRONLY))
                found.append(path)
            except OSError:
                pass
        return found

    function.__name__ = name
    attack("nothing", control=control)(function)


opening("program_run_by_the_kernel_for_a_crash", ROOT_UNMASKED, "/proc/sys/kernel/core_pattern")
opening("program_run_by_the_kernel_for_a_module", None, "/proc/sys/kernel/modprobe")
opening("program_run_by_the_kernel_for_a_device", None, "/sys/kernel/uevent_helper", "/proc/sys/kernel/hotplug")
opening("program_run_by_the_kernel_for_a_format", None, "/proc/sys/fs/binfmt_misc/*")
opening("keys_of_the_console", None, "/proc/sysrq-trigger", "/proc/sys/kernel/sysrq")
opening("settings_of_the_kernel", ROOT_UNMASKED, "/proc/sys/kernel/*", "/proc/sys/vm/*", "/proc/sys/fs/*")
opening("settings_of_the_network", ROOT_UNMASKED, "/proc/sys/net/*/*", "/proc/sys/net/*/*/*/*")
opening("power_and_devices", None, "/sys/power/*", "/sys/block/*/uevent", "/sys/class/*/*/uevent")
opening("release_agent_of_a_cgroup", CGROUPS, "/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/cgroup.procs")
CGROUP = "/sys/fs/cgroup/"
opening(
    "limits_of_a_cgroup",
    CGROUPS,
    *(CGROUP + "memory" + name for name in ("/memory.limit_in_bytes", ".max")),
    *(
        CGROUP + name
        for name in ("pids/pids.max", "pids.max", "cpu/cpu.cfs_quota_us", "cpu.max", "devices/devices.allow")
    ),
)
opening("what_the_machine_s_pressure_wakes", UNMASKED, "/proc/pressure/*")


@attack(GONE)
def cgroup_of_its_own() -> object:
    folder = next(iter([*glob.glob(CGROUP + "memory"), CGROUP.rstrip("/")]))
    os.mkdir(folder + "/escaped")
    os.rmdir(folder + "/escaped")
    return "made"


# --- what processes of the host share ---------------------------------------------------------------------------------


def sysv(name: str, get: Callable[[], int]) -> None:
    def function() -> object:
        return [check(get())]

    function.__name__ = name
    attack("ENOENT", control="the host's IPC")(function)


sysv("shared_memory_of_the_host", lambda: int(libc.shmget(GIVEN["key"], 0, 0)))
sysv("message_queue_of_the_host", lambda: int(libc.msgget(GIVEN["key"], 0)))
sysv("semaphores_of_the_host", lambda: int(libc.semget(GIVEN["key"], 0, 0)))


@attack("ENOENT", control="the host's IPC")
def shared_memory_file_of_the_host() -> object:
    with open("/dev/shm/" + GIVEN["session"]) as file:
        return file.read()


@attack("EACCES EPERM ENOENT EROFS")
def message_queue_file() -> object:
    return os.open("/dev/mqueue/escaped", os.O_CREAT | os.O_RDWR)


@attack("EPERM")
def handle_of_the_root_folder() -> object:
    return [call("open_by_handle_at", -100, b"\4\0\0\0\1\0\0\0\2\0\0\0", os.O_RDONLY)]
