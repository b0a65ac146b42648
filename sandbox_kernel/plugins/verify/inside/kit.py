"""What attacks are made of, on both sides: the table of them on the host, the calls they need inside the sandbox.

Standard library only, Python 3.9 and later: its source is shipped, as are the modules that hold the attacks.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SECONDS = 30
"""What one attack may take; it is ended by SIGALRM then, which no attack expects.

To look at each file of a large image in gVisor takes 10 seconds of a processor.
"""
MIB = 1 << 20


@dataclass(frozen=True)
class Attack:
    """A function that returns something only if it got out, and how it must end in the sandbox."""

    run: Callable[[], object]
    refused: frozenset[str]
    """Outcomes that count as contained: names of errors or signals; "nothing" when it ran and found nothing."""
    control: str | None
    """What the tests take away from a sandbox so that the same function does get out; None if that would do harm."""

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def on_agent(self) -> bool:
        """Whether it goes for PID 1, and so needs a real session's."""
        return self.run.__module__.endswith(".on_agent")

    @property
    def verdict(self) -> str:
        verb = "finds_nothing" if self.refused == {"nothing"} else "is_refused"
        return f"{self.name}_{verb}"


ATTACKS: dict[str, Attack] = {}
GIVEN: dict[str, Any] = {}
"""What the host tells the attacks: names of its sockets and files to go for, the limits, and what is to be there."""
FOLDERS = ("/mnt/data", "/tmp", "/dev/shm")
"""Where a cell may write."""
_before: set[str] = set()
"""What lay in them before the first attack."""


def attack(refused: str, *, control: str | None = None) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Put a function into the table. Its name is the attack's."""

    def add(function: Callable[[], object]) -> Callable[[], object]:
        if function.__name__ in ATTACKS:
            raise AssertionError(function.__name__)
        ATTACKS[function.__name__] = Attack(function, frozenset(refused.split()), control)
        return function

    return add


# --- system calls -----------------------------------------------------------------------------------------------------

X86 = platform.machine() == "x86_64"
NUMBERS = {
    # name: number on x86_64, on aarch64; None where there is none
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "capset": (126, 91),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "ioprio_get": (252, 31),
    "ioprio_set": (251, 30),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "sched_setattr": (314, 274),
    "swapon": (167, 224),
    "acct": (163, 89),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}
libc: Any = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.shmat.restype = ctypes.c_void_p


def check(result: int | None) -> int:
    """Return the result of a C function, or raise the OSError that it left in errno."""
    if result is None or result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(name: str, *arguments: Any) -> int:
    """Make a system call by its number, past everything that the C library checks."""
    number = NUMBERS[name][0 if X86 else 1]
    if number is None:
        raise OSError(errno.ENOSYS, "not on this machine")
    return check(libc.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)))


def ends(pid: int) -> int:
    """Wait for a child; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_child(function: Callable[[], object]) -> None:
    """Run a function in a child; raise the OSError that it met."""
    child = os.fork()
    if not child:
        try:
            function()
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    if code := ends(child):
        raise OSError(code, os.strerror(code))


def status(name: str) -> str:
    """Return a line of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(line.split(":", 1)[1].strip() for line in file if line.startswith(name + ":"))


# --- the driver -------------------------------------------------------------------------------------------------------


def outcome(function: Callable[[], object]) -> tuple[str, str]:
    """Run an attack in this process; return its outcome in one word, and what it says."""
    try:
        found = function()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__), str(error)
    except Exception as error:  # every end is an outcome, compared with the expected
        return type(error).__name__, str(error)
    return ("worked", repr(found)[:300]) if found else ("nothing", "")


def apart(function: Callable[[], object]) -> tuple[str, str]:
    """Run an attack in a process of its own, of which nothing is left afterwards."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(read)
        signal.alarm(GIVEN.get("seconds", SECONDS))
        try:
            with open("/proc/self/oom_score_adj", "w") as file:  # the attack dies, not the driver
                file.write("1000")
        except FileNotFoundError:
            pass  # some engines show no process's own folder
        os.write(write, json.dumps(outcome(function)).encode())
        os._exit(0)
    os.close(write)
    said = b""
    # A child of the attack may hold the pipe open: the attack's end counts, not the pipe's.
    code = ends(child)
    os.set_blocking(read, False)
    try:
        said = os.read(read, 65536)
    except BlockingIOError:
        pass
    os.close(read)
    clean_up(child)
    if said:
        first, second = json.loads(said)
        return first, second
    return (signal.Signals(-code).name if code < 0 else f"exit {code}"), ""


def clean_up(group: int) -> None:
    try:
        # All but PID 1 when this is it. Where a container shares the host's processes, its own group only.
        os.kill(-1, signal.SIGKILL) if os.getpid() == 1 else os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
    for path in entries() - _before:
        try:
            # What a sandbox shares with the host by mistake is another user's.
            if os.lstat(path).st_uid == os.getuid():
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        except OSError:
            pass


def entries() -> set[str]:
    """Return what lies in the folders that a cell may write to."""
    found = set()
    for folder in FOLDERS:
        try:
            found |= {os.path.join(folder, name) for name in os.listdir(folder)}
        except OSError:
            pass
    return found


def user_of(pid: int) -> int | None:
    """Return whose a process is, None if that cannot be seen; the owner of its folder in /proc may be root's."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Uid:")), None)
    except OSError:
        return None


def is_open(number: int) -> bool:
    """Return whether a descriptor of this process is open."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def main(names: list[str]) -> None:
    """Run the named attacks one after the other, and say how each ended."""
    _before.update(entries())
    GIVEN["open files"] = [number for number in range(os.sysconf("SC_OPEN_MAX")) if is_open(number)]
    for name in names:
        sys.stdout.write(json.dumps([name, *apart(ATTACKS[name].run)]) + "\n")
        sys.stdout.flush()
    sys.stdout.close()
