"""LibreChat's wire with no token, a wrong one and somebody else's; its files, ids and forms. No sandbox starts here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import httpx2
import orjson
import pytest

from sandbox_kernel.core.errors import FileRefused
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.serve.guard import Guarded
from sandbox_kernel.plugins.serve.librechat import files as librechat_files
from sandbox_kernel.plugins.serve.librechat.files import FileStore, StoredSession
from sandbox_kernel.plugins.serve.librechat.programs import (
    Bridge,
    TenantPrograms,
    ToolFailed,
    ToolMissing,
    ToolProgram,
    bash_lines,
    python_lines,
)
from sandbox_kernel.plugins.serve.requests import Refusal
from sandbox_kernel.plugins.serve.streams import Download, begun
from sandbox_kernel.plugins.serve.tenants import Lease, ServeLimits, Tenants
from tests.plugins.serve import stand_ins
from tests.plugins.serve.stand_ins import MINE, THEIRS, StandIn

PREFIX = "/librechat/v1"
UNKNOWN = "V1StGXR8_Z5jdHi6B-myT"  # the same for each worker of a run, in whose names of tests it is
ROUTES = [
    ("POST", "/exec"),
    ("POST", "/exec/programmatic"),
    ("POST", "/upload"),
    ("POST", "/upload/batch"),
    ("GET", f"/download/{UNKNOWN}/{UNKNOWN}"),
    ("GET", f"/files/{UNKNOWN}"),
    ("DELETE", f"/files/{UNKNOWN}/{UNKNOWN}"),
    ("GET", f"/sessions/{UNKNOWN}/objects/{UNKNOWN}"),
    ("DELETE", f"/sessions/{UNKNOWN}/objects/{UNKNOWN}"),
]


class Served(stand_ins.Served):
    """The application without sandboxes, whose files may have a MiB."""

    def __init__(self, **limits: Any) -> None:
        settings = Settings(limits=replace(Settings().limits, file_limit=1 << 20))
        super().__init__(settings=settings, is_empty=True, **limits)

    async def ask(self, method: str, path: str, key: str = MINE, **given: Any) -> httpx2.Response:
        headers = {"X-API-Key": key, **given.pop("headers", {})}
        return await super().ask(method, PREFIX + path, headers=headers, **given)

    async def uploaded(self, name: str = "a.csv", content: bytes = b"1,2\n") -> tuple[str, str]:
        answer = await self.ask("POST", "/upload", files={"file": (name, content)}, data={"kind": "user", "id": "u"})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return found["storage_session_id"], found["files"][0]["fileId"]


@pytest.fixture
def served() -> Served:
    return Served()


# --- files ---


async def test_a_file_is_kept_and_listed_and_sent_and_removed(served: Served) -> None:
    session, file = await served.uploaded("folder/a b.csv")
    assert librechat_files.ID.fullmatch(session)
    assert librechat_files.ID.fullmatch(file)
    answer = await served.ask("GET", f"/download/{session}/{file}?kind=user&id=u")
    assert (answer.content, answer.headers["content-disposition"]) == (b"1,2\n", "attachment")
    listed = (await served.ask("GET", f"/files/{session}?detail=full")).json()
    assert listed == [(await served.ask("GET", f"/sessions/{session}/objects/{file}")).json()]
    assert (listed[0]["name"], listed[0]["metadata"]["original-filename"]) == (
        f"{session}/{file}.csv",
        "folder/a b.csv",
    )
    assert listed[0]["lastModified"].endswith("Z")
    assert (await served.ask("DELETE", f"/files/{session}/{file}")).status_code == 204
    assert (await served.ask("GET", f"/download/{session}/{file}")).status_code == 404


async def test_another_s_file_is_not_there_and_no_id_is_a_path(served: Served) -> None:
    session, file = await served.uploaded()
    for path in (f"/download/{session}/{file}", f"/files/{session}", f"/sessions/{session}/objects/{file}"):
        theirs = await served.ask("GET", path, THEIRS)
        unknown = await served.ask("GET", path.replace(session, UNKNOWN), THEIRS)
        assert (theirs.status_code, theirs.content) == (404, unknown.content)
        assert (await served.ask("GET", path)).status_code == 200
    assert (await served.ask("DELETE", f"/files/{session}/{file}", THEIRS)).status_code == 404
    for wrong in ("..", "%2e%2e", "..%2f..", "é" * 21, "a" * 22, f"{session}%00", "a" * 5000):
        for path in (f"/download/{wrong}/{file}", f"/download/{session}/{wrong}", f"/files/{wrong}"):
            assert (await served.ask("GET", path)).status_code in {404, 405}, path
    assert (await served.ask("GET", f"/download/{session}/{file}")).content == b"1,2\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["../a", "a/../b", "/etc/passwd", ".", "a//b", "x" * 300, "a/" * 400 + "b", "\u202e/../../a"],
)
async def test_a_name_that_is_no_proper_path_is_refused(served: Served, name: str) -> None:
    answer = await served.ask("POST", "/upload", files={"file": (name, b"1")})
    assert answer.status_code == 400
    both = [("file", (name, b"1")), ("file", ("good.txt", b"2"))]
    found = (await served.ask("POST", "/upload/batch", files=both)).json()
    assert (found["message"], found["succeeded"], found["failed"]) == ("success", 1, 1)
    assert [row["status"] for row in found["files"]] == ["error", "success"]
    found = (await served.ask("POST", "/upload/batch", files=both[:1])).json()
    assert (found["message"], found["succeeded"]) == ("error", 0)


@pytest.mark.parametrize("name", ["a\\b.csv", "a\x1bb.csv", "\u202etxt.exe", "\u200em.csv", "d\ufeff/x.csv"])
async def test_a_name_that_nobody_can_read_is_taken_under_another(served: Served, name: str) -> None:
    for path in ("/upload", "/upload/batch"):
        found = (await served.ask("POST", path, files={"file": (name, b"1,2\n")})).json()
        assert (found["succeeded"], found["failed"]) == (1, 0)
        said = found["files"][0]["filename"]
        assert said != name
        assert said.isprintable()
        session, file = found["session_id"], found["files"][0]["fileId"]
        (listed,) = (await served.ask("GET", f"/files/{session}")).json()
        assert listed["metadata"]["original-filename"] == said
        assert (await served.ask("GET", f"/download/{session}/{file}")).content == b"1,2\n"


async def pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(1 << 20)


async def test_a_file_that_is_too_large_is_refused_in_each_form(served: Served) -> None:
    large = bytes((1 << 20) + 1)
    for path in ("/upload", "/upload/batch"):
        answer = await served.ask("POST", path, files={"file": ("a", bytes(3 << 20))})
        assert (answer.status_code, answer.json()["error"]) == (413, "body-too-large")
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = await served.ask("POST", path, content=pieces(5), headers=headers)
        assert answer.status_code in {400, 413}
    assert (await served.ask("POST", "/upload", files={"file": ("a", large)})).status_code == 413
    found = (await served.ask("POST", "/upload/batch", files={"file": ("a", large)})).json()
    assert found["message"] == "error"
    session, file = await served.uploaded(content=large[:-1])
    assert len((await served.ask("GET", f"/download/{session}/{file}")).content) == 1 << 20


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary="])
async def test_a_body_that_is_no_form_is_refused(served: Served, kind: str) -> None:
    answer = await served.ask("POST", "/upload", content=b"--x", headers={"Content-Type": kind})
    assert answer.status_code == 400
    fields = {f"f{number}": "1" for number in range(20)}
    assert (await served.ask("POST", "/upload", files={"file": ("a", b"1")}, data=fields)).status_code == 400
    assert (await served.ask("POST", "/upload", files={"file": ("a", b"1")}, data={"k": "1" * 9999})).status_code == 400


def holds(store: FileStore, session: StoredSession) -> bool:
    try:
        return store.session(session.id) is session
    except Refusal:
        return False


async def test_the_oldest_files_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librechat_files, "MAX_SESSIONS", 3)
    monkeypatch.setattr(librechat_files, "MAX_BYTES", 100)

    async def session(size: int) -> StoredSession:
        made = StoredSession()
        await made.add("a", once(bytes(size)), size)
        with pytest.raises(FileRefused):
            await made.add("b", once(bytes(size)), size - 1)
        assert (len(made.files), made.size) == (1, size)
        return made

    async def once(content: bytes) -> AsyncIterator[bytes]:
        yield content

    store = FileStore()
    kept = [await session(10) for _ in range(4)]
    for one in kept:
        store.keep(one)
    assert [holds(store, one) for one in kept] == [False, True, True, True]
    large = await session(90)
    store.keep(large)
    assert [one for one in (*kept, large) if holds(store, one)] == [kept[3], large]
    with pytest.raises(Refusal):
        kept[0].read(0, 1)
    large.made -= librechat_files.KEEP + timedelta(seconds=1)
    assert not holds(store, large)
    with pytest.raises(Refusal):
        large.read(0, 1)  # not on disk either
    assert holds(store, kept[3])


async def test_old_files_go_though_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[tuple[float, Any]] = []
    loop = asyncio.get_running_loop()

    def call_later(seconds: float, call: Any) -> Any:
        later.append((seconds, call))
        return SimpleNamespace(cancel=lambda one=later[-1]: later.remove(one))

    monkeypatch.setattr(loop, "call_later", call_later)
    store, old, new = FileStore(), StoredSession(), StoredSession()
    old.made -= timedelta(hours=1)
    for one in (old, new):
        store.keep(one)
    [(seconds, sweep)] = later  # one timer, however many sessions
    assert 22.9 * 3600 < seconds < 23.1 * 3600
    old.made -= librechat_files.KEEP
    sweep()
    with pytest.raises(Refusal):
        old.read(0, 1)
    assert new.read(0, 1) == b""
    assert 23.9 * 3600 < later[-1][0] < 24.1 * 3600


async def test_a_download_is_cut_where_its_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librechat_files, "CHUNK_BYTES", 1)
    tenants = Tenants({"base": Settings()}, ServeLimits())

    async def sent(closes: int) -> list[Any]:
        """Return what is sent of three bytes if their session is closed after so many messages."""
        session, messages = StoredSession(), list[Any]()

        async def content() -> AsyncIterator[bytes]:
            yield b"abc"

        async def handler(*_: Any) -> Any:
            return Download(await begun(librechat_files.pieces(session, stored)))

        async def send(message: Any) -> None:
            messages.append(message)
            if len(messages) == closes:
                session.close()

        stored = await session.add("a", content(), 3)
        if not closes:
            session.close()
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/librechat/download",
            "headers": [],
            "query_string": b"",
        }
        scope |= {"server": ("localhost", 80), "asgi": {"spec_version": "2.4"}}
        await Guarded(tenants, lambda _: tenants.tenant("mine"), handler)(scope, send, send)  # type: ignore[arg-type]
        return [message.get("status") or (message["body"], message.get("more_body")) for message in messages]

    begins = [200, (b"a", True)]
    assert await sent(9) == [*begins, (b"b", True), (b"c", True), (b"", False)]
    assert await sent(2) == begins  # and no end: the server cuts it
    assert (await sent(0))[0] == 404


# --- requests ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        {"code": "1"},
        {"lang": "klingon", "code": "1"},
        {"lang": ["py"], "code": "1"},
        {"lang": "py"},
        {"lang": "py", "code": 7},
        {"lang": "py", "code": "1", "args": "x"},
        {"lang": "py", "code": "1", "files": {"id": 1}},
        {"lang": "py", "code": "1", "files": [1]},
        {"lang": "py", "code": "1", "files": [{}] * 1001},
        {"lang": "py", "code": "1", "session_id": 7},
        {"lang": "py", "code": "1", "runtime_session_hint": ["a"]},
        {"lang": "py", "code": "1", "runtime_session_hint": "a" * 513},
    ],
)
async def test_a_request_that_is_improper_starts_nothing(served: Served, body: dict[str, Any]) -> None:
    assert (await served.ask("POST", "/exec", json=body)).status_code == 400
    assert served.tenants.tenant("mine").leases == {}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": None},
        {"tools": [{"name": ""}]},
        {"tools": [{"name": "a\x00"}]},
        {"tools": [{"name": "a"}] * 257},
        {"tools": [7]},
        {"lang": "r"},
        {"timeout": "x"},
        {"timeout": -1},
    ],
)
async def test_a_program_that_is_improper_starts_nothing(served: Served, more: dict[str, Any]) -> None:
    body = {"code": "1", "tools": [{"name": "a"}], **more}
    assert (await served.ask("POST", "/exec/programmatic", json=body)).status_code == 400
    assert served.tenants.tenant("mine").leases == {}


async def test_a_language_that_no_image_has_is_refused_by_its_name_where_the_model_reads_it(served: Served) -> None:
    found = (await served.ask("POST", "/exec", json={"lang": "rs", "code": "fn main() {}"})).json()
    assert found["stdout"] == ""
    assert found["stderr"].startswith("This server does not run rs.")
    assert served.tenants.tenant("mine").leases == {}


@pytest.mark.parametrize("token", ["x", UNKNOWN, 7, ["a"]])
async def test_a_program_that_nobody_knows_does_not_go_on(served: Served, token: object) -> None:
    answer = await served.ask("POST", "/exec/programmatic", json={"continuation_token": token, "tool_results": []})
    assert (answer.status_code, answer.json()["error"]) == (404, "program-unknown")


async def test_too_many_sandboxes_are_told_as_librechat_reads_it() -> None:
    served = Served(sandboxes_per_tenant=1)
    tenant = served.tenants.tenant("mine")
    tenant.leases["s1"] = Lease(sandbox=StandIn("s1"), tenant=tenant, template="base")  # type: ignore[arg-type]
    for hint in ({}, {"runtime_session_hint": "c"}):
        answer = await served.ask("POST", "/exec", json={"lang": "py", "code": "1", **hint})
        assert (answer.status_code, answer.json()["error"]) == (429, "rate_limited")
        assert answer.json()["retry_after_seconds"] > 0


async def test_the_sandbox_of_a_conversation_that_was_idle_the_longest_makes_room() -> None:
    tenants = Served(sandboxes_per_tenant=4).tenants
    tenant = tenants.tenant("mine")
    made: dict[str, Any] = {}
    for name, idle, calls in (("chat/a", 70, 0), ("chat/b", 90, 0), ("chat/c", 99, 1), ("other/d", 99, 0)):
        stand_in: Any = StandIn(name)
        made[name] = Lease(sandbox=stand_in, tenant=tenant, template="base", name=name, calls=calls)
        made[name].used = time.monotonic() - idle
        stand_in.kill = lambda: asyncio.sleep(0)
    for seconds, gone in ((100.0, set()), (80.0, {"chat/b"})):
        tenant.leases = {lease.id: lease for lease in made.values()}
        await tenants.make_room(tenant, "chat", seconds)
        assert made.keys() - {lease.name for lease in tenant.leases.values()} == gone
    await tenants.make_room(tenant, "chat", 0.0)  # there is room
    assert len(tenant.leases) == 3


# --- programs ---


async def test_a_program_waits_for_what_its_tools_return() -> None:
    program, programs = ToolProgram(["add", "fail", "forgotten"]), TenantPrograms()

    async def work() -> dict[str, Any]:
        both = await asyncio.gather(program.call("add", {"a": 1}), program.call("add", {"a": 2}))
        with pytest.raises(ToolFailed, match="no such thing"):
            await program.call("fail", {})
        with pytest.raises(ToolFailed, match="gave no result"):
            await program.call("forgotten", {})
        with pytest.raises(ToolMissing):
            await program.call("other", {})
        with pytest.raises(ToolFailed, match="too deep"):
            await program.call("add", {"a": orjson.loads("[" * 1000 + "]" * 1000)})
        return {"both": both}

    program.start(asyncio.create_task(work()))
    told = await programs.answer(program)
    assert [one["input"] for one in told["tool_calls"]] == [{"a": 1}, {"a": 2}]
    [(_, clock)] = programs._programs.values()  # noqa: SLF001
    again = programs.take(told["continuation_token"])
    assert clock.cancelled()
    with pytest.raises(Refusal):
        programs.take(told["continuation_token"])
    again.give([{"call_id": one["id"], "result": one["input"]["a"], "is_error": False} for one in told["tool_calls"]])
    told = await programs.answer(program)
    program.give([{"call_id": told["tool_calls"][0]["id"], "is_error": True, "error_message": "no such thing"}])
    await programs.answer(program)
    program.give([{"call_id": "call_999", "result": 1}, {"call_id": ["x"]}])
    assert await programs.answer(program) == {"both": [1, 2]}


async def test_code_that_is_no_program_has_no_tools() -> None:
    with pytest.raises(ToolMissing):
        await Bridge().call_tool("add", {})
    programs = TenantPrograms()
    programs.running = 16
    with pytest.raises(Refusal):
        programs.check_room()


def test_the_names_of_tools_are_no_code() -> None:
    names = ["get-weather", "class", "3d", "a'b; rm -rf /", 'x"""\nimport os', "naïve", "if"]
    text = python_lines(names)
    compile(text, "tools", "exec")
    for known in ("'get_weather': 'get-weather'", "'class_tool': 'class'", "'_3d': '3d'"):
        assert known in text
    assert "\nimport os" not in text
    lines, _ = bash_lines(names)
    assert [line.partition("(")[0] for line in lines.splitlines() if "() {" in line] == [
        "get_weather",
        "class",
        "_3d",
        "ab_rm__rf_",
        "x_import_os",
        "nave",
        "if_tool",
    ]
    assert r"'a'\''b; rm -rf /'" in lines
