"""Open Terminal's wire: whose a request is, where a path leads, and what is refused. No sandbox starts here."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import orjson
import pytest

from sandbox_kernel import __version__
from sandbox_kernel.core.errors import CommandExitException
from sandbox_kernel.core.model import Settings
from sandbox_kernel.core.package_files import PACKAGE
from sandbox_kernel.plugins.serve.home import HOME
from sandbox_kernel.plugins.serve.open_terminal import commands as open_terminal_commands
from sandbox_kernel.plugins.serve.open_terminal import files as open_terminal_files
from sandbox_kernel.plugins.serve.open_terminal import sockets as open_terminal_sockets
from sandbox_kernel.plugins.serve.open_terminal.bodies import Chunk
from sandbox_kernel.plugins.serve.open_terminal.commands import UserCommand, follow, unescaped
from sandbox_kernel.plugins.serve.open_terminal.files import lines, replaced
from sandbox_kernel.plugins.serve.open_terminal.page import page
from sandbox_kernel.plugins.serve.open_terminal.sockets import Terminal
from sandbox_kernel.plugins.serve.open_terminal.user import PREFIX, Users
from sandbox_kernel.plugins.serve.requests import Refusal
from sandbox_kernel.plugins.serve.tenants import Lease
from sandbox_kernel.sdk.folder_entries import FileType
from tests.plugins.serve import stand_ins
from tests.plugins.serve.stand_ins import MINE, THEIRS, StandIn


class Computer(StandIn):
    """A sandbox whose files are a set of names."""

    def __init__(self, identity: str) -> None:
        super().__init__(identity)
        self.asked: list[str] = []
        self.said = "{}"

    async def run(self, command: str, **given: Any) -> Any:
        return SimpleNamespace(stdout=self.said)

    async def set_timeout(self, seconds: float) -> None:
        return None

    async def kill(self) -> None:
        self.state = "ended"

    async def get_info(self, path: str) -> Any:
        self.asked.append(path)
        return SimpleNamespace(type="dir", name="a")

    async def make_folder(self, path: str) -> None:
        self.asked.append(path)


class Served(stand_ins.Served):
    """The application, where each new sandbox is a stand-in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
        super().__init__(is_empty=True, **limits)
        self.made: list[tuple[str, str]] = []
        monkeypatch.setattr(self.tenants, "create", self._create)

    async def _create(self, tenant: Any, template: str, settings: Settings, lifetime: float, name: str = "") -> Lease:
        self.tenants._check_room(tenant)  # noqa: SLF001 (as the real one does)
        lease = Lease(sandbox=Computer(name), tenant=tenant, template=template, name=name)  # type: ignore[arg-type]
        tenant.leases[lease.id] = lease
        self.made.append((tenant.name, name))
        return lease

    async def ask(self, method: str, path: str, key: str | None = MINE, **given: Any) -> httpx2.Response:
        headers = [*given.pop("headers", []), *([] if key is None else [("Authorization", f"Bearer {key}")])]
        return await super().ask(method, PREFIX + path, headers=headers, **given)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(monkeypatch)


async def test_control_what_is_the_same_for_everybody_is_open(served: Served) -> None:
    assert (await served.ask("GET", "/health", None)).json() == {"status": "ok"}
    features = (await served.ask("GET", "/api/config", None)).json()["features"]
    assert features == {"terminal": True, "notebooks": True, "system": True}
    assert (await served.ask("GET", "/openapi.json", None)).json() == page(__version__)
    assert "/home/user" in (await served.ask("GET", "/system")).json()["prompt"]


# --- users ---


async def test_each_user_and_context_of_a_tenant_has_a_sandbox(served: Served) -> None:
    people = [
        (MINE, [("X-User-Id", "u1")]),
        (MINE, [("X-User-Id", "u2")]),
        (MINE, []),
        (MINE, [("X-User-Id", "u1"), ("X-Terminal-Context-Id", "chat:1")]),
        (MINE, [("X-User-Id", "u1chat:1")]),
        (THEIRS, [("X-User-Id", "u1")]),
    ]
    for key, headers in people * 2:
        assert (await served.ask("GET", "/system", key, headers=headers)).status_code == 200
    assert len(served.made) == len(set(served.made)) == len(people)
    assert all(name.startswith("open-terminal/") and len(name) == 46 for _, name in served.made)


@pytest.mark.parametrize(
    "headers",
    [
        [("X-User-Id", "u1"), ("X-User-Id", "u2")],
        [("X-User-Id", "u1"), ("x-user-id", "u1")],
        [("X-User-Id", "a" * 257)],
        [("X-User-Id", "ü".encode("latin-1"))],
        [("X-User-Id", "a\tb")],
        [("X-Session-Id", "c1"), ("X-Session-Id", "c2")],
        [("X-Session-Id", "a" * 257)],
        [("X-User-Id", "u"), ("X-Terminal-Context-Id", "1"), ("X-Terminal-Context-Id", "2")],
    ],
)
async def test_a_user_that_is_unclear_has_none(served: Served, headers: list[tuple[str, str | bytes]]) -> None:
    answer = await served.ask("GET", "/system", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"]
    assert served.made == []
    assert served.tenants.tenant("mine").figures.refused.total() == 1


async def test_the_ninth_user_is_refused_unless_the_operator_lets_idle_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served(monkeypatch, sandboxes_per_tenant=1)
    first, second = [("X-User-Id", "u1")], [("X-User-Id", "u2")]
    assert (await served.ask("GET", "/system", headers=first)).status_code == 200
    answer = await served.ask("GET", "/system", headers=second)
    assert (answer.status_code, answer.json()["error"]) == (429, "sandboxes-of-tenant")
    assert "sandboxes" in answer.json()["detail"]
    served = Served(monkeypatch, sandboxes_per_tenant=1, idle_makes_room=60.0)
    assert (await served.ask("GET", "/system", headers=first)).status_code == 200
    assert (await served.ask("GET", "/system", headers=second)).status_code == 429
    (lease,) = served.tenants.tenant("mine").leases.values()
    lease.used = time.monotonic() - 61
    lease.calls = 1
    assert (await served.ask("GET", "/system", headers=second)).status_code == 429
    lease.calls = 0
    computer: Any = lease.sandbox
    computer.cells = ["a cell of Jupyter's"]
    assert (await served.ask("GET", "/system", headers=second)).status_code == 429
    computer.cells = []
    assert (await served.ask("GET", "/system", headers=second)).status_code == 200
    assert not lease.is_there


# --- paths and addresses ---


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("..", "/home"),
        ("/home/user/../x", "/home/x"),
        (HOME + "2/a", HOME + "2/a"),
        ("/", "/"),
        ("//tmp/a", "/tmp/a"),
    ],
)
async def test_a_path_that_leads_elsewhere_is_the_sandbox_s_to_refuse(served: Served, path: str, made: str) -> None:
    answer = await served.ask("POST", "/files/mkdir", json={"path": path})
    assert answer.json() == {"path": made}


@pytest.mark.parametrize("path", ["a/../b", "~/b", "/home/user/b", "./b", "b/"])
async def test_control_a_path_at_home_is_taken(served: Served, path: str) -> None:
    answer = await served.ask("POST", "/files/mkdir", json={"path": path})
    assert answer.json() == {"path": "/home/user/b"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/files/read"),
        ("GET", "/files/read?path=a&path=b"),
        ("GET", "/files/read?path=a&start_line=0"),
        ("GET", "/files/read?path=a&end_line=x"),
        ("GET", "/files/read?path=a&end_line=99999999999"),
        ("GET", "/files/glob?pattern=a&type=link"),
        ("GET", "/files/grep?query=a&max_results=501"),
        ("GET", "/files/grep?query=a&regex=maybe"),
        ("GET", "/files/matches?query=%20"),
        ("POST", "/execute?wait=301"),
        ("POST", "/execute?wait=nan"),
        ("POST", "/execute?wait=-1"),
        ("POST", "/execute?tail=0"),
    ],
)
async def test_an_address_that_is_improper_is_refused(served: Served, method: str, path: str) -> None:
    given: dict[str, Any] = {"json": {"command": "true"}} if method == "POST" else {}
    answer = await served.ask(method, path, **given)
    assert answer.status_code == 400


@pytest.mark.parametrize("identity", ["..", "%2e%2e", "a" * 5000, "é", "p1%00"])
async def test_an_id_that_is_none_finds_nothing(served: Served, identity: str) -> None:
    for method, path in (
        ("GET", f"/execute/{identity}/status"),
        ("DELETE", f"/execute/{identity}"),
        ("GET", f"/api/terminals/{identity}"),
        ("GET", f"/notebooks/{identity}"),
    ):
        assert (await served.ask(method, path)).status_code in {404, 405}


# --- what the sandbox finds ---


DEEP = "[" * 1000 + "]" * 1000
"""What is read as JSON, and no answer can have."""


@pytest.mark.parametrize(
    "said",
    [
        "",
        "7",
        "[]",
        '{"a":NaN}',
        '{"a":"\\udc80"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        f'{{"a":{DEEP}}}',
        f'{{"a":[{"[]," * 1_000_000}0]}}',
    ],
)
async def test_a_sandbox_that_finds_nonsense_is_told_of(served: Served, said: str) -> None:
    assert (await served.ask("GET", "/system")).status_code == 200
    (lease,) = served.tenants.tenant("mine").leases.values()
    computer: Any = lease.sandbox
    computer.said = said
    for path in ("glob?pattern=a", "search", "matches?query=a", "grep?query=a&path=/home/user"):
        answer = await served.ask("GET", f"/files/{path}")
        assert (answer.status_code, answer.json()["detail"]) == (500, "The sandbox did not answer"), path
    computer.said = '{"results":[]}'
    assert (await served.ask("GET", "/files/search")).json() == {"results": []}


def test_names_that_are_no_text_are_found(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.txt")).write_text("word\n")
    (tmp_path / "a b.txt").write_text("word\n")
    source = (PACKAGE / open_terminal_files._SEARCH).read_text()  # noqa: SLF001 (as the sandbox has it)
    shared = {"path": str(tmp_path), "query": "a", "type": "any", "show_hidden": False, "offset": 0, "limit": 9}
    shared |= {"pattern": "*", "exclude": [], "max_results": 9, "include": [], "regex": False}
    shared |= {"case_insensitive": False, "match_per_line": True}
    for op, key in (("glob", "path"), ("search", "name"), ("matches", "name"), ("grep", "file")):
        asked = json.dumps({**shared, "op": op, "query": "word" if op == "grep" else "a"})
        ended = subprocess.run([sys.executable, "-c", source, asked], capture_output=True, check=True)
        found = orjson.loads(ended.stdout)
        names = {row[key].rpartition("/")[2] for row in found.get("matches") or found["results"]}
        assert names == {"a\ufffd.txt", "a b.txt"}, op


# --- pieces ---


def test_a_replacement_is_exact_or_refused() -> None:
    text = "a\nb\na\n"
    assert replaced(text, Chunk.of({"target": "b", "replacement": "c"})) == "a\nc\na\n"
    assert replaced(text, Chunk.of({"target": "a", "replacement": "c", "start_line": 2})) == "a\nb\nc\n"
    assert replaced(text, Chunk.of({"target": "a", "replacement": "", "allow_multiple": True})) == "\nb\n\n"
    for wrong in (
        {"target": "a", "replacement": "c"},
        {"target": "z", "replacement": "c"},
        {"target": "", "replacement": "c"},
        {"target": "b", "replacement": 7},
        {"target": "b", "replacement": "c", "start_line": 0},
        {"target": "b", "replacement": "c", "start_line": 3},
        {"target": "a", "replacement": "c" * (9 << 20), "allow_multiple": True},
    ):
        with pytest.raises(Refusal):
            replaced(text, Chunk.of(wrong))


async def test_replacements_look_through_so_much_together(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_terminal_files, "MAX_REPLACED", 100)
    monkeypatch.setattr(Computer, "read_part", lambda *_: soon((b"ab" * 10, 20)), raising=False)
    monkeypatch.setattr(Computer, "get_info", lambda *_: soon(SimpleNamespace(type=FileType.FILE)))
    monkeypatch.setattr(Computer, "write", lambda *_: soon(SimpleNamespace(size=20)))
    chunk = {"target": "b", "replacement": "c", "allow_multiple": True}
    back = {"target": "c", "replacement": "b", "allow_multiple": True}
    for chunks, status in (([chunk, back, chunk, back, chunk], 200), ([chunk, back] * 3, 413)):
        answer = await served.ask("POST", "/files/replace", json={"path": "a", "replacements": chunks})
        assert answer.status_code == status


def test_lines_are_those_of_python() -> None:
    text = "a\r\nb\rc\n\n\x0bd\x85e\u2028\x1df"
    for content in (text, text + "\r\n", "", "\n"):
        every = content.splitlines(keepends=True)
        for begin, end in itertools.product((None, *range(1, 13)), repeat=2):
            first, last, total = lines(content, begin, end)
            assert (content[first:last], total) == ("".join(every[(begin or 1) - 1 : end]), len(every))


async def test_a_file_of_many_lines_costs_no_memory_for_each(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"aa\n" * 100_000
    monkeypatch.setattr(Computer, "read_part", lambda *_: soon((text, len(text))), raising=False)
    monkeypatch.setattr(Computer, "get_info", lambda *_: soon(SimpleNamespace(type=FileType.FILE)))
    tracemalloc.start()
    try:
        found = (await served.ask("GET", "/files/read?path=a&start_line=2&end_line=3")).json()
        assert (found["total_lines"], found["content"]) == (100_000, "aa\naa\n")
        assert tracemalloc.get_traced_memory()[1] < 3_000_000  # the lines one by one are 6 MB
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(open_terminal_files, "MAX_TEXT", len(text) - 1)
    for answer in (
        await served.ask("GET", "/files/read?path=a"),
        await served.ask("POST", "/files/replace", json={"path": "a", "replacements": []}),
    ):
        assert answer.status_code == 413
        assert f"{len(text) - 1:,} bytes" in answer.text


async def soon(value: Any) -> Any:
    return value


def test_escapes_are_what_they_mean() -> None:
    assert unescaped(r"a\n\x03\\né\u0041\q") == "a\n\x03\\né" + "A" + r"\q"
    assert unescaped(r"\ud83d\ude00 \ud800 \udc00\ud800") == "\U0001f600 \ufffd \ufffd\ufffd"


async def test_what_a_command_says_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        open_terminal_commands, "MAX_SAID", 5 * (open_terminal_commands.PIECE_BYTES + sys.getsizeof("11"))
    )
    process = UserCommand("p", "yes", "")
    for number in range(8):
        process.hear("stdout", str(number) * 2)
    found = bytes(process.answer(0, None).body)
    assert b'"truncated":true,"next_offset":8' in found
    assert b'[{"type":"stdout","data":"33"}' in found
    assert b'"output":[{"type":"stdout","data":"77"}],"truncated":false' in bytes(process.answer(7, None).body)
    assert b'"output":[],"truncated":false' in bytes(process.answer(10**9, None).body)

    class Handle:
        async def wait(self) -> Any:
            raise CommandExitException(exit_code=3, stdout="", stderr="", error=None)

    process.handle = Handle()
    lease: Any = SimpleNamespace(calls=0)
    await follow(process, lease)
    assert (process.status, process.exit_code, lease.calls) == ("done", 3, 0)


def test_all_commands_of_a_user_keep_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_terminal_commands, "MAX_SAID", 100_000)
    every: dict[str, UserCommand] = {}
    for name in ("a", "b", "c"):
        every[name] = UserCommand(name, "yes", "", every)
    every["c"].hear("stdout", "control")
    for number in range(400):
        every["ab"[number % 2]].hear("stdout", "\N{PILE OF POO}" * 100)  # 400 bytes and more of each
    sizes = [one.size for one in every.values()]
    assert 99_000 < sum(sizes) <= 100_000
    assert abs(sizes[0] - sizes[1]) < 1000
    assert [text for _, text in every["c"].said] == ["control"]


async def test_a_shell_waits_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_terminal_sockets, "MAX_BACKLOG", 2)
    monkeypatch.setattr(open_terminal_sockets, "MAX_KEPT", 8)
    terminal = Terminal("t", "")
    for _ in range(20):
        await terminal.hear(b"1234")  # nobody is there: the oldest goes
    assert (bytes(terminal.shown), list(terminal.waiting)) == (b"12341234", [b"12341234"])
    terminal.connected = True
    await terminal.hear(b"more")
    late = asyncio.create_task(terminal.hear(b"late"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not late.done()
    assert await terminal.next() == b"12341234"
    await late
    assert [await terminal.next() for _ in range(2)] == [b"more", b"late"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"chat_id": "c"}, 4004),
        ({"chat_id": ["c"]}, 4004),
        ({"chat_id": {"a": 1}}, 4004),
        ({"a": "b" * 5000}, 4001),
        ({"token": "deep"}, 4001),
    ],
)
async def test_the_first_message_of_a_terminal_s_client_is_looked_at(
    served: Served, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], code: int
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Users, "boxes", lambda *_: asked)
    terminal = Terminal("t1", "another chat", handle=SimpleNamespace(pid=1))
    asked.append(SimpleNamespace(user="", terminals={"t1": terminal}))
    first = json.dumps({"type": "auth", "token": MINE, **more}).replace('"deep"', DEEP)
    came = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": first}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(came)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": f"{PREFIX}/api/terminals/t1",
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
        "extensions": {},
    }
    await served.app(scope, receive, send)
    assert [(one["type"], one.get("code")) for one in sent] == [("websocket.accept", None), ("websocket.close", code)]
    assert served.tenants.tenant("mine").requests == 0


@pytest.mark.parametrize("said", ["{" * 100, '{"type":"resize","rows":1}' + " " * 5000, DEEP, '{"rows":' + DEEP + "}"])
async def test_what_is_no_size_of_a_terminal_changes_nothing(said: str) -> None:
    sizes: list[Any] = []

    async def resize(pid: int, size: Any) -> None:
        sizes.append(size)

    good = '{"type":"resize","rows":5,"cols":6}'
    texts = iter([said, good])

    async def receive() -> Any:
        text = next(texts, None)
        return {"type": "websocket.disconnect"} if text is None else {"type": "websocket.receive", "text": text}

    box: Any = SimpleNamespace(lease=SimpleNamespace(sandbox=SimpleNamespace(pty=SimpleNamespace(resize=resize))))
    terminal = Terminal("t1", "chat", handle=SimpleNamespace(pid=1))
    await open_terminal_sockets._type(SimpleNamespace(receive=receive), terminal, box)  # type: ignore[arg-type] # noqa: SLF001
    assert [(one.rows, one.cols) for one in sizes] == [(5, 6)]


async def test_strangers_who_say_nothing_make_room_for_who_comes_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_terminal_sockets, "MAX_UNPROVEN", 2)
    proves = asyncio.Event()
    closed: list[tuple[int, int]] = []

    async def come(number: int) -> None:
        came = iter([{"type": "websocket.connect"}])

        async def receive() -> Any:
            if (message := next(came, None)) is not None:
                return message
            await proves.wait()
            return {"type": "websocket.receive", "text": json.dumps({"type": "auth", "token": MINE})}

        async def send(message: Any) -> None:
            if message["type"] == "websocket.close":
                closed.append((number, message["code"]))

        scope = {"type": "websocket", "path": f"{PREFIX}/api/terminals/t1", "headers": [(b"host", b"localhost")]}
        await served.app({**scope, "query_string": b"", "extensions": {}}, receive, send)

    coming = [asyncio.create_task(come(number)) for number in range(5)]
    await asyncio.wait(coming[:3], timeout=5)
    assert closed == [(0, 4001), (1, 4001), (2, 4001)]
    proves.set()
    await asyncio.wait(coming, timeout=5)
    assert closed[3:] == [(3, 4004), (4, 4004)]
