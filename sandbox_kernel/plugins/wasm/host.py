"""The process of one session: it plays the part of the agent, and runs the guest in a thread of its own.

    python -I -m sandbox_kernel.plugins.wasm.host SESSION

On its stdin comes a JSON object of `Told`, as `engines.shipping.sized` has it, and then frames, as an agent's. What the
engine's other side hears is what an agent says: hello, kernel_ready, messages of the kernel, kernel_exited. This
program is trusted and the guest is not: what the guest sends are messages on a kernel's channels, of bounded size, and
never words of the agent's. The process ends with its stdin.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import os
import platform
import re
import resource
import shutil
import signal
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ...container import file_requests, kernel_messages, wire
from . import confine, image, template
from .codes import WasmCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import wasmtime

    from .checkpoints import Checkpoint, Checkpoints
    from .machine import WasmGuest

STDIN, STDOUT = 0, 1
READ = 1 << 18
TAIL = 2000
ENVIRONMENT = {
    "HOME": "/tmp/home",  # noqa: S108 (in the guest)
    "TMPDIR": "/tmp",  # noqa: S108
    "IPYTHONDIR": "/tmp/home/.ipython",  # noqa: S108
    "MPLCONFIGDIR": "/tmp/home/.matplotlib",  # noqa: S108
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "PYTHONTZPATH": "",
}
"""Of every guest, and of the one whose memory the image is."""
WATCH_SECONDS = 0.5
REST_SECONDS = 1.0
"""How long the end of a cell is waited for whose reply was sent already."""
DUE_SECONDS = 10.0
"""How long a checkpoint may take: a guest may ask for requests with a cell on its stack, and never come to its end."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
"""Of a checkpoint."""
CELL = b'"execute_request"'
FORK = re.compile(rb'"code": ?"(?:\\n| )*%%fork *\\n')
"""The beginning of a cell that runs in a copy; within a text of JSON, the first sign would be escaped."""


def folders(at: str, data: str, temporary: str) -> list[tuple[str, str, bool]]:
    """Return what a guest may open: the image at a path, and two folders to write to."""
    readable = [(f"{at}/{part}", place, False) for part, place in image.PATHS.items()]
    return [*readable, (data, "/mnt/data", True), (temporary, "/tmp", True)]  # noqa: S108


class Host:
    """The agent's part."""

    def __init__(self, told: dict[str, Any], prepared: tuple[wasmtime.Engine, wasmtime.Module] | None = None) -> None:
        """`prepared` is what the process has loaded before it was a session's (`template`)."""
        self.told, self.prepared = told, prepared
        self.decoder = wire.Decoder(told["max_frame"])
        self.limit = told["max_frame"] - 65536
        self.writing = threading.Lock()
        self.changed = threading.Condition()
        self.inbox: collections.deque[bytes] = collections.deque()
        self.answers: collections.deque[bytes] = collections.deque()
        self.guest: WasmGuest | None = None
        self.number = 0
        self.busy = self.ready = self.in_cell = False
        self.stopping = self.asked = False
        self.is_over = True
        self.checkpoints: Checkpoints | None = None
        self.due: Callable[[], None] | None = None
        """What is to be done with checkpoints as soon as the guest's stack is empty."""
        self.is_taken = self.forks = False
        """Whether there is a checkpoint for the next cell, and whether the one that runs is to leave nothing."""
        self.goes_on = False
        """Whether the next guest begins with the memory that the checkpoints have, and not with the image's."""
        self.saving: Iterator[bytes] = iter(())
        self.meter: float | None = None

    # --- towards the host ---

    def send(self, kind: int, parts: list[bytes]) -> None:
        with self.writing:
            for data in wire.encode(kind, parts):
                view = memoryview(data)
                while view:
                    view = view[os.write(STDOUT, view) :]

    def event(self, op: str, **fields: object) -> None:
        self.send(wire.AGENT, [json.dumps({**fields, "op": op}).encode()])

    # --- what the guest asks, in its own thread ---

    def door(self, request: bytes) -> bytes:
        """Answer the guest: `R` and `I` wait for a frame, `S` sends one. `C`, `U` and `F` are magics."""
        op = request[:1]
        if op == b"S":
            self.passed_on(request[1:])
        elif op == b"R":
            return self.next_request()
        elif op == b"I":
            return self.next_of(self.answers)
        elif op in (b"C", b"U"):
            name = request[1:100].decode("ascii", "replace")
            return json.dumps(self.wanted("take" if op == b"C" else "back", name)).encode()
        elif op == b"F":
            return json.dumps({"ok": self.forks, "error": "none"}).encode()
        return b""

    def next_request(self) -> bytes:
        with self.changed:
            self.busy = self.in_cell = False
            self.changed.notify_all()
            if self.guest is not None:
                self.guest.forget_interrupt()
        if not self.ready:
            self.ready = True
            self.event("kernel_ready", number=self.number)
        with self.changed:
            before = None if self.checkpoints is None or not self.forks else self.checkpoints.find("")
            if self.checkpoints is not None and before is not None:
                self.due = functools.partial(self.returns, self.checkpoints, before)
            self.forks = False
            while not (self.inbox or self.stopping or self.due):
                self.changed.wait()
            is_cell = self.inbox and CELL in self.inbox[0][:4096] and b'"silent":true' not in self.inbox[0]
            is_fork = bool(is_cell) and FORK.search(self.inbox[0]) is not None
            wants = self.told["undo"] or is_fork
            if is_cell and wants and self.checkpoints is not None and not (self.due or self.is_taken):
                self.due = functools.partial(self.takes, self.checkpoints, "")
            if self.stopping or self.due:
                return b""
            self.busy, self.in_cell, self.is_taken = True, self.is_taken, False
            self.forks = self.in_cell and is_fork
            if self.guest is not None:
                self.guest.refuel(self.told["fuel"] if is_cell else 0)
            return self.inbox.popleft()

    def next_of(self, queue: collections.deque[bytes]) -> bytes:
        with self.changed:
            self.interrupted = False
            while not (queue or self.stopping or self.interrupted):
                self.changed.wait()
            return b"" if self.stopping or not queue else queue.popleft()

    def passed_on(self, frame: bytes) -> None:
        """Send a message of the guest's, if it is one; all else is dropped."""
        if len(frame) > self.limit + (1 << 16):
            self.event("oversized", channel=wire.IOPUB, bytes=len(frame), parts=1, parent="")
            return
        try:
            ((kind, parts),) = wire.Decoder(len(frame) + 4).feed(struct.pack("!I", len(frame)) + frame)
        except (wire.FrameError, ValueError):
            return
        if kind not in wire.CHANNELS.values() or len(parts) < 4:
            return
        for piece in kernel_messages.cut(list(parts)) if kind == wire.IOPUB else (list(parts),):
            size = sum(map(len, piece))
            if size > self.limit:
                parent = piece[1][:4096].decode(errors="replace")
                self.event("oversized", channel=kind, bytes=size, parts=len(piece), parent=parent)
            else:
                self.send(kind, piece)

    # --- the guest's life, in its own thread ---

    def start(self) -> None:
        self.number += 1
        self.ready = self.busy = self.stopping = self.in_cell = self.is_taken = self.forks = False
        self.asked, self.is_over, self.due = False, False, None
        self.inbox.clear()
        self.answers.clear()
        threading.Thread(target=self.live, daemon=True).start()

    def live(self) -> None:
        """Run one guest until it ends, and say how."""
        from .machine import OUT_OF_FUEL, GuestEnded

        fuel = False
        end: tuple[int | None, int | None, int, str] = (None, signal.SIGKILL, 0, "")
        try:
            self.made()
            while not self.stopping:
                if self.guest is not None:
                    self.guest.run("__import__('kernel').KERNEL.step()")
                if self.due is not None:
                    self.due()
                    with self.changed:
                        self.due = None
                        self.changed.notify_all()
        except GuestEnded:
            pass
        except Exception as error:
            end = self.why(error, self.guest)
            fuel = getattr(error, "trap_code", None) is OUT_OF_FUEL
        code, number, ooms, tail = end
        with self.changed:
            guest, self.guest, self.busy, self.is_over = self.guest, None, False, True
            self.changed.notify_all()
        if guest is not None:
            guest.close()
        undone = self.in_cell and not self.asked and code is None
        if undone and self.checkpoints is not None and (before := self.checkpoints.find("")) is not None:
            self.checkpoints.go_back(before)
            self.goes_on = True
        with contextlib.suppress(OSError):
            said = {"code": code, "signal": number, "ooms": ooms, "tail": tail, "undone": self.goes_on, "fuel": fuel}
            self.event("kernel_exited", number=self.number, **said)

    def made(self) -> None:
        """Make a guest, which begins anew or goes on."""
        from .machine import WasmGuest

        told = self.told
        guest = self.guest = WasmGuest(
            self.engine,
            self.module,
            self.door,
            memory=told["memory"],
            folders=folders(told["at"], told["data"], told["temporary"]),
            environment=ENVIRONMENT,
            bits=told["bits"],
            longest=self.limit + (1 << 17),
            metered=told["metered"],
        )
        goes_on, self.goes_on = self.goes_on, False
        if self.checkpoints is None:
            guest.map(self.memory, told["memory_bytes"])
        else:
            if not goes_on:
                self.checkpoints.forget()
            self.checkpoints.fill(guest)
        begins = f"begin(__import__('json').loads({told['guest']!r}))"
        guest.run(f"__import__('kernel').KERNEL.{'go_on()' if goes_on else begins}")

    # --- checkpoints ---

    def wanted(self, what: str, name: str) -> dict[str, Any]:
        """Note that a checkpoint is to be taken, or returned to, when the cell is over that asks for it.

        Without a name, one is made up, and the way back is to before the cell before that one.
        """
        found = self.checkpoints
        if found is None or (name and not NAME.fullmatch(name)):
            return {"ok": False, "error": "none" if found is None else "name"}
        if what == "take":
            names = (f"checkpoint-{number}" for number in itertools.count(1))
            name = name or next(one for one in names if found.find(one) is None)
            self.due = functools.partial(self.takes, found, name)
            return {"ok": True, "name": name}
        to = (
            found.find(name) if name else found.before_last() if self.told["undo"] else next(reversed(found.kept), None)
        )
        if to is None:
            return {"ok": False, "error": "missing"}
        self.due = functools.partial(self.returns, found, to)
        return {"ok": True, "name": to.name}

    def takes(self, checkpoints: Checkpoints, name: str) -> None:
        if self.guest is not None:
            checkpoints.take(self.guest, name)
            self.is_taken = not name

    def returns(self, checkpoints: Checkpoints, to: Checkpoint) -> None:
        """Go on from a checkpoint, with a new guest: what is open belongs to the old one."""
        with self.changed:
            guest, self.guest = self.guest, None
        if guest is not None:
            guest.close()
        checkpoints.go_back(to)
        self.goes_on = True
        self.made()

    def follows(self) -> dict[str, Any]:
        """Note that the state is to be read."""
        if (found := self.checkpoints) is None:
            return {"ok": False, "error": "none"}

        def follow() -> None:
            if self.guest is not None:
                found.follow(self.guest)
                self.saving = found.saved((self.told["data"], self.told["temporary"]))

        self.due = follow
        return {"ok": True}

    def at_rest(self, asks: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Ask for something, and wait until it is done, if no cell runs. In the main thread."""
        with self.changed:
            if self.changed.wait_for(lambda: self.ready and not (self.busy or self.due), REST_SECONDS):
                said = asks()
                self.changed.notify_all()
                if self.changed.wait_for(lambda: self.due is None or self.is_over, DUE_SECONDS) and not self.is_over:
                    return said
            return {"ok": False, "error": "busy"}

    @staticmethod
    def why(error: Exception, guest: WasmGuest | None) -> tuple[int | None, int | None, int, str]:
        """Return an exit code or a signal, kills for memory and last words, as an agent tells a kernel's end."""
        words = str(error).strip()[:TAIL]
        if (code := getattr(error, "code", None)) is not None:
            return int(code) & 255, None, 0, ""
        if guest is not None and guest.is_full:
            return None, signal.SIGKILL, 1, words
        return None, signal.SIGSEGV if guest is not None else signal.SIGABRT, 0, words

    # --- commands of the host, in the main thread ---

    def handle(self, kind: int, parts: tuple[bytes, ...]) -> None:
        if kind == wire.AGENT:
            request = json.loads(parts[0])
            reply, data = self.command(request["op"], request, parts[1] if len(parts) > 1 else b"")
            if "id" in request:
                said = json.dumps({**reply, "op": "reply", "id": request["id"]}).encode()
                self.send(wire.AGENT, [said, data] if data else [said])
        elif kind in (wire.SHELL, wire.CONTROL, wire.STDIN):
            frame = b"".join(wire.encode(kind, parts))[4:]
            with self.changed:
                (self.answers if kind == wire.STDIN else self.inbox).append(frame)
                self.changed.notify_all()

    def command(self, op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        if op.startswith("file."):
            if any(str(request.get(name) or "").startswith("/") for name in ("path", "to")):
                return {"ok": False, "error": "denied", "message": WasmCode.WASM_PATH.text}, b""
            return file_requests.handle(op, request, data)
        if op == "ping":
            return {"ok": True}, b""
        if op == "usage":
            return {**self.usage(), "ok": True}, b""
        if op == "meter":
            before, self.meter = self.meter, time.process_time() if request.get("start") else None
            used = None if before is None else time.process_time() - before
            return {"cpu_seconds": used, "memory_peak": self.usage()["memory_used"], "ok": True}, b""
        if op == "signal":
            self.signal(int(request["signal"]))
            return {"ok": True}, b""
        if op in ("checkpoint", "restore"):
            name = str(request.get("name") or "")
            return self.at_rest(lambda: self.wanted("take" if op == "checkpoint" else "back", name)), b""
        if op == "save":
            return self.at_rest(self.follows), b""
        if op == "saved":
            return {"ok": True}, next(self.saving, b"")
        if op == "stop_kernel":
            self.asked = request.get("undo") is not True
            self.stop()
            return {"ok": True}, b""
        if op in ("start_kernel", "resume"):
            self.start()
            return {"ok": True, "number": self.number}, b""
        return {"ok": False, "error": "unknown", "message": f"the engine wasm knows no {op}"}, b""

    def signal(self, number: int) -> None:
        if number != signal.SIGINT:
            self.stop()
            return
        with self.changed:
            if self.busy and self.guest is not None:
                self.interrupted = True
                self.guest.interrupt()
                self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            if self.guest is not None:
                self.guest.end()
            self.changed.notify_all()

    def usage(self) -> dict[str, Any]:
        guest, files = self.guest, 0
        for path in (self.told["data"], self.told["temporary"]):
            space = os.statvfs(path)
            files += (space.f_blocks - space.f_bfree) * space.f_frsize if self.told["closed"] else 0
        try:
            memory = 0 if guest is None else guest.size
        except Exception:  # it ended just now
            memory = 0
        return {
            "memory_used": memory + files,
            "cpu_seconds": time.process_time(),
            "pids_used": 1,
            "scratch_used": folder_size(self.told["data"]) if not self.told["closed"] else files,
        }

    # --- the beginning ---

    def begin(self) -> None:
        """Give up what no guest needs, say what is left, and start the first guest."""
        from .checkpoints import Checkpoints
        from .machine import THREAD_BYTES, loaded, new_engine

        told = self.told
        path = told["image"]
        proc = os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
        missing = confine.enclose(path, f"{path}/{image.EMPTY}", told["data_bytes"], told["tmp_bytes"], told["uid"])
        told["closed"] = missing is None
        if missing is None:
            told.update(at=confine.IMAGE, data=confine.DATA, temporary=confine.TEMPORARY)
        else:
            told.update(at=path, data=f"{told['spare']}/data", temporary=f"{told['spare']}/temporary")
            for each in (told["spare"], told["data"], told["temporary"]):
                os.mkdir(each, 0o700)  # noqa: PTH102
        file_requests.ROOT = told["data"]
        os.umask(0o022)
        if self.prepared is None:
            engine = new_engine(metered=told["metered"])
            self.prepared = engine, loaded(engine, f"{told['at']}/{image.MODULE}")
        self.engine, self.module = self.prepared
        self.memory = os.open(f"{told['at']}/{image.MEMORY}", os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            shown = confine.page_map(proc)
            self.checkpoints = Checkpoints(shown, told["memory"], self.memory, told["memory_bytes"])
        os.close(proc)
        if told["saved"] is not None and self.checkpoints is not None:
            self.checkpoints.load(told["saved"], (told["data"], told["temporary"]))
            self.goes_on = True
        threading.stack_size(THREAD_BYTES)
        gone = confine.give_up(bytes.fromhex(told["calls"]), told["open_files"], told["data_bytes"])
        report = {
            "root of its own": missing is None or f"none: {missing}",
            **gone,
            "image": told["contents"],
            "wasmtime": told["wasmtime"],
            "python": platform.python_version(),
            "memory": told["memory"],
            "scratch": os.statvfs(told["data"]).f_blocks * os.statvfs(told["data"]).f_frsize,
            "uids": list(os.getresuid()),
            "groups": os.getgroups(),
            "environment": sorted(os.environ),
            "checkpoints": self.checkpoints is not None,
            "core": list(resource.getrlimit(resource.RLIMIT_CORE)),
        }
        self.event("hello", report=report, number=1)
        if missing is not None:
            threading.Thread(target=self.watch, daemon=True).start()
        if not self.goes_on:
            self.start()

    def watch(self) -> None:
        """End a session without sized folders that puts too much into them: seen late, which a setting accepts."""
        most = self.told["data_bytes"] + self.told["tmp_bytes"]
        while folder_size(self.told["spare"]) <= most:
            time.sleep(WATCH_SECONDS)
        sys.stderr.write("out of scratch\n")
        sys.stderr.flush()
        os._exit(1)

    def run(self) -> None:
        while data := os.read(STDIN, READ):
            for kind, parts in self.decoder.feed(data):
                self.handle(kind, parts)


def folder_size(path: str) -> int:
    """Return the bytes that lie below a folder, links not followed; what goes meanwhile is not counted."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                is_folder = entry.is_dir(follow_symlinks=False)
                total += folder_size(entry.path) if is_folder else entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _exactly(count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += os.read(STDIN, count - len(data)) or os._exit(0)
    return bytes(data)


def main() -> None:
    """Run a session until its pipe ends."""
    prepared = template.serve(*sys.argv[3:]) if sys.argv[1] == template.NAME else None
    host = Host(json.loads(_exactly(int(_exactly(8), 16))), prepared)
    try:
        host.begin()
        host.run()
    except BrokenPipeError:
        pass
    if host.told.get("closed") is False:
        shutil.rmtree(host.told["spare"], ignore_errors=True)
    os._exit(0)  # the guest's thread may never come back


if __name__ == "__main__":
    main()
