"""The first process of a virtual machine: makes a sandbox in it, hands its pipe on, and says how it ended.

A machine has one sandbox, and a kernel of its own around it. This process is root there and stands outside of the
sandbox, which `confinement` makes: it then only carries bytes between the one serial port and the sandbox's stdin and
stdout. By a second port of the same device, which no process of the sandbox has, the host says what to start and is
told how that ended. After a restore from a snapshot the host says the time and seeds the kernel's random numbers, and
nothing of the sandbox runs before. Of a machine of which a state is taken it watches who draws random numbers.
Runs in the machine, where the host ships its source: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import re
import select
import signal
import struct
import sys
import time
from typing import Any, NoReturn

from .confinement import (
    GROUP,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    become,
    called,
    libc,
    limit,
    mount,
    separate,
    write,
)

PORTS = "/sys/class/virtio-ports"
READ = 1 << 15
"""The port takes so much at a time."""
TAIL = 8192
LINE = 4 << 20
"""The longest line of the host's: a start, with the variables of a root."""
FREEZE_SECONDS = 10.0
LAST_SECONDS = 5.0
"""How long the last bytes may take to be read by a host that cannot say that it has them."""

POWER_OFF = 0x4321FEDC
RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207
SWITCHES = {
    "vm/overcommit_memory": "1",  # the limit is the cgroup's, as on a host that has more memory than one sandbox
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_bpf_disabled": "1",
    "kernel/dmesg_restrict": "1",
    "kernel/kptr_restrict": "2",
}


def port(name: str) -> int:
    """Open one of the machine's serial ports."""
    for entry in os.listdir(PORTS):
        with open(os.path.join(PORTS, entry, "name")) as file:
            if file.read().strip() == name:
                return os.open("/dev/" + entry, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    raise OSError(errno.ENODEV, "the machine has no port " + name)


def leave() -> NoReturn:
    """Switch the machine off."""
    libc.reboot(POWER_OFF)
    os._exit(0)


class Draws:
    """Who draws random numbers of this machine's kernel, as the kernel's own tracing sees it.

    Every way to them leads through these functions: the system call, both devices, and the kernel's file of UUIDs. The
    processor's own instructions and the vDSO, which no trace sees, are switched off (`plugins/qemu/hardware.py`).
    """

    FOLDER = "/sys/kernel/tracing"
    FUNCTIONS = ("get_random_bytes_user", "proc_do_uuid")
    MARK = re.compile(r"sys_getrandom\(.*: 1, flags: 2\)")
    """How a kernel says that it loads the next of what may draw nothing (`gate`): nothing else asks for this."""
    ROW = re.compile(r"^ *.{1,16}-(\d+) +\[\d+\] \S+ +[\d.]+: (.*)$", re.MULTILINE)

    def __init__(self) -> None:
        """Begin to watch. Raises OSError where the kernel cannot."""
        mount("tracefs", self.FOLDER, "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        probes = ["p:draws/%s %s\n" % (function, function) for function in self.FUNCTIONS]
        write(self.FOLDER + "/kprobe_events", "".join(probes))
        write(self.FOLDER + "/events/syscalls/sys_enter_getrandom/enable", "1")
        write(self.FOLDER + "/events/draws/enable", "1")

    def end(self, agent: int) -> dict[str, object]:
        """Return how many marks there were, and after which of them anyone drew but the agent; watch no more."""
        write(self.FOLDER + "/tracing_on", "0")
        with open(self.FOLDER + "/trace") as file:
            rows = [(int(pid), what) for pid, what in self.ROW.findall(file.read())]
        write(self.FOLDER + "/events/enable", "0")
        write(self.FOLDER + "/kprobe_events", "")
        called(libc.umount2(self.FOLDER.encode(), 0), "umount")
        marks, drew, of_mark = 0, set(), False
        for pid, what in rows:
            if self.MARK.match(what):
                marks, of_mark = marks + 1, True
            elif of_mark:
                of_mark = False  # what the mark itself drew
            elif marks and pid not in {os.getpid(), agent}:
                drew.add(marks)
        return {"marks": marks, "drew": sorted(drew)}


class Words:
    """The second port: one line of JSON for each thing that is said."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.received = b""
        self.over = False
        """Whether the host listens no more: another process of its has taken the sandbox over, which has one pipe."""

    def say(self, op: str, **fields: object) -> None:
        data = json.dumps(dict(fields, op=op)).encode() + b"\n"
        while data and not self.over:
            try:
                data = data[os.write(self.fd, data[:READ]) :]
            except BlockingIOError:
                select.select([], [self.fd], [], 1.0)
            except OSError:
                self.over = True

    def hear(self) -> list[dict[str, Any]]:
        """Return what has come, whole lines only."""
        try:
            data = os.read(self.fd, READ)
        except BlockingIOError:
            return []
        if not data or len(self.received) > LINE:
            self.over = True
            return []
        *lines, self.received = (self.received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def wait(self, op: str) -> dict[str, Any]:
        """Return the next thing that is said, which must be this."""
        while not self.over:
            select.select([self.fd], [], [])
            for said in self.hear():
                if said["op"] == op:
                    return said
        leave()


class Sandbox:
    """The sandbox's first process, and the pipes to it."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        """Start it. Raises OSError if that cannot be done; its text is the sandbox's, or the system's."""
        limit(wanted)
        ways = [os.pipe() for _ in range(3)]
        said, failed = os.pipe()
        helper = os.fork()
        if not helper:
            try:
                write(GROUP + "/cgroup.procs", "0")
                separate()
                child = os.fork()
                if child:
                    os.write(failed, b"%d\n" % child)
                    os._exit(0)
                os.close(said)
                become(wanted, (ways[0][0], ways[1][1], ways[2][1]))
            except BaseException as error:  # whatever it was, the host is told
                os.write(failed, ("! %s\n" % error).encode("utf-8", "replace"))
                os._exit(127)
        for fd in (ways[0][0], ways[1][1], ways[2][1], failed):
            os.close(fd)
        with os.fdopen(said, "rb") as file:  # it ends with the program's start
            rows = file.read().decode("utf-8", "replace").splitlines()
        if why := [row[2:] for row in rows if row.startswith("! ")]:
            raise OSError(why[0])
        self.pid = int(rows[0])
        self.stdin, self.stdout, self.stderr = ways[0][1], ways[1][0], ways[2][0]
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)
        self.killed = ooms()


def ooms() -> int:
    with open(GROUP + "/memory.events") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))


# --- the loop -------------------------------------------------------------------------------------------------------


class Carrier:
    """Carries bytes both ways, holding no more than one piece each way, until the sandbox has ended."""

    def __init__(self, pipe: int, words: Words, sandbox: Sandbox, wake: int, draws: Draws | None) -> None:
        self.pipe, self.words, self.sandbox, self.wake, self.draws = pipe, words, sandbox, wake, draws
        self.inward = self.outward = b""
        self.written = 0
        self.tail = b""
        self.status: int | None = None

    def run(self) -> None:
        one = self.sandbox
        open_ = {one.stdout, one.stderr}
        while self.status is None or open_ or self.outward:
            poll = select.poll()
            if not self.words.over:
                poll.register(self.words.fd, select.POLLIN)
            poll.register(self.wake, select.POLLIN)
            # A hang-up is told without being asked for, so a port is looked at only when there is something to do.
            events = (0 if self.inward else select.POLLIN) | (select.POLLOUT if self.outward else 0)
            if events:
                poll.register(self.pipe, events)
            if self.inward and self.status is None:
                poll.register(one.stdin, select.POLLOUT)
            if one.stdout in open_ and not self.outward:
                poll.register(one.stdout, select.POLLIN)
            if one.stderr in open_:
                poll.register(one.stderr, select.POLLIN)
            ready = dict(poll.poll())
            if self.wake in ready:
                os.read(self.wake, 4096)
                self.reap()
            if self.words.fd in ready:
                for said in self.words.hear():
                    self.told(said)
            if self.pipe in ready:
                self.serve_port(ready[self.pipe])
            if self.inward:
                self.give()
            if one.stdout in ready and not self.outward:
                self.outward = take(one.stdout, open_)
                self.push()
            if one.stderr in ready:
                self.tail = (self.tail + take(one.stderr, open_))[-TAIL:]

    def serve_port(self, events: int) -> None:
        if events & select.POLLOUT:
            self.push()
        if events & select.POLLIN and not self.inward:
            try:
                self.inward = os.read(self.pipe, READ)
            except BlockingIOError:
                return
            if not self.inward:
                leave()  # the host has gone
        elif events & select.POLLHUP:
            leave()

    def give(self) -> None:
        if self.status is not None:
            self.inward = b""  # nobody reads it any more
            return
        try:
            self.inward = self.inward[os.write(self.sandbox.stdin, self.inward) :]
        except BlockingIOError:
            return
        except OSError:
            self.inward = b""

    def push(self) -> None:
        if not self.outward:
            return
        try:
            count = os.write(self.pipe, self.outward)
        except BlockingIOError:
            return
        self.written += count
        self.outward = self.outward[count:]

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.sandbox.pid:
                self.status = status

    def told(self, said: dict[str, Any]) -> None:
        """Do what the host says: stand still for a snapshot, go on, or begin anew as another machine."""
        if said["op"] == "freeze":
            self.words.say("frozen", ok=freeze(True))
        elif said["op"] == "thaw":
            if "seed" in said:
                begin_anew(base64.b64decode(said["seed"]), said["time_ns"])
            self.words.say("thawed", ok=freeze(False))
        elif said["op"] == "draws" and self.draws is not None:
            draws, self.draws = self.draws, None
            self.words.say("draws", **draws.end(self.sandbox.pid))
        elif said["op"] == "clock":
            time.clock_settime_ns(time.CLOCK_REALTIME, said["time_ns"])
            self.words.say("clock")

    def end(self) -> None:
        status = self.status or 0
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        self.words.say(
            "ended",
            code=code,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            ooms=ooms() - self.sandbox.killed,
            tail=self.tail.decode("utf-8", "replace"),
            written=self.written,
        )


def take(fd: int, open_: set[int]) -> bytes:
    try:
        data = os.read(fd, READ)
    except BlockingIOError:
        return b""
    if not data:
        open_.discard(fd)
    return data


def freeze(still: bool) -> bool:
    """Stop all processes of the sandbox, or let them go on; return whether that was so in time."""
    write(GROUP + "/cgroup.freeze", "1" if still else "0")
    until = time.monotonic() + FREEZE_SECONDS
    wanted = "frozen %d" % still
    while time.monotonic() < until:
        with open(GROUP + "/cgroup.events") as file:
            if wanted in file.read().splitlines():
                return True
        time.sleep(0.001)
    return False


def begin_anew(seed: bytes, time_ns: int) -> None:
    """Set the clock, and mix the host's seed into the random numbers of the kernel, which are a copy's until then."""
    time.clock_settime_ns(time.CLOCK_REALTIME, time_ns)
    with open("/dev/urandom", "wb", buffering=0) as device:
        fcntl.ioctl(device, RNDADDENTROPY, struct.pack("ii", len(seed) * 8, len(seed)) + seed)
        fcntl.ioctl(device, RNDRESEEDCRNG)


def main() -> None:
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake, waken = os.pipe()
    for fd in (wake, waken):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(waken, warn_on_full_buffer=False)
    for name, value in SWITCHES.items():
        write("/proc/sys/" + name, value)
    pipe, words = port("pipe"), Words(port("words"))
    words.say("up")
    wanted = words.wait("start")
    begin_anew(base64.b64decode(wanted.pop("seed")), wanted.pop("time_ns"))
    try:
        draws = Draws() if wanted.pop("watched_draws") else None
        sandbox = Sandbox(wanted)
    except OSError as error:
        words.say("refused", why=str(error))
        words.wait("never")
    words.say("started")
    carrier = Carrier(pipe, words, sandbox, wake, draws)
    carrier.run()
    carrier.end()
    if words.over:
        time.sleep(LAST_SECONDS)
    words.wait("never")


def run() -> None:
    """Be the machine's first process."""
    try:
        main()
    except BaseException as error:  # the machine has nothing else to say it with
        sys.stderr.write("%r\n" % error)
        leave()
