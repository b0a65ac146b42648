"""What small kernels have in common: Jupyter's five sockets, requests and replies, in one loop of one thread.

ipykernel's base class would do, but it imports IPython and asyncio, which takes longer than all that Bash needs to
start. Here a request is handled where it is read. What a cell waits for, it waits for in `Kernel.wait`, which answers
control and heartbeat meanwhile. So the outputs of a cell leave before its idle. An output that a reader has no room for
makes the cell wait: nothing is dropped, and nothing piles up. It needs pyzmq and the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import zmq

Content = dict[str, Any]
Message = dict[str, Any]

PROTOCOL = "5.4"
DELIMITER = b"<IDS|MSG>"
MAX_UNREAD = 32
"""Messages that a reader of outputs has not taken, before a cell waits for it."""
ROOM_MILLISECONDS = 5
"""From one try to publish to the next: a socket that publishes never says that it has room again."""
PARENT_SECONDS = 1.0
"""How often a kernel looks whether the program that started it is still there."""


class Stopped(BaseException):
    """The kernel is to end: somebody asked for it, or the program that started it is gone."""


class Kernel:
    """The sockets of a kernel, and its answers. A subclass adds a language."""

    implementation = ""
    banner = ""
    language_info: Content = {}  # noqa: RUF012 (a constant)

    def __init__(self, connection_file: str) -> None:
        with open(connection_file, encoding="utf-8") as file:
            connection = json.load(file)
        self.key = connection["key"].encode()
        self.hash = connection.get("signature_scheme", "hmac-sha256").partition("-")[2]
        self.session, self.sent = os.urandom(16).hex(), 0
        self.count = 0
        """The number of the last cell."""
        self.cell: Message = {}
        """The last execute_request: outputs are published as its own, also those that come later."""
        self.running = self.blocked = False
        self.interrupts = 0
        """How many came while the cell ran."""
        self.replies: dict[str, Callable[[Content], Content]] = {
            "kernel_info_request": self.info,
            "execute_request": self._execute,
            "complete_request": lambda content: self.complete(content["code"], content["cursor_pos"]),
            "inspect_request": lambda content: self.inspect(content["code"], content["cursor_pos"]),
            "is_complete_request": lambda content: self.is_complete(content["code"]),
            "history_request": lambda _: {"history": []},
            "comm_info_request": lambda _: {"comms": {}},
            "interrupt_request": lambda _: self._interrupted() or {},
            "shutdown_request": lambda content: {"restart": content.get("restart", False)},
        }
        self.poller, self.readers = zmq.Poller(), dict[Any, Callable[[], object]]()
        wake, self.woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """A byte here ends a wait, as a signal does."""
        signal.set_wakeup_fd(self.woken, warn_on_full_buffer=False)
        self.watch(wake, lambda: os.read(wake, 1 << 12))
        signal.signal(signal.SIGINT, lambda *_: self._interrupted())
        self.context = zmq.Context()
        self.shell = self._bind(zmq.ROUTER, connection, "shell")
        self.stdin = self._bind(zmq.ROUTER, connection, "stdin")
        self.control = self._bind(zmq.ROUTER, connection, "control")
        self.heartbeat = self._bind(zmq.REP, connection, "hb")
        self.iopub = self._bind(zmq.XPUB, connection, "iopub")
        self.watch(self.control, lambda: self._take(self.control))
        self.watch(self.heartbeat, lambda: self.heartbeat.send(self.heartbeat.recv()))
        self.watch(self.iopub, self._welcome)
        self.parent = int(os.environ.get("JPY_PARENT_PID", "0"))

    # --- a language ---------------------------------------------------------------------------------------------------

    def execute(self, code: str, *, allow_stdin: bool) -> Content:
        """Run a cell; return {}, or what `error` returns."""
        raise NotImplementedError

    def complete(self, code: str, cursor: int) -> Content:
        raise NotImplementedError

    def inspect(self, code: str, cursor: int) -> Content:
        raise NotImplementedError

    def is_complete(self, code: str) -> Content:
        raise NotImplementedError

    def close(self) -> None:
        """End what the kernel has started."""

    # --- for a language -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Answer requests until one of them ends the kernel."""
        try:
            self.publish("status", {"execution_state": "starting"}, {})
            while True:
                if self.wait(self.shell):
                    self._take(self.shell)
        except Stopped:
            pass
        finally:
            self.close()
            self.context.destroy(linger=1000)

    def watch(self, source: Any, read: Callable[[], object]) -> None:
        """From now on call `read` whenever there is something to read: on a socket or a descriptor."""
        self.readers[source] = read
        self.poller.register(source, zmq.POLLIN)

    def unwatch(self, source: Any) -> None:
        del self.readers[source]
        self.poller.unregister(source)

    def wait(self, socket: Any = None, seconds: float | None = None) -> bool:
        """Wait until something comes, for `seconds` at most, and read it; return whether `socket` has something."""
        if self.parent:
            seconds = min(PARENT_SECONDS, PARENT_SECONDS if seconds is None else seconds)
            if os.getppid() != self.parent:
                raise Stopped
        if socket is not None:
            self.poller.register(socket, zmq.POLLIN)
        try:
            ready = [source for source, _ in self.poller.poll(None if seconds is None else 1000 * seconds)]
        finally:
            if socket is not None:
                self.poller.unregister(socket)
        for source in ready:
            if source in self.readers:  # one before it may have ended the watch
                self.readers[source]()
        return socket is not None and socket in ready

    def publish(self, kind: str, content: Content, parent: Message | None = None) -> None:
        """Publish an output of the cell, or something about another request; wait while a reader has no room."""
        while kind != "iopub_welcome" and self.iopub.poll(0):
            self._welcome()  # who has just subscribed would hear this already, and the welcome comes first
        frames = self._frames(kind, content, self.cell if parent is None else parent)
        while True:
            try:
                self.iopub.send_multipart([f"kernel.{self.session}.{kind}".encode(), *frames], zmq.NOBLOCK)
            except zmq.Again:
                if self.blocked:
                    return  # about a request on control, which is answered meanwhile
                self.blocked = True
                try:
                    if self.control.poll(ROOM_MILLISECONDS):
                        self._take(self.control)
                finally:
                    self.blocked = False
            else:
                return

    def error(self, name: str, value: str, *lines: str) -> Content:
        """Publish the error of a cell, and return its reply."""
        content = {"ename": name, "evalue": value, "traceback": list(lines)}
        self.publish("error", content)
        return {"status": "error", **content}

    def ask(self, prompt: str = "", *, hidden: bool = False) -> str | None:
        """Ask the front end for a line of input; return None if nobody is there, or an interrupt comes first."""
        while self.stdin.poll(0):
            self.stdin.recv_multipart()  # answers that nobody waits for any more
        frames = self._frames("input_request", {"prompt": prompt, "password": hidden}, self.cell)
        interrupts = self.interrupts
        try:
            self.stdin.send_multipart([*self.cell["identities"], *frames])
        except zmq.ZMQError:
            return None
        while interrupts == self.interrupts:
            if self.wait(self.stdin):
                message = self._receive(self.stdin)
                if message and message["kind"] == "input_reply":
                    return str(message["content"].get("value", ""))
        return None

    # --- messages -----------------------------------------------------------------------------------------------------

    def _bind(self, kind: int, connection: Content, name: str) -> Any:
        socket = self.context.socket(kind)
        if kind == zmq.XPUB:
            socket.xpub_nodrop, socket.xpub_verbose, socket.sndhwm = 1, 1, MAX_UNREAD
        if kind == zmq.ROUTER:
            socket.router_handover = 1  # a front end that connects again
            socket.router_mandatory = int(name == "stdin")
        between = "-" if connection["transport"] == "ipc" else ":"
        socket.bind(f"{connection['transport']}://{connection['ip']}{between}{connection[f'{name}_port']}")
        return socket

    def _sign(self, parts: list[bytes]) -> bytes:
        if not self.key:
            return b""
        import hmac  # a sandbox has no key, and starts without it

        return hmac.new(self.key, b"".join(parts), self.hash).hexdigest().encode()

    def _frames(self, kind: str, content: Content, parent: Message) -> list[bytes]:
        self.sent += 1
        header = {
            "msg_id": f"{self.session}_{self.sent}",
            "msg_type": kind,
            "session": self.session,
            "username": "kernel",
            "date": datetime.now(UTC).isoformat(),
            "version": PROTOCOL,
        }
        parts = [json.dumps(one).encode() for one in (header, parent.get("header", {}), {}, content)]
        return [DELIMITER, self._sign(parts), *parts]

    def _receive(self, socket: Any) -> Message | None:
        """Return the next message; None for what is not signed, or is no message."""
        frames = socket.recv_multipart()
        try:
            start = frames.index(DELIMITER)
            signature, *parts = frames[start + 1 : start + 6]
            header, _, _, content = (json.loads(part) for part in parts)
            kind = header["msg_type"]
        except (ValueError, KeyError, TypeError):
            return None
        if signature != self._sign(parts):
            return None
        return {"identities": frames[:start], "header": header, "kind": kind, "content": content}

    def _welcome(self) -> None:
        event = self.iopub.recv()
        if event[:1] == b"\x01":
            self.publish("iopub_welcome", {"subscription": event[1:].decode(errors="replace")}, {})

    def _take(self, socket: Any) -> None:
        """Answer the next request. If it is a cell that fails, those that have come meanwhile do not run."""
        message = self._receive(socket)
        for waiting in self._handle(socket, message) if message else ():
            self._handle(self.shell, waiting, aborts=True)

    def _handle(self, socket: Any, message: Message, *, aborts: bool = False) -> list[Message]:
        """Answer one request: busy, its outputs, its reply, idle. Return the requests to abort after it."""
        kind, content = message["kind"], message["content"]
        is_cell = kind == "execute_request"
        waiting: list[Message] = []
        if is_cell:
            self.cell = message
        self.publish("status", {"execution_state": "busy"}, message)
        if kind in self.replies:
            try:
                reply = {"status": "aborted"} if is_cell and aborts else {"status": "ok", **self.replies[kind](content)}
            except Exception as error:  # it is ours, and the kernel lives on
                traceback.print_exc()
                reply = {"status": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": []}
            if is_cell and reply["status"] == "error" and content.get("stop_on_error", True):
                while self.shell.poll(0):
                    waiting += filter(None, [self._receive(self.shell)])
            frames = self._frames(kind.replace("_request", "_reply"), reply, message)
            socket.send_multipart([*message["identities"], *frames])
        self.publish("status", {"execution_state": "idle"}, message)
        if kind == "shutdown_request":
            raise Stopped
        return waiting

    def info(self, _: Content) -> Content:
        return {
            "protocol_version": PROTOCOL,
            "implementation": self.implementation,
            "implementation_version": "1",
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": [],
        }

    def _execute(self, content: Content) -> Content:
        code, silent = content["code"], content.get("silent", False)
        if not silent and content.get("store_history", True):
            self.count += 1
        if not silent:
            self.publish("execute_input", {"code": code, "execution_count": self.count})
        self.interrupts, self.running = 0, True
        try:
            reply = self.execute(code, allow_stdin=content.get("allow_stdin", False)) if code.strip() else {}
        finally:
            self.running = False
        more = {} if reply else {"payload": [], "user_expressions": {}}
        return {**reply, **more, "execution_count": self.count}

    def _interrupted(self) -> None:
        if self.running:
            self.interrupts += 1  # the loop is awake, and sees it


def run(kind: type[Kernel]) -> None:
    """Run a kernel as its kernelspec starts it: the last argument is the connection file."""
    kind(sys.argv[-1]).run()
    os._exit(0)  # whatever a thread still does
