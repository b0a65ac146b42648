"""One ipykernel process: how it is started, what it says on its raw outputs, and its end.

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
  "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
  "transport": "ipc", "ip": "%s", "key": "", "signature_scheme": "hmac-sha256"
}
"""
"""The connection file: a path of ours is all that changes."""

DEFAULT = [signal.SIGPIPE, signal.SIGCHLD]
"""Signals that the agent treats in a way of its own, and programs do not.

SIGINT stays ignored, as the agent ignores it: an interrupt would end a kernel that is on its way.
"""


class Kernel:
    """One ipykernel process, and the sockets to it once the agent has connected them."""

    def __init__(self, config: dict[str, Any], number: int) -> None:
        self.number = number
        self.ready = False
        self.tail = b""
        # User code may write here too: a name that it could guess would be one that it could take.
        self.folder = os.path.join(config["runtime"], "k%d-%s" % (number, os.urandom(8).hex()))
        os.makedirs(self.folder, 0o700)
        self.address = os.path.join(self.folder, "s")
        path = os.path.join(self.folder, "connection.json")
        # The key is empty on purpose: the sockets are files of this container, and whatever runs in it could read a
        # key too. Who may talk to the front end is decided on the host.
        with open(path, "w") as file:
            file.write(CONNECTION % self.address)
        errors, write = os.pipe()
        os.set_blocking(errors, False)
        self.stderr: int | None = errors
        null = os.open(os.devnull, os.O_RDONLY)
        words = config["kernel"] + (config.get("first", []) if number == 1 else [])
        argv = [sys.executable] + [arg.replace("{connection_file}", path) for arg in words]
        os.chdir(config["scratch"])
        try:
            # A session of its own, so that an interrupt reaches the kernel and its children only.
            self.pid = spawn(argv, config["environment"], null, write)
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
        before = None
        while self.tail != before:
            before = self.tail
            if not self.drain_stderr():
                break
        if self.stderr is not None:
            os.close(self.stderr)
            self.stderr = None


def spawn(argv: list[str], environment: dict[str, str], stdin: int, output: int) -> int:
    """Start a program in a session of its own; return its process."""
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=DEFAULT)
