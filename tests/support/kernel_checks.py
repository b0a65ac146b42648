"""What a kernel says of itself to its clients, whatever carries it: one class of checks, for a fixture `wired` of each.

Nothing runs behind these kernels. Their messages go over the real wire, to a real client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import Transport
from sandbox_kernel.session.agent_messages import SandboxUsage
from sandbox_kernel.session.serving.kernel_info import kernel_info
from sandbox_kernel.session.serving.server import QUIET, KernelServer
from sandbox_kernel.session.session import Session
from tests.support.patience import within

QUESTIONS = [
    "usage_request",
    "interrupt_request",
    "kernel_info_request",
    "sandbox_state_request",
    "sandbox_screen_request",
    "sandbox_file_list_request",
]
MISPLACED = [("execute_request", "control"), ("usage_request", "shell"), ("debug_request", "shell")]
USED = SandboxUsage(memory_bytes=1 << 20, scratch_bytes=0, processes=3, cpu_seconds=1.0)


@dataclass
class Listener:
    hear: Callable[[SessionEvent], None]


@dataclass
class Wired(ABC):
    """A kernel behind one transport, and its one client."""

    session: Session
    server: KernelServer
    transport: Transport
    engine: str
    """What its clients are told of its engine."""
    deliver: Callable[[Message, bytes | None], None]
    """The session's way out."""
    sent: list[str] = field(default_factory=list)
    """What the kernel said of itself, in its order: types, and states."""
    noted: list[SessionEvent] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin to note what is sent, and events."""
        send = self.transport.send

        def noting(message: Message, client: bytes | None = None) -> None:
            self.sent.append(str(message.content.get("execution_state") or message.type))
            send(message, client)

        monkeypatch.setattr(self.transport, "send", noting)
        self.session.services.listen(Listener(self.noted.append))
        monkeypatch.setattr(self.session, "settled", passes)

    @abstractmethod
    async def ask(self, kind: str, channel: str, content: dict[str, Any] | None = None) -> str:
        """Send a request; return its id."""

    @abstractmethod
    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next message that came, and its channel; the order within a channel is that of the kernel."""

    @abstractmethod
    def break_interrupt(self, monkeypatch: pytest.MonkeyPatch, broken: Callable[..., Any]) -> None:
        """Have what interrupts be broken."""

    async def told(self, parent: str, *, quiet: bool = False) -> tuple[dict[str, Any], list[str]]:
        """Return the reply to a request and the statuses of it; `quiet` is a request without any."""
        replies, states = list[dict[str, Any]](), list[str]()
        async with within(20):
            while not replies or not (quiet or "idle" in states):
                channel, message = await self.next()
                if message["parent_header"].get("msg_id") != parent:
                    continue
                if channel != "iopub":
                    replies.append({"channel": channel, **message})
                elif message["header"]["msg_type"] == "status":
                    states.append(message["content"]["execution_state"])
        [reply] = replies
        return reply, states

    async def answer(self, kind: str, channel: str = "control", **content: Any) -> Any:
        """Return the content of a reply, which is one as all are."""
        reply, states = await self.told(await self.ask(kind, channel, content))
        assert states == ["busy", "idle"]
        assert reply["header"]["msg_type"] == kind.replace("_request", "_reply")
        assert reply["channel"] == channel
        return reply["content"]


async def passes() -> None:
    """Wait for no sandbox: none was asked for."""


async def fails(*arguments: object, **more: object) -> Any:
    raise RuntimeError("something that nobody thought of")


def breaks(*arguments: object) -> None:
    raise RuntimeError("something that nobody thought of")


class KernelChecks:
    @pytest.fixture(autouse=True)
    def _watched(self, wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
        wired.watch(monkeypatch)

    @pytest.mark.parametrize("kind", QUESTIONS)
    async def test_a_request_whose_handling_fails_gets_its_reply_and_idle(
        self, kind: str, wired: Wired, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wired.session, "usage", fails)
        monkeypatch.setattr(wired.session, "settled", fails)
        monkeypatch.setattr(wired.server.files, "answer", fails)
        monkeypatch.setattr("sandbox_kernel.session.serving.server.state", fails)
        monkeypatch.setattr(wired.session, "part", breaks)
        wired.break_interrupt(monkeypatch, fails)
        reply, states = await wired.told(await wired.ask(kind, "control"))
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "RuntimeError")
        assert states == (["idle"] if kind in QUIET else ["busy", "idle"])
        assert wired.sent == [*states[:-1], kind.replace("_request", "_reply"), "idle"]
        assert [event.name for event in wired.noted] == ["defect"]

    @pytest.mark.parametrize("kind", [one for one in QUESTIONS if one not in QUIET])
    async def test_control_the_same_request_that_does_not_fail_has_no_defect(self, kind: str, wired: Wired) -> None:
        await wired.answer(kind)
        assert wired.sent == ["busy", kind.replace("_request", "_reply"), "idle"]
        assert "defect" not in {event.name for event in wired.noted}

    async def test_how_the_sandbox_stands_is_said_without_statuses_and_starts_nothing(self, wired: Wired) -> None:
        """A page asks it every few seconds: the kernel is not busy for that, and its server may cull it."""
        was_new = wired.session.is_new
        reply, states = await wired.told(await wired.ask("sandbox_state_request", "control"), quiet=True)
        content = reply["content"]
        assert (content["state"], content["idle_seconds"], content["memory_bytes"]) == ("none", None, None)
        await wired.answer("usage_request")
        assert (states, wired.sent) == ([], ["sandbox_state_reply", "busy", "usage_reply", "idle"])
        assert (was_new, wired.session.is_new) == (True, True)

    async def test_a_cell_that_the_session_cannot_even_take_is_answered_too(
        self, wired: Wired, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wired.session, "submit", breaks)
        reply, states = await wired.told(await wired.ask("execute_request", "shell", {"code": "1"}))
        assert (reply["header"]["msg_type"], reply["content"]["ename"]) == ("execute_reply", "RuntimeError")
        assert (states, wired.sent) == (["idle"], ["execute_reply", "idle"])
        assert [event.name for event in wired.noted] == ["defect"]

    async def test_a_cell_that_nests_deeper_than_can_be_said_again_is_answered_too(self, wired: Wired) -> None:
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        reply, states = await wired.told(await wired.ask("execute_request", "shell", {"code": "1", "deep": deep}))
        assert (reply["header"]["msg_type"], reply["content"]["status"]) == ("execute_reply", "error")
        assert states[-1] == "idle"

    @pytest.mark.parametrize(("kind", "channel"), MISPLACED)
    async def test_a_request_on_a_channel_that_is_not_for_it_is_answered_and_in_the_audit(
        self, kind: str, channel: str, wired: Wired
    ) -> None:
        """Ipykernel's own suite sends an execute_request on control, and waits."""
        content = await wired.answer(kind, channel)
        assert (content["status"], f"{kind} is not taken on {channel}" in content["evalue"]) == ("error", True)
        assert wired.sent == ["busy", kind.replace("_request", "_reply"), "idle"]
        assert [(event.name, event.line()["code"]) for event in wired.noted] == [("refused", "wrong-channel")]

    async def test_what_has_no_reply_gets_its_statuses_on_a_channel_that_is_not_for_it(self, wired: Wired) -> None:
        parent = await wired.ask("comm_msg", "control", {"comm_id": "c", "data": {}})
        async with within(20):
            _, first = await wired.next()
        assert (first["parent_header"]["msg_id"], wired.sent) == (parent, ["busy", "idle"])
        assert [event.name for event in wired.noted] == ["refused"]

    async def test_it_says_who_it_is(self, wired: Wired) -> None:
        expected = kernel_info(wired.session, wired.engine, file_messages=wired.server.files.described())
        for channel in ("shell", "control"):
            assert await wired.answer("kernel_info_request", channel) == {"status": "ok", **expected}

    async def test_usage_is_that_of_the_sandbox_and_its_limits(
        self, wired: Wired, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def usage() -> SandboxUsage:
            return USED

        unknown = await wired.answer("usage_request")
        monkeypatch.setattr(wired.session, "usage", usage)
        known, limits = await wired.answer("usage_request"), wired.session.limits
        assert (unknown["cpu_count"], "kernel_memory" in unknown) == (limits.cpus, False)
        assert (known["kernel_memory"], known["kernel_cpu"]) == (USED.memory_bytes, 0.0)
        assert known["host_virtual_memory"]["total"] == limits.memory

    @pytest.mark.skipif(not index.is_here("file_messages"), reason="its plugin answers, and is not here")
    async def test_a_file_that_is_refused_is_in_the_audit(self, wired: Wired) -> None:
        content = await wired.answer("sandbox_file_list_request", version=99)
        assert (content["status"], content["code"]) == ("error", "file-version-unknown")
        assert [event.name for event in wired.noted] == ["file_refused"]

    async def test_a_request_about_files_names_the_plugin_that_is_not_there(
        self, wired: Wired, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(index, "is_here", lambda name: name != "file_messages")
        content = await wired.answer("sandbox_file_list_request")
        assert (content["status"], content["ename"]) == ("error", "ConfigurationError")
        assert "file_messages is not a part of this installation" in content["evalue"]
        about = await wired.answer("kernel_info_request")
        assert about["sandbox"].get("file_messages", {}) == {}

    async def test_a_shutdown_is_answered_before_it_comes(self, wired: Wired) -> None:
        assert await wired.answer("shutdown_request", restart=False) == {"status": "ok", "restart": False}

    async def test_a_page_gets_what_it_bears(self, wired: Wired) -> None:
        lines = wired.session.settings.display_lines
        content = {"name": "stdout", "text": "x\n" * (lines + 5)}
        for parent in ({}, {"msg_id": "of a cell that ended long ago"}):  # the first is the control
            wired.deliver(Message(channel="iopub", header={"msg_type": "stream"}, parent=parent, content=content), None)
        found = list[tuple[str, int]]()
        async with within(20):
            while len(found) < 3:
                _, message = await wired.next()
                found.append((message["content"]["name"], message["content"]["text"].count("\n")))
        assert found == [("stdout", lines + 5), ("stdout", lines - 1), ("stderr", 1)]

    async def test_each_message_has_an_id_of_one_session(self, wired: Wired) -> None:
        headers = []
        for _ in range(3):
            reply, _ = await wired.told(await wired.ask("usage_request", "control"))
            headers.append(reply["header"])
        [session] = {one["session"] for one in headers}
        assert {one["version"] for one in headers} == {"5.4"}
        assert {one["username"] for one in headers} == {"kernel"}
        numbers = [int(str(one["msg_id"]).removeprefix(f"{session}_")) for one in headers]
        assert numbers == sorted(set(numbers))
