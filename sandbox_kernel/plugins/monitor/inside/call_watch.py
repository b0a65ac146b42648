"""Which calls are tried here that honest code does not make: the kernel of the system asks, and the host is told.

The agent's filter refuses by a question (SECCOMP_RET_USER_NOTIF), and a thread answers each with the error that the
filter would have given. Of all calls one is let through, `connect`, which no filter refuses: its address is read
meanwhile from the caller's memory, which another of its threads may change. So a flood is paid by its own sandbox.

The kernel asks nobody where another filter says an error, which is stricter. So an engine's filter leaves these calls
to a tracer, and there is none: they fail there, too (`engines/seccomp.py`). That a question arrives is tried before it
is promised. Who took this process over could let a child of its own pass; that has no capability. Of what else was
there to choose, an audit line of the kernel's is the host's to be flooded, and a signal or a tracer would be seen by
the code.

The thread runs before the filters are put, and so has none of them: what this process asks itself would never be
answered. The process ends, and with it the sandbox, before cells can take its place: they can hide what they try from
it, or kill it, and no more. Runs inside the container, where the host ships its source: standard library only, Python
3.9 and later.
"""

from __future__ import annotations

import _socket
import _thread
import ctypes
import errno
import fcntl
import os
import signal
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RECEIVE, SEND, IS_THERE = 0xC0502100, 0xC0182101, 0x40082102
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ID_VALID."""
CONTINUE = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE."""
SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_MODE_FILTER, NEW_LISTENER = 1, 8
ASKS, ERROR, ALLOW = 0x7FC00000, 0x00050000, 0x7FFF0000
QUESTION, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
"""struct seccomp_notif and seccomp_notif_resp."""
MARK = "lookup_dcookie"
"""By this call a kernel says that code in it looks for a secret: the first argument says which (`secret_watch`)."""
STARTED = 1 << 16
"""The first argument of that call for a program that is started; its name's place and length follow, and how often."""
ENGINES = (b"docker.sock", b"containerd.sock", b"crio.sock", b"podman.sock")
MAX_ADDRESS = 128
MAX_ROWS, ROWS_AT_ONCE = 256, 64
"""How many different ones are told apart until the host was told, and how many it is told of at once."""
MAX_TIMES = 1 << 20
PAUSE = 0.2
"""Seconds from one time that the host is told to the next, at least."""
AHEAD = 20 * PAUSE
"""How far ahead of that it may be told where cells end."""


class CallWatch:
    """The thread that answers, and what it has to tell."""

    def __init__(self, names: dict[int, str]) -> None:
        """Begin the thread; `names` are those of the watched calls, by number."""
        self._names = names
        self._rows: dict[tuple[str, str, str], list[int]] = {}
        self._next = 0.0
        self._own = os.getpid()
        self.agents = {self._own}
        """The processes of agents, which connect to their kernels. Who reads their memory is refused."""
        self._file = -1
        self._lock, self._begun = _thread.allocate_lock(), _thread.allocate_lock()
        self._begun.acquire()
        self.works = False
        """Whether a question has arrived."""
        _thread.start_new_thread(self._answer_all, ())

    def listen(self, program: bytes) -> bytes | None:
        """Put a filter that asks around this thread; None if that is done, else what to put in its place."""
        libc = ctypes.CDLL(None, use_errno=True)
        steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
        buffer = ctypes.create_string_buffer(program, len(program))
        given = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(buffer)))
        number = SECCOMP.get(os.uname().machine)
        if number is not None and program:
            libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
            self._file = int(libc.syscall(number, SET_MODE_FILTER, NEW_LISTENER, given))
        if self._file >= 0:
            self._begun.release()
            libc.mount(None, None, None, 0, None)  # refused in any case
            return None
        answers = [(*step[:3], plain(step[3]) if step[0] == 0x06 else step[3]) for step in steps]
        return b"".join(struct.pack("=HBBI", *step) for step in answers)

    def report(self, agent: Any, answers: bool) -> None:
        """Tell the host what there is to tell, a bounded number at a time; to be called at each turn of the loop.

        `answers`: a cell may end with this turn. It is told before that, some times ahead of the pause.
        """
        now = time.monotonic()
        while self._rows and not agent.parked and now + AHEAD * answers >= self._next:
            self._next = max(now, self._next) + PAUSE
            with self._lock:
                told = list(self._rows)[:ROWS_AT_ONCE]
                rows = [[*key, *self._rows.pop(key)] for key in told]
            agent.event("calls", rows=rows)

    def _answer_all(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the loop is to be woken by them
        self._begun.acquire()
        while True:
            try:
                self._answer()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINTR):  # who asked is gone
                    os.close(self._file)  # whoever asks from now on is refused by the kernel
                    return

    def _answer(self) -> None:
        data = bytearray(QUESTION.size)
        fcntl.ioctl(self._file, RECEIVE, data, True)
        number, thread, _, call, _, _, *arguments = QUESTION.unpack(data)
        name = self._names.get(call, "")
        target, times = "", 1
        if thread == self._own:
            self.works = True
        elif name == "connect" and thread not in self.agents:
            target = self._address(number, thread, *arguments[1:3])
        elif name == MARK and arguments[0] == STARTED:
            said = self._memory(number, thread, *arguments[1:3]) or b"?"
            name, target = "program", "".join(chr(one) if 32 < one < 127 else "?" for one in said)
            times = max(1, min(arguments[3], MAX_TIMES))
        elif name == MARK:
            name, target = "secret", str(arguments[0])
        if name == "connect" and target.startswith("/"):
            name, target = "secret", target[1:]
        if thread not in self.agents and (target or name != "connect"):
            self._note(name, _program(thread), target, thread, times)
        passes = self._names.get(call) == "connect"
        answer = (number, 0, 0, CONTINUE) if passes else (number, 0, -errno.EPERM, 0)
        fcntl.ioctl(self._file, SEND, bytearray(ANSWER.pack(*answer)), True)

    def _note(self, name: str, program: str, target: str, thread: int, times: int = 1) -> None:
        with self._lock:
            key = (name, program, target)
            if key not in self._rows and len(self._rows) >= MAX_ROWS:
                key = (name, "", "")
            row = self._rows.setdefault(key, [0, thread])
            row[0] += times

    def _address(self, number: int, thread: int, place: int, length: int) -> str:
        """Return what a connection is made to; "?" if it cannot be read, "" for what leads nowhere.

        The socket of an engine is "/" and the number of that secret.
        """
        data = self._memory(number, thread, place, length)
        if data is None:
            return "?"
        family = int.from_bytes(data[:2], "little")
        if family == _socket.AF_UNIX:
            return "/0" if any(name in data for name in ENGINES) else ""
        if family == _socket.AF_INET and len(data) >= 8:
            return "%s:%d" % (_socket.inet_ntop(family, data[4:8]), int.from_bytes(data[2:4], "big"))
        if family == _socket.AF_INET6 and len(data) >= 24:
            return "[%s]:%d" % (_socket.inet_ntop(family, data[8:24]), int.from_bytes(data[2:4], "big"))
        return ""

    def _memory(self, number: int, thread: int, place: int, length: int) -> bytes | None:
        """Return what stands in the memory of who asks; None if it cannot be read."""
        try:
            with open("/proc/%d/mem" % thread, "rb", buffering=0) as memory:
                memory.seek(place)
                data = memory.read(min(length, MAX_ADDRESS)) or b""
            # Else another thread may have that number by now.
            fcntl.ioctl(self._file, IS_THERE, bytearray(struct.pack("=Q", number)), True)
        except (OSError, OverflowError, ValueError):
            return None
        return data


def plain(verdict: int) -> int:
    """Return what a filter says that nobody listens at, for what it says else."""
    if verdict & 0xFFFF0000 != ASKS:
        return verdict
    return ERROR | verdict & 0xFFFF if verdict & 0xFFFF else ALLOW


def _program(thread: int) -> str:
    try:
        with open("/proc/%d/comm" % thread, encoding="utf-8", errors="replace") as file:
            return file.read(64).rstrip("\n")
    except OSError:
        return ""
