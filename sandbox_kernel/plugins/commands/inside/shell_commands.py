"""Commands beside the cells, as the kernel in the container serves them for the SDK: one short cell a request.

A cell starts a command, and later ones ask for what it has said since. Each has a clock of its own, and none holds up
another. Runs in the kernel, where the host ships its source with the first command: standard library only.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SCRATCH = "/mnt/data"
CHUNK_BYTES = 1 << 16
PIECE_BYTES = 384 << 10
"""Of what a command said, in one answer."""
STEP_SECONDS = 0.05
"""How soon the end of a command is seen whose children keep its streams open."""
HEARD_SECONDS = 10.0
"""Seconds without a reader. Then a command goes on, and its oldest output is dropped."""
MAX_COMMANDS = 200
"""Commands that are remembered; of those that have ended, the oldest are forgotten."""
OUT, ERR, TERMINAL = 1, 2, 3
_OF_THE_KERNEL = frozenset(
    ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "MPLBACKEND", "PAGER", "PYDEVD_USE_FRAME_EVAL", "TERM")
)
"""What ipykernel sets for its cells; commands would print colours into pipes."""

COMMANDS: dict[int, ShellCommand] = {}


def answer(request: str) -> None:
    """Print the answer to one request of the host, both in JSON; an error is part of the answer.

    start  cmd cwd env stdin seconds limit [rows cols]   pid; or not_started
    poll   pid after wait      pieces [[number, stream, base64]], dropped, running; or returncode and timed_out; or gone
    stdin  pid data end        done; or gone
    kill   pid                 killed
    resize pid rows cols       done; or gone
    list                       commands [{pid cmd cwd env}]
    """
    fields = json.loads(request)
    op = fields.pop("op")
    try:
        reply = _OPERATIONS[op](**fields)
    except FileNotFoundError as error:
        reply = {"not_started": True, "reason": "%s: no such file or folder" % error.filename}
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        reply = {"not_started": True, "reason": getattr(error, "strerror", None) or str(error) or "no memory is left"}
    print(json.dumps(reply))  # noqa: T201 (a cell's way to answer)


class ShellCommand:
    """A process, its clock, and its output that was not fetched yet."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.cmd, self.env = fields["cmd"], fields["env"]
        self.cwd = os.path.join(SCRATCH, fields["cwd"] or "")
        seconds = fields["seconds"]
        self._end = time.monotonic() + seconds if seconds is not None else None
        self._limit = fields["limit"]
        self._pieces: deque[tuple[int, int, bytes]] = deque()
        self.number = self._held = self._dropped = 0
        self._heard = time.monotonic()
        self._changed = threading.Condition()
        self.timed_out = self.ended = False
        environment = {key: value for key, value in os.environ.items() if key not in _OF_THE_KERNEL}
        environment.update(self.env)
        self._terminal = -1
        if fields.get("rows"):
            environment.setdefault("TERM", "xterm-256color")
            self._terminal, inside = os.openpty()
            self.resize(fields["rows"], fields["cols"])
            arguments: dict[str, Any] = {"stdin": inside, "stdout": inside, "stderr": inside, "preexec_fn": _control}
        else:
            inside = -1
            stdin = subprocess.PIPE if fields["stdin"] else subprocess.DEVNULL
            arguments = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        shell = ["/bin/bash", "-l"] if self._terminal >= 0 and not self.cmd else ["/bin/bash", "-c", self.cmd]
        try:
            self._process = subprocess.Popen(
                shell, cwd=self.cwd, env=environment, bufsize=0, start_new_session=True, **arguments
            )
        except BaseException:
            if self._terminal >= 0:
                os.close(self._terminal)
            raise
        finally:
            if inside >= 0:
                os.close(inside)
        self.pid = self._process.pid
        try:
            # Where memory runs out, the command ends and not the kernel.
            with suppress(OSError), open("/proc/%d/oom_score_adj" % self.pid, "w", encoding="ascii") as file:
                file.write("1000")
            threading.Thread(target=self._watch, daemon=True).start()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> bool:
        """Kill it with its children; return whether it ran."""
        if self.ended:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        return True

    def write(self, data: bytes, end: bool) -> None:
        """Write to its stdin, for a moment at most: what does not read is not waited for."""
        stream = self._process.stdin
        if self._terminal >= 0:
            _write(self._terminal, data)
        elif stream is None or stream.closed:
            raise ValueError("the command takes no input, or its input has ended")
        else:
            _write(stream.fileno(), data)
            if end:
                stream.close()

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def poll(self, after: int, wait: float) -> dict[str, Any]:
        """Return what it said after a piece, as soon as there is something or it has ended."""
        with self._changed:
            self._heard = time.monotonic()
            self._changed.wait_for(lambda: self.ended or self.number > after, wait)
            while self._pieces and self._pieces[0][0] <= after:
                self._held -= len(self._pieces.popleft()[2])
            pieces, size = [], 0
            for number, stream, data in self._pieces:
                if size and size + len(data) > PIECE_BYTES:
                    break
                size += len(data)
                pieces.append([number, stream, base64.b64encode(data).decode()])
            self._changed.notify_all()
            reply = {"pieces": pieces, "dropped": self._dropped}
            if self.ended and len(pieces) == len(self._pieces):
                code = self._process.returncode
                return dict(reply, returncode=128 - code if code < 0 else code, timed_out=self.timed_out)
            return dict(reply, running=True)

    def _said(self, stream: int, data: bytes) -> None:
        with self._changed:
            while self._held + len(data) > self._limit and time.monotonic() - self._heard < HEARD_SECONDS:
                self._changed.wait(STEP_SECONDS)  # somebody fetches it
                if self._late():
                    return
            while self._pieces and self._held + len(data) > self._limit:
                old = len(self._pieces.popleft()[2])
                self._held, self._dropped = self._held - old, self._dropped + old
            self.number += 1
            self._held += len(data)
            self._pieces.append((self.number, stream, data))
            self._changed.notify_all()

    def _late(self) -> bool:
        if self._end is not None and not self.timed_out and time.monotonic() > self._end:
            self.timed_out = True
            self.kill()
        return self.timed_out

    def _watch(self) -> None:
        if self._terminal >= 0:
            streams = {self._terminal: TERMINAL}
        else:
            streams = {self._process.stdout.fileno(): OUT, self._process.stderr.fileno(): ERR}  # type: ignore[union-attr]
        with selectors.DefaultSelector() as selector:
            for descriptor in streams:
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                self._late()
                events = selector.select(STEP_SECONDS) if selector.get_map() else []
                for key, _ in events:
                    try:
                        data = os.read(key.fd, CHUNK_BYTES)
                    except OSError:  # a terminal that no process has open any more
                        data = b""
                    if data:
                        self._said(streams[key.fd], data)
                    else:
                        selector.unregister(key.fd)
                if not selector.get_map():
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(STEP_SECONDS)
                        break
                elif not events and self._process.poll() is not None:
                    break  # what it left running has its streams, and says nothing
        for stream in (self._process.stdout, self._process.stderr, self._process.stdin):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self._terminal >= 0:
            os.close(self._terminal)
        with self._changed:
            self.ended = True
            self._changed.notify_all()


def _control() -> None:
    """Make stdin the terminal that controls the process, as a shell wants it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _write(descriptor: int, data: bytes) -> None:
    os.set_blocking(descriptor, False)
    end, view = time.monotonic() + 5.0, memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            if time.monotonic() > end:
                raise ValueError("the command does not read its input") from None
            time.sleep(STEP_SECONDS)


def _start(**fields: Any) -> dict[str, Any]:
    for pid in [pid for pid, command in COMMANDS.items() if command.ended][: max(0, len(COMMANDS) - MAX_COMMANDS)]:
        del COMMANDS[pid]
    command = ShellCommand(fields)
    COMMANDS[command.pid] = command
    return {"pid": command.pid}


def _poll(*, pid: int, after: int, wait: float) -> dict[str, Any]:
    command = COMMANDS.get(pid)
    if command is None:
        return {"gone": True}
    return {"last": command.number} if after < 0 else command.poll(after, wait)


def _stdin(*, pid: int, data: str, end: bool) -> dict[str, Any]:
    command = COMMANDS.get(pid)
    if command is None or command.ended:
        return {"gone": True}
    command.write(base64.b64decode(data), end)
    return {"done": True}


def _kill(*, pid: int) -> dict[str, Any]:
    command = COMMANDS.get(pid)
    return {"killed": command is not None and command.kill()}


def _resize(*, pid: int, rows: int, cols: int) -> dict[str, Any]:
    command = COMMANDS.get(pid)
    if command is None or command.ended:
        return {"gone": True}
    command.resize(rows, cols)
    return {"done": True}


def _list() -> dict[str, Any]:
    running = [command for command in COMMANDS.values() if not command.ended]
    return {"commands": [{"pid": one.pid, "cmd": one.cmd, "cwd": one.cwd, "env": one.env} for one in running]}


_OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "start": _start,
    "poll": _poll,
    "stdin": _stdin,
    "kill": _kill,
    "resize": _resize,
    "list": _list,
}
