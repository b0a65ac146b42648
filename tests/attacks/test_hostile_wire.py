"""User code against the wire: it cannot reach the agent; where it can, its bytes end the sandbox and nothing else.

The second half weakens the agent on purpose, so that user code writes what it likes into the pipe to the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from sandbox_kernel.config.sources import changed
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.session.session import Session
from tests.support.fronts import WRITE, Front
from tests.support.kernels import Kernel, containers_of, eventually
from tests.support.patience import Stopwatch, until

Start = Callable[..., Kernel]
MIB = 1 << 20


# --- the agent is out of reach ---

REFUSED = """
import ctypes, os, signal
def refused(what, action):
    try:
        action()
    except OSError as error:
        print(what, 'refused', error.errno)
    else:
        print(what, 'WORKED')
def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)
class Vector(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
here = Vector(ctypes.addressof(buffer), 8)
"""

ATTEMPTS = {
    "stdout": "lambda: os.open('/proc/1/fd/1', os.O_WRONLY)",
    "stdin": "lambda: os.open('/proc/1/fd/0', os.O_RDONLY)",
    "files": "lambda: os.listdir('/proc/1/fd')",
    "memory": "lambda: os.open('/proc/1/mem', os.O_RDWR)",
    "maps": "lambda: open('/proc/1/maps').read() and None",
    "root": "lambda: os.listdir('/proc/1/root/')",
    "environment": "lambda: open('/proc/1/environ').read()",
    "ptrace attach": "lambda: call('ptrace', 16, 1, 0, 0)",
    "ptrace seize": "lambda: call('ptrace', 0x4206, 1, 0, 0)",
    "write": "lambda: call('process_vm_writev', 1, ctypes.byref(here), 1, ctypes.byref(here), 1, 0)",
    "read": "lambda: call('process_vm_readv', 1, ctypes.byref(here), 1, ctypes.byref(here), 1, 0)",
    "pidfd": "lambda: call('syscall', 438, os.pidfd_open(1), 1, 0)",
    "oom": "lambda: open('/proc/1/oom_score_adj', 'w').write('1000')",
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_user_code_cannot_reach_into_the_agent(kernel: Kernel, what: str) -> None:
    result = kernel.run(f"{REFUSED}\nrefused({what!r}, {ATTEMPTS[what]})")
    assert result.text().startswith(f"{what} refused "), result
    assert kernel.run("1 + 1").value == "2"


def test_signals_to_the_agent_are_refused(kernel: Kernel) -> None:
    (before,) = kernel.containers()
    code = (
        "import os, signal\nrefused = 0\nfor number in signal.Signals:\n"
        "    try: os.kill(1, number)\n    except PermissionError: refused += 1\n"
        "print(refused == len(signal.Signals))"
    )
    assert kernel.run(code).text() == "True\n"
    assert kernel.run("1 + 1").value == "2"
    assert kernel.containers()[0].container == before.container


def test_the_agents_resources_cannot_be_taken_away(kernel: Kernel) -> None:
    """The same user might lower the agent's limits, so that it ends; nobody may."""
    assert kernel.run("import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))").ename == "PermissionError"
    assert kernel.run("1 + 1").value == "2"


def test_the_place_of_the_next_kernel_cannot_be_taken(start_kernel: Start) -> None:
    """The sockets' folder has the same owner as user code."""
    kernel = start_kernel()
    code = (
        "import os\nopen('kept.txt', 'w').close()\nfor n in range(9): os.makedirs(f'/tmp/.sandbox/k{n}')\nos._exit(1)"
    )
    assert kernel.run(code).ename == "KernelDied"
    assert kernel.run("__import__('os').listdir()").value == "['kept.txt']"


def ended_sandboxes(audit: Path) -> list[tuple[list[str], str]]:
    """Return for each sandbox that ended how its kernels had ended, and then it itself, in codes."""
    kernels: list[str] = []
    found = []
    for row in map(json.loads, audit.read_text().splitlines()):
        if row["event"] == "kernel_died":
            kernels.append(row["code"])
        elif row["event"] == "sandbox_ended":
            found.append((kernels, row["code"]))
            kernels = []
    return found


@pytest.mark.parametrize(
    ("code", "seconds", "ends"),
    [
        pytest.param("while True: pass", "2", ["CellTimeout", "CellTimeout", "CellTimeout"], marks=pytest.mark.long),
        (
            "import os; get_ipython().kernel.session.deserialize = lambda *_, **__: os._exit(1)",
            "30",
            ["KernelDied", "KernelDied", "SandboxDied"],
        ),
        ("import os; os._exit(1)", "30", None),  # it may be gone before or after it gets a cell
    ],
    ids=["hangs", "exits with a cell", "exits"],
)
def test_a_trap_for_the_next_kernels_ends_the_sandbox(
    start_kernel: Start, tmp_path: Path, code: str, seconds: str, ends: list[str] | None
) -> None:
    """A cell can plant what every later kernel of its sandbox runs at its start; three of them are enough."""
    audit = tmp_path / "audit.jsonl"
    kernel = start_kernel("--cell-timeout", seconds, "--audit", str(audit))
    (before,) = kernel.containers()
    trap = (
        "import os\n"
        "folder = os.path.expanduser('~/.ipython/profile_default/startup')\n"
        "os.makedirs(folder, exist_ok=True)\n"
        f"open(folder + '/00.py', 'w').write({code!r})\n"
        "os._exit(1)"
    )
    assert kernel.run(trap).ename == "KernelDied"
    names = []
    while (result := kernel.run("1 + 1")).reply["status"] == "error":
        names.append(result.ename)
        assert len(names) <= 3
    ((kernels, sandbox),) = ended_sandboxes(audit)
    if ends is None:  # under load, the last may not be seen to end before the sandbox does
        assert (len(kernels) in {3, 4}, sandbox) == (True, "no-kernel-starts")
    elif len(names) < len(ends):  # one of the kernels, the first or the last, was given up before it took a cell
        assert names in (ends[: len(names)], ends[-len(names) :])
        assert (bool(names), sandbox) == (True, "no-kernel-starts")
    else:
        assert (names, len(kernels), sandbox) == (ends, 1 + 3, "no-kernel-starts")
    assert kernel.containers()[0].container != before.container


# --- forged messages of the kernel itself ---

FORGE = """
kernel = get_ipython().kernel
here = kernel.get_parent()
def header(identity, kind='execute_request'):
    return {'msg_id': identity, 'msg_type': kind, 'session': 'x', 'username': 'x', 'date': '2000-01-01T00:00:00Z',
            'version': '5.3'}
def parent(identity):
    return {'header': header(identity), 'msg_id': identity, 'msg_type': 'execute_request'}
def publish(kind, content, parent=here):
    kernel.session.send(kernel.iopub_socket, kind, content, parent=parent)
def reply(kind, content, parent=here):
    shell = kernel.shell_channel_thread.manager.get_subshell_to_shell_channel_socket(None)
    kernel.session.send(shell, kind, content, parent=parent, ident=kernel._parent_ident['shell'])
def ask(content, parent=here):
    ident = kernel._parent_ident['shell']
    kernel.session.send(kernel.stdin_socket, 'input_request', content, parent=parent, ident=ident)
"""


class Seen:
    """Everything that a client was sent on shell and iopub, from one cell to the end of the next one."""

    def __init__(self, kernel: Kernel, code: str, **options: Any) -> None:
        client = kernel.client
        self.cell = client.execute(FORGE + code, **options)
        self.following = client.execute("'the end'")
        self.published: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []
        while not self._is_end():
            self._take(self.published, client.get_iopub_msg(timeout=30))
        while not self.replies or self.replies[-1]["parent_header"]["msg_id"] != self.following:
            self._take(self.replies, client.get_shell_msg(timeout=30))

    @staticmethod
    def _take(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
        if message["parent_header"].get("msg_type") != "kernel_info_request":  # left over from the start
            messages.append(message)

    def _is_end(self) -> bool:
        last = self.published[-1] if self.published else None
        return (
            last is not None
            and last["parent_header"].get("msg_id") == self.following
            and last["content"].get("execution_state") == "idle"
        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message["content"] for message in self.published if message["msg_type"] == kind]

    def check(self) -> None:
        """Both cells had their states once, their reply once, and nobody else was spoken of."""
        assert {message["parent_header"]["msg_id"] for message in self.published} == {self.cell, self.following}
        assert [content["execution_state"] for content in self.of("status")] == ["busy", "idle"] * 2
        assert [message["parent_header"]["msg_id"] for message in self.replies] == [self.cell, self.following]
        assert len({message["header"]["session"] for message in self.published + self.replies}) == 1


@pytest.mark.parametrize(
    "code",
    [
        "for state in ('idle', 'busy', 'dead', 'restarting', 'starting', ''):\n"
        "    publish('status', {'execution_state': state}, {})\n"
        "    publish('status', {'execution_state': state}, parent('somebody'))",
        "for state in ('dead', 'restarting', 'starting', 'busy', 7, None, ['idle']):\n"
        "    publish('status', {'execution_state': state})",
        "publish('status', {}); publish('status', {'execution_state': []})",
        "publish('iopub_welcome', {'subscription': ''}); publish('iopub_welcome', {'subscription': ''}, {})",
        "publish('shutdown_reply', {'status': 'ok', 'restart': False}); publish('invented', {}); publish('', {})",
        "publish('stream', {'name': 'stdout', 'text': 'x'}, parent('somebody'))",
        "publish('display_data', {'data': {'text/plain': 'x'}, 'metadata': {}}, parent('x' * 10000))",
        "publish('stream', {'name': 'stdout', 'text': 'x'}, {'msg_id': 7, 'header': {'msg_id': 7}})",
        "reply('execute_reply', {'status': 'ok'}, parent('somebody'))",
        "reply('complete_reply', {'status': 'ok'}); reply('shutdown_reply', {'status': 'ok'}); reply('status', {})",
        "reply('input_request', {'prompt': '?', 'password': True}); reply('comm_msg', {'comm_id': '1', 'data': {}})",
        "ask({'prompt': '?', 'password': True}); ask({}); ask({'prompt': 7, 'password': 'x'}, parent('x'))",
        "publish('execute_input', {'code': 'x', 'execution_count': 'x'})\n"
        "publish('execute_input', {'code': 'x', 'execution_count': -5})",
        "for raw in ([], [b''], [b'x'] * 5000, [b'<IDS|MSG>'], [b'<IDS|MSG>', b''], [b'<IDS|MSG>', b'', b'{}'] * 3,\n"
        "            [b'<IDS|MSG>', b'', b'NaN', b'{}', b'{}', b'{}'], [b'<IDS|MSG>', b''] + [b'[' * 9999] * 4,\n"
        "            [b'<IDS|MSG>', b''] + [b'\\xff'] * 4, [b'<IDS|MSG>', b''] + [b'{}'] * 5000):\n"
        "    raw and kernel.iopub_thread.send_multipart(raw)",
    ],
    ids=lambda code: code.split("\n")[0][:40],
)
def test_what_the_kernel_may_not_say_is_not_passed_on(kernel: Kernel, code: str) -> None:
    seen = Seen(kernel, code, allow_stdin=False)
    seen.check()
    assert seen.of("stream") == []
    assert [content["code"] for content in seen.of("execute_input")] == [FORGE + code, "'the end'"]
    assert all(reply["content"]["status"] == "ok" for reply in seen.replies), seen.replies
    assert not seen.of("error")


def test_an_output_of_another_form_is_text_or_said_to_be_left_out(kernel: Kernel) -> None:
    """Kernels of other languages send such. It is of its own cell, and nothing in it acts."""
    code = (
        "publish('stream', {'name': 'stdin', 'text': 'x'}); publish('stream', {'name': 'stdout', 'text': ['y']})\n"
        "publish('stream', {'name': 'stdout', 'text': None}); publish('stream', {'name': ['stdout'], 'text': 'x'})\n"
        "publish('error', {'ename': 7, 'evalue': None, 'traceback': 'x'})"
    )
    seen = Seen(kernel, code, allow_stdin=False)
    seen.check()
    assert all(reply["content"]["status"] == "ok" for reply in seen.replies), seen.replies
    assert seen.of("error") == [{"ename": "7", "evalue": "", "traceback": ["x"]}]
    streams = [(content["name"], content["text"].partition(":")[0]) for content in seen.of("stream")]
    left_out = ("stderr", "[sandbox_kernel] left out stream")
    assert streams == [left_out, ("stdout", "y"), left_out, left_out]


def test_output_forged_for_the_next_cell_stays_away(kernel: Kernel) -> None:
    """A client counts its ids up: a cell knows the id of the one that waits behind it."""
    guess = (
        "here['header']['msg_id'].rpartition('_')[0] + '_' + str(int(here['header']['msg_id'].rpartition('_')[2]) + 1)"
    )
    seen = Seen(
        kernel,
        f"guess = {guess}\n"
        "import time; time.sleep(0.5)\n"
        "for state in ('busy', 'idle'): publish('status', {'execution_state': state}, parent(guess))\n"
        "publish('stream', {'name': 'stdout', 'text': 'forged'}, parent(guess))\n"
        "reply('execute_reply', {'status': 'error', 'ename': 'Forged'}, parent(guess))\n"
        "print(guess)\n",
    )
    seen.check()
    assert [content["text"] for content in seen.of("stream")] == [seen.following + "\n"]
    assert seen.replies[1]["content"]["status"] == "ok"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ("{'status': 'ok', 'execution_count': 'seven', 'payload': 'x', 'user_expressions': 5}", "ok"),
        ("{'status': 'ok', 'execution_count': None, 'payload': [7, None, {}], 'user_expressions': {'a': 7}}", "ok"),
        ("{'status': 'error', 'ename': 'x' * 10_000_000, 'evalue': 7, 'traceback': {'a': 1}}", "error"),
        ("{'status': 'error'}", "error"),
        ("{'status': 'invented'}", "ok"),
    ],
)
def test_a_forged_reply_of_its_own_has_the_types_of_a_reply(kernel: Kernel, content: str, status: str) -> None:
    seen = Seen(kernel, f"reply('execute_reply', {content}); reply('execute_reply', {content})", stop_on_error=False)
    seen.check()
    reply = seen.replies[0]["content"]
    assert reply["status"] == status
    assert isinstance(reply["execution_count"], int | None)
    if status == "error":
        assert isinstance(reply["ename"], str)
        assert isinstance(reply["evalue"], str)
        assert all(isinstance(line, str) for line in reply["traceback"])


def test_a_reply_that_is_none_is_not_taken_for_one(kernel: Kernel) -> None:
    seen = Seen(
        kernel,
        "for wrong in (['ok'], 7, None, {}): reply('execute_reply', {'status': wrong})\nreply('execute_reply', {})",
    )
    seen.check()
    assert seen.replies[0]["content"]["ename"] == "ReplyLost"


def test_a_cell_that_pretends_to_have_ended_is_ended_by_the_next_ones_clock(start_kernel: Start) -> None:
    kernel = start_kernel("--cell-timeout", "2")
    pretend = "reply('execute_reply', {'status': 'ok'}); publish('status', {'execution_state': 'idle'})\n"
    first = kernel.run(FORGE + pretend + "while True: pass")
    assert first.reply["status"] == "ok"
    with Stopwatch() as watch:
        second = kernel.run("while True: pass")
    assert second.ename == "CellTimeout"
    assert watch.seconds < 10
    assert kernel.run("1 + 1").value == "2"


def test_an_endless_flood_of_what_does_not_pass_ends_the_kernel(start_kernel: Start, tmp_path: Path) -> None:
    """Neither the host's processor nor the disk with its audit is at a thread's disposal."""
    audit = tmp_path / "audit.jsonl"
    kernel = start_kernel("--output-messages", "20000", "--audit", str(audit))
    flood = "\nwhile True: publish('stream', {'name': 'stdout', 'text': 'x'}, parent('somebody'))"
    result = kernel.run(FORGE + flood)
    assert result.ename == "OutputLimit"
    assert kernel.run("1 + 1").value == "2"
    assert len(audit.read_bytes().splitlines()) < 11_000


def test_a_request_over_the_limit_is_refused_and_the_sandbox_stays(start_kernel: Start) -> None:
    """A file dropped on an upload widget, for one."""
    kernel = start_kernel("--message-limit", "4M")
    kernel.run("kept = 42")
    message = kernel.client.session.msg("comm_msg", {"comm_id": "1", "data": {}})
    kernel.client.session.send(kernel.client.shell_channel.socket, message, buffers=[bytes(6 * MIB)])
    result = kernel.run("kept")
    assert result.value == "42"
    assert "message_limit" in result.text("stderr")


# --- with the agent's pipe in the hands of user code ---

Weak = Callable[..., Awaitable[Front]]


@contextlib.asynccontextmanager
async def weak_sessions(monkeypatch: pytest.MonkeyPatch, image: str, audit: Path) -> AsyncIterator[Weak]:
    """Start sessions whose agent lets user code open its files; their processes, tasks and files are counted."""
    source = shipping.agent_source()
    guard = "    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)\\n"
    assert source.count(guard) == 1
    source = source.replace(guard, "")
    program = shipping.program_of
    monkeypatch.setattr(shipping, "program_of", lambda *asked, **more: program(*asked, **more, source=source))
    process = psutil.Process()
    fronts: list[Front] = []
    engine = DockerEngine()
    engine.guard.watch("no container")  # one file of this process's, for all sessions there will be
    engine.guard.forget("no container")
    files, tasks, memory = process.num_fds(), len(asyncio.all_tasks()), process.memory_info().rss

    async def start(**limits: Any) -> Front:
        settings = {"message_limit": 16 * MIB, "cell_timeout": 20.0, "output_messages": 20_000, **limits}
        fronts.append(front := Front())
        choice = changed(Settings(image=image, limits=Limits(**settings)), {"audit": str(audit)})
        front.session = Session(choice, engine, front)
        reply = await front.run("kept = 1")
        assert reply["status"] == "ok", reply
        return front

    yield start
    assert process.memory_info().rss - memory < 100 * MIB
    for front in fronts:
        await front.session.close()
    await asyncio.to_thread(eventually, lambda: not containers_of(os.getpid()), 5, "the containers are gone")
    assert process.num_fds() <= files
    await until(lambda: len(asyncio.all_tasks()) <= tasks, 20)


@pytest.fixture
async def weak(monkeypatch: pytest.MonkeyPatch, image: str, tmp_path: Path) -> AsyncIterator[Weak]:
    async with weak_sessions(monkeypatch, image, tmp_path / "audit.jsonl") as start:
        yield start


T = TypeVar("T")


def in_one_session(
    image: str, folder: Path, each: Callable[[Front, Path, str], Awaitable[T]], names: Iterable[str]
) -> dict[str, T]:
    """Return what becomes of each of many things that a weak session is sent, one after another."""

    async def all_of_them(monkeypatch: pytest.MonkeyPatch) -> dict[str, T]:
        audit = folder / "audit.jsonl"
        async with weak_sessions(monkeypatch, image, audit) as start:
            front = await start()
            return {name: await each(front, audit, name) for name in names}

    with pytest.MonkeyPatch.context() as monkeypatch:
        return asyncio.run(all_of_them(monkeypatch))


DEADLY = {
    "garbage": ("write(bytes(1000))", "too short"),
    "text": ("write(b'hello, host\\n')", "over the limit"),
    "4 GiB": ("write(b'\\xff\\xff\\xff\\xff')", "4294967295 bytes is over the limit"),
    "4 GiB and data": ("write(b'\\xff\\xff\\xff\\xff' + bytes(50_000_000))", "over the limit"),
    "unknown kind": ("write(frame(9, b''))", "no frame kind 9"),
    "lying table": ("write(struct.pack('!IBHI', 7, 4, 1, 1000))", "do not add up"),
    "too many parts": ("write(struct.pack('!IBH', 100000, 4, 65535) + bytes(100000))", "65535 parts"),
    "no head": ("write(frame(5))", "proper head"),
    "head is a list": ("write(frame(5, ['op']))", "proper head"),
    "op is a number": ("write(frame(5, {'op': 7}))", "proper head"),
    "id is a text": ("write(frame(5, {'op': 'reply', 'id': 'x'}))", "proper head"),
    "head is deep": ("write(frame(5, b'[' * 100000))", "proper head"),
    "head is NaN": ("write(frame(5, b'NaN'))", "proper head"),
    "head is not UTF-8": ('write(frame(5, b\'{"op": "\\xff"}\'))', "proper head"),
    "a stream where there are none": ("write(frame(6, bytes([1, 0, 0, 0, 1, 0, 0, 0, 0])))", "never allowed"),
    "second hello": ("write(frame(5, {'op': 'hello', 'report': {}}))", "introduced itself twice"),
    "kernels that end and end": (
        "for _ in range(9): write(frame(5, {'op': 'kernel_exited', 'number': 1, 'code': 'x' * 1000}))",
        "no kernel starts",
    ),
}


async def deadly(front: Front, audit: Path, what: str) -> list[tuple[str, str]]:
    """Return how the cell ends that sends such bytes, and how those after it end until one is well."""
    front.delivered.clear()
    ends: list[tuple[str, str]] = []
    cell = f"kept = 1\n{WRITE}\n{DEADLY[what][0]}\nimport time; time.sleep(60)"
    for code in (cell, "kept", "kept", "1 + 1"):
        reply = await front.run(code)
        if reply["status"] == "error":
            ends.append((reply["ename"], reply["evalue"]))
    assert reply["status"] == "ok"
    return ends


@pytest.fixture(scope="module")
def ended(image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    return in_one_session(image, tmp_path_factory.mktemp("deadly"), deadly, DEADLY)


@pytest.mark.parametrize("what", DEADLY)
def test_bytes_that_are_no_frames_end_the_sandbox_with_a_reason(
    ended: dict[str, list[tuple[str, str]]], what: str
) -> None:
    """And what it knew is gone with it: the next cell has a new one."""
    names = ["SandboxDied", "NameError", "NameError"]
    if what.startswith("kernels"):  # the first of them ended the cell, the third the sandbox
        names = ["KernelDied", "SandboxDied", "NameError"]
    assert [name for name, _ in ended[what]] == names
    reason = dict(ended[what])["SandboxDied"]
    assert DEADLY[what][1] in reason
    assert ("Kept: nothing" in reason) is not what.startswith("kernels")


def dropped(audit: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    return [line for line in lines if line["event"] == "dropped"]


HARMLESS = {
    "unknown parent": "frame(4, header('stream'), {'msg_id': 'x'}, {}, {'name': 'stdout', 'text': 'FORGED'})",
    "another cell": "frame(4, header('status'), {'msg_id': 'cell-2000'}, {}, {'execution_state': 'idle'})",
    "dead": "frame(4, header('status'), here, {}, {'execution_state': 'dead'})",
    "restarting": "frame(4, header('status'), {}, {}, {'execution_state': 'restarting'})",
    "not a reply": "frame(1, header('stream'), here, {}, {'name': 'stdout', 'text': 'FORGED'})",
    "no parts": "frame(4)",
    "three parts": "frame(4, {}, {}, {})",
    "lists": "frame(4, [], [], [], [])",
    "deep": "frame(4, header('stream'), here, {}, b'{\"name\": \"stdout\", \"text\": ' + b'[' * 900)",
    "deeper": "frame(4, header('stream'), here, {}, b'[' * 30_000)",
    "not UTF-8": 'frame(4, header(\'stream\'), here, {}, b\'{"name": "stdout", "text": "\\xff"}\')',
    "half a pair": 'frame(4, header(\'stream\'), here, {}, b\'{"name": "stdout", "text": "\\\\ud800"}\')',
    "NaN": 'frame(4, header(\'stream\'), here, {}, b\'{"name": "stdout", "text": NaN}\')',
    "infinity": 'frame(4, header(\'stream\'), here, {}, b\'{"name": "stdout", "text": 1e999}\')',
    "answer to nothing": "frame(5, {'op': 'reply', 'id': 123456, 'ok': True})",
    "great number": 'frame(5, b\'{"op": "reply", "id": 18446744073709551615}\')',
    "kernel ready": "frame(5, {'op': 'kernel_ready', 'number': 99})",
    "resumed": "frame(5, {'op': 'resumed', 'ready': True})",
    "oversized without sizes": "frame(5, {'op': 'oversized', 'parent': json.dumps(here, default=str), 'bytes': 'x'})",
    "oversized of nobody": "frame(5, {'op': 'oversized', 'parent': '[]', 'bytes': 1})",
    "unknown event": "frame(5, {'op': 'x' * 100000})",
}


SHOWN = {"not UTF-8": "\ufffd" * 3, "half a pair": "\ufffd" * 3}
"""What front ends show of such bytes, and a stock kernel may send."""
LEFT_OUT = frozenset({"deep", "deeper", "NaN", "infinity"})
"""What is said to be missing of a cell's output, once for each."""


async def harmless(front: Front, audit: Path, what: str) -> tuple[list[str], str, list[str]]:
    """Return how the cell that sends such frames ended, and the one after it; what was shown; why each was dropped."""
    front.delivered.clear()
    before = len(dropped(audit))
    cell = f"kept = 1\n{WRITE}\nfor _ in range(3): write({HARMLESS[what]})\nprint('went on')"
    statuses = [(await front.run(code))["status"] for code in (cell, "assert kept == 1")]
    return statuses, front.text(), [line["reason"] for line in dropped(audit)[before:]]


@pytest.fixture(scope="module")
def passed(image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[str], str, list[str]]]:
    return in_one_session(image, tmp_path_factory.mktemp("harmless"), harmless, HARMLESS)


@pytest.mark.parametrize("what", HARMLESS)
def test_frames_that_mean_nothing_are_dropped_and_audited(
    passed: dict[str, tuple[list[str], str, list[str]]], what: str
) -> None:
    statuses, shown, reasons = passed[what]
    assert statuses == ["ok", "ok"]
    said = [line for line in shown.splitlines() if line.startswith("[sandbox_kernel] left out stream: ")]
    assert len(said) == (3 if what in LEFT_OUT else 0)
    assert "".join(line for line in shown.splitlines(keepends=True) if line.strip() not in said) == (
        f"{SHOWN.get(what, '')}went on\n"
    )
    assert len(reasons) == (0 if what in SHOWN else 3)
    assert all(reasons)


async def test_a_duplicate_key_does_not_get_past_the_checks(weak: Weak) -> None:
    """Whichever of two keys was checked is the one that is sent on: everything is written again."""
    front = await weak()
    twice = 'b\'{"execution_state": "idle", "execution_state": "dead"}\''
    text = 'b\'{"name": "stdin", "name": "stdout", "text": "FIRST", "text": "LAST"}\''
    code = (
        f"write(frame(4, header('status'), here, {{}}, {twice})); write(frame(4, header('stream'), here, {{}}, {text}))"
    )
    assert (await front.run(f"{WRITE}\n{code}"))["status"] == "ok"
    assert front.text() == "LAST"
    assert {m.content["execution_state"] for m in front.delivered if m.type == "status"} == {"busy", "idle"}


async def test_a_forged_reply_is_taken_once(weak: Weak) -> None:
    front = await weak()
    code = "for _ in range(3): write(frame(1, header('execute_reply'), here, {}, {'status': 'error', 'ename': 'Mine'}))"
    reply = await front.run(f"{WRITE}\n{code}")
    assert reply["ename"] == "Mine"
    assert (await front.run("assert kept == 1"))["status"] == "ok"


async def test_a_forged_death_of_the_kernel_ends_the_cell_and_then_the_sandbox(weak: Weak) -> None:
    """The agent has a kernel still, so no new one gets ready; the host does not wait for it for ever."""
    front = await weak(start_timeout=8.0)
    reply = await front.run(
        f"{WRITE}\nwrite(frame(5, {{'op': 'kernel_exited', 'signal': 9}}))\nimport time; time.sleep(60)"
    )
    assert reply["ename"] == "KernelDied"
    reply = await front.run("1 + 1")
    assert reply["ename"] == "SandboxDied"
    assert "not ready in time" in reply["evalue"]
    assert (await front.run("1 + 1"))["status"] == "ok"


async def test_a_frame_that_is_announced_and_never_finished_ends_by_the_clock(weak: Weak) -> None:
    """All that the agent says after it is swallowed, its answers too: the sandbox has to go."""
    front = await weak(cell_timeout=3.0)
    size = 17 * MIB
    reply = await front.run(f"{WRITE}\nwrite(struct.pack('!I', {size}) + bytes([4, 0, 0]) + bytes({size - 2 * MIB}))")
    assert reply["ename"] == "CellTimeout"
    assert "Kept: nothing" in reply["evalue"]
    assert (await front.run("1 + 1"))["status"] == "ok"


@pytest.mark.parametrize(
    ("tiny", "patience", "end"),
    [
        ("frame(4)", 150.0, "OutputLimit"),
        pytest.param("frame(1, {}, {}, {}, {})", 150.0, "OutputLimit", marks=pytest.mark.long),
        pytest.param("frame(5, {'op': 'reply', 'id': 1})", 150.0, "OutputLimit", marks=pytest.mark.long),
        ("frame(5, {'op': 'refused'})", 150.0, "OutputLimit"),
        ("frame(4)", 0.0, "SandboxDied"),
    ],
)
async def test_a_flood_of_tiny_frames_ends(
    weak: Weak, monkeypatch: pytest.MonkeyPatch, tiny: str, patience: float, end: str
) -> None:
    """They cost the host work, each of them, although none of them passes.

    Its kernel is replaced, or the sandbox ended where what lies in the pipe keeps the agent's answer back for too long.
    """
    front = await weak(cell_timeout=150.0, output_limit=32 * MIB)  # neither clock is to be first on a busy machine
    monkeypatch.setattr(front.session, "kill_kernel", partial(front.session.ask, "stop_kernel", timeout=patience))
    # Whole frames, as many as a pipe takes in one piece at most: else a word of the agent's own could get between.
    many = f"one = {tiny}\nmany = one * (4096 // len(one))"
    reply = await front.run(f"{WRITE}\n{many}\nwhile True: os.write(pipe, many)")
    assert reply["ename"] == end
    assert (await front.run("1 + 1"))["status"] == "ok"


async def test_an_agent_that_is_stopped_ends_by_the_clock(weak: Weak) -> None:
    """Its files are open to user code here, so its input can be taken away from it."""
    front = await weak(cell_timeout=3.0)
    reply = await front.run(
        "import os, time\npipe = os.open('/proc/1/fd/0', os.O_RDONLY)\nwhile True: os.read(pipe, 1 << 20)"
    )
    assert reply["ename"] == "CellTimeout"
    assert (await front.run("1 + 1"))["status"] == "ok"
