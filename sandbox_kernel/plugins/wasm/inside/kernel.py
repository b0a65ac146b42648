"""The kernel in a guest: Jupyter's messages, and a real IPython shell that runs the cells.

Runs in CPython for WASI from source that is part of the image: no processes, no threads, no sockets. It speaks with the
host by one function: `R` takes the next request and waits for it, `I` the answer to a question, `S` sends a message.
The host believes nothing of what comes. There is no ipykernel here, which is made of threads and sockets.
"""

from __future__ import annotations

import asyncio
import base64
import builtins
import functools
import importlib
import io
import json
import os
import selectors
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from _host import call  # type: ignore[import-not-found]
from IPython import __version__ as ipython_version
from IPython.core import page, payloadpage
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.tokenutil import token_at_cursor
from traitlets.config import Config

SHELL, CONTROL, STDIN, IOPUB = 1, 2, 3, 4
AT_ONCE, SECONDS = 8192, 0.2
"""Characters of a stream, and the age of the first, with which it is sent; the rest when the cell ends."""
MAX_MATCHES = 500
CLOSED = 64
VERSION = "5.4"
WORDS = {
    "processes": "no processes",
    "sockets": "no sockets",
    "none": "no checkpoints",
    "name": "no such name",
    "missing": "no such checkpoint",
}
"""What is said where a guest lacks something; the host has better words for it."""


# --- asyncio without sockets, threads and processes -------------------------------------------------------------------


class _Timers(selectors._BaseSelectorImpl):  # noqa: SLF001
    loop: Any = None

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait for a timer. Without one nothing could wake a task, so each is told and may end."""
        if timeout is None:
            waiting = asyncio.all_tasks(self.loop)
            if not waiting:
                raise RuntimeError(WORDS["sockets"])
            for task in waiting:
                task.cancel(WORDS["sockets"])
        elif timeout > 0:
            time.sleep(timeout)
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop of timers alone; what would run in a thread runs at once."""

    behind = 0.0
    """Seconds by which the clock is behind what it was: a guest that goes on from a checkpoint has a new one."""

    def __init__(self) -> None:
        timers = _Timers()
        super().__init__(timers)
        timers.loop = self

    def time(self) -> float:
        return super().time() + self.behind

    def _make_self_pipe(self) -> None:
        self._ssock = self._csock = None
        self._internal_fds = 0

    def _close_self_pipe(self) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


# --- messages ---------------------------------------------------------------------------------------------------------


def _text(value: Any) -> Any:
    """Return what JSON has no form for: numbers of numpy's as numbers, all else as its text."""
    return value.item() if hasattr(value, "item") else repr(value)


def _bundle(data: dict[str, Any]) -> dict[str, Any]:
    return {
        kind: base64.b64encode(value).decode() if isinstance(value, bytes) else value for kind, value in data.items()
    }


class GuestStream(io.TextIOBase):
    """stdout or stderr."""

    encoding = "utf-8"

    def __init__(self, kernel: GuestKernel, name: str) -> None:
        self._kernel, self.name = kernel, name
        self._kept: list[str] = []
        self._size, self._since = 0, 0.0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        now = time.monotonic()
        if not self._kept:
            self._since = now
        self._kept.append(text)
        self._size += len(text)
        if self._size > AT_ONCE or now - self._since > SECONDS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        if self._kept:
            text = "".join(self._kept)
            self._kept.clear()
            self._size = 0
            self._kernel.publish("stream", {"name": self.name, "text": text})


class Hook(DisplayHook):
    def write_output_prompt(self) -> None: ...

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        KERNEL.flush()
        content = {"data": _bundle(format_dict), "metadata": md_dict or {}, "execution_count": self.prompt_count}
        KERNEL.publish("execute_result", content)

    def finish_displayhook(self) -> None: ...


class Publisher(DisplayPublisher):
    def publish(
        self, data: Any, metadata: Any = None, *_: Any, transient: Any = None, update: bool = False, **__: Any
    ) -> None:
        KERNEL.flush()
        content = {"data": _bundle(data), "metadata": metadata or {}, "transient": transient or {}}
        KERNEL.publish("update_display_data" if update else "display_data", content)

    def clear_output(self, wait: bool = False) -> None:
        KERNEL.flush()
        KERNEL.publish("clear_output", {"wait": wait})


class Shell(InteractiveShell):
    displayhook_class = Hook
    display_pub_class = Publisher
    kernel: Any = None

    def enable_gui(self, gui: Any = None) -> None: ...

    def system(self, cmd: str) -> None:
        raise OSError(WORDS["processes"])

    system_raw = system_piped = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        raise OSError(WORDS["processes"])

    payload_manager: Any

    def ask_exit(self) -> None:
        self.payload_manager.write_payload({"source": "ask_exit", "keepkernel": False})

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        KERNEL.flush()
        if KERNEL.interrupted:
            etype, evalue, stb, KERNEL.interrupted = KeyboardInterrupt, "", ["KeyboardInterrupt"], False
        KERNEL.error = {"ename": etype.__name__, "evalue": str(evalue), "traceback": stb}
        KERNEL.publish("error", KERNEL.error)

    def set_next_input(self, s: str, replace: bool = False) -> None:
        self.payload_manager.write_payload({"source": "set_next_input", "text": s, "replace": replace})


class GuestKernel:
    """One kernel, in one thread: a request is answered before the next one is taken."""

    def __init__(self) -> None:
        self.parent: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.allow_stdin = self.interrupted = False
        self._sent = 0
        self._session = ""
        self._first, self._left = 0, 0.0
        self._open: list[int] = []
        """Descriptors of files, when memory was last written down."""
        self.streams = GuestStream(self, "stdout"), GuestStream(self, "stderr")
        self.loop = Loop()
        self.shell: Any = None

    def boot(self) -> None:
        """Make the shell. What the image's memory holds is the state after this."""
        for module in (asyncio, asyncio.events):
            vars(module).update(EventLoop=Loop, new_event_loop=Loop)
        asyncio.set_event_loop(self.loop)
        # A history on a disk would be an open file, which no session has.
        self.shell = Shell.instance(config=Config({"HistoryManager": {"enabled": False, "hist_file": ":memory:"}}))
        self.shell.kernel = self
        self.shell.loop_runner = self.finished
        self.shell.set_hook("show_in_pager", page.as_hook(payloadpage.page), 99)  # type: ignore[no-untyped-call]
        builtins.input = self.input
        import getpass

        getpass.getpass = self.getpass
        from comm.base_comm import CommManager

        self.comms = CommManager()
        comm: Any = importlib.import_module("comm")
        comm.create_comm, comm.get_comm_manager = self.new_comm, lambda: self.comms
        self.shell.configurables.append(self.comms)
        for name, op in (("checkpoint", b"C"), ("undo", b"U")):
            self.shell.register_magic_function(functools.partial(self.asked, name, op), magic_name=name)
        self.shell.register_magic_function(self.no_fork, magic_kind="cell", magic_name="fork")
        self.shell.input_transformers_cleanup.append(self.forked)

    def finished(self, coroutine: Any) -> Any:
        """Run a cell that awaits. An interrupt that meets the loop itself ends the cell's task, and no later one."""
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            self.interrupted = True
            task.cancel()
            return self.loop.run_until_complete(task)

    def begin(self, config: dict[str, Any]) -> None:
        """Become the kernel of a session: nothing that was drawn for the image is drawn again."""
        self._session = os.urandom(16).hex()
        WORDS.update(config["words"])
        os.environ.update(config["environment"])
        os.makedirs(os.environ["HOME"], exist_ok=True)
        os.chdir(config["scratch"])
        renew()
        self._first = os.open(os.environ["HOME"], os.O_RDONLY)
        os.close(self._first)
        sys.path.append(config["installed"])
        for line in config["lines"]:
            self.shell.run_cell(line, silent=True, store_history=False)
        self.shell.execution_count = 1
        self.error = None

    def go_on(self) -> None:
        """Go on from a checkpoint, in a new guest: no file of the old one is open there, and its clock begins at 0."""
        self._session = os.urandom(16).hex()
        self.loop.behind = self._left - time.monotonic()
        # What was open gets a folder's descriptor, which nothing can read or write, and no other file's.
        taken = [os.open(os.environ["HOME"], os.O_RDONLY) for _ in range(self._first, max(self._open, default=0) + 1)]
        for number in set(taken) - set(self._open):
            os.close(number)
        if (fonts := sys.modules.get("matplotlib.font_manager")) is not None:
            fonts._get_font.cache_clear()  # noqa: SLF001
            sys.modules["matplotlib.mathtext"].MathTextParser._parse_cached.cache_clear()  # noqa: SLF001
        renew()

    def asked(self, what: str, op: bytes, line: str) -> str | None:
        """Ask the host for a checkpoint, or for the way back, when this cell is over."""
        said = json.loads(call(op + line.strip().encode()))
        if not said["ok"]:
            raise UsageError(f"%{what}: {WORDS[said['error']]}")
        return str(said["name"]) if op == b"C" else None

    @staticmethod
    def forked(lines: list[str]) -> list[str]:
        """Return a cell without its `%%fork`, if the host has it run in a copy."""
        if lines and lines[0].strip() == "%%fork" and json.loads(call(b"F"))["ok"]:
            return lines[1:]
        return lines

    @staticmethod
    def no_fork(line: str, cell: str) -> None:
        raise UsageError(f"%%fork: {WORDS['none']}")

    # --- the wire ---

    def send(
        self, kind: int, name: str, content: Any, *, parent: Any = None, buffers: Any = (), metadata: Any = None
    ) -> None:
        self._sent += 1
        header = {
            "msg_id": f"{self._session}_{self._sent}",
            "session": self._session,
            "username": "sandbox",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "msg_type": name,
            "version": VERSION,
        }
        parts = [header, self.parent if parent is None else parent, metadata or {}, content]
        data = [json.dumps(part, default=_text).encode() for part in parts]
        data += [bytes(memoryview(one).cast("B")) for one in buffers or ()]
        head = struct.pack(f"!BH{len(data)}I", kind, len(data), *map(len, data))
        call(b"".join((b"S", head, *data)))

    def publish(self, name: str, content: Any, buffers: Any = (), metadata: Any = None) -> None:
        self.send(IOPUB, name, content, buffers=buffers, metadata=metadata)

    def flush(self) -> None:
        for stream in self.streams:
            stream.flush()

    def step(self) -> None:
        """Answer requests until the host says that the stack is to be empty, so that memory can be written down."""
        while True:
            try:
                for _ in range(4):  # an interrupt that came too late is taken here
                    pass
                frame = call(b"R")
                if not frame:
                    self._left, self._open = self.loop.time(), list(opened(self._first))
                    return
                self.take(*parsed(frame))
            except KeyboardInterrupt:
                continue

    def take(self, kind: int, parts: list[bytes]) -> None:
        header, _, _, content = (json.loads(part) for part in parts[:4])
        name = header["msg_type"]
        self.parent = header
        sys.stdout, sys.stderr = self.streams
        handler = getattr(self, f"do_{name}", None)
        self.publish("status", {"execution_state": "busy"})
        try:
            if handler is not None:
                reply = handler(content, parts[4:])
                self.flush()
                if reply is not None:
                    self.send(kind, name.replace("_request", "_reply"), reply, parent=header)
            elif name.endswith("_request"):
                said = {"status": "error", "ename": "NotImplementedError", "evalue": name, "traceback": []}
                self.send(kind, name.replace("_request", "_reply"), said, parent=header)
        except KeyboardInterrupt:
            said = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            if name.endswith("_request"):
                self.send(kind, name.replace("_request", "_reply"), said, parent=header)
        finally:
            self.flush()
            self.publish("status", {"execution_state": "idle"})

    # --- requests ---

    def do_execute_request(self, content: Any, _: Any) -> Any:
        shell, code, silent = self.shell, content["code"], content["silent"]
        stored = content.get("store_history", not silent) and not silent
        self.allow_stdin, self.error = content.get("allow_stdin", False), None
        if not silent:
            self.publish("execute_input", {"code": code, "execution_count": shell.execution_count})
        count = shell.execution_count
        ok = False
        try:
            result = shell.run_cell(code, store_history=stored, silent=silent)
            ok = result.success
            if not ok and self.error is None:
                cause = result.error_before_exec or result.error_in_exec
                self.error = {"ename": type(cause).__name__, "evalue": str(cause), "traceback": []}
        except KeyboardInterrupt:
            self.error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt"]}
            self.publish("error", self.error)
        payload = shell.payload_manager.read_payload()
        shell.payload_manager.clear_payload()
        reply = {"status": "ok", "execution_count": count, "payload": payload, "user_expressions": {}}
        if ok:
            reply["user_expressions"] = shell.user_expressions(content.get("user_expressions") or {})
        else:
            reply.update(self.error or {}, status="error")
        return reply

    def do_complete_request(self, content: Any, _: Any) -> Any:
        code, position = content["code"], content["cursor_pos"]
        with provisionalcompleter():
            found = list(rectify_completions(code, self.shell.Completer.completions(code, position)))[:MAX_MATCHES]
        kinds = [{"start": one.start, "end": one.end, "text": one.text, "type": one.type} for one in found]
        start, end = (found[0].start, found[0].end) if found else (position, position)
        return {
            "status": "ok",
            "matches": [one.text for one in found],
            "cursor_start": start,
            "cursor_end": end,
            "metadata": {"_jupyter_types_experimental": kinds},
        }

    def do_inspect_request(self, content: Any, _: Any) -> Any:
        name = token_at_cursor(content["code"], content["cursor_pos"])
        try:
            data = self.shell.object_inspect_mime(name, detail_level=content.get("detail_level", 0))
        except KeyError:
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        return {"status": "ok", "found": True, "data": data, "metadata": {}}

    def do_is_complete_request(self, content: Any, _: Any) -> Any:
        state, indent = self.shell.input_transformer_manager.check_complete(content["code"])
        return {"status": state, **({"indent": " " * (indent or 0)} if state == "incomplete" else {})}

    def do_history_request(self, content: Any, _: Any) -> Any:
        return {"status": "ok", "history": []}

    def do_kernel_info_request(self, content: Any, _: Any) -> Any:
        language = {"name": "python", "version": ".".join(map(str, sys.version_info[:3])), "file_extension": ".py"}
        said = {"status": "ok", "protocol_version": VERSION, "implementation": "ipython", "banner": ""}
        said["implementation_version"] = ipython_version
        return {**said, "language_info": language, "supported_features": []}

    def do_comm_info_request(self, content: Any, _: Any) -> Any:
        wanted, comms = content.get("target_name"), self.comms.comms
        found = {key: one.target_name for key, one in comms.items() if wanted in (None, one.target_name)}
        return {"status": "ok", "comms": {key: {"target_name": name} for key, name in found.items()}}

    def _comm(self, name: str, content: Any, buffers: Any) -> None:
        message = {"header": {**self.parent}, "metadata": {}, "content": content, "buffers": buffers}
        getattr(self.comms, name)(None, None, message)

    def do_comm_open(self, content: Any, buffers: Any) -> None:
        self._comm("comm_open", content, buffers)

    def do_comm_msg(self, content: Any, buffers: Any) -> None:
        self._comm("comm_msg", content, buffers)

    def do_comm_close(self, content: Any, buffers: Any) -> None:
        self._comm("comm_close", content, buffers)

    def new_comm(self, *arguments: Any, **named: Any) -> Any:
        from comm.base_comm import BaseComm

        kernel = self

        class Comm(BaseComm):
            def publish_msg(
                self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
            ) -> None:
                content = {"data": {} if data is None else data, "comm_id": self.comm_id, **keys}
                kernel.publish(msg_type, content, buffers, metadata)

        return Comm(*arguments, **named)

    # --- questions to a person ---

    def input(self, prompt: Any = "") -> str:
        return self._ask(str(prompt), password=False)

    def getpass(self, prompt: str = "Password: ", stream: Any = None, **_: Any) -> str:
        return self._ask(prompt, password=True)

    def _ask(self, prompt: str, *, password: bool) -> str:
        if not self.allow_stdin:
            raise StdinNotImplementedError("raw_input was called, but this frontend does not support input requests.")
        self.flush()
        self.send(STDIN, "input_request", {"prompt": prompt, "password": password})
        frame = call(b"I")
        if not frame:
            raise KeyboardInterrupt
        return str(json.loads(parsed(frame)[1][3])["value"])


def parsed(frame: bytes) -> tuple[int, list[bytes]]:
    kind, count = struct.unpack_from("!BH", frame)
    parts, place = [], 3 + 4 * count
    for size in struct.unpack_from(f"!{count}I", frame, 3):
        parts.append(frame[place : place + size])
        place += size
    return kind, parts


def opened(number: int) -> Iterator[int]:
    """Yield the descriptors that are open, from a number on, until so many in a row are not."""
    closed = 0
    while closed < CLOSED:
        try:
            os.fstat(number)
            yield number
            closed = 0
        except OSError:
            closed += 1
        number += 1


def renew() -> None:
    """Take fresh randomness for all that drew some before: every session begins with the same memory."""
    import random
    import tempfile

    random.seed()
    tempfile._name_sequence = None  # type: ignore[attr-defined]  # noqa: SLF001
    if (uuid := sys.modules.get("uuid")) is not None:
        vars(uuid).update(_node=None, _last_timestamp=None)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()


KERNEL = GuestKernel()
