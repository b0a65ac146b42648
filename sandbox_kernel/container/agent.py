"""PID 1 of the sandbox: starts a real ipykernel and carries its messages over stdin and stdout.

Runs inside the container, from source that the host ships at start, so it imports the standard library, the modules
shipped beside it, and pyzmq, which ipykernel brings. It is trusted until user code runs; after that the host believes
nothing it says. It is a single loop that never blocks: a kernel that floods it is slowed down, not the commands of the
host.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from . import messages, process, report, shield, wire

STDIN, STDOUT = 0, 1
MAX_PENDING = 4 << 20
"""Bytes waiting for the host above which nothing more is read from the kernel."""
TAIL = 8192
"""Bytes kept of what the kernel writes to its raw stdout and stderr, to explain its death."""
DELAY = 0.001
"""Seconds, and what a poller can wait for at least."""
LEASE = 60.0
"""Seconds of silence after which the host is taken for dead; it sends a ping every few seconds."""
READ = 1 << 18
TIDY_SECONDS = 0.9
"""How long no large message came when memory is given back; less than the loop's longest wait."""
REAPED_AT_ONCE = 64
SMALL = 1 << 16
"""Bytes below which parts are joined, so that a message is one write."""
CHANNELS = ((wire.SHELL, "shell"), (wire.CONTROL, "control"), (wire.STDIN, "stdin"))


class Kernel:
    """One ipykernel process and the sockets to it."""

    def __init__(self, config: dict[str, Any], number: int) -> None:
        self.number = number
        self.ready = False
        self.tail = b""
        # User code may write here too: a name that it could guess would be one that it could take.
        self.folder = os.path.join(config["runtime"], "k%d-%s" % (number, os.urandom(8).hex()))
        os.makedirs(self.folder, 0o700)
        self.address = os.path.join(self.folder, "s")
        path = os.path.join(self.folder, "connection.json")
        ports = {name + "_port": i + 1 for i, name in enumerate(("shell", "iopub", "stdin", "control", "hb"))}
        # The key is empty on purpose: the sockets are files of this container, and whatever runs in it could read a
        # key too. Who may talk to the front end is decided on the host.
        info = dict(ports, transport="ipc", ip=self.address, key="", signature_scheme="hmac-sha256")
        with open(path, "w") as file:
            json.dump(info, file)
        errors, write = os.pipe()
        os.set_blocking(errors, False)
        self.stderr: int | None = errors
        null = os.open(os.devnull, os.O_RDONLY)
        argv = [sys.executable] + [arg.replace("{connection_file}", path) for arg in config["kernel"]]
        actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2)]
        os.chdir(config["scratch"])
        try:
            # A session of its own, so that an interrupt can reach the kernel and its children, and nobody else.
            self.pid = os.posix_spawn(
                argv[0],
                argv,
                config["environment"],
                file_actions=actions,
                setsid=True,
                setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD],
            )
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

    def connect(self, zmq: Any, context: Any) -> None:
        identity = b"agent-%d" % self.number
        for kind, _ in CHANNELS:
            self.sockets[kind] = context.socket(zmq.DEALER)
            # ipykernel sends input_request on stdin to the identity that asked on shell.
            self.sockets[kind].identity = identity
        self.sockets[wire.IOPUB] = context.socket(zmq.SUB)
        self.sockets[wire.IOPUB].subscribe(b"")
        for kind, port in ((wire.SHELL, 1), (wire.IOPUB, 2), (wire.STDIN, 3), (wire.CONTROL, 4)):
            socket = self.sockets[kind]
            socket.linger = 0
            socket.sndhwm = socket.rcvhwm = 100000
            socket.reconnect_ivl = 5
            socket.connect("ipc://%s-%d" % (self.address, port))

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


class Agent:
    """The loop between the two pipes of the container and the sockets of its kernel."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.decoder = wire.Decoder(config["max_frame"])
        self.pending: collections.deque[memoryview] = collections.deque()
        self.pending_bytes = 0
        self.parked = False
        self.held: list[tuple[int, Sequence[bytes]]] = []
        self.kernels = 0
        self.kernel: Kernel | None = None
        self.ooms = 0
        self.meter: report.Meter | None = None
        self.swollen = 0.0
        self.pressing = False
        self.delayed_until = 0.0
        self.blocked = False
        self.more_ended = False
        self.heard = time.monotonic()

    # --- towards the host ---

    def send(self, kind: int, parts: Sequence[bytes]) -> None:
        if self.parked:
            self.held.append((kind, parts))
            return
        self.pressing = self.pressing or not messages.precedes(kind, parts)
        small: list[bytes] = []
        for data in wire.encode(kind, parts):
            if len(data) < SMALL:
                small.append(data)
            else:
                self.enqueue(b"".join(small))
                self.enqueue(data)
                small = []
        self.enqueue(b"".join(small))

    def enqueue(self, data: bytes) -> None:
        if data:
            self.pending.append(memoryview(data))
            self.pending_bytes += len(data)

    def event(self, op: str, **fields: object) -> None:
        self.send(wire.AGENT, [json.dumps(dict(fields, op=op)).encode()])

    def leave(self) -> None:
        """Write what is pending, but let what only precedes something else wait for that, for a moment.

        Each write wakes the engine, its shim and the host: five of them for a cell cost more than its code.
        """
        now = time.monotonic()
        if self.pending and self.pending_bytes < SMALL and not (self.pressing or self.blocked):
            self.delayed_until = self.delayed_until or now + DELAY
            if now < self.delayed_until:
                return
        self.pressing, self.delayed_until = False, 0.0
        self.flush()
        self.blocked = bool(self.pending)

    def flush(self) -> None:
        while self.pending:
            try:
                count = os.writev(STDOUT, list(itertools.islice(self.pending, 64)))
            except BlockingIOError:
                return
            except OSError:
                os._exit(0)
            self.pending_bytes -= count
            while self.pending and count >= len(self.pending[0]):
                count -= len(self.pending.popleft())
            if count:
                self.pending[0] = self.pending[0][count:]

    # --- the kernel ---

    def spawn(self) -> Kernel:
        self.kernels += 1
        self.kernel = Kernel(self.config, self.kernels)
        self.ooms = report.oom_kills()
        return self.kernel

    def attach(self, kernel: Kernel) -> None:
        kernel.connect(self.zmq, self.context)
        for socket in kernel.sockets.values():
            self.poller.register(socket, self.zmq.POLLIN)
        self.poller.register(kernel.stderr, self.zmq.POLLIN)

    def stop_kernel(self) -> None:
        """Kill every process but this one; the death is reported when it is seen."""
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def reap(self) -> None:
        """Collect ended processes, a bounded number: who makes orphans as fast as they end must not hold the loop."""
        for _ in range(REAPED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                self.more_ended = False
                return
            if self.kernel is not None and pid == self.kernel.pid:
                self.stop_kernel()
                self.release(self.kernel, status)
        self.more_ended = True

    def release(self, kernel: Kernel, status: int) -> None:
        self.kernel = None
        # What it said last still counts, unless its session is over.
        while not self.parked and self.pending_bytes < 4 * MAX_PENDING:
            if not (self.forward(kernel, wire.IOPUB) or self.forward(kernel, wire.SHELL)):
                break
        for socket in kernel.sockets.values():
            self.poller.unregister(socket)
        if kernel.stderr is not None and kernel.sockets:
            self.poller.unregister(kernel.stderr)
        kernel.close()
        ooms = report.oom_kills()
        if self.parked:
            return
        self.event(
            "kernel_exited",
            number=kernel.number,
            code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            ooms=max(0, ooms - self.ooms),
            tail=kernel.tail.decode(errors="replace"),
        )

    def forward(self, kernel: Kernel, kind: int) -> bool:
        """Send one message of the kernel to the host; returns whether there was one."""
        socket = kernel.sockets.get(kind)
        if socket is None:
            return False
        try:
            parts = messages.receive(socket, self.zmq.NOBLOCK)
        except self.zmq.Again:
            return False
        if parts is None:
            return True
        if kind == wire.IOPUB and not kernel.ready:
            # The kernel's iopub_welcome, or anything else it publishes, shows that the subscription is in force.
            kernel.ready = True
            self.event("kernel_ready", number=kernel.number)
        limit = self.config["max_frame"] - 65536
        whole = kind != wire.IOPUB or sum(map(len, parts)) >= 2 * limit
        for piece in (parts,) if whole else messages.cut(parts):
            size = sum(map(len, piece))
            if size > limit:
                self.swollen = time.monotonic()
                parent = b"".join(piece[1:2])[:4096].decode(errors="replace")
                self.event("oversized", channel=kind, bytes=size, parent=parent)
            elif len(piece) <= wire.MAX_PARTS:
                self.send(kind, piece)
        return True

    # --- commands of the host ---

    def handle(self, kind: int, parts: Sequence[bytes]) -> None:
        if kind == wire.AGENT:
            request = json.loads(parts[0])
            reply, data = self.command(request["op"], request, parts[1] if len(parts) > 1 else b"")
            if "id" in request:
                reply = dict(reply, op="reply", id=request["id"])
                self.send(wire.AGENT, [json.dumps(reply).encode(), data] if data else [json.dumps(reply).encode()])
        elif self.kernel is not None and kind in self.kernel.sockets:
            try:
                self.kernel.sockets[kind].send_multipart([messages.DELIMITER, b"", *parts], self.zmq.NOBLOCK)
            except self.zmq.Again:
                self.event("refused", channel=kind)

    def command(self, op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        if op.startswith("file."):
            from . import files

            return files.handle(op, request, data)
        if op == "ping":
            return {"ok": True}, b""
        if op == "usage":
            return dict(report.usage(), ok=True), b""
        if op == "meter":
            # One at a time: a new one takes the place of the one before. Without "start", it is read and ended.
            meter, self.meter = self.meter, report.Meter() if request.get("start") else None
            return dict(meter.read() if meter is not None else {}, ok=True), b""
        if op == "signal":
            if self.kernel is None:
                return {"ok": False, "error": "no-kernel", "message": "no kernel is running"}, b""
            os.killpg(self.kernel.pid, int(request["signal"]))
            return {"ok": True}, b""
        if op == "stop_kernel":
            self.stop_kernel()
            return {"ok": True}, b""
        if op == "start_kernel":
            if self.kernel is None:
                self.attach(self.spawn())
            return {"ok": True, "number": self.kernels}, b""
        if op == "park":
            # The host is about to change: a fresh kernel starts meanwhile, and nothing is sent until the next one
            # says "resume", so that the old host's last frame is the answer to this request.
            self.stop_kernel()
            reply = [json.dumps({"op": "reply", "id": request.pop("id"), "ok": True}).encode()]
            self.send(wire.AGENT, reply)
            self.parked = True
            return {}, b""
        if op == "resume":
            held, self.held, self.parked = self.held, [], False
            kernel = self.kernel
            self.event("resumed", number=self.kernels if kernel else 0, ready=bool(kernel and kernel.ready))
            for frame in held:
                self.send(*frame)
            return {"ok": True}, b""
        return {"ok": False, "error": "unknown", "message": "the agent knows no " + op}, b""

    # --- the loop ---

    def begin(self) -> int:
        """Start the first kernel; return the end of the pipe that says when a process has ended."""
        wake_read = process.prepare_pipes(STDIN, STDOUT)
        self.give_back_memory = process.settle()
        import zmq

        self.zmq: Any = zmq
        self.context: Any = zmq.Context()
        self.poller: Any = zmq.Poller()
        self.poller.register(STDIN, zmq.POLLIN)
        self.poller.register(wake_read, zmq.POLLIN)
        self.context.socket(zmq.PAIR).close()  # with the first socket, the library starts its threads
        status = report.own_status()
        shield.raise_shield()
        kernel = self.spawn()
        self.event("hello", report=report.collect(status), number=self.kernels)
        self.flush()
        self.attach(kernel)
        return wake_read

    def run(self) -> None:
        wake_read = self.begin()
        poller = self.poller
        stdout_polled = False
        while True:
            congested = self.pending_bytes > MAX_PENDING
            if self.blocked != stdout_polled:
                stdout_polled = not stdout_polled
                if stdout_polled:
                    poller.register(STDOUT, self.zmq.POLLOUT)
                else:
                    poller.unregister(STDOUT)
            # Only the pipes when congested: a kernel socket that stays readable would make this loop spin.
            pause = 1000 if self.meter is None else 1000 * self.meter.INTERVAL
            if self.delayed_until:
                pause = 1000 * DELAY
            if self.more_ended:
                pause = 0
            ready = process.wait_for_pipes(STDIN, wake_read, STDOUT) if congested else dict(poller.poll(pause))
            if self.meter is not None:
                self.meter.sample()
            self.tidy(congested)
            if STDIN in ready:
                self.receive()
            elif time.monotonic() - self.heard > LEASE:
                os._exit(0)
            if wake_read in ready:
                os.read(wake_read, 4096)
            kernel = self.kernel
            if kernel is not None and not congested:
                for kind in (wire.IOPUB, wire.SHELL, wire.CONTROL, wire.STDIN):
                    if kernel.sockets.get(kind) in ready:
                        for _ in range(100):
                            if self.pending_bytes > MAX_PENDING or not self.forward(kernel, kind):
                                break
                errors = kernel.stderr
                if errors is not None and errors in ready and not kernel.drain_stderr():
                    poller.unregister(errors)
                    os.close(errors)
                    kernel.stderr = None
            if wake_read in ready or kernel is None or self.more_ended:
                self.reap()
            if self.parked and self.kernel is None:
                self.attach(self.spawn())
            self.leave()

    def tidy(self, congested: bool) -> None:
        """Give back what large messages took, a second after the last of them."""
        if congested:
            self.swollen = time.monotonic()
        elif self.swollen and time.monotonic() - self.swollen > TIDY_SECONDS:
            self.give_back_memory()
            self.swollen = 0.0

    def receive(self) -> None:
        self.heard = time.monotonic()
        try:
            data = os.read(STDIN, READ)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)
        for kind, parts in self.decoder.feed(data):
            self.handle(kind, parts)


def prepare(config: dict[str, Any]) -> None:
    """Make the folders that the kernel expects; the image may bring a prepared home."""
    os.umask(0o077)
    home = config["environment"]["HOME"]
    os.makedirs(config["runtime"], 0o700, exist_ok=True)
    if os.path.isdir(config["home"]):
        import shutil

        shutil.copytree(config["home"], home, dirs_exist_ok=True)
    os.makedirs(home, 0o700, exist_ok=True)


def main() -> None:
    config = json.loads(sys.argv[1])
    prepare(config)
    Agent(config).run()
