"""What the screen finds decides before a request is sent: blocked code reaches no kernel, and the audit has codes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ConfigurationError, KernelDied
from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.model import Channel, Limits, Message, Settings
from sandbox_kernel.plugins.api import SessionHandle
from sandbox_kernel.plugins.screen.request_guard import ScreenGuard
from sandbox_kernel.plugins.screen.settings import ScreenSettings
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.session.requests.driver import Requests

GRAVE = "import os\nos.system('rm -rf /')"
SLIGHT = "import os\nos.remove(name)"


class Front:
    """Requests with a screen, between a front end and a kernel that are both the test's."""

    def __init__(self, **settings: Any) -> None:
        self.ready = True
        self.sent: list[str] = []
        self.delivered: list[Message] = []
        self.audited: list[dict[str, Any]] = []
        session = cast("SessionHandle", SimpleNamespace(emit=self._audit))
        self.guard = ScreenGuard(Settings(of_plugins=(ScreenSettings(**settings),)), session)
        self.requests = Requests(
            Limits(), self, self, OutputPolicy("safe"), self._audit, guards=[self.guard], observers=[self]
        )

    def _audit(self, event: SessionEvent) -> None:
        self.audited.append({"event": event.name, **event.line()})

    def cell_sent(self, cell: object) -> None: ...
    def cell_ended(self, cell: object) -> None: ...

    def kernel_gone(self) -> None:
        self.guard.kernel_gone()

    def touch(self) -> None: ...
    def drain(self) -> None: ...

    def transmit(self, kind: int, parts: list[bytes]) -> None:
        self.sent.append(parts[3].decode())

    async def signal(self, number: int) -> None: ...
    async def kill_kernel(self) -> None: ...
    async def kill_sandbox(self, error: object) -> None: ...

    def deliver(self, message: Message, client: bytes | None) -> None:
        self.delivered.append(message)

    def ask(self, kind: str, channel: Channel = "shell", **content: Any) -> None:
        header = {"msg_id": f"m{len(self.sent) + len(self.delivered)}", "msg_type": kind}
        self.requests.submit(Message(channel=channel, header=header, content=content), b"client")

    def run(self, code: str, **more: Any) -> None:
        """Ask for a cell, and have the kernel do it if it comes there."""
        before = len(self.sent)
        self.ask("execute_request", code=code, **more)
        if len(self.sent) > before:
            request = self.requests.queue.in_flight[0]
            for kind, content in (("status", {"execution_state": "busy"}), ("execute_reply", {"status": "ok"})):
                self.say(request.message, kind, content)
            self.say(request.message, "status", {"execution_state": "idle"})

    def say(self, to: Message, kind: str, content: dict[str, Any]) -> None:
        channel: Channel = "shell" if kind.endswith("reply") else "iopub"
        header = {"msg_id": "k", "msg_type": kind}
        said = Message(channel=channel, header=header, parent=dict(to.header), content=content)
        self.requests.receive(said, 100)

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [dict(message.content) for message in self.delivered if message.type == kind]

    @property
    def screened(self) -> list[dict[str, Any]]:
        return [line for line in self.audited if line["event"] == "screen"]


async def test_a_blocked_cell_never_reaches_the_kernel_and_says_each_finding_with_its_line() -> None:
    front = Front(screen="block")
    front.run(GRAVE)
    assert front.sent == []
    [error] = front.said("error")
    assert error["ename"] == "ScreenBlocked"
    assert [line.partition(": it")[0] for line in error["traceback"][4:]] == [
        "line 2: file-delete-system",
        "line 2: file-delete-many",
        "line 2: process-shell",
        "line 2: file-delete",
    ]
    [reply] = front.said("execute_reply")
    assert (reply["status"], reply["ename"]) == ("error", "ScreenBlocked")
    assert [one["execution_state"] for one in front.said("status")] == ["busy", "idle"]
    [line] = front.screened
    assert (line["blocked"], line["score"], line["code"]) == (True, 100, "screen-blocked")
    assert {"code": "file-delete-system", "line": 2} in line["findings"]


async def test_the_next_cell_runs_after_one_that_was_blocked() -> None:
    front = Front(screen="block")
    front.run(GRAVE)
    front.run("x = 1")
    assert len(front.sent) == 1


@pytest.mark.parametrize(("screen", "sent"), [("off", 1), ("warn", 1), ("block", 0)])
async def test_the_setting_decides_what_comes_of_a_finding(screen: str, sent: int) -> None:
    front = Front(screen=screen)
    front.run(GRAVE)
    assert len(front.sent) == sent
    assert len(front.screened) == (screen != "off")


async def test_a_warning_is_one_line_of_the_host_s() -> None:
    front = Front(screen="warn")
    front.run(GRAVE)
    [stream] = front.said("stream")
    assert stream["name"] == "stderr"
    assert stream["text"].startswith("[sandbox_kernel] screen: line 2: file-delete-system: it deletes")
    assert stream["text"].count("\n") == 1


async def test_a_silent_cell_is_screened_and_hears_no_warning() -> None:
    front = Front(screen="warn")
    front.run(SLIGHT, silent=True)
    assert front.said("stream") == []
    assert len(front.screened) == 1
    front = Front(screen="block")
    front.run(GRAVE, silent=True, store_history=False)
    assert front.sent == []


@pytest.mark.parametrize("threshold", [20, 21])
async def test_the_threshold_is_the_first_score_that_is_blocked(threshold: int) -> None:
    front = Front(screen="block", screen_threshold=threshold)
    front.run(SLIGHT)
    assert len(front.sent) == (threshold > 20)


async def test_expressions_of_a_cell_are_screened() -> None:
    front = Front(screen="block")
    front.run("x = 1", user_expressions={"a": "__import__('os').system('id')"})
    assert front.sent == []
    front.run("x = 1", user_expressions={str(number): "1" for number in range(101)})
    assert front.sent == []
    front.run("x = 1", user_expressions={"a": "x + 1"})
    assert len(front.sent) == 1


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("evaluate", {"expression": "__import__('os').system('id')"}),
        ("setVariable", {"name": "x", "value": "__import__('os').system('id')"}),
        ("setBreakpoints", {"breakpoints": [{"line": 1, "condition": "__import__('os').system('id')"}]}),
    ],
)
async def test_what_a_debugger_would_evaluate_is_screened(command: str, arguments: dict[str, Any]) -> None:
    front = Front(screen="block")
    front.ask("debug_request", "control", command=command, arguments=arguments)
    assert front.sent == []
    front.ask("debug_request", "control", command=command, arguments={"expression": "x", "value": "x"})
    assert len(front.sent) == 1


async def test_names_go_from_cell_to_cell_until_the_kernel_is_another() -> None:
    front = Front(screen="block")
    front.run("go = eval")
    front.run("go(input())  # 40 points")
    assert len(front.sent) == 2
    assert [line["score"] for line in front.screened][-1] == 40
    front.requests.kernel_died(KernelDied(EndCode.KERNEL_DIED))
    front.run("go(input())")
    assert len(front.screened) == 2  # one is of the first cell, which mentions eval


async def test_a_blocked_cell_leaves_no_names() -> None:
    front = Front(screen="block", screen_threshold=20)
    front.run("go = eval")
    front.run("go(x)")
    assert [line["blocked"] for line in front.screened] == [True]


async def test_what_a_comment_allows_runs_and_is_recorded_unless_that_is_forbidden() -> None:
    code = "# sandbox: allow file-delete, file-delete-system, file-delete-many, process-shell — a drill\n" + GRAVE
    front = Front(screen="block")
    front.run(code)
    assert len(front.sent) == 1
    assert {one["code"]: one["reason"] for one in front.screened[0]["allowed"]}["process-shell"] == "a drill"
    assert front.said("stream") == []
    front = Front(screen="block", screen_overrides="forbid")
    front.run(code)
    assert front.sent == []


async def test_a_defect_of_the_screen_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(screen="block")
    monkeypatch.setattr(front.guard, "review", lambda request, reads: 1 / 0)
    front.ask("execute_request", code="x = 1")
    assert front.sent == []
    assert front.said("error")[0]["ename"] == "SandboxError"


# --- settings --------------------------------------------------------------------------------------------------------

RULES = """
[weights]
file-delete = "critical"
dynamic-execution = "off"

[[rule]]
code = "own-ledger"
weight = "high"
reason = "it asks the ledger"
instead = "Ask the team."
names = ["ledger.*"]
text = ["ledger\\\\.example\\\\.test"]

[imports]
deny = ["turtle"]
"""


async def test_an_operator_s_file_weighs_adds_and_switches_off(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    settings = resolve({"screen": "block", "screen_rules": str(file)})
    front = Front(screen="block", screen_rules=settings.of(ScreenSettings).screen_rules)
    for code, sent in ((SLIGHT, 0), ("eval(x)", 1), ("import ledger\nledger.pay()", 1), ("import turtle", 1)):
        front.run(code)
        assert len(front.sent) == sent
    assert [line["findings"][0]["code"] for line in front.screened] == [
        "file-delete",
        "own-ledger",
        "import-not-allowed",
    ]


WRONG = {
    "no TOML": "a =",
    "another table": "[other]\na = 1",
    "no such code": '[weights]\nnothing = "high"',
    "no such weight": '[weights]\nfile-delete = "grave"',
    "a code that is not the operator's": '[[rule]]\ncode = "file-delete"\nreason = "x"\ntext = ["a"]',
    "nothing to look for": '[[rule]]\ncode = "own-x"\nreason = "x"',
    "no pattern": '[[rule]]\ncode = "own-x"\nreason = "x"\ntext = ["("]',
    "no reason": '[[rule]]\ncode = "own-x"\ntext = ["a"]',
    "twice": '[[rule]]\ncode = "own-x"\nreason = "x"\ntext = ["a"]\n' * 2,
    "an unknown field": '[[rule]]\ncode = "own-x"\nreason = "x"\nfiles = ["a"]',
    "no list": '[imports]\nallow = "numpy"',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_file_of_rules_that_is_wrong_is_an_error_that_names_the_setting(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        resolve({"screen_rules": str(file)})
    assert caught.value.setting == "screen_rules"


def test_a_file_of_rules_is_a_regular_one_by_its_path_from_the_root(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    for bad in ("rules.toml", str(tmp_path), str(file)):
        with pytest.raises(ConfigurationError):
            resolve({"screen_rules": bad})
    file.write_text("a" * (300 << 10))
    with pytest.raises(ConfigurationError):
        resolve({"screen_rules": str(file)})
    file.write_text("")
    assert resolve({"screen_rules": str(file)}).of(ScreenSettings).screen_rules == ""
