"""PID 1 of the sandbox: carries the messages of a real ipykernel over stdin and stdout.

Runs inside the container, from source that the host ships at start, so it imports the standard library and the modules
shipped beside it; `start` hands it pyzmq, which ipykernel brings. It is trusted until user code runs; after that the
host believes nothing it says. It is a single loop that never blocks: a kernel that floods it is slowed down, not the
commands of the host.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import messages, process, report, wire
from .kernel import Kernel

STDIN, STDOUT = 0, 1
MAX_PENDING = 4 << 20
"""Bytes waiting for the host above which nothing more is read from the kernel."""
DELAY = 0.001
"""Seconds, and what a poller can wait for at least."""
READ = 1 << 18
TIDY_SECONDS = 0.9
"""How long no large message came when memory is given back; less than the loop's longest wait."""
REAPED_AT_ONCE = 64
SMALL = 1 << 16
"""Bytes below which parts are joined, so that a message is one write."""
CHANNELS = ((wire.SHELL, "shell"), (wire.CONTROL, "control"), (wire.STDIN, "stdin"))


class Agent:
    """The loop between the two pipes of the container and the sockets of its kernel."""

    def __init__(self, config: dict[str, Any], kernel: Kernel) -> None:
        self.config = config
        self.decoder = wire.Decoder(config["max_frame"])
        self.pending: collections.deque[memoryview] = collections.deque()
        self.pending_bytes = 0
        self.parked = self.resuming = False
        self.dying: Kernel | None = None
        self.held: list[tuple[int, Sequence[bytes]]] = []
        self.kernels = 1
        self.kernel: Kernel | None = kernel
        self.ooms = report.oom_kills()
        self.meter: report.Meter | None = None
        self.swollen = 0.0
        self.pressing = False
        self.delayed_until = 0.0
        self.blocked = False
        self.more_ended = False
        self.lease = process.Lease()

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
        sockets, identity = kernel.sockets, b"agent-%d" % kernel.number
        for kind, _ in CHANNELS:
            sockets[kind] = self.context.socket(self.zmq.DEALER)
            # ipykernel sends input_request on stdin to the identity that asked on shell.
            sockets[kind].identity = identity
        sockets[wire.IOPUB] = self.context.socket(self.zmq.SUB)
        sockets[wire.IOPUB].subscribe(b"")
        for kind, port in ((wire.SHELL, 1), (wire.IOPUB, 2), (wire.STDIN, 3), (wire.CONTROL, 4)):
            socket = sockets[kind]
            socket.linger = 0
            socket.sndhwm = socket.rcvhwm = 100000
            socket.reconnect_ivl = 5
            socket.connect("ipc://%s-%d" % (kernel.address, port))
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
            if kernel is self.dying:
                self.dying = None
                self.held.clear()  # of a session that is over
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
            # A fresh kernel starts meanwhile. The answer to this is the last frame until the next host says "resume".
            self.stop_kernel()
            self.event("reply", id=request.pop("id"), ok=True)
            self.parked, self.dying = True, self.kernel
            return {}, b""
        if op == "resume":
            self.resuming = True
            return {"ok": True}, b""
        return {"ok": False, "error": "unknown", "message": "the agent knows no " + op}, b""

    def resume(self) -> None:
        """Speak to a host again, which hears of the fresh kernel alone: the one before may not be collected yet."""
        held, self.held, self.parked, self.resuming = self.held, [], False, False
        self.event("resumed", number=self.kernels, ready=bool(self.kernel and self.kernel.ready))
        for kind, parts in held:
            self.send(kind, parts)

    # --- the loop ---

    def begin(self, wake_read: int, zmq: Any, context: Any, status: str, filters: dict[str, int | None]) -> None:
        """Say what the sandbox sees of itself, and connect to the first kernel, which is on its way."""
        self.zmq, self.context = zmq, context
        self.poller = zmq.Poller()
        self.poller.register(STDIN, zmq.POLLIN)
        self.poller.register(wake_read, zmq.POLLIN)
        self.event("hello", report=report.collect(report.own_status(status), filters), number=self.kernels)
        self.flush()
        if self.kernel is not None:
            self.attach(self.kernel)

    def run(self, wake_read: int, give_back_memory: Callable[[], object]) -> None:
        self.give_back_memory = give_back_memory
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
            silent = self.lease.over()
            if STDIN in ready:
                self.receive()
            elif silent:
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
            if self.resuming and self.dying is None:
                self.resume()
            self.leave()

    def tidy(self, congested: bool) -> None:
        """Give back what large messages took, a second after the last of them."""
        if congested:
            self.swollen = time.monotonic()
        elif self.swollen and time.monotonic() - self.swollen > TIDY_SECONDS:
            self.give_back_memory()
            self.swollen = 0.0

    def receive(self) -> None:
        self.lease.renew()
        try:
            data = os.read(STDIN, READ)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)
        for kind, parts in self.decoder.feed(data):
            self.handle(kind, parts)
