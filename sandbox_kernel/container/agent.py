"""PID 1 of the sandbox: carries the messages of a real Jupyter kernel over stdin and stdout.

Runs inside the container, from source that the host ships at start, so it imports the standard library and the modules
shipped beside it. It is trusted until user code runs; after that the host believes nothing it says. It is a single loop
that never blocks: a kernel that floods it is slowed down, not the commands of the host.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence

from . import agent_report, kernel_messages, process, wire
from .kernel import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STDIN, STDOUT = 0, 1
MAX_PENDING = 4 << 20
"""Bytes waiting for the host above which nothing more is read from the kernel."""
DELAY = 0.001
"""Seconds, and what a poller can wait for at least."""
RETRY = 0.002
"""Seconds from one try to connect to a kernel to the next."""
ASK = 0.05
"""Seconds from one question to the next, to a kernel of another language that has not published anything yet."""
READ = 1 << 18
TIDY_SECONDS = 0.9
"""How long no large message came when memory is given back; less than the loop's longest wait."""
REAPED_AT_ONCE = 64
SMALL = 1 << 16
"""Bytes below which parts are joined, so that a message is one write."""
LAST_READS = 256
"""Bytes of a dead kernel's last unread output."""
LONE_SECONDS = 0.1
"""How long it is not told that something else than the host killed the kernel. A machine or an engine that goes ends
the processes of a sandbox one after the other in any order: the end of this one is the truth then, and files are lost.
"""
QUIET_ANSWERS, LATE_SECONDS = 3, 10.0
"""Answers of a kernel in a row, without an output before them, after which no more of a cell comes. It is asked for no
longer than that.
"""


class Agent:
    """The loop between the two pipes of the container and the sockets of its kernel."""

    def __init__(self, config: dict[str, Any], kernel: Kernel | None) -> None:
        self.config = config
        self.decoder = wire.Decoder(config["max_frame"])
        self.limit = config["max_frame"] - 65536
        self.pending: collections.deque[memoryview] = collections.deque()
        self.pending_bytes = 0
        self.parked = self.resuming = False
        self.dying: Kernel | None = None
        self.stopped: Kernel | None = None
        """The kernel that the host wanted ended."""
        self.held: list[tuple[int, Sequence[bytes]]] = []
        self.kernels = 1
        self.kernel = kernel
        self.ooms = agent_report.oom_kills()
        self.meter: agent_report.Meter | None = None
        self.swollen = self.delayed_until = self.next_try = self.next_question = 0.0
        self.token = "agent-" + os.urandom(8).hex()
        self.pressing = self.blocked = self.more_ended = self.apart = False
        self.lease = process.SilenceLease()
        self.poller = select.poll()
        self.claimable = "warm" in config
        self.unowned = "unattended" in config
        """Nobody is there yet. Whoever comes must hear nothing that is older than the claim."""
        self.watch: Any = None
        """Who sees which calls are tried, where that is wanted (`call_watch`)."""
        self.nested: Any = None
        """Further agents of the sandbox, once there was one (`nested_agents`)."""

    # --- towards the host ---

    def send(self, kind: int, parts: Sequence[bytes]) -> None:
        if self.unowned:
            return
        if self.parked:
            self.held.append((kind, parts))
            return
        self.pressing = self.pressing or not kernel_messages.precedes(kind, parts)
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
        self.ooms = agent_report.oom_kills()
        return self.kernel

    def attach(self, kernel: Kernel) -> None:
        kernel.sockets = kernel_messages.channels(kernel.addresses, kernel.number, 2 * self.limit, self.poller)
        self.apart = True
        if kernel.stderr is not None:
            self.poller.register(kernel.stderr, select.POLLIN)

    def stop_kernel(self) -> None:
        """Kill every process but those of agents; the death is reported when it is seen."""
        if self.nested is not None and self.nested.children:
            self.nested.stop_others()
            return
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
        if self.watch is not None:
            self.watch.report(self, answers=True)
        # What it said last still counts, unless its session is over.
        for kind in (wire.IOPUB, wire.SHELL) if kernel.sockets else ():
            for _ in range(LAST_READS):
                while not self.parked and self.forward(kernel, kind):
                    pass
                if self.pending_bytes >= 4 * MAX_PENDING or not kernel.sockets[kind].receive():
                    break
        if kernel.stderr is not None and kernel.sockets:
            self.poller.unregister(kernel.stderr)
        kernel.close()
        ooms = agent_report.oom_kills()
        if self.parked:
            if kernel is self.dying:
                self.dying = None
                self.held.clear()  # of a session that is over
            return
        if kernel is not self.stopped and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            time.sleep(LONE_SECONDS)
        self.event(
            "kernel_exited",
            number=kernel.number,
            code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            ooms=max(0, ooms - self.ooms),
            tail=kernel.tail.decode(errors="replace"),
        )

    def forward(self, kernel: Kernel, kind: int) -> bool:
        """Send the next message of the kernel to the host; return whether there was one."""
        message = kernel.sockets[kind].take()
        if message is None:
            return False
        parts, size = kernel_messages.whole(message[0]), message[1]
        if parts is None:
            return True
        if kind == wire.IOPUB and not kernel.ready:
            # The kernel's iopub_welcome, or anything else it publishes, shows that the subscription is in force.
            kernel.ready = True
            self.event("kernel_ready", number=kernel.number)
        if kernel.spec is not None and not self.passes(kernel, kernel.spec, kind, parts):
            return True
        pieces = kernel_messages.cut(parts) if kind == wire.IOPUB and size < 2 * self.limit else (parts,)
        for piece in pieces:
            size = size if len(pieces) == 1 else sum(map(len, piece))
            if size > self.limit or len(piece) > wire.MAX_PARTS:
                self.swollen = time.monotonic()
                parent = b"".join(piece[1:2])[:4096].decode(errors="replace")
                self.event("oversized", channel=kind, bytes=size, parts=len(piece), parent=parent)
            else:
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
        elif kind == wire.NESTED:
            self.nested.take(parts)
        elif self.kernel is not None and kind in self.kernel.sockets:
            if kind == wire.SHELL:
                # What the system has killed for memory so far was not this kernel, if it lives.
                ooms = agent_report.oom_kills()
                if os.waitid(os.P_PID, self.kernel.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    self.ooms = ooms
            taken = self.kernel.sockets[kind].send([kernel_messages.DELIMITER, b"", *parts])
            if not taken:
                self.event("refused", channel=kind)

    def command(self, op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        if op.startswith("file."):
            from . import file_requests

            return file_requests.handle(op, request, data)
        if op == "ping":
            return {"ok": True}, b""
        if op == "ship":
            self.ship(request["modules"])
            return {"ok": True}, b""
        if op.startswith("nested."):
            return self.nested.command(op, request), b""
        if op == "claim" and self.claimable:
            return self.claim(str(request["nonce"]))
        if op == "usage":
            return dict(agent_report.usage(), ok=True), b""
        if op == "meter":
            # One at a time: a new one takes the place of the one before. Without "start", it is read and ended.
            meter, self.meter = self.meter, agent_report.Meter() if request.get("start") else None
            return dict(meter.read() if meter is not None else {}, ok=True), b""
        if op == "signal":
            if self.kernel is None:
                return {"ok": False, "error": "no-kernel", "message": "no kernel is running"}, b""
            self.signal(self.kernel, int(request["signal"]))
            return {"ok": True}, b""
        if op == "stop_kernel":
            self.stopped = self.kernel
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
        if op == "orphaned":
            self.orphan()
            return {"ok": True}, b""
        if op == "resume":
            self.resuming = True
            return {"ok": True}, b""
        return {"ok": False, "error": "unknown", "message": "the agent knows no " + op}, b""

    def ship(self, modules: dict[str, str]) -> None:
        """Take modules of the host's that few sandboxes need; the last one has an `install`."""
        import importlib

        sources = sys.modules["__main__"].__dict__["SOURCES"]
        sources.update(("%s.%s" % (__package__, name), source) for name, source in modules.items())
        importlib.import_module("." + list(modules)[-1], __package__).install(self)

    def passes(self, kernel: Kernel, spec: dict[str, Any], kind: int, parts: list[Any]) -> bool:
        """Return whether a message of a kernel of another language is the host's now.

        Where outputs of a cell may come after its idle, that waits until the kernel has answered so often without one
        of them before its answer. Each output that comes has it asked anew, for a bounded time.
        """
        if kernel_messages.answers(parts, self.token.encode()):
            if kernel.idle is not None and kernel_messages.is_idle(kind, parts):
                kernel.quiet += 1
                if kernel.quiet >= QUIET_ANSWERS or time.monotonic() > kernel.idle_until:
                    self.send(wire.IOPUB, kernel.idle)
                    kernel.idle = None
                else:
                    self.ask(kernel, wire.SHELL, "kernel_info_request")
            return False
        if spec["idle_early"] and kernel.idle is None and kernel_messages.is_idle(kind, parts):
            kernel.idle, kernel.quiet, kernel.idle_until = parts, 0, time.monotonic() + LATE_SECONDS
            self.ask(kernel, wire.SHELL, "kernel_info_request")
            return False
        if kernel.idle is not None and kind == wire.IOPUB:
            kernel.quiet = 0
        return True

    def signal(self, kernel: Kernel, number: int) -> None:
        """Send a signal to the kernel and its children; an interrupt as its kernelspec says."""
        if number == signal.SIGINT and kernel.spec is not None and kernel.spec["interrupt_mode"] == "message":
            self.ask(kernel, wire.CONTROL, "interrupt_request")
        else:
            os.killpg(kernel.pid, number)

    def ask(self, kernel: Kernel, kind: int, message: str) -> None:
        """Ask a kernel something whose answer the host does not get."""
        if kernel.sockets:
            kernel.sockets[kind].send(kernel_messages.request(message, self.token))

    def claim(self, nonce: str) -> tuple[dict[str, Any], bytes]:
        """Show again what this sandbox is, to the first who wants it: it was started before anybody did.

        The answer is another agent's beginning: a report of itself, and that its kernel is ready.
        """
        self.claimable = self.unowned = False
        self.lease.renew()
        self.event("hello", report=dict(self.look(), nonce=nonce), number=self.kernels)
        if self.kernel is not None and self.kernel.ready:
            self.event("kernel_ready", number=self.kernels)
        return {"ok": True}, b""

    def look(self) -> dict[str, object]:
        """Return what the sandbox sees of itself."""
        zone = self.config.get("environment", {}).get("TZ")
        return dict(agent_report.collect(*self.first_look), zone=zone is None or agent_report.knows_zone(zone))

    def orphan(self) -> None:
        """End what the host served, which is gone: nobody answers until the next one is there, which knows none of it.

        The answer is told to whoever passes the frames on, and comes behind all that was meant for that host.
        """
        if self.nested is not None:
            self.nested.end_all()
        self.event("orphaned")

    def resume(self) -> None:
        """Speak to a host again, which hears of the fresh kernel alone: the one before may not be collected yet."""
        held, self.held, self.parked, self.resuming = self.held, [], False, False
        self.event("resumed", number=self.kernels, ready=bool(self.kernel and self.kernel.ready))
        for kind, parts in held:
            self.send(kind, parts)

    # --- the loop ---

    def begin(self, wake_read: int, status: str, filters: dict[str, Any]) -> None:
        """Say what the sandbox sees of itself, and connect to the first kernel, which is on its way."""
        self.poller.register(STDIN, select.POLLIN)
        self.poller.register(wake_read, select.POLLIN)
        self.first_look = agent_report.own_status(status), filters
        self.event("hello", report=self.look(), number=self.kernels)
        self.flush()
        if self.kernel is not None:
            self.attach(self.kernel)
        if "missing" in self.config:
            self.event("no_kernelspec", **self.config["missing"])

    def run(self, wake_read: int, give_back_memory: Callable[[], object]) -> None:
        self.give_back_memory = give_back_memory
        self.swollen = time.monotonic()  # by what loading took
        poller = self.poller
        stdout_polled = False
        while True:
            congested = self.pending_bytes > MAX_PENDING
            if self.blocked and not stdout_polled:
                poller.register(STDOUT, select.POLLOUT)
            elif stdout_polled and not self.blocked:
                poller.unregister(STDOUT)
            stdout_polled = self.blocked
            pause = 1000 if self.meter is None else 1000 * self.meter.INTERVAL
            if self.kernel is not None and self.apart:
                pause = 1000 * RETRY
            elif self.kernel is not None and self.kernel.spec is not None and not self.kernel.ready:
                pause = 1000 * ASK
            if self.delayed_until:
                pause = 1000 * DELAY
            if self.more_ended or (self.kernel and self.kernel.has_more() and not congested):
                pause = 0
            if congested:
                process.let_engine_read(STDIN, wake_read)
            ready = dict(poller.poll(pause))
            if self.meter is not None:
                self.meter.sample()
            self.tidy(congested)
            silent = self.lease.over()
            if STDIN in ready:
                self.lease.renew()
                self.receive()
            elif silent and not self.unowned:
                os._exit(0)
            if wake_read in ready:
                os.read(wake_read, 4096)
            if self.watch is not None and not congested:
                self.watch.report(self, answers=self.answered(ready))  # what a cell tried goes before its end
            if self.kernel is not None:
                self.hear(self.kernel, ready)
            if self.nested is not None:
                self.nested.turn(ready)
            if wake_read in ready or self.kernel is None or self.more_ended:
                self.reap()
            if self.parked and self.kernel is None and "missing" not in self.config:
                self.attach(self.spawn())
            if self.resuming and self.dying is None:
                self.resume()
            self.leave()

    def answered(self, ready: dict[int, int]) -> bool:
        """Return whether a cell may have ended: an answer of a kernel is there to be read."""
        if self.nested is not None or self.kernel is None or not self.kernel.sockets:
            return bool(ready)
        return self.kernel.sockets[wire.SHELL].file in ready

    def hear(self, kernel: Kernel, ready: dict[int, int]) -> None:
        """Take what the kernel says, and pass on as much of it as the host's pipe has room for."""
        now = time.monotonic()
        if self.apart and now >= self.next_try:
            self.next_try = now + RETRY
            self.apart = not all(channel.connect() for channel in kernel.sockets.values())
        if kernel.spec is not None and not kernel.ready and now >= self.next_question:
            # A kernel without an iopub_welcome publishes nothing until it is asked something.
            self.next_question = now + ASK
            self.ask(kernel, wire.SHELL, "kernel_info_request")
        for kind in (wire.IOPUB, wire.SHELL, wire.CONTROL, wire.STDIN) if kernel.sockets else ():
            channel = kernel.sockets[kind]
            events = ready.get(channel.file, 0)
            if events & select.POLLOUT:
                channel.flush()
            if events & ~select.POLLOUT:
                channel.receive()
                self.apart = self.apart or channel.file < 0
            most = MAX_PENDING * (1 + (kind != wire.IOPUB))  # a flood of what is published leaves the others room
            while self.pending_bytes <= most and self.forward(kernel, kind):
                pass
        if kernel.stderr in ready and not kernel.drain_stderr():
            self.poller.unregister(kernel.stderr)
            os.close(kernel.stderr)
            kernel.stderr = None

    def tidy(self, congested: bool) -> None:
        """Give back what large messages took, a second after the last of them."""
        if congested:
            self.swollen = time.monotonic()
        elif self.swollen and time.monotonic() - self.swollen > TIDY_SECONDS:
            self.give_back_memory()
            self.swollen = 0.0

    def receive(self) -> None:
        try:
            data = os.read(STDIN, READ)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)
        for kind, parts in self.decoder.feed(data):
            self.handle(kind, parts)
