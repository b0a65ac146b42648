"""What the screen finds decides before a request is sent: blocked code reaches no kernel, and the audit has codes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ConfigurationError, KernelDied, SandboxDied
from sandbox_kernel.core.events import SessionEvent
from sandbox_kernel.core.model import Channel, Limits, Message, Settings
from sandbox_kernel.plugins.api import SessionHandle
from sandbox_kernel.plugins.screen.request_guard import ScreenGuard
from sandbox_kernel.plugins.screen.settings import ScreenSettings
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.session.requests import machine
from sandbox_kernel.session.requests.driver import Requests
from tests.support.patience import within

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
        channel: Channel = "shell" if kind.endswith("reply") else "stdin" if kind == "input_request" else "iopub"
        header = {"msg_id": "k", "msg_type": kind}
        said = Message(channel=channel, header=header, parent=dict(to.header), content=content)
        self.requests.receive(said, 100)

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [dict(message.content) for message in self.delivered if message.type == kind]

    @property
    def word(self) -> str:
        """Return what the newest question takes for a yes."""
        found = re.search("Type (yes [0-9]{4}) to run it", self.said("input_request")[-1]["prompt"])
        assert found is not None
        return found[1]

    def answer(self, value: object, client: bytes = b"client") -> None:
        header = {"msg_id": "a", "msg_type": "input_reply"}
        self.requests.submit(Message(channel="stdin", header=header, content={"value": value}), client)

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


# --- a person is asked -----------------------------------------------------------------------------------------------


async def test_a_person_is_asked_with_the_findings_and_a_yes_runs_the_cell() -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    assert front.sent == []
    [question] = front.said("input_request")
    assert question["password"] is False
    head, *rest = question["prompt"].splitlines()
    assert head == "[sandbox_kernel] This cell has not run. The screen gives it 100 points (threshold: 60):"
    assert rest[0].startswith("  line 2: file-delete-system: it deletes")
    front.answer(f" {front.word.upper()}\n")
    assert len(front.sent) == 1
    assert "rm -rf" in front.sent[0]
    [line] = front.screened
    assert (line["blocked"], line["answer"]) == (False, "yes")


@pytest.mark.parametrize("value", ["no", "", "yes", "y", "yes 00000", None, ["yes"], "NUMBER", "yes NUMBER please"])
async def test_anything_but_the_yes_with_its_number_blocks(value: Any) -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    front.answer(value.replace("NUMBER", front.word.split()[1]) if isinstance(value, str) else value)
    assert front.sent == []
    [error] = front.said("error")
    assert error["ename"] == "ScreenBlocked"
    assert "the answer was not yes" in error["evalue"]
    assert "line 2: process-shell" in "\n".join(error["traceback"])
    assert [one["answer"] for one in front.screened] == ["the answer was not yes"]
    front.answer(front.word)  # it comes too late
    assert front.sent == []
    front.run("x = 1")
    assert len(front.sent) == 1


async def test_below_the_threshold_nobody_is_asked() -> None:
    front = Front(screen="ask")
    front.run(SLIGHT, allow_stdin=True)
    assert len(front.sent) == 1
    assert front.said("input_request") == []
    assert front.said("stream")[0]["text"].startswith("[sandbox_kernel] screen: line 2: file-delete")


@pytest.mark.parametrize("more", [{}, {"allow_stdin": False}])
async def test_where_nobody_can_be_asked_it_is_blocked_and_says_so(more: dict[str, Any]) -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, **more)
    assert (front.sent, front.said("input_request")) == ([], [])
    assert "nobody can be asked here" in front.said("error")[0]["evalue"]


async def test_nobody_is_asked_about_what_a_debugger_would_evaluate() -> None:
    front = Front(screen="ask")
    expression = {"expression": "__import__('os').system('id')"}
    front.ask("debug_request", "control", command="evaluate", arguments=expression, allow_stdin=True)
    assert (front.sent, front.said("input_request")) == ([], [])


async def test_without_an_answer_in_time_it_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ASK_SECONDS", 0.05)
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    ended = asyncio.Event()
    monkeypatch.setattr(front, "drain", ended.set)
    async with within(10):
        await ended.wait()
    assert front.requests.queue.in_flight == []
    assert front.sent == []
    assert "there was no answer within 0.05 s" in front.said("error")[0]["evalue"]
    front.answer(front.word)
    assert front.sent == []


async def test_an_interrupt_blocks_what_waits_for_an_answer() -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    front.requests.take_back_questions()
    front.requests.interrupted()
    [error] = front.said("error")
    assert (error["ename"], "the question was interrupted" in error["evalue"]) == ("ScreenBlocked", True)
    front.answer(front.word)
    assert front.sent == []


async def test_a_sandbox_that_ends_meanwhile_takes_the_question_with_it() -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    front.requests.sandbox_died(SandboxDied(EndCode.SANDBOX_DIED))
    assert front.said("error")[0]["ename"] == "SandboxDied"
    assert [one["answer"] for one in front.screened] == ["the cell ended before there was an answer"]
    front.answer(front.word)
    assert front.sent == []


async def test_another_front_end_does_not_answer() -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    front.answer(front.word, b"another")
    assert front.sent == []
    front.answer(front.word)
    assert len(front.sent) == 1


async def test_the_answer_is_not_sent_to_the_kernel_and_its_number_is_another_each_time() -> None:
    front = Front(screen="ask")
    words = set()
    for _ in range(20):
        front.ask("execute_request", code=GRAVE, allow_stdin=True)
        words.add(front.word)
        front.answer("no")
    assert len(words) > 10
    assert front.sent == []


async def test_a_late_answer_to_a_question_of_an_earlier_cell_is_no_yes() -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code="input('Show the results? ')", allow_stdin=True)
    cell = front.requests.queue.in_flight[0].message
    asked = {"prompt": "Type yes 1234 to run it: ", "password": False}
    front.say(cell, "status", {"execution_state": "busy"})
    front.say(cell, "input_request", asked)
    front.say(cell, "execute_reply", {"status": "ok"})  # it does not wait for its answer
    front.say(cell, "status", {"execution_state": "idle"})
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    assert len(front.said("input_request")) == 2
    front.answer("yes")
    assert len(front.sent) == 1


def _in_subshell(front: Front, code: str) -> Message:
    """Have the kernel run a cell beside the others, and return it."""
    header = {"msg_id": f"m{code}", "msg_type": "execute_request", "subshell_id": "1"}
    cell = Message(channel="shell", header=header, content={"code": code, "allow_stdin": True})
    front.requests.submit(cell, b"client")
    front.say(cell, "status", {"execution_state": "busy"})
    return cell


ASKED = {"prompt": "Type yes 1234 to run it: ", "password": False}


async def test_a_cell_that_runs_beside_asks_nothing_while_the_question_is_open() -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    beside = _in_subshell(front, "input()")
    front.say(beside, "input_request", ASKED)
    assert len(front.said("input_request")) == 1
    front.answer(front.word)
    assert [("rm -rf" in one, "yes" in one) for one in front.sent[1:]] == [(True, False)]


async def test_nobody_is_asked_while_a_cell_beside_asks() -> None:
    front = Front(screen="ask")
    beside = _in_subshell(front, "input()")
    front.say(beside, "input_request", ASKED)
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    assert [one["prompt"] for one in front.said("input_request")] == [ASKED["prompt"]]
    assert "another question is open" in front.said("error")[0]["evalue"]


async def test_what_a_question_quotes_of_the_code_is_short_and_plain() -> None:
    front = Front(screen="ask", screen_threshold=20)
    names = "".join(f"/etc/{'x' * 300}\x1b[2J\u202e{number}" for number in range(3))
    code = "import os\n" + "".join(f"os.system({('rm -rf / ' + names)!r})\n" for _ in range(300)) + GRAVE
    front.ask("execute_request", code=code, allow_stdin=True)
    prompt = front.said("input_request")[0]["prompt"]
    assert len(prompt) < machine.MAX_QUESTION + 100
    assert all(sign.isprintable() or sign == "\n" for sign in prompt)
    assert len(prompt.splitlines()) < 15


async def test_a_defect_at_the_answer_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(screen="ask")
    front.ask("execute_request", code=GRAVE, allow_stdin=True)
    monkeypatch.setattr(front.guard, "_note", lambda *_, **__: 1 / 0)
    front.answer(front.word)
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
    "a pattern with a number that none can have": '[[rule]]\ncode = "own-x"\nreason = "x"\ntext = ["a{4294967295}"]',
    "a number of a weakness that is true": '[[rule]]\ncode = "own-x"\nreason = "x"\ncwe = true\ntext = ["a"]',
    "too deep": "a = " + "[" * 20_000,
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
