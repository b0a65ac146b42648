"""What the agent notices of the cells: programs that are started, connections that are tried, bait that is opened.

A filter around the kernel tells of system calls (seccomp user notification), and inotify of files. Each call goes on as
it would without: what a pointer points to is read for people, and decides nothing. One thread of the agent answers. It
is older than the filters, so none holds for it; nobody in the sandbox can stop it, for the shield knows it. A program
waits for it with cold caches, where each line of Python is some microseconds: it answers first and counts afterwards.

Runs inside the container, and is shipped only where somebody asked for it: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import _thread
import ctypes
import fcntl
import os
import struct
import sys
import time

from . import shield

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CALLS = {"execve": (59, 221), "execveat": (322, 281), "connect": (42, 203)}
"""Numbers on x86_64 and on aarch64 of the calls that are told of."""
FAST_OPEN = {"sendto": (44, 206, 3), "sendmsg": (46, 211, 2), "sendmmsg": (307, 269, 3)}
"""The same of calls that connect by themselves if they are told to (TCP Fast Open), and which argument tells them."""
MSG_FASTOPEN = 0x20000000
LOADERS = ("ld-", "ld.so", "ld64.so")
"""How the names of programs begin that load the program which their arguments name."""
WORDS, WORD_BYTES = 12, 8
"""Arguments of such a one that are looked at, and the bytes of a pointer."""
SECCOMP, IOCTL = (317, 277), (16, 29)
SET_MODE_FILTER, NEW_LISTENER = 1, 8
RECEIVE, SEND, STILL_THERE, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
"""SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ID_VALID and _SET_FLAGS; nobody but the agent's thread may use them."""
GO_ON = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE: the call is made as if nobody had been told."""
WAKE_HERE = 1
"""SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: the answer runs where the question was asked, which takes half the time."""
_NOTIFY, _ALLOW, _REFUSE = 0x7FC00000, 0x7FFF0000, 0x00050001
NOTICE, YES = struct.Struct("=QIIiIQ6Q"), struct.pack("=qiI", 0, 0, GO_ON)
"""What the system says of a call, and what is answered behind its number."""

ENOENT, EINTR = 2, 4
GONE = (ENOENT, EINTR)
PATH_BYTES = 256
READS, PROGRAMS_READ = 50, 3
"""Addresses and paths that are read before the answer, from one word to the host to the next; others are counted."""
RECENT = 16
"""Programs of which it is looked up later what they are, if they still run."""
MANY, BREAK = 5000, 0.001
"""Calls in the same time from which on each waits for a moment: a flood shall not take the agent's processor."""
REPORT_SECONDS = 0.25
SWITCH_SECONDS = 0.0005
"""How long another thread of the agent may keep the interpreter while a program waits to be started."""

BAIT = (
    (".aws/credentials", "[default]\naws_access_key_id = {AWS}\naws_secret_access_key = {long}\n"),
    (".ssh/id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"),
    (".env", "DATABASE_URL=postgres://app:{short}@db.internal/app\nOPENAI_API_KEY=sk-proj-{long}\n"),
    (".git-credentials", "https://deploy:ghp_{short}@github.com\n"),
    (".kube/config", "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: {long}\n"),
    (
        ".config/gcloud/application_default_credentials.json",
        '{{"type": "authorized_user", "refresh_token": "{long}"}}\n',
    ),
)
"""Files that thieves open and honest code does not, below the home of the cells. All that is in them is made up."""
IN_OPEN, IN_NONBLOCK, IN_CLOEXEC = 0x20, 0o4000, 0o2000000
WRITABLE = ("/mnt/data", "/tmp", "/dev/shm")  # noqa: S108 (of the sandbox)


class Watch:
    """What was seen since the start: numbers that only grow, written by one thread."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.programs = self.dropped = self.outward = self.metadata = 0
        self.bait: list[int] = [0] * len(BAIT)
        self.last = ""
        self.listener = -1
        self.bait_laid = 0
        self._told: dict[str, Any] = {}
        self._report_at = 0.0
        self._calls, self._reads, self._paths = 0, READS, PROGRAMS_READ
        self._recent: list[int] = []
        self._baits: dict[int, int] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._files = self._libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        self._begin = _thread.allocate_lock()
        self._begin.acquire()
        _thread.start_new_thread(self._run, ())

    # --- what is set up, by the agent's first thread ---

    def listen(self) -> None:
        """Put the filter around this thread and what it starts; does nothing where the system has no such thing."""
        try:
            program = filter_program(os.uname().machine)
        except LookupError:
            program = b""
        if program:
            column = shield.ARCHITECTURES[os.uname().machine][1]
            buffer = ctypes.create_string_buffer(program, len(program))
            argument = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
            made = self._libc.syscall(SECCOMP[column], SET_MODE_FILTER, NEW_LISTENER, argument)
            if made >= 0:
                self.listener = made
                sys.setswitchinterval(SWITCH_SECONDS)
                self._begin.release()

    def lay_bait(self) -> None:
        """Make the files that are not there yet, and have it told when one of them is opened."""
        for number, (name, text) in enumerate(BAIT):
            path = os.path.join(self.home, name)
            try:
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                try:
                    os.write(file, made_up(text).encode())
                finally:
                    os.close(file)
            except OSError:
                continue  # the image brings one of its own
            watch = self._libc.inotify_add_watch(self._files, path.encode(), IN_OPEN)
            if watch >= 0:
                self._baits[watch] = number
                self.bait_laid += 1

    # --- what is told to the host, by the same thread ---

    def watching(self, kind: type[Any]) -> Any:
        """Return a kind of agent that tells the host what was seen, whenever it writes what is pending."""
        report = self.report

        class WatchingAgent(kind):  # type: ignore[misc]
            def leave(self) -> None:
                report(self)
                super().leave()

        return WatchingAgent

    def report(self, agent: Any) -> None:
        """Tell the host what is new, now and then."""
        now = time.monotonic()
        if now < self._report_at:
            return
        self._report_at = now + REPORT_SECONDS
        self._calls, self._reads, self._paths = 0, READS, PROGRAMS_READ
        self._look_for_opened()
        self._look_at_recent()
        said = {
            "listening": self.listener >= 0,
            "bait": self.bait_laid,
            "programs": self.programs,
            "dropped": self.dropped,
            "outward": self.outward,
            "metadata": self.metadata,
            "opened": [BAIT[number][0] for number, count in enumerate(self.bait) if count],
        }
        if said != self._told:
            self._told = said
            agent.event("behaviour", last=self.last, **said)

    def _look_for_opened(self) -> None:
        try:
            data = os.read(self._files, 4096)
        except OSError:
            return
        at = 0
        while at + 16 <= len(data):
            watch, _, _, length = struct.unpack_from("=iIII", data, at)
            if watch in self._baits:
                self.bait[self._baits[watch]] += 1
            at += 16 + length

    def _look_at_recent(self) -> None:
        """See what became of the programs whose paths were not read: the system says what really runs."""
        recent, self._recent = self._recent, []
        for pid in recent:
            try:
                self._judge(os.readlink("/proc/%d/exe" % pid))
            except OSError:
                continue  # it has ended

    # --- what is seen, by a thread of its own ---

    def _run(self) -> None:
        self._begin.acquire()
        try:
            try:
                fcntl.ioctl(self.listener, SET_FLAGS, WAKE_HERE)
            except OSError:
                pass  # an older system
            self._answer_all()
        finally:
            os._exit(1)  # whoever waits for an answer would wait for ever

    def _answer_all(self) -> None:
        """Answer each call as soon as can be: whoever makes it waits, and its program is in none of the caches."""
        ioctl, listener = fcntl.ioctl, self.listener
        column = shield.ARCHITECTURES[os.uname().machine][1]
        programs = (CALLS["execve"][column], CALLS["execveat"][column])
        while True:
            notice = bytearray(NOTICE.size)
            try:
                ioctl(listener, RECEIVE, notice, True)
                if notice[16] | notice[17] << 8 in programs:
                    self.programs += 1
                    if self._paths > 0:
                        self._paths -= 1
                        self._read(notice, self._program)
                    elif len(self._recent) < RECENT:
                        self._recent.append(int.from_bytes(notice[8:12], sys.byteorder))
                elif self._reads > 0:
                    self._reads -= 1
                    self._read(notice, self._address)
                self._calls += 1
                if self._calls > MANY:
                    time.sleep(BREAK)
                ioctl(listener, SEND, bytes(notice[:8]) + YES)
            except OSError as error:
                if error.errno not in GONE:  # else who asked is gone
                    raise

    def _read(self, notice: bytearray, reads: Callable[[int, int, int, tuple[int, ...]], None]) -> None:
        number, pid, _, call, _, _, *arguments = NOTICE.unpack(notice)
        try:
            reads(number, pid, call, tuple(arguments))
        except (ArithmeticError, LookupError, OSError, ValueError):
            pass  # what is noticed may be anything; that the call goes on matters more

    def _program(self, number: int, pid: int, call: int, arguments: tuple[int, ...]) -> None:
        anywhere = call in CALLS["execveat"]
        text = self._memory(number, pid, arguments[1 if anywhere else 0], PATH_BYTES)
        path = text.split(b"\0")[0].decode("utf-8", "backslashreplace")
        self.last = path or "a file without a name"
        if not path.startswith("/"):
            folder = "cwd" if path and (not anywhere or arguments[0] & 0xFFFFFFFF == 0xFFFFFF9C) else ""
            name = folder or "fd/%d" % (arguments[0] & 0x7FFFFFFF)
            if not anywhere and not path:
                return  # it could not be read
            try:
                path = os.path.join(os.readlink("/proc/%d/%s" % (pid, name)), path)
            except OSError:
                return
        path = os.path.normpath(path)
        self._judge(path)
        if os.path.basename(path).startswith(LOADERS):
            self._loaded(number, pid, arguments[2 if anywhere else 1])

    def _loaded(self, number: int, pid: int, pointer: int) -> None:
        """Judge what a loader is to start: each of its arguments that is a path, also those of its options."""
        pointers = self._memory(number, pid, pointer, WORDS * WORD_BYTES)
        for at in range(WORD_BYTES, len(pointers) - WORD_BYTES + 1, WORD_BYTES):  # behind its own name
            (place,) = struct.unpack_from("=Q", pointers, at)
            if not place:
                return
            word = self._memory(number, pid, place, PATH_BYTES).split(b"\0")[0].decode("utf-8", "backslashreplace")
            try:
                path = os.path.normpath(os.path.join(os.readlink("/proc/%d/cwd" % pid), word))
            except OSError:
                return
            if not word.startswith("-") and ("/" in word or os.path.lexists("/proc/%d/cwd/%s" % (pid, word))):
                before = self.dropped
                self._judge(path)
                if self.dropped > before:
                    return

    def _judge(self, path: str) -> None:
        places = ("/memfd:", "/proc/", "/dev/fd/", *(place + "/" for place in WRITABLE))
        if path.startswith(places):
            self.dropped += 1
            self.last = path

    def _address(self, number: int, pid: int, call: int, arguments: tuple[int, ...]) -> None:
        place, size = self._destination(number, pid, call, arguments)
        text = self._memory(number, pid, place, min(size & 0xFFFFFFFF, 28))
        if len(text) < 8:
            return
        (family,) = struct.unpack_from("=H", text)
        if family == 2:
            address = text[4:8]
        elif family == 10 and len(text) >= 24:
            address = text[8:24]
            if address[:12] == b"\0" * 10 + b"\xff\xff":
                address = address[12:]
        else:
            return
        if (address[:1] == b"\x7f" and len(address) == 4) or not any(address[:-1]):
            return  # the sandbox itself
        self.outward += 1
        self.metadata += address in METADATA
        import socket

        self.last = socket.inet_ntop(2 if len(address) == 4 else 10, address)

    def _destination(self, number: int, pid: int, call: int, arguments: tuple[int, ...]) -> tuple[int, int]:
        """Return where the address of a call lies, and its size; of several messages, that of the first."""
        if call in FAST_OPEN["sendto"]:
            return arguments[4], arguments[5]
        if call in CALLS["connect"]:
            return arguments[1], arguments[2]
        head = self._memory(number, pid, arguments[1], 12)  # the head of a message begins with both
        return struct.unpack("=QI", head) if len(head) == 12 else (0, 0)

    def _memory(self, number: int, pid: int, pointer: int, size: int) -> bytes:
        """Return what lies at a place of another process now; it may be another thing when the call is made."""
        try:
            file = os.open("/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            fcntl.ioctl(self.listener, STILL_THERE, struct.pack("=Q", number))
            room = 4096 - pointer % 4096
            text = os.pread(file, min(size, room), pointer)
            whole = room >= size or b"\0" in text
            return text if whole else text + os.pread(file, size - room, pointer + room)
        except (OSError, OverflowError):
            return b""
        finally:
            os.close(file)


METADATA = (bytes((169, 254, 169, 254)), bytes((169, 254, 170, 2)), bytes((100, 100, 100, 200)),
            bytes.fromhex("fd000ec2000000000000000000000254"))  # fmt: skip
"""Where clouds answer with credentials, whoever asks."""


def filter_program(machine: str) -> bytes:
    """Return the filter as classic BPF. Raises LookupError for a machine whose calls are not known."""
    architecture, column = shield.ARCHITECTURES[machine]
    load, equal, has, verdict = 0x20, 0x15, 0x45, 0x06
    calls = [numbers[column] for numbers in CALLS.values()]
    own = (RECEIVE, SEND, STILL_THERE, SET_FLAGS)
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (verdict, 0, 0, _ALLOW), (load, 0, 0, 0)]
    for number in calls:
        steps += [(equal, 0, 1, number), (verdict, 0, 0, _NOTIFY)]
    for *numbers, flags in FAST_OPEN.values():
        steps += [(equal, 0, 4, numbers[column]), (load, 0, 0, 16 + 8 * flags), (has, 0, 1, MSG_FASTOPEN)]
        steps += [(verdict, 0, 0, _NOTIFY), (verdict, 0, 0, _ALLOW)]
    steps += [(equal, 1, 0, IOCTL[column]), (verdict, 0, 0, _ALLOW), (load, 0, 0, 24)]
    for number in own:
        steps += [(equal, 0, 1, number), (verdict, 0, 0, _REFUSE)]
    steps += [(verdict, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def made_up(text: str) -> str:
    """Return the text of a bait with letters and digits that are nobody's."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

    def some(count: int) -> str:
        return "".join(letters[byte % 62] for byte in os.urandom(count))

    lines = "".join(some(70) + "\n" for _ in range(5))
    return text.format(AWS="AKIA" + some(16).upper(), long=some(40), short=some(24), lines=lines)
