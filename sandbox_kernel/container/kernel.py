"""One kernel process: how it is started, what it says on its raw outputs, and its end.

Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later. A start
waits for this module, so it imports little.
"""

from __future__ import annotations

import os
import signal
import sys

from . import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READ = 1 << 18
TAIL = 8192
"""Bytes kept of what the kernel writes to its raw stdout and stderr, to explain its death."""
CONNECTION = """{
  "shell_port": %d, "iopub_port": %d, "stdin_port": %d, "control_port": %d, "hb_port": %d,
  "transport": "%s", "ip": "%s", "key": "", "signature_scheme": "hmac-sha256"
}
"""
"""The connection file."""
LOOPBACK = "127.0.0.1"
PORTS = (1, 2, 3, 4, 5)
"""Of shell, iopub, stdin, control and heartbeat. With transport ipc, each is a part of a file's name."""

DEFAULT = [signal.SIGPIPE, signal.SIGCHLD]
"""Signals that the agent treats in a way of its own, and programs do not.

SIGINT stays ignored, as the agent ignores it: an interrupt would end a kernel that is on its way.
"""
ALL_DEFAULT = [*DEFAULT, signal.SIGINT]
"""The same for kernels of other languages: some never change what they find. None is interrupted on its way."""


class Kernel:
    """One kernel process, and the sockets to it once the agent has connected them."""

    def __init__(self, config: dict[str, Any], number: int) -> None:
        self.number = number
        self.ready = False
        self.tail = b""
        # User code may write here too: a name that it could guess would be one that it could take.
        self.folder = os.path.join(config["runtime"], "k%d-%s" % (number, os.urandom(8).hex()))
        os.makedirs(self.folder, 0o700)
        path = os.path.join(self.folder, "s")
        # What the image's kernelspec says, if the kernel is not the Python that every image has.
        self.spec: dict[str, Any] | None = config.get("program")
        if self.spec is not None and self.spec["transport"] == "tcp":
            ports = free_ports(len(PORTS))
            connection = CONNECTION % (*ports, "tcp", LOOPBACK)
            self.addresses: list[Any] = [(LOOPBACK, port) for port in ports]
        else:
            connection = CONNECTION % (*PORTS, "ipc", path)
            self.addresses = ["%s-%d" % (path, port) for port in PORTS]
        path = os.path.join(self.folder, "connection.json")
        # The key is empty on purpose: the sockets are files of this container, and whatever runs in it could read a
        # key too. Who may talk to the front end is decided on the host.
        with open(path, "w") as file:
            file.write(connection)
        self.program = os.path.join(self.folder, "kernel.py")
        if self.spec is None:
            with open(self.program, "w") as file:
                file.write(program(config, number))
        errors, write = os.pipe()
        os.set_blocking(errors, False)
        self.stderr: int | None = errors
        null = os.open(os.devnull, os.O_RDONLY)
        words = [sys.executable, self.program, *config["kernel"]]
        words = words if self.spec is None else self.spec["argv"]
        argv = [arg.replace("{connection_file}", path) for arg in words]
        environment = config["environment"] if self.spec is None else dict(config["environment"], **self.spec["env"])
        os.chdir(config["scratch"])
        try:
            # A session of its own, so that an interrupt reaches the kernel and its children only.
            self.pid = spawn(argv, environment, null, write, DEFAULT if self.spec is None else ALL_DEFAULT)
        finally:
            os.close(write)
            os.close(null)
        try:
            # Should memory run out, the system is to end the kernel and not this process.
            with open("/proc/%d/oom_score_adj" % self.pid, "w") as file:
                file.write("1000")
            # And however many processes want the processor, this one is to hear that the host has gone.
            os.setpriority(os.PRIO_PROCESS, self.pid, process.NICENESS)
        except OSError:
            pass
        self.sockets: dict[int, Any] = {}
        self.idle: list[Any] | None = None
        """The idle of a cell that is held back, as more of its outputs may come."""
        self.quiet = 0
        """Answers since the last of them."""
        self.idle_until = 0.0

    def drain_stderr(self) -> bool:
        if self.stderr is None:
            return False
        try:
            data = os.read(self.stderr, READ)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self.tail = (self.tail + data)[-TAIL:]
        return bool(data)

    def has_more(self) -> bool:
        """Return whether something has come that is not taken yet: nothing more may come that ends a wait."""
        return any(channel.ahead for channel in self.sockets.values())

    def close(self) -> None:
        for socket in self.sockets.values():
            socket.close()
        self.sockets = {}
        try:
            os.unlink(self.program)
        except OSError:  # it has none, or a cell was quicker
            pass
        before = None
        while self.tail != before:
            before = self.tail
            if not self.drain_stderr():
                break
        if self.stderr is not None:
            os.close(self.stderr)
            self.stderr = None


def program(config: dict[str, Any], number: int) -> str:
    """Return the program of the kernel with this number; it is written to a file.

    Whoever looks at the process sees what it is, and can read it. A kernel's cells could change the file of the next
    one only from a process that outlives them: there is none, and its folder's name is not known before. The kernels of
    further agents could, while it is read. They may do with each other what they like: each takes orders by sockets
    without a key, and runs what another has put into their home.
    """
    first = config.get("first", {}) if number == 1 else {}
    lines, before = config["lines"] + first.get("lines", []), first.get("before", [])
    return """\
prepared, module = {}, {"__name__": "kernel_launcher"}
exec(%a, prepared)
exec(prepared["compiled"](%a, "<frozen kernel_launcher>"), module)
module["main"](%a, %a, prepared["compiled"], prepared["codes"].clear)
""" % (config["prepared"], config["launcher"], lines, before)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody has; a cell could take one before the kernel does, and harm itself."""
    import _socket  # kernels that know no ipc are few

    sockets = [_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM) for _ in range(count)]
    for one in sockets:
        one.bind((LOOPBACK, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def spawn(argv: list[str], environment: dict[str, str], stdin: int, output: int, default: list[Any] = DEFAULT) -> int:
    """Start a program in a session of its own; return its process."""
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=default)
