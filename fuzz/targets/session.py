"""A whole session but for the container: frames, forged or not, and requests of two clients, in any order.

Whatever comes, every request ends with one reply and one idle, nothing reaches a front end that does not belong there,
and no defect is met on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import orjson

from sandbox_kernel.container import wire
from sandbox_kernel.core.model import ExitReason, Limits, Message, SandboxSpec, Settings
from sandbox_kernel.policy import protocol
from sandbox_kernel.session import agent_link
from sandbox_kernel.session.session import Session

from .. import judge
from ..clock import Clock
from ..judge import require
from ..trees import Reader, encode, option
from ..words import REQUESTS, SNIPPETS, TYPES
from .messages import CONTENTS

LIMITS = Limits(output_limit=2000, output_messages=20, message_limit=1000, cell_timeout=30, idle_timeout=100)
SETTINGS = Settings(limits=LIMITS)
MAX_STEPS = 12

REQUEST, HONEST, FORGED, EVENT, BYTES, PART, END, PASS = range(8)
CHANNELS = ("iopub", "shell", "control", "stdin")
STATES = ("busy", "idle")


class Container:
    """A pipe whose other end the fuzzer holds."""

    id = "c"
    image_id = None
    introduced = None
    held = True

    def __init__(self) -> None:
        self._pipe: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent = wire.Decoder(1 << 20)
        self.feed(frame(wire.AGENT, {"op": "hello", "report": {}}))
        self.feed(frame(wire.AGENT, {"op": "kernel_ready"}))

    def feed(self, data: bytes) -> None:
        if data:
            self._pipe.put_nowait(data)

    async def send(self, data: bytes) -> None:
        """Answer what the host asks of the agent, as an honest one would."""
        for kind, parts in self.sent.feed(data):
            asked = orjson.loads(parts[0])
            if asked.get("msg_type") == "kernel_info_request":
                header = {"msg_id": "i", "msg_type": "kernel_info_reply"}
                self.feed(frame(wire.CONTROL, header, asked, {}, {"status": "ok"}))
            if kind == wire.AGENT and "id" in asked:
                self.feed(frame(wire.AGENT, {"op": "reply", "id": asked["id"], "ok": True}))
                if asked["op"] == "stop_kernel":
                    self.feed(frame(wire.AGENT, {"op": "kernel_exited", "signal": 9}))

    def offer(self, data: bytes) -> int:
        return 0

    async def receive(self, minimum: int = 1) -> bytes:
        return await self._pipe.get()

    async def wait(self) -> ExitReason:
        return ExitReason(kind="killed", detail="x")

    async def kill(self) -> None:
        self._pipe.put_nowait(b"")

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        """Every one is as it should be."""


class Engine:
    def __init__(self) -> None:
        self.containers: list[Container] = []

    async def start(self, spec: SandboxSpec) -> Container:
        require(spec.uid > 0 and spec.command, spec)
        self.containers.append(Container())
        return self.containers[-1]


class Front:
    """Checks what it is told as a front end would have to, were it not for the session."""

    def __init__(self) -> None:
        self.requests: dict[str, tuple[Message, bytes]] = {}
        self.replies: dict[str, int] = {}
        self.states: dict[str, list[str]] = {}

    def deliver(self, message: Message, client: bytes | None) -> None:
        for part in (message.parent, message.metadata, message.content):
            protocol.dumps(part)
        asked = self.requests.get(str(message.parent.get("msg_id")))
        require(asked is not None or not message.parent, ("a parent that nobody sent", message.parent))
        require(asked is None or message.parent == asked[0].header, message.parent)
        if message.channel == "iopub":
            require(client is None and message.type in protocol.PUBLISHED, message)
            self._published(message, asked)
            return
        require(asked is not None and client == asked[1], "a reply for somebody else")
        if message.channel == "stdin":
            require(message.type == "input_request" and asked[0].content.get("allow_stdin"), message)
            return
        require(message.channel == asked[0].channel, message)
        require(message.type in (protocol.reply_type(asked[0].type), "error_reply"), message.type)
        self.replies[asked[0].id] = self.replies.get(asked[0].id, 0) + 1
        judge.message(message, mode="safe", models={})

    def _published(self, message: Message, asked: tuple[Message, bytes] | None) -> None:
        if message.type == "status":
            require(asked is not None, "a status of nobody")
            self.states.setdefault(asked[0].id, []).append(message.content["execution_state"])
        elif message.type == "execute_input":
            require(asked is not None and message.content["code"] == asked[0].content.get("code", ""), message.content)
        elif message.type not in ("comm_open", "comm_msg", "comm_close") and "widget-view" not in str(message.content):
            judge.message(message, mode="safe", models={})

    def drain(self) -> None:
        pass


class _Defects(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.met: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.met.append(self.format(record))


_defects = _Defects()


_loop: Clock


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Collect what is logged; the attestation has tests of its own, for which it needs a real container's report."""
    global _loop
    log = logging.getLogger("sandbox_kernel")
    with (
        contextlib.closing(Clock()) as _loop,
        patch.object(agent_link, "PING_SECONDS", 50.0),
        patch.object(log, "propagate", False),
    ):
        _loop.set_exception_handler(lambda _, context: _defects.met.append(repr(context)))
        log.addHandler(_defects)
        try:
            yield
        finally:
            log.removeHandler(_defects)


def frame(kind: int, *parts: Any) -> bytes:
    return b"".join(wire.encode(kind, [part if isinstance(part, bytes) else orjson.dumps(part) for part in parts]))


def run(data: bytes) -> None:
    _defects.met.clear()
    _loop.rewind()
    front = Front()
    _loop.run_until_complete(_case(Reader(data), front))
    require(not _defects.met, _defects.met)
    for name, (request, _) in front.requests.items():
        replies = front.replies.get(name, 0)
        states = front.states.get(name, [])
        if protocol.reply_type(request.type) is None:
            require(replies == 0 and states in ([], ["busy"], ["busy", "idle"]), (request, states))
        else:
            require(replies == 1, (request.header, replies))
            require(states == ["busy", "idle"], (request.header, states))


async def _case(reader: Reader, front: Front) -> None:
    engine = Engine()
    live = Session(SETTINGS, engine, front)  # type: ignore[arg-type]
    numbers = itertools.count(1)
    live.launch()
    await _turn()
    try:
        for _ in range(MAX_STEPS):
            if not reader.left:
                break
            await _step(reader, live, engine.containers[-1], front, numbers)
            await _turn()
        if live.requests.queue.active:
            await asyncio.sleep(2 * LIMITS.cell_timeout)
        # What is left waits for input or for a debugger: it ends with its sandbox, and what comes after it too.
        for _ in range(4):
            if live.requests.queue.active:
                await engine.containers[-1].kill()
                await _turn()
    finally:
        await live.close()


async def _turn() -> None:
    """Let everybody else go on for as long as there is anything to do: only then does time pass."""
    await asyncio.sleep(1e-6)


async def _step(reader: Reader, live: Session, container: Container, front: Front, numbers: Iterator[int]) -> None:
    what = reader.byte() % 8
    if what == REQUEST:
        kind, content = reader.choice(REQUESTS), reader.object()
        channel = "control" if kind.startswith(("debug", "create", "delete", "list")) else "shell"
        header = {"msg_id": f"r{next(numbers)}", "msg_type": kind, "session": "a"}
        if reader.byte() & 1:
            header["subshell_id"] = "a"
        request = Message(channel=channel, header=header, content=content)  # type: ignore[arg-type]
        client = b"client-%d" % (reader.byte() % 2)
        front.requests[request.id] = (request, client)
        live.submit(request, client)
    elif what == HONEST:
        parent = f"r{reader.byte() % 8}"
        kind = reader.choice(TYPES)
        content = dict(CONTENTS.get(kind, {"status": "ok"}))
        if kind == "status":
            content = {"execution_state": reader.choice(STATES)}
        channel = wire.SHELL if kind.endswith("_reply") else wire.STDIN if kind == "input_request" else wire.IOPUB
        container.feed(frame(channel, {"msg_id": "k", "msg_type": kind}, {"msg_id": parent}, {}, content))
    elif what == FORGED:
        header = {"msg_id": "k", "msg_type": reader.choice(TYPES)}
        parent = {"msg_id": reader.tree(), "msg_type": "execute_request"} if reader.byte() & 1 else reader.object()
        channel = wire.CHANNELS[reader.choice(CHANNELS)]
        container.feed(frame(channel, header, parent, reader.object(), reader.tree(), b"buffer"))
    elif what == EVENT:
        container.feed(frame(wire.AGENT, reader.tree(), reader.block()))
    elif what == BYTES:
        container.feed(reader.block())
    elif what == PART:
        whole = frame(wire.IOPUB, {"msg_id": "k", "msg_type": "stream"}, {"msg_id": "r1"}, {}, CONTENTS["stream"])
        container.feed(whole[: reader.byte()])
    elif what == END:
        await container.kill()
    else:
        seconds = reader.byte()
        if seconds & 1:
            await live.interrupt()
        await asyncio.sleep(seconds / 4)


def request(kind: str, content: Any, subshell: int = 0, client: int = 0) -> bytes:
    return bytes([REQUEST]) + option(REQUESTS, kind) + encode(content) + bytes([subshell, client])


def said(kind: str, parent: int = 1, state: str = "busy") -> bytes:
    tail = option(STATES, state) if kind == "status" else b""
    return bytes([HONEST, parent]) + option(TYPES, kind) + tail


def forged(kind: str, parent: Any, content: Any, channel: str = "iopub") -> bytes:
    return (
        bytes([FORGED])
        + option(TYPES, kind)
        + b"\1"
        + encode(parent)
        + option(CHANNELS, channel)
        + encode({})
        + encode(content)
    )


def event(tree: Any, data: bytes = b"") -> bytes:
    return bytes([EVENT]) + encode(tree) + data + b"\xff"


def seeds() -> Iterator[bytes]:
    cell = request("execute_request", {"code": "a", "allow_stdin": True})
    busy, idle = said("status"), said("status", 1, "idle")
    reply = said("execute_reply")
    yield cell + busy + said("execute_input") + said("stream") + reply + idle
    yield (
        cell
        + cell
        + busy
        + said("execute_input")
        + said("execute_result")
        + idle
        + reply
        + said("status", 2)
        + said("execute_reply", 2)
    )
    yield (
        cell
        + request("execute_request", {"code": "b"}, 1, 1)
        + busy
        + said("status", 2)
        + said("stream", 2)
        + reply
        + idle
    )
    yield cell + busy + said("input_request") + bytes([PASS, 1]) + reply + idle
    yield cell + busy + reply + bytes([PASS, 40]) + cell + said("status", 2) + bytes([PASS, 250])
    for kind in TYPES:
        yield (
            cell
            + busy
            + said(kind)
            + forged(kind, "r1", CONTENTS.get(kind, {}))
            + reply
            + idle
            + said(kind)
            + forged(kind, "r9", {})
        )
        yield cell + busy + reply + reply + idle + idle + forged(kind, "r1", {"status": "ok"}, "shell")
    for kind in REQUESTS:
        content = {"code": "a", "comm_id": "a", "target_name": "jupyter.widget", "command": "attach", "data": {}}
        yield request(kind, content) + busy + idle + said("complete_reply") + said("debug_event")
    for tree in (
        {"op": "oversized", "bytes": 1 << 40, "parent": '{"msg_id":"r1"}', "channel": 4},
        {"op": "oversized", "bytes": "x", "parent": "["},
        {"op": "oversized", "bytes": True, "parent": "[]"},
        {"op": "kernel_exited", "signal": 9, "ooms": 1, "tail": SNIPPETS[0]},
        {"op": "kernel_exited", "signal": 999, "ooms": "x", "tail": [1]},
        {"op": "kernel_exited", "code": 3},
        {"op": "kernel_ready"},
        {"op": "hello", "report": {}},
        {"op": "resumed", "ready": True},
        {"op": "reply", "id": 1},
        {"op": "reply", "id": 10**18},
        {"op": "x", "id": -1},
        {"op": 1},
        [],
    ):
        yield cell + busy + event(tree) + reply + idle
        yield event(tree) + cell + event(tree, b"x")
    yield cell + busy + event({"op": "kernel_exited", "signal": 9}) * 4
    yield cell + busy + said("stream") * 12 + said("display_data") * 15
    yield cell + busy + forged("stream", "r1", {"name": "stdout", "text": "x" * 900}) * 3
    yield cell + busy + bytes([BYTES]) + b"garbage\xff"
    yield cell + busy + bytes([PART, 40]) + bytes([PART, 200]) + said("stream")
    yield cell + busy + bytes([END]) + cell + said("status", 2) + said("execute_reply", 2) + said("status", 2, "idle")
    yield (
        bytes([END])
        + cell
        + request("execute_request", {"code": "b", "stop_on_error": False})
        + busy
        + bytes([END, END])
    )
