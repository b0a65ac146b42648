"""Requests with a scripted kernel: every request ends with its reply and with idle, and nothing forged gets through.

No container and no socket: the kernel's lines are said by the test, word for word.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Never

import orjson
import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.call_context import caller
from sandbox_kernel.core.errors import CallCancelled, KernelDied, ProtocolError, SandboxDied, SandboxError
from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.model import Channel, ExitReason, Limits, Message
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import Cell, SessionObserver, SessionRequest
from sandbox_kernel.policy import budget
from sandbox_kernel.policy.budget import MAX_REPLY
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.session import lifecycle as exit_reasons
from sandbox_kernel.session.agent_messages import Death
from sandbox_kernel.session.requests import machine, queue
from sandbox_kernel.session.requests.driver import Hook, Requests
from sandbox_kernel.session.requests.queue import MAX_UNASKED, PendingRequest
from sandbox_kernel.session.running_cells import RunningCells
from tests.support.patience import within
from tests.support.stream_services import Served

Content = dict[str, Any]


class Bench:
    """A requests between a front end and a kernel that are both the test's; it is the port and the front at once."""

    def __init__(
        self,
        before_cell: Hook | None = None,
        after_cell: Hook | None = None,
        observers: Sequence[SessionObserver] = (),
        answers_questions: bool = False,
        **limits: Any,
    ) -> None:
        self.ready = True
        self.sent: list[Message] = []
        """What the kernel was sent."""
        self.delivered: list[tuple[Message, bytes | None]] = []
        self.audited: list[dict[str, Any]] = []
        self.begun = 0
        self.unread: list[Message] = []
        """Requests that wait in the front's sockets."""
        self.did: list[str] = []
        self.touched = 0
        self.refuses: SandboxError | None = None
        self.on_signal: Callable[[], None] = lambda: None
        self.on_kill: Callable[[], None] = lambda: self.requests.kernel_died(KernelDied("the kernel was killed"))
        self._numbers = itertools.count(1)
        settings = {"cell_timeout": 30.0, "interrupt_grace": 0.05, **limits}
        self._ended: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.requests = Requests(
            Limits(**settings),
            self,
            self,
            OutputPolicy("safe"),
            self._audit,
            before_cell=before_cell,
            after_cell=after_cell,
            observers=observers,
            recorder=self,
            answers_questions=answers_questions,
        )

    def _audit(self, event: SessionEvent) -> None:
        self.audited.append({"event": event.name, **event.line()})

    def cell_begun(self) -> None:
        self.begun += 1

    def cell_done(self, request: PendingRequest, reply: Message | None) -> None:
        self.audited.append({"event": "cell", "source": request.message.content["code"]})

    # the port

    def touch(self) -> None:
        self.touched += 1

    def transmit(self, kind: int, parts: list[bytes]) -> None:
        if self.refuses is not None:
            raise self.refuses
        channel = next(name for name, number in wire.CHANNELS.items() if number == kind)
        header, parent, metadata, content = (orjson.loads(part) for part in parts[:4])
        self.sent.append(
            Message(channel=channel, header=header, parent=parent, metadata=metadata, content=content)  # type: ignore[arg-type]
        )

    async def signal(self, number: int) -> None:
        self.did.append(signal.Signals(number).name)
        self.on_signal()

    async def kill_kernel(self) -> None:
        self.did.append("kill kernel")
        self.on_kill()

    async def kill_sandbox(self, error: SandboxError) -> None:
        self.did.append("kill sandbox")
        self.requests.sandbox_died(error)

    # the front

    def deliver(self, message: Message, client: bytes | None) -> None:
        self.delivered.append((message, client))
        if message.content.get("execution_state") == "idle":
            self._ended[message.parent["msg_id"]].set()

    def drain(self) -> None:
        while self.unread:
            self.requests.submit(self.unread.pop(0), b"client")

    # the script

    def request(self, kind: str, content: Content | None = None, channel: Channel = "shell", **header: Any) -> Message:
        header = {"msg_id": f"r{next(self._numbers)}", "msg_type": kind, **header}
        return Message(channel=channel, header=header, content=content or {})

    def submit(self, kind: str = "execute_request", content: Content | None = None, **options: Any) -> Message:
        if kind == "execute_request":
            content = {"code": "1", "allow_stdin": True, **(content or {})}
        request = self.request(kind, content, **options)
        self.requests.submit(request, b"client")
        return request

    def say(
        self,
        kind: str,
        content: Content,
        to: Message | None,
        channel: Channel = "iopub",
        *,
        size: int = 100,
        plain: bool = False,
    ) -> None:
        """Let the kernel send a message; `plain` is what the decoder says of it."""
        header, parent = {"msg_id": "k", "msg_type": kind}, dict(to.header) if to is not None else {}
        said = Message(channel=channel, header=header, parent=parent, content=content, plain=plain)
        self.requests.receive(said, size)

    async def frame(self, kind: str, content: bytes, to: Message, channel: Channel = "iopub") -> None:
        """Let the kernel send a message as it comes out of the sandbox."""
        parts = [orjson.dumps({"msg_id": "k", "msg_type": kind}), orjson.dumps(dict(to.header)), b"{}", content]
        size = sum(map(len, parts))
        message = await self.requests.parse(wire.CHANNELS[channel], parts, size)
        if message is not None:
            await self.requests.pass_on(message, size)

    def status(self, state: str, to: Message | None) -> None:
        self.say("status", {"execution_state": state}, to)

    def reply(self, to: Message, status: str = "ok", **content: Any) -> None:
        kind = to.type.replace("_request", "_reply")
        self.say(kind, {"status": status, **content}, to, to.channel)

    def stream(self, text: str, to: Message | None, *, size: int = 100) -> None:
        self.say("stream", {"name": "stdout", "text": text}, to, size=size)

    def run(self, request: Message, status: str = "ok") -> None:
        """Let the kernel do a request from busy to idle."""
        self.status("busy", request)
        self.reply(request, status)
        self.status("idle", request)

    def told(self, to: Message) -> list[str]:
        """Return what the front end was told of a request: replies, outputs and states, in order."""
        found = []
        for message, _ in self.delivered:
            if message.parent.get("msg_id") == to.id:
                what = message.content.get("execution_state") or message.content.get("text")
                found.append(str(what or message.content.get("ename") or message.content.get("status") or message.type))
        return found

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self.audited if line["event"] == "dropped"]

    async def sends(self, request: Message) -> None:
        """Wait until a request went to the kernel."""
        async with within(10):
            while request.id not in [message.id for message in self.sent]:  # noqa: ASYNC110 (the port has no event)
                await asyncio.sleep(0)

    async def ended(self, request: Message, seconds: float = 3.0) -> list[str]:
        """Wait until a request has its reply and its idle."""
        async with within(seconds):
            await self._ended[request.id].wait()
        return self.told(request)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def build(**limits: Any) -> Bench:
        benches.append(Bench(**limits))
        return benches[-1]

    yield build
    for bench in benches:
        await bench.requests.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(machine, "KILL_SECONDS", 0.1)


# --- the ordinary way ---


async def test_a_cell_from_busy_to_idle(bench: Bench) -> None:
    cell = bench.submit(content={"code": "print(1)"})
    assert [message.id for message in bench.sent] == [cell.id]
    bench.status("busy", cell)
    bench.say("execute_input", {"code": "forged", "execution_count": 1}, cell)
    bench.stream("1\n", cell)
    bench.reply(cell)
    bench.status("idle", cell)
    assert bench.told(cell) == ["busy", "execute_input", "1\n", "ok", "idle"]
    shown = next(message for message, _ in bench.delivered if message.type == "execute_input")
    assert shown.content["code"] == "print(1)"
    assert [client for message, client in bench.delivered if message.type == "execute_reply"] == [b"client"]
    assert (bench.begun, bench.audited) == (1, [{"event": "cell", "source": "print(1)"}])


async def test_the_next_cell_is_sent_when_the_one_before_has_ended(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    assert [message.id for message in bench.sent] == [first.id]
    bench.run(first)
    assert [message.id for message in bench.sent] == [first.id, second.id]


async def test_cells_wait_until_a_kernel_is_ready(bench: Bench) -> None:
    bench.ready = False
    cell = bench.submit()
    assert bench.sent == []
    bench.ready = True
    bench.requests.pump()
    assert [message.id for message in bench.sent] == [cell.id]


async def test_an_unknown_request_gets_its_reply(bench: Bench) -> None:
    request = bench.submit("invented_request", {"x": 1})
    bench.run(request)
    assert bench.told(request) == ["busy", "ok", "idle"]


async def test_a_front_end_that_joins_hears_everything(bench: Bench) -> None:
    other = Joined()
    bench.requests.join(other)
    cell = bench.submit()
    bench.run(cell)
    assert other.delivered == bench.delivered
    assert [client for _, client in other.delivered if client is not None] == [b"client"]


class Joined:
    """A further front end."""

    def __init__(self) -> None:
        self.delivered: list[tuple[Message, bytes | None]] = []

    def deliver(self, message: Message, client: bytes | None) -> None:
        self.delivered.append((message, client))

    def drain(self) -> None: ...


# --- failures behind one another ---


async def test_a_failed_cell_aborts_none_of_another_caller(bench: Bench) -> None:
    async def submitted(who: str) -> Message:
        caller.set(who)
        return bench.submit()

    first, other, same = [await asyncio.create_task(submitted(who)) for who in ("one", "two", "one")]
    bench.run(first, "error")
    assert bench.told(same) == ["busy", "aborted", "idle"]
    bench.run(other)
    assert bench.told(other) == ["busy", "ok", "idle"]


async def test_a_sandbox_s_end_aborts_none_of_another_caller(bench: Bench) -> None:
    async def submitted(who: str) -> Message:
        caller.set(who)
        return bench.submit()

    _, other, same = [await asyncio.create_task(submitted(who)) for who in ("one", "two", "one")]
    bench.ready = False
    bench.requests.sandbox_died(SandboxDied("gone"))
    assert bench.told(same) == ["busy", "aborted", "idle"]
    assert bench.told(other) == ["busy", "SandboxDied", "SandboxDied", "idle"]


async def test_a_failed_cell_aborts_those_behind_it(bench: Bench) -> None:
    first, second, third = bench.submit(), bench.submit(), bench.submit()
    bench.run(first, "error")
    assert bench.told(second) == bench.told(third) == ["busy", "aborted", "idle"]
    assert len(bench.sent) == 1


async def test_a_failed_cell_aborts_what_was_not_even_read_yet(bench: Bench) -> None:
    """None of the cells behind it may slip through to the kernel while the front's sockets are read."""
    first, second = bench.submit(), bench.submit()
    third = bench.request("execute_request", {"code": "3"})
    bench.unread = [third]
    bench.run(first, "error")
    assert [message.id for message in bench.sent] == [first.id]
    assert bench.told(second) == bench.told(third) == ["busy", "aborted", "idle"]


async def test_a_failed_cell_without_stop_on_error_aborts_nothing(bench: Bench) -> None:
    first, second = bench.submit(content={"stop_on_error": False}), bench.submit()
    bench.run(first, "error")
    assert [message.id for message in bench.sent] == [first.id, second.id]


async def test_a_failed_cell_aborts_nothing_of_another_subshell(bench: Bench) -> None:
    first = bench.submit()
    bench.submit(subshell_id="a")
    waiting = bench.submit(subshell_id="a")
    bench.run(first, "error")
    assert bench.told(waiting) == []


# --- half an end ---


async def test_a_reply_without_idle_ends_in_patience(bench: Bench) -> None:
    cell, following = bench.submit(), bench.submit()
    bench.status("busy", cell)
    bench.reply(cell)
    assert await bench.ended(cell) == ["busy", "ok", "idle"]
    assert [message.id for message in bench.sent] == [cell.id, following.id]


async def test_idle_without_a_reply_ends_in_patience(bench: Bench) -> None:
    cell = bench.submit(content={"stop_on_error": False})
    bench.status("busy", cell)
    bench.status("idle", cell)
    assert await bench.ended(cell) == ["busy", "ReplyLost", "ReplyLost", "idle"]


# --- what honest kernels send that is no proper message ---


async def test_bytes_of_names_are_shown_and_noted(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    await bench.frame("stream", b'{"name":"stdout","text":"a\xb2b"}', cell)
    error = b'"ename":"ValueError","evalue":"a\xb2b","traceback":["a\xb2b"]'
    await bench.frame("error", b"{%b}" % error, cell)
    await bench.frame("execute_reply", b'{"status":"error",%b}' % error, cell, "shell")
    bench.status("idle", cell)
    assert bench.told(cell) == ["busy", "a\ufffdb", "ValueError", "ValueError", "idle"]
    assert [(line["event"], line["code"]) for line in bench.audited if "code" in line] == [("policy", "mended")] * 3


UNREADABLE = {
    "no JSON": ("execute_reply", b"{"),
    "deep": ("execute_reply", b'{"status":"ok","payload":%b%b}' % (b"[" * 1500, b"]" * 1500)),
    "no status": ("execute_reply", b"{}"),
    "a list": ("execute_reply", b"[1]"),
}


@pytest.mark.parametrize(("kind", "content"), UNREADABLE.values(), ids=UNREADABLE)
async def test_a_reply_that_cannot_be_read_ends_its_cell_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str, content: bytes
) -> None:
    monkeypatch.setattr(machine, "PATIENCE_SECONDS", 60.0)
    cell = bench.submit(content={"stop_on_error": False})
    bench.status("busy", cell)
    await bench.frame(kind, content, cell, "shell")
    bench.status("idle", cell)
    assert bench.told(cell) == ["busy", "ReplyLost", "ReplyLost", "idle"]
    reply = next(message for message, _ in bench.delivered if message.type == "execute_reply")
    assert "the kernel's reply cannot be used: " in reply.content["evalue"]
    assert "Kept: variables and files" in reply.content["evalue"]
    assert bench.did == []


async def test_a_question_that_cannot_be_read_ends_what_waits_for_its_answer(bench: Bench) -> None:
    cell = bench.submit()
    bench.on_signal = lambda: bench.run(cell, "error")
    await bench.frame("input_request", b'{"prompt":{}}', cell, "stdin")
    assert "ProtocolError" in await bench.ended(cell)
    assert bench.did == ["SIGINT"]


LEFT_OUT = {
    "no JSON": ("stream", b"{"),
    "a text that is none": ("stream", b'{"name":"stdout","text":{}}'),
    "of protocol 4": ("stream", b'{"name":"stdout","data":"x"}'),
    "a stream of its own": ("stream", b'{"name":"log","text":"x"}'),
    "deep": ("display_data", b'{"data":{"application/json":%b%b},"metadata":{}}' % (b"[" * 1500, b"]" * 1500)),
    "no data": ("execute_result", b'{"execution_count":1}'),
}


@pytest.mark.parametrize(("kind", "content"), LEFT_OUT.values(), ids=LEFT_OUT)
async def test_the_cell_says_what_was_left_out_of_its_output(bench: Bench, kind: str, content: bytes) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    await bench.frame(kind, content, cell)
    bench.reply(cell)
    bench.status("idle", cell)
    states, (said,) = bench.told(cell)[::2], bench.told(cell)[1:2]
    assert states == ["busy", "ok"]
    assert said.startswith(f"[sandbox_kernel] left out {kind}: ")
    codes = {line["code"] for line in bench.audited if line["event"] in ("dropped", "policy")}
    assert codes
    assert {index.code(code).severity for code in codes} == {"notice"}


async def test_what_is_left_out_is_said_a_bounded_number_of_times(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    for _ in range(2 * queue.MAX_TOLD):
        await bench.frame("stream", b"{", cell)
    assert sum(word.startswith("[sandbox_kernel]") for word in bench.told(cell)) == queue.MAX_TOLD


async def test_a_welcome_is_not_worth_a_word(bench: Bench) -> None:
    cell = bench.submit()
    await bench.frame("iopub_welcome", b'{"subscription":""}', cell)
    assert bench.told(cell) == []
    assert bench.audited == []


async def test_a_reply_that_comes_after_the_end_is_no_forgery(bench: Bench) -> None:
    """The host does not wait for a kernel for ever; what it was asked may still be answered."""
    cell = bench.submit()
    bench.status("busy", cell)
    bench.status("idle", cell)
    assert await bench.ended(cell) == ["busy", "ReplyLost", "ReplyLost", "idle"]
    bench.reply(cell)
    assert bench.reasons() == ["its cell has ended"]


async def test_a_wrong_use_of_a_magic_is_said_once_as_ipython_says_it(bench: Bench) -> None:
    cell, other = bench.submit(content={"stop_on_error": False}), bench.submit()
    bench.status("busy", cell)
    bench.say("stream", {"name": "stderr", "text": "UsageError: no\n"}, cell)
    bench.reply(cell, "error", ename="UsageError", evalue="no", traceback=["UsageError: no\n"])
    bench.status("idle", cell)
    assert bench.told(cell) == ["busy", "UsageError: no\n", "UsageError", "idle"]
    bench.status("busy", other)
    bench.reply(other, "error", ename="SyntaxError", evalue="no", traceback=[])
    bench.status("idle", other)
    assert bench.told(other) == ["busy", "SyntaxError", "SyntaxError", "idle"]  # Deno says it in its reply alone


async def test_a_reply_that_an_interrupt_made_the_kernel_forget_is_said_for_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ipykernel publishes idle and never replies, if the interrupt meets it just before or after the cell's code."""
    monkeypatch.setattr(machine, "PATIENCE_SECONDS", 60.0)
    cell = bench.submit(content={"stop_on_error": False})
    bench.status("busy", cell)
    bench.requests.interrupted()
    bench.status("idle", cell)
    assert await bench.ended(cell) == ["busy", "KeyboardInterrupt", "KeyboardInterrupt", "idle"]


async def test_output_after_the_reply_prolongs_the_patience(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    cell = bench.submit()
    bench.status("busy", cell)
    bench.reply(cell)
    for _ in range(5):
        now += 0.06  # of the 0.1 s of patience
        for _ in range(3):
            await asyncio.sleep(0)  # timers that are due, and what they started
        bench.stream("x", cell)
    assert "idle" not in bench.told(cell)
    bench.status("idle", cell)
    assert bench.told(cell)[-2:] == ["ok", "idle"]


async def test_late_output_of_a_thread_finds_its_cell(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    bench.run(first)
    bench.status("busy", second)
    bench.stream("late", first)
    assert bench.told(first) == ["busy", "ok", "idle", "late"]
    assert "late" not in bench.told(second)


# --- forgeries ---


async def test_an_unknown_parent_is_dropped(bench: Bench) -> None:
    stranger = bench.request("execute_request")
    for kind in ("stream", "status", "display_data", "execute_input", "error"):
        bench.say(kind, {"execution_state": "idle", "execution_count": 1, "name": "stdout", "text": "x"}, stranger)
    bench.reply(stranger)
    bench.say("input_request", {"prompt": "?", "password": False}, stranger, "stdin")
    bench.say("input_request", {"prompt": "?", "password": False}, None, "stdin")
    assert bench.delivered == []
    assert bench.reasons() == ["unknown parent"] * 8


async def test_a_cell_that_was_not_sent_yet_says_nothing(bench: Bench) -> None:
    """Ids of a client are counted up, so a running cell can guess the next one's."""
    running, waiting = bench.submit(), bench.submit()
    bench.status("busy", running)
    bench.status("busy", waiting)
    bench.stream("forged", waiting, size=1 << 30)
    bench.reply(waiting)
    bench.say("execute_input", {"code": "x", "execution_count": 7}, waiting)
    bench.say("input_request", {"prompt": "?", "password": True}, waiting, "stdin")
    bench.status("idle", waiting)
    assert bench.told(waiting) == []
    assert bench.reasons() == ["its request was not sent yet"] * 6
    bench.reply(running)
    bench.status("idle", running)
    bench.run(waiting)
    assert bench.told(waiting) == ["busy", "ok", "idle"]


@pytest.mark.parametrize("answers", [True, False])
async def test_questions_that_nobody_may_be_asked_are_answered_so_often_and_no_more(
    make: Callable[..., Bench], answers: bool
) -> None:
    """Each answer waits for the kernel, which may never take it. Python's kernel asks none such, and gets none."""
    bench = make(answers_questions=answers)
    cell = bench.submit(content={"allow_stdin": False})
    bench.status("busy", cell)
    before = len(bench.sent)
    for _ in range(10 * MAX_UNASKED):
        bench.say("input_request", {"prompt": "", "password": False}, cell, "stdin")
    assert len(bench.sent) - before == (MAX_UNASKED if answers else 0)
    assert all(message.content == {"value": ""} for message in bench.sent[before:])


async def test_a_second_reply_or_state_is_dropped(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    bench.status("busy", cell)
    bench.reply(cell)
    bench.reply(cell, "error")
    bench.status("idle", cell)
    for _ in range(3):
        bench.status("idle", cell)
        bench.status("busy", cell)
        bench.reply(cell, "error")
    assert bench.told(cell) == ["busy", "ok", "idle"]


@pytest.mark.parametrize("state", ["dead", "restarting", "autorestarting", "starting", "terminating", "unknown", ""])
async def test_a_cell_cannot_declare_its_kernel_dead(bench: Bench, state: str) -> None:
    cell = bench.submit()
    bench.status(state, cell)
    bench.status(state, None)
    bench.status("busy", None)
    bench.status("idle", None)
    assert bench.delivered == []


async def test_idle_before_busy_is_nothing(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("idle", cell)
    assert bench.told(cell) == []
    bench.run(cell)
    assert bench.told(cell) == ["busy", "ok", "idle"]


async def test_a_reply_of_the_wrong_type_or_channel_is_dropped(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("complete_reply", {"status": "ok"}, cell, "shell")
    bench.say("execute_reply", {"status": "ok"}, cell, "control")
    bench.say("shutdown_reply", {"status": "ok"}, cell, "control")
    assert bench.told(cell) == ["busy"]
    assert bench.reasons() == ["not the reply to its request"] * 3


async def test_a_forged_count_floods_nothing(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    for count in (0, -1, False, 0, 5, 6, 0):
        bench.say("execute_input", {"code": "x", "execution_count": count}, cell)
    assert bench.told(cell) == ["busy", "execute_input"]


async def test_what_does_not_pass_is_bounded_and_ends_the_kernel(make: Callable[..., Bench]) -> None:
    """Otherwise a thread keeps the host busy, and fills its disk with the audit, for as long as it likes."""
    bench = make(output_messages=50)
    stranger = bench.request("execute_request")
    for _ in range(49):
        bench.stream("x", stranger)
    await asyncio.sleep(0)
    assert bench.did == []
    for _ in range(50):
        bench.stream("x", stranger)
    await asyncio.sleep(0.01)
    assert bench.did == ["kill kernel"]
    cell = bench.submit()
    bench.run(cell)
    assert "OutputLimit" not in bench.told(cell)
    assert any("too many messages" in text for text in bench.told(cell))


COSTLY = {"data": {"text/html": "$a$ " * 50_000, "text/plain": "x"}, "metadata": {}}
"""Its formulas take a quarter of a second of a processor."""


@pytest.mark.parametrize("by", ["the cell", "an interrupt"])
async def test_what_a_cell_costs_the_policy_has_an_end(monkeypatch: pytest.MonkeyPatch, bench: Bench, by: str) -> None:
    monkeypatch.setattr(budget, "FILTER_SECONDS" if by == "the cell" else "LAST_SECONDS", 0.001)
    cell = bench.submit()
    bench.status("busy", cell)
    if by == "an interrupt":
        bench.requests.interrupted()
    begun = time.thread_time()
    for _ in range(100):
        bench.say("display_data", COSTLY, cell)
    assert time.thread_time() - begun < 10  # of 25
    bench.reply(cell)
    bench.status("idle", cell)
    assert "OutputLimit" in await bench.ended(cell)
    assert sum(message.type == "display_data" for message, _ in bench.delivered) == 1
    again = bench.submit()
    bench.status("busy", again)
    bench.stream("hello", again)
    bench.run(again)
    assert "hello" in await bench.ended(again)


async def test_control_costly_displays_below_the_limit_pass(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    for _ in range(4):
        bench.say("display_data", COSTLY, cell)
    bench.reply(cell)
    bench.status("idle", cell)
    await bench.ended(cell)
    assert sum(message.type == "display_data" for message, _ in bench.delivered) == 4


async def test_the_audit_of_what_a_cell_sends_has_an_end(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr(machine, "MAX_NOTED", 5)
    for _ in range(20):
        bench.stream("x", bench.request("execute_request"))
    assert len(bench.audited) == 5
    assert "no more" in bench.audited[-1]["last"]
    cell = bench.submit()
    bench.run(cell)
    assert bench.audited[-1]["event"] == "cell"


# --- clocks ---


async def test_the_clock_ends_a_cell(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    cell = bench.submit()
    bench.status("busy", cell)

    def interrupted() -> None:
        error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["where it was"]}
        bench.say("error", error, cell)
        bench.reply(cell, "error", **error)
        bench.status("idle", cell)

    bench.on_signal = interrupted
    assert await bench.ended(cell) == ["busy", "CellTimeout", "CellTimeout", "idle"]
    assert bench.did == ["SIGINT"]
    error = next(message.content for message, _ in bench.delivered if message.type == "error")
    assert error["traceback"][0] == "where it was"


async def test_the_escalation_goes_on_to_the_kernel(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    cell = bench.submit()
    assert (await bench.ended(cell))[-2:] == ["CellTimeout", "idle"]
    assert bench.did == ["SIGINT", "kill kernel"]


async def test_the_escalation_goes_on_to_the_sandbox(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    bench.on_kill = lambda: None
    cell = bench.submit()
    assert (await bench.ended(cell))[-2:] == ["CellTimeout", "idle"]
    assert bench.did == ["SIGINT", "kill kernel", "kill sandbox"]


async def test_a_cell_that_ends_while_its_kernel_is_killed_leaves_the_next_to_the_next_kernel(
    make: Callable[..., Bench],
) -> None:
    """Whatever comes between the kill and the death, nothing is sent to a kernel that is about to end."""
    bench = make(cell_timeout=0.05)
    killed = asyncio.Event()
    bench.on_kill = killed.set
    first = bench.submit()
    await killed.wait()
    bench.run(first)  # its end was on its way
    assert (await bench.ended(first))[-2:] == ["CellTimeout", "idle"]
    second = bench.submit()
    assert [sent.id for sent in bench.sent] == [first.id]
    bench.requests.kernel_died(KernelDied("the kernel was killed"))
    bench.requests.kernel_ready()
    assert [sent.id for sent in bench.sent] == [first.id, second.id]
    bench.run(second)
    assert (await bench.ended(second))[-1] == "idle"
    assert bench.did == ["SIGINT", "kill kernel"]


async def test_a_forged_end_does_not_save_the_next_cell_from_its_clock(make: Callable[..., Bench]) -> None:
    """The kernel is still busy with the first cell; nothing is heard of the second."""
    bench = make(cell_timeout=0.05)
    first, second = bench.submit(), bench.submit()
    bench.run(first)
    assert (await bench.ended(second))[-2:] == ["CellTimeout", "idle"]
    assert bench.did == ["SIGINT", "kill kernel"]


async def test_a_control_request_has_a_clock_but_interrupts_nothing(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    request = bench.submit("debug_request", {"command": "threads"}, channel="control")
    assert await bench.ended(request) == ["busy", "CellTimeout", "idle"]
    assert bench.did == []
    assert not bench.requests.queue.active


async def test_a_comm_has_a_clock_once_the_kernel_is_busy_with_it(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    comm = bench.submit("comm_msg", {"comm_id": "1", "data": {}})
    await asyncio.sleep(0.1)
    assert bench.told(comm) == []
    bench.status("busy", comm)
    assert (await bench.ended(comm))[-1] == "idle"
    assert bench.did == ["SIGINT", "kill kernel"]


async def test_the_clock_waits_for_input_and_goes_on_after_it(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.2)
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("input_request", {"prompt": "?", "password": False}, cell, "stdin")
    await asyncio.sleep(0.3)
    assert "CellTimeout" not in bench.told(cell)
    answer = Message(channel="stdin", header={"msg_id": "a", "msg_type": "input_reply"}, content={"value": "x"})
    bench.requests.submit(answer, b"another client")
    assert bench.sent[-1].channel == "shell"
    bench.requests.submit(answer, b"client")
    assert bench.sent[-1].channel == "stdin"  # type: ignore[comparison-overlap]
    assert "CellTimeout" in await bench.ended(cell)


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("levels", "ends"), [(300, True), (3, False)])
async def test_an_answer_that_cannot_be_passed_on_ends_its_cell(bench: Bench, levels: int, ends: bool) -> None:
    """It nests deeper than JSON is written here. The control is one that does not: the cell goes on with it."""
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("input_request", {"prompt": "?", "password": False}, cell, "stdin")
    bench.on_signal = lambda: bench.run(cell, "error")
    answer = Message(
        channel="stdin", header={"msg_id": "a", "msg_type": "input_reply"}, content={"value": nested(levels)}
    )
    bench.requests.submit(answer, b"client")
    assert (bench.sent[-1].channel == "shell") is ends
    if ends:
        assert (await bench.ended(cell))[-2:] == ["ProtocolError", "idle"]
    else:
        bench.run(cell)
        assert bench.told(cell)[-2:] == ["ok", "idle"]


async def test_an_interrupt_ends_the_wait_for_input(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.1)
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("input_request", {"prompt": "?", "password": False}, cell, "stdin")
    bench.requests.take_back_questions()
    bench.requests.interrupted()
    assert "CellTimeout" in await bench.ended(cell)


async def test_a_question_that_comes_of_an_interrupt_is_not_taken_back(make: Callable[..., Bench]) -> None:
    """It may be here before the answer to the interrupt is: its own answer still goes to the kernel."""
    bench = make()
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("input_request", {"prompt": "one", "password": False}, cell, "stdin")
    (request,) = bench.requests.queue.in_flight
    bench.requests.take_back_questions()
    assert not request.awaiting_input
    bench.say("input_request", {"prompt": "two", "password": False}, cell, "stdin")
    bench.requests.interrupted()
    assert request.awaiting_input


ASKED: Content = {"prompt": "?", "password": True}


def asked(bench: Bench) -> int:
    return sum(message.type == "input_request" for message, _ in bench.delivered)


def answer(bench: Bench) -> None:
    header = {"msg_id": "a", "msg_type": "input_reply"}
    bench.requests.submit(Message(channel="stdin", header=header, content={"value": "x"}), b"client")


async def test_a_thread_asks_nothing_after_its_cell(bench: Bench) -> None:
    """Neither in the name of its cell, nor in that of one which waits. The control: it asks while its cell runs."""
    cell, waiting = bench.submit(), bench.submit()
    bench.status("busy", cell)
    bench.say("input_request", ASKED, waiting, "stdin")
    assert asked(bench) == 0
    bench.say("input_request", ASKED, cell, "stdin")
    assert asked(bench) == 1
    answer(bench)
    bench.reply(cell)
    bench.status("idle", cell)
    for _ in range(10):
        bench.say("input_request", ASKED, cell, "stdin")
    assert asked(bench) == 1
    answers = len(bench.sent)
    answer(bench)
    assert len(bench.sent) == answers, "what nobody asked for goes to nobody"


async def test_a_flood_of_questions_is_one_question_and_ends(make: Callable[..., Bench]) -> None:
    """A front end has one place for an answer. The control: each after the answer to the last one is asked."""
    bench = make(output_messages=100)
    cell = bench.submit()
    bench.status("busy", cell)
    for number in range(50):
        bench.say("input_request", ASKED, cell, "stdin")
        assert asked(bench) == number + 1
        answer(bench)
    assert bench.did == []
    for _ in range(102):
        bench.say("input_request", ASKED, cell, "stdin")
    assert asked(bench) == 51
    assert [message.channel for message in bench.sent].count("stdin") == 50
    assert "OutputLimit" in await bench.ended(cell)
    assert "kill kernel" in bench.did


async def test_questions_stop_the_clock_for_a_bounded_time(make: Callable[..., Bench]) -> None:
    """However many there are, and whether they are answered or taken back by an interrupt."""
    bench = make(cell_timeout=30, idle_timeout=0.2, output_messages=10**9)
    cell = bench.submit()
    bench.status("busy", cell)
    take_back = itertools.cycle((bench.requests.take_back_questions, lambda: answer(bench)))
    async with within(20):
        while not (bench.did or bench.audited):
            bench.say("input_request", ASKED, cell, "stdin")
            for _ in range(3):  # no answer comes sooner, and a timer takes two turns of the loop
                await asyncio.sleep(0)
            next(take_back)()
    assert "CellTimeout" in await bench.ended(cell)
    assert any("idle_timeout" in str(line.get("reason")) for line in bench.audited)


async def test_input_that_was_not_allowed_does_not_stop_the_clock(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    cell = bench.submit(content={"allow_stdin": False})
    bench.status("busy", cell)
    bench.say("input_request", {"prompt": "?", "password": False}, cell, "stdin")
    assert bench.reasons() == ["input was not allowed"]
    assert "CellTimeout" in await bench.ended(cell)


async def test_a_forged_breakpoint_does_not_stop_the_clock(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.05)
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("debug_event", {"event": "stopped", "body": {}}, cell)
    assert bench.told(cell) == ["busy"]
    assert "CellTimeout" in await bench.ended(cell)


async def test_a_breakpoint_stops_the_clock_until_the_debugger_goes_on(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.2)
    attach = bench.submit("debug_request", {"command": "attach"}, channel="control")
    bench.run(attach)
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("debug_event", {"event": "stopped", "body": {}}, cell)
    await asyncio.sleep(0.3)
    assert "CellTimeout" not in bench.told(cell)
    bench.submit("debug_request", {"command": "continue"}, channel="control")
    assert "CellTimeout" in await bench.ended(cell)


async def test_a_breakpoint_stops_the_clock_for_a_bounded_time(make: Callable[..., Bench]) -> None:
    """A cell can forge the debugger's word once somebody debugs: it gets no more time than an unused sandbox."""
    bench = make(cell_timeout=30, idle_timeout=0.3)
    attach = bench.submit("debug_request", {"command": "attach"}, channel="control")
    bench.run(attach)
    cell = bench.submit()
    bench.status("busy", cell)
    for _ in range(20):  # however often it is stopped
        bench.say("debug_event", {"event": "stopped", "body": {}}, cell)
        await asyncio.sleep(0.005)
        bench.say("debug_event", {"event": "continued", "body": {}}, cell)
    bench.say("debug_event", {"event": "stopped", "body": {}}, cell)
    assert "CellTimeout" in await bench.ended(cell, 2)
    assert any("idle_timeout" in str(line.get("reason")) for line in bench.audited)


async def test_messages_of_the_kernel_are_no_use_of_the_sandbox(make: Callable[..., Bench]) -> None:
    """The idle timer counts what front ends ask for."""
    bench = make()
    bench.run(bench.submit("debug_request", {"command": "attach"}, channel="control"))
    done, cell = bench.submit(), bench.submit()
    bench.run(done)
    bench.status("busy", cell)
    before = bench.touched
    for to in (done, cell, None):
        bench.stream("x", to)
        bench.say("debug_event", {"event": "stopped", "body": {}}, to)
        bench.say("display_data", {"data": {"text/plain": "x"}, "metadata": {}}, to)
        bench.say("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}, to)
        bench.status("busy", to)
    bench.say("input_request", {"prompt": "?", "password": False}, cell, "stdin")
    assert bench.touched == before


# --- replies ---


async def test_a_reply_is_charged_filtered_as_it_comes_and_kept_by_nobody(make: Callable[..., Bench]) -> None:
    bench = make(output_limit=200_000)
    cell = bench.submit()
    bench.status("busy", cell)
    pending = bench.requests.queue.find(cell.id)
    assert pending is not None
    bench.say("execute_reply", {"status": "ok", "payload": [{"source": "set_next_input"}] * 1000}, cell, "shell")
    assert pending.reply is not None
    assert pending.reply.content["payload"] == [], "what may not pass waits for nothing"
    bench.status("idle", cell)
    await bench.ended(cell)
    assert (pending.reply, pending.message.content, pending.traceback) == (None, {}, ())  # type: ignore[comparison-overlap]
    large = bench.submit()
    bench.status("busy", large)
    bench.say("execute_reply", {"status": "ok", "execution_count": 1}, large, "shell", size=300_000)
    assert "OutputLimit" in bench.told(large) or "OutputLimit" in await bench.ended(large)


async def test_replies_that_wait_for_their_idle_are_bounded_together(bench: Bench) -> None:
    asked = [bench.submit("history_request") for _ in range(300)]
    for request in asked:
        bench.status("busy", request)
        bench.say(
            "history_reply", {"status": "ok", "history": [[1, 1, "x" * 60_000]]}, request, size=60_100, channel="shell"
        )
    assert 0 < bench.requests.queue.held_bytes <= MAX_REPLY
    for request in asked:
        bench.status("idle", request)
    told = [bench.told(request)[1] for request in asked]
    assert told[0] == "ok"
    assert told[-1] == "OutputLimit"
    assert bench.requests.queue.held_bytes == 0


async def test_nothing_of_a_comm_message_is_kept_once_it_is_sent(bench: Bench) -> None:
    comm = bench.submit("comm_msg", {"comm_id": "c", "data": {"x": "y" * 1000}})
    pending = bench.requests.queue.find(comm.id)
    assert pending is not None
    assert bench.sent[-1].content["comm_id"] == "c"
    assert pending.message.content == {}


# --- deaths ---


def test_a_sandbox_without_room_for_a_process_says_which_setting_that_is() -> None:
    error = exit_reasons.of_sandbox(ExitReason(kind="out_of_processes", exit_code=2), Limits(pids=100), None)
    assert (error.name, error.code.code, error.limit, error.setting) == (
        "SandboxDied",
        "out-of-processes",
        "100",
        "pids",
    )


def test_a_folder_with_too_much_in_it_says_what_and_which_setting_that_is() -> None:
    reason = ExitReason(kind="out_of_scratch", exit_code=137, detail="12.0 GiB of files")
    error = exit_reasons.of_sandbox(reason, Limits(scratch="disk", scratch_size=10 << 30), None)
    assert (error.code.code, error.limit, error.setting) == ("out-of-scratch", "10.0 GiB", "scratch_size")
    assert "12.0 GiB of files" in str(error)


def test_a_kernel_that_found_no_room_for_a_mapped_file_says_which_setting_that_is() -> None:
    limits = Limits(shm_size=20 << 20)
    full, other = (exit_reasons.of_kernel(Death(None, number, 0, ""), limits) for number in (7, 11))
    assert (full.code.code, full.limit, full.setting) == ("kernel-died", "20.0 MiB", "shm_size")
    assert "SIGBUS" in str(full)
    assert "tmp_size" in str(full)
    assert (other.code.code, other.limit, other.setting) == ("kernel-died", None, None)


async def test_the_death_of_a_kernel_ends_its_cell_and_aborts_those_behind(bench: Bench) -> None:
    cell, waiting = bench.submit(), bench.submit()
    bench.status("busy", cell)
    bench.requests.kernel_died(KernelDied("the kernel ended"))
    assert bench.told(cell) == ["busy", "KernelDied", "KernelDied", "idle"]
    assert bench.told(waiting) == ["busy", "aborted", "idle"]


@pytest.mark.parametrize("raised", [ValueError("x"), KeyError("x"), MemoryError(), RecursionError(), AssertionError()])
async def test_a_policy_that_fails_at_our_own_words_leaves_no_cell_waiting(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, raised: Exception
) -> None:
    """They hold words of the code's. What is said in their place holds none, and the cells behind are ended, too."""

    def fails(*_: object) -> Never:
        raise raised

    cell, waiting = bench.submit(), bench.submit()
    bench.status("busy", cell)
    monkeypatch.setattr(OutputPolicy, "apply", fails)
    bench.requests.kernel_died(KernelDied("said by the code"))
    assert bench.told(cell) == ["busy", "KernelDied", "idle"]
    assert bench.told(waiting)[-1] == "idle"
    [reply] = [
        message
        for message, _ in bench.delivered
        if message.type == "execute_reply" and message.parent["msg_id"] == cell.id
    ]
    assert reply.content["evalue"] == KernelDied.usual.text
    assert "said by the code" not in repr([message.content for message, _ in bench.delivered])


async def test_what_waits_goes_to_the_next_kernel(bench: Bench) -> None:
    cell, waiting = bench.submit(content={"stop_on_error": False}), bench.submit()
    bench.status("busy", cell)
    bench.ready = False
    bench.requests.kernel_died(KernelDied("the kernel ended"))
    assert bench.told(waiting) == []
    bench.ready = True
    bench.requests.pump()
    bench.run(waiting)
    assert bench.told(waiting) == ["busy", "ok", "idle"]


async def test_a_reply_before_the_death_still_counts(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    bench.reply(cell)
    bench.requests.kernel_died(KernelDied("the kernel ended"))
    assert bench.told(cell) == ["busy", "ok", "idle"]


async def test_a_death_between_cells_is_said_in_the_next(bench: Bench) -> None:
    bench.requests.kernel_died(KernelDied("the kernel ended"))
    cell = bench.submit()
    bench.run(cell)
    assert bench.told(cell)[0] == "busy"
    assert "the kernel ended" in bench.told(cell)[1]


async def test_the_death_of_the_sandbox_ends_everything(bench: Bench) -> None:
    cell, waiting = bench.submit(), bench.submit()
    other, control = bench.submit(subshell_id="a"), bench.submit("debug_request", channel="control")
    bench.ready = False
    bench.requests.sandbox_died(SandboxDied("gone"))
    assert bench.told(cell) == bench.told(other) == ["busy", "SandboxDied", "SandboxDied", "idle"]
    assert bench.told(waiting) == ["busy", "aborted", "idle"]
    assert bench.told(control) == ["busy", "SandboxDied", "idle"]
    assert not bench.requests.queue.active


async def test_cells_have_their_time_limit_after_a_sandbox_that_ended_while_it_stood_still(
    make: Callable[..., Bench],
) -> None:
    bench = make(cell_timeout=0.05)
    await bench.requests.freeze()
    bench.requests.sandbox_died(SandboxDied("gone"))
    assert (await bench.ended(bench.submit()))[-2:] == ["CellTimeout", "idle"]


async def test_a_sandbox_that_takes_nothing_more_ends_the_request(bench: Bench) -> None:
    bench.refuses = SandboxDied("the sandbox does not read its input")
    cell = bench.submit()
    assert bench.told(cell) == ["busy", "SandboxDied", "SandboxDied", "idle"]
    assert not bench.requests.queue.active


async def test_a_comm_message_that_is_too_large_is_said_in_the_next_cell(bench: Bench) -> None:
    bench.refuses = ProtocolError("the request is too large")
    bench.submit("comm_msg", {"comm_id": "1", "data": {}})
    bench.refuses = None
    cell = bench.submit()
    bench.run(cell)
    assert "too large" in bench.told(cell)[1]


@pytest.mark.slow
async def test_any_number_of_cells_that_cannot_be_sent_end_one_after_another(bench: Bench) -> None:
    running = bench.submit()
    waiting = [bench.submit(content={"code": "\ud800", "stop_on_error": False}) for _ in range(900)]
    last = bench.submit()
    bench.run(running)
    assert {bench.told(cell)[-1] for cell in waiting} == {"idle"}
    bench.run(last)
    assert bench.told(last) == ["busy", "ok", "idle"]


async def test_a_cell_that_json_cannot_say_ends_alone_wherever_it_waits(bench: Bench) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    running = bench.submit()
    odd, nested = (
        bench.submit(content={"stop_on_error": False, **content}) for content in ({"code": "'\ud800'"}, {"extra": deep})
    )
    last = bench.submit()
    bench.run(running)  # what waits is sent now, from within the reader of the sandbox
    bench.run(last)
    assert bench.told(last) == ["busy", "ok", "idle"]
    for refused in (odd, nested):
        assert bench.told(refused)[-1] == "idle"
        assert any("ProtocolError" in word for word in bench.told(refused))
    assert bench.did == []


# --- what a front end may do wrong ---


async def test_an_id_used_twice_is_refused_and_changes_nothing(bench: Bench) -> None:
    cell = bench.submit()
    bench.requests.submit(cell, b"other")
    refused = [message for message, client in bench.delivered if client == b"other"]
    assert [message.content["ename"] for message in refused] == ["SandboxDied"]
    bench.run(cell)
    assert bench.told(cell)[-2:] == ["ok", "idle"]


async def test_an_id_comes_again_where_a_manager_makes_one_client_after_another(bench: Bench) -> None:
    """All of them count from zero with one session's id, and a stock kernel does not mind."""
    cell = bench.submit()
    bench.run(cell)
    told = bench.told(cell)
    bench.requests.submit(cell, b"other")
    bench.run(cell)
    assert bench.told(cell) == [*told, *told]
    assert [client for message, client in bench.delivered if message.type == "execute_reply"] == [b"client", b"other"]


async def test_too_many_waiting_requests_are_refused(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr(queue, "MAX_WAITING", 3)
    bench.ready = False
    for _ in range(3):
        bench.submit()
    refused = bench.submit()
    assert bench.told(refused) == ["busy", "SandboxDied", "idle"]


# --- limits on output ---


async def test_too_much_output_interrupts_the_cell(make: Callable[..., Bench]) -> None:
    bench = make(output_limit=1000)
    cell = bench.submit()
    bench.status("busy", cell)
    for _ in range(20):
        bench.stream("x", cell)
    assert (await bench.ended(cell))[-3:] == ["OutputLimit", "OutputLimit", "idle"]
    assert bench.told(cell).count("x") == 10


async def test_too_much_output_of_a_thread_ends_the_kernel(make: Callable[..., Bench]) -> None:
    bench = make(output_limit=1000)
    cell = bench.submit()
    bench.run(cell)
    for _ in range(20):
        bench.stream("x", cell)
    await asyncio.sleep(0.01)
    assert bench.did == ["kill kernel"]
    assert bench.told(cell).count("x") == 10


# --- hooks ---


@pytest.mark.parametrize("failure", [SandboxDied("gone"), OSError("no space left"), None])
async def test_a_cell_runs_and_ends_whatever_its_hooks_meet(
    make: Callable[..., Bench], failure: Exception | None
) -> None:
    async def hook() -> list[str]:
        await asyncio.sleep(0)
        if failure is not None:
            raise failure
        return ["a note"]

    bench = make(before_cell=hook, after_cell=hook)
    cell = bench.submit()
    await bench.sends(cell)
    bench.say("execute_input", {"code": "1", "execution_count": 1}, cell)
    bench.run(replace(cell))
    told = await bench.ended(cell)
    assert told[-2:] == ["ok", "idle"]
    assert len([text for text in told if str(failure or "a note").rstrip(".") in text]) == 2


# --- what nobody waits for, and what has not run yet -----------------------------------------------------------------


async def test_the_end_of_a_cell_is_a_use_of_the_sandbox(bench: Bench) -> None:
    bench.run(bench.submit())
    assert bench.touched == 1


@pytest.mark.parametrize("dies", ["the kernel", "the sandbox"])
async def test_what_a_cancelled_cell_takes_along_is_said_to_the_next(bench: Bench, dies: str) -> None:
    cell = bench.submit(content={"stop_on_error": False})
    bench.status("busy", cell)
    if dies == "the sandbox":
        bench.on_kill = lambda: None
    pending = bench.requests.queue.find(cell.id)
    assert pending is not None
    bench.requests.withdraw(pending, CallCancelled("nobody waits"))
    assert "CallCancelled" in await bench.ended(cell)
    after = bench.submit()
    bench.say("execute_input", {"code": "1", "execution_count": 1}, after)
    told = [text for text in bench.told(after) if text.startswith("[sandbox_kernel]")]
    assert told == [
        "[sandbox_kernel] the kernel was killed. (This happened after a cell was cancelled.)\n"
        if dies == "the kernel"
        else "[sandbox_kernel] nobody waits. Kept: nothing: the sandbox had to be ended.\n"
    ]


def copying() -> tuple[asyncio.Event, Hook]:
    """Return a hook that copies files for as long as a test wants, and what ends it."""
    copied = asyncio.Event()

    async def hook() -> list[str]:
        await copied.wait()
        return []

    return copied, hook


async def test_a_cancelled_cell_that_has_ended_is_not_interrupted(make: Callable[..., Bench]) -> None:
    copied, hook = copying()
    bench = make(after_cell=hook)
    cell = bench.submit()
    bench.run(cell)
    pending = bench.requests.queue.find(cell.id)
    assert pending is not None
    assert pending.complete
    assert not pending.finished
    bench.requests.withdraw(pending, CallCancelled("nobody waits"))
    copied.set()
    assert (await bench.ended(cell))[-2:] == ["ok", "idle"]
    assert bench.did == []


async def test_an_interrupt_ends_a_cell_whose_files_are_being_copied(make: Callable[..., Bench]) -> None:
    copied, hook = copying()
    bench = make(before_cell=hook)
    cell, waiting = bench.submit(), bench.submit()
    await asyncio.sleep(0)
    bench.requests.interrupted()
    assert (await bench.ended(cell))[-2:] == ["KeyboardInterrupt", "idle"]
    assert "aborted" in await bench.ended(waiting)
    copied.set()
    later = bench.submit()
    await bench.sends(later)
    bench.run(later)
    assert [message.id for message in bench.sent] == [later.id]


FAILURE = {"ename": "SyntaxError", "evalue": "no", "traceback": ["where"]}


async def test_a_failure_that_a_kernel_has_in_its_reply_alone_is_shown(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    bench.reply(cell, "error", **FAILURE)
    bench.status("idle", cell)
    assert await bench.ended(cell) == ["busy", "SyntaxError", "SyntaxError", "idle"]
    shown, reply = (message for message, _ in bench.delivered if "ename" in message.content)
    assert (shown.channel, shown.type, reply.type) == ("iopub", "error", "execute_reply")
    assert shown.content["traceback"] == ["where"]


async def test_a_failure_that_a_kernel_has_shown_is_shown_once(bench: Bench) -> None:
    cell = bench.submit()
    bench.status("busy", cell)
    bench.say("error", FAILURE, cell)
    bench.reply(cell, "error", **FAILURE)
    bench.status("idle", cell)
    assert await bench.ended(cell) == ["busy", "SyntaxError", "SyntaxError", "idle"]


@pytest.mark.parametrize("status", ["error", "abort"])
async def test_an_interrupt_that_a_kernel_has_no_error_for_is_one(bench: Bench, status: str) -> None:
    """Deno has an error that says nothing of it, and R a status of its own."""
    cell = bench.submit()
    bench.status("busy", cell)
    bench.requests.interrupted()
    bench.reply(cell, status)
    bench.status("idle", cell)
    assert await bench.ended(cell) == ["busy", "KeyboardInterrupt", "KeyboardInterrupt", "idle"]


async def test_an_interrupt_ends_the_cell_that_waits_for_a_kernel(bench: Bench) -> None:
    bench.ready = False
    first, second = bench.submit(), bench.submit(content={"stop_on_error": False})
    bench.requests.interrupted()
    assert (await bench.ended(first))[-2:] == ["KeyboardInterrupt", "idle"]
    assert "aborted" in await bench.ended(second)


async def test_an_interrupt_leaves_alone_what_waits_behind_a_running_cell(bench: Bench) -> None:
    cell, waiting = bench.submit(content={"stop_on_error": False}), bench.submit()
    bench.status("busy", cell)
    bench.requests.interrupted()
    bench.reply(cell)
    bench.status("idle", cell)
    bench.run(waiting)
    assert bench.told(waiting) == ["busy", "ok", "idle"]


@pytest.mark.parametrize("idle_first", [False, True])
async def test_a_kernel_that_forgets_to_reply_is_not_killed_for_it(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, idle_first: bool
) -> None:
    """SIGINT can meet ipykernel just outside a cell's code: it goes idle and never replies."""
    monkeypatch.setattr(machine, "PATIENCE_SECONDS", 60.0)
    bench = make(cell_timeout=0.05, interrupt_grace=20)
    cell = bench.submit()
    bench.status("busy", cell)
    if idle_first:
        bench.status("idle", cell)
    else:
        bench.on_signal = lambda: bench.status("idle", cell)
    assert (await bench.ended(cell))[-2:] == ["CellTimeout", "idle"]
    assert "kill kernel" not in bench.did
    text = next(message.content["evalue"] for message, _ in bench.delivered if message.type == "error")
    assert "variables and files" in text


def ask_and_answer(bench: Bench, cell: Message) -> None:
    bench.say("input_request", {"prompt": "?", "password": False}, cell, "stdin")
    answer = Message(channel="stdin", header={"msg_id": "a", "msg_type": "input_reply"}, content={"value": ""})
    bench.requests.submit(answer, b"client")


async def test_questions_add_no_time(make: Callable[..., Bench]) -> None:
    bench = make(cell_timeout=0.1)
    cell = bench.submit()
    bench.status("busy", cell)
    asked = 0
    async with within(30):
        while "SIGINT" not in bench.did:
            ask_and_answer(bench, cell)
            asked += 1
            await asyncio.sleep(0.001)
    assert asked > 5
    assert "CellTimeout" in await bench.ended(cell)


async def test_questions_are_output(make: Callable[..., Bench]) -> None:
    bench = make(output_messages=10)
    cell = bench.submit()
    bench.status("busy", cell)
    for _ in range(12):
        ask_and_answer(bench, cell)
    assert "OutputLimit" in await bench.ended(cell)


# --- defects of ours ---


class Work:
    """What is done before or after a cell; the first time it may fail."""

    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault
        self.done = asyncio.Semaphore(0)

    async def __call__(self) -> list[str]:
        fault, self._fault = self._fault, None
        asyncio.get_running_loop().call_soon(self.done.release)
        if fault is not None:
            raise fault
        return []


@pytest.mark.parametrize("hook", ["before_cell", "after_cell"])
@pytest.mark.parametrize("fault", [RuntimeError("can't start new thread"), None])
async def test_a_cell_is_answered_when_what_is_done_for_it_fails(
    make: Callable[..., Bench], hook: str, fault: Exception | None
) -> None:
    """A machine without threads to spare says so by a RuntimeError. The control is work that does not fail."""
    work = Work(fault)
    bench = make(**{hook: work})
    cell, other = bench.submit(content={"stop_on_error": False}), bench.submit()
    for each in (cell, other):
        if hook == "before_cell":
            await work.done.acquire()
        if bench.sent and bench.sent[-1].id == each.id:
            bench.run(each)
        await bench.ended(each)
    told = "ok" if fault is None else "SandboxError"
    assert (bench.told(cell)[-2:], bench.told(other)[-2:]) == ([told, "idle"], ["ok", "idle"])
    defects = [line["type"] for line in bench.audited if line["event"] == "defect"]
    assert defects == ([] if fault is None else [f"what comes {hook.removesuffix('_cell')} a cell"])


async def test_a_request_that_cannot_be_sent_for_a_defect_is_answered_and_so_are_those_behind_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ready = False
    odd, other = bench.submit("complete_request"), bench.submit("complete_request")
    sent = bench.transmit

    def transmit(kind: int, parts: list[bytes]) -> None:
        if odd.id.encode() in parts[0]:
            raise ValueError("something that nobody thought of")
        sent(kind, parts)

    monkeypatch.setattr(bench, "transmit", transmit)
    bench.ready = True
    bench.requests.pump()
    assert bench.told(odd) == ["busy", "SandboxError", "idle"]
    assert [message.id for message in bench.sent] == [other.id]
    bench.run(other)
    assert bench.told(other) == ["busy", "ok", "idle"]


async def test_a_cell_ends_when_the_way_to_end_it_is_defective(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(cell_timeout=0.05)

    async def signalled(number: int) -> None:
        raise ValueError("something that nobody thought of")

    monkeypatch.setattr(bench, "signal", signalled)
    cell = bench.submit()
    bench.status("busy", cell)
    assert (await bench.ended(cell))[-2:] == ["CellTimeout", "idle"]
    assert bench.did == ["kill sandbox"]


# --- what an observer, and a service, hears and says ---


class Observer:
    def __init__(self) -> None:
        self.told: list[str] = []

    def cell_sent(self, cell: SessionRequest) -> None:
        self.told.append(f"sent {cell.message.content['code']}")

    def cell_ended(self, cell: SessionRequest) -> None:
        self.told.append(f"ended {cell.verdict.name if cell.verdict is not None else 'ok'}")

    def kernel_gone(self) -> None:
        self.told.append("gone")


async def test_an_observer_is_told_of_cells_that_were_sent_and_of_nothing_else(make: Callable[..., Bench]) -> None:
    one, another, going = Observer(), Observer(), asyncio.Event()

    async def before() -> list[str]:
        await going.wait()
        return []

    bench = make(before_cell=before, observers=[one])
    bench.requests.observers.append(another)
    unsent, aborted = bench.submit(), bench.submit()
    pending = bench.requests.queue.find(unsent.id)
    assert pending is not None
    bench.requests.withdraw(pending, CallCancelled("nobody waits"))
    await bench.ended(unsent)
    assert one.told == []
    going.set()
    sent = bench.submit(content={"code": "last"})
    bench.submit("complete_request", {"code": "a", "cursor_pos": 1})
    async with within(5):
        while not one.told or sent not in bench.sent:  # noqa: ASYNC110 (it happens in a task of the requests)
            await asyncio.sleep(0)
    bench.requests.kernel_died(KernelDied("it ended"))
    assert one.told == another.told == ["sent last", "ended KernelDied", "gone"]
    assert bench.told(aborted)[-2:] == ["aborted", "idle"]


async def test_a_service_hears_of_each_cell_that_the_kernel_has(make: Callable[..., Bench]) -> None:
    service = Served(lambda stream, cell: asyncio.sleep(0))
    cells = RunningCells()
    bench = make(observers=[cells, service])
    first, second = bench.submit(), bench.submit()
    other = bench.submit("complete_request", {"code": "a", "cursor_pos": 1})
    bench.run(first)
    assert service.events == [("began", first.id), ("ended", first.id), ("began", second.id)]
    assert cells.charged == Cell(second.id)
    bench.requests.kernel_died(KernelDied("it ended"))
    assert service.events[-1] == ("ended", second.id)
    assert other.id not in [name for _, name in service.events]
    assert cells.charged is None, "the next kernel has run nothing yet"


async def test_a_service_is_not_told_of_a_cell_that_never_ran(make: Callable[..., Bench]) -> None:
    service = Served(lambda stream, cell: asyncio.sleep(0))
    bench = make(observers=[RunningCells(), service])
    first, aborted = bench.submit(), bench.submit()
    bench.run(first, "error")
    assert bench.told(aborted)[-2:] == ["aborted", "idle"]
    assert service.events == [("began", first.id), ("ended", first.id)]


async def test_what_the_host_says_in_a_cell_is_one_line_on_its_stderr(bench: Bench) -> None:
    bench.requests.tell("nobody runs")
    cell = bench.submit()
    bench.status("busy", cell)
    bench.requests.tell("denied:\nexample.test\r" + "x" * 2000)
    (said,) = [message for message, _ in bench.delivered if message.type == "stream"]
    assert said.content["name"] == "stderr"
    assert said.content["text"].startswith("[sandbox_kernel] denied: example.test xxx")
    assert said.content["text"].count("\n") == 1
    assert len(said.content["text"]) < 1100
    assert said.parent["msg_id"] == cell.id
    bench.reply(cell)
    bench.status("idle", cell)
    bench.requests.tell("nobody runs")
    assert len(bench.told(cell)) == 4


async def test_the_host_says_only_so_much_in_a_cell_and_in_the_next_again(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    bench.status("busy", first)
    for number in range(queue.MAX_TOLD + 10):
        bench.requests.tell(f"line {number}")
    assert bench.told(first)[1:] == [f"[sandbox_kernel] line {number}\n" for number in range(queue.MAX_TOLD)]
    bench.reply(first)
    bench.status("idle", first)
    bench.requests.tell("again")
    assert bench.told(second) == ["[sandbox_kernel] again\n"]


async def test_what_the_host_says_counts_as_the_cell_s_output(make: Callable[..., Bench]) -> None:
    """Whoever makes a cell be told things has that much less to say; the cell ends as for its own."""
    bench = make(output_messages=3)
    cell = bench.submit()
    bench.on_signal = lambda: bench.run(cell, "error")
    for _ in range(4):
        bench.requests.tell("denied")
    found = await bench.ended(cell)
    assert found.count("[sandbox_kernel] denied\n") == 3
    assert "OutputLimit" in found


ODD_REPLIES: dict[str, Content] = {
    "nothing but that it failed": {"status": "error"},
    "a traceback that is a number": {"status": "error", "ename": "E", "evalue": "v", "traceback": 5},
    "an object for everything": {"status": "error", "ename": {}, "evalue": {}, "traceback": {"a": 1}},
    "a payload that is a number": {"status": "ok", "payload": 5},
    "a payload that is nothing": {"status": "ok", "payload": None},
}


@pytest.mark.parametrize("code", ["1", "exit"])
@pytest.mark.parametrize("reply", ODD_REPLIES)
async def test_an_odd_reply_under_trusted_ends_its_cell_and_no_more(bench: Bench, reply: str, code: str) -> None:
    """What the host itself reads of a reply has its form there too: a defect would end the sandbox."""
    bench.requests.machine.policy = OutputPolicy("trusted")
    cell = bench.submit(content={"code": code})
    bench.status("busy", cell)
    bench.reply(cell, **ODD_REPLIES[reply])
    bench.status("idle", cell)
    await bench.ended(cell)
    assert bench.did == []
    replies = [one.content for one, _ in bench.delivered if one.type == "execute_reply"]
    assert [one["status"] for one in replies] == [ODD_REPLIES[reply]["status"]]
    for error in [one.content for one, _ in bench.delivered if one.type == "error"]:
        assert isinstance(error["ename"], str)
        assert isinstance(error["evalue"], str)
        assert isinstance(error["traceback"], list)
