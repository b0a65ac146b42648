"""Each method and argument of E2B's, by its name: docs/e2b.md says which of these tests has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandbox_kernel import AbilityMissing, CellTimeout, CommandExitException, ConfigurationError
from sandbox_kernel.plugins.frameworks.e2b import AsyncSandbox, FileType, PtySize, Sandbox, SandboxQuery
from tests.support.patience import within

SIZE = PtySize(rows=20, cols=70)


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox.create(image=image, memory="1G", cell_timeout=60) as one:
        yield one


# --- sandboxes -------------------------------------------------------------------------------------------------------


def test_what_opens_a_sandbox(image: str) -> None:
    service: dict[str, Any] = {"secure": True, "logger": None, "idempotency_key": "k", "retries": 2, "proxy": None}
    with Sandbox.create(
        template=image,
        timeout=300,
        metadata={"who": "me"},
        envs={"REGION": "north"},
        allow_internet_access=False,
        network={"allow_out": ["a.example"]},
        memory="512M",
        **service,
    ) as one:
        info = one.get_info()
        assert (info.template_id, info.metadata, info.network) == (image, {"who": "me"}, ("a.example",))
        assert info.end_at is not None
        assert one.run_code("import os; os.environ['REGION']").text == "north"
        assert one.run_code("open('a', 'w').close()").error is None
        assert [one.files.exists("a"), len(one.commands.list()), one.pty is not None] == [True, 0, True]
        assert one.sandbox_id == one.id
    for name in ("mcp", "iam", "lifecycle", "volume_mounts"):
        refused: dict[str, Any] = {name: {}}
        with pytest.raises(ConfigurationError, match=name):
            Sandbox.create(image=image, **refused)


def test_it_is_looked_at_and_found_by_names(sandbox: Sandbox) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    assert len(sandbox.get_metrics(start=now - hour, end=now + hour)) == 1
    assert sandbox.get_metrics(start=now + hour) == []
    sandbox.set_timeout(timeout=600)
    assert Sandbox.connect(sandbox.sandbox_id, timeout=900, on_resume=None) is sandbox
    end = sandbox.get_info().end_at
    assert end is not None
    assert end > now + timedelta(seconds=700)


def test_it_stands_still_and_goes_on(sandbox: Sandbox) -> None:
    sandbox.run_code("before = 1")
    assert sandbox.pause(keep_memory=True, mode="full", strict=True)
    assert not sandbox.pause()
    assert sandbox.get_info().state == "paused"
    assert sandbox.id in [info.sandbox_id for info in Sandbox.list()]
    assert Sandbox.connect(sandbox.sandbox_id) is sandbox
    assert sandbox.run_code("before").text == "1"
    for given in ({"mode": "filesystem"}, {"keep_memory": False}):
        refused: dict[str, Any] = given
        with pytest.raises(ConfigurationError, match="keeps its memory"):
            sandbox.pause(**refused)
    assert not sandbox.is_paused


def test_snapshots_and_forks_are_for_engines_that_can(sandbox: Sandbox) -> None:
    """What they do is in the tests of qemu, with an engine that can; this one says so at once."""
    for call in (
        lambda: sandbox.fork(count=2, timeout=60),
        lambda: sandbox.create_snapshot(name="here", mode="full"),
    ):
        with pytest.raises(AbilityMissing, match="only qemu and wasm can"):
            call()
    with pytest.raises(ConfigurationError, match="has the memory"):
        sandbox.create_snapshot(mode="filesystem")
    with pytest.raises(ConfigurationError, match="from 1 to 20"):
        sandbox.fork(count=21)
    assert not Sandbox.delete_snapshot(snapshot_id=f"never-{sandbox.id}")


def test_pages_of_sandboxes(sandbox: Sandbox, image: str) -> None:
    mark = {"page": sandbox.id}
    made = [Sandbox(image=image, memory="512M", metadata=mark) for _ in range(2)]
    try:
        query = SandboxQuery(metadata=mark, state=["not running"])
        first = Sandbox.list(query=query, limit=1, order="asc")
        found = first.next_items()
        assert (len(found), first.has_next) == (1, True)
        rest = Sandbox.list(query=query, next_token=first.next_token, order="asc")
        found += rest.next_items()
        assert (rest.has_next, {info.sandbox_id for info in found}) == (False, {one.id for one in made})
        started = [info.started_at for info in Sandbox.list(order="desc")]
        assert [info.started_at for info in Sandbox.list(order="asc")] == started[::-1]
        wrong: Any = "newest"
        with pytest.raises(ConfigurationError, match="newest"):
            Sandbox.list(order=wrong)
    finally:
        for one in made:
            one.kill()


def test_what_a_call_is_told_of(sandbox: Sandbox) -> None:
    out: list[str] = []
    err: list[str] = []
    results: list[str | None] = []
    errors: list[str] = []
    code = "import os, sys\nprint(os.environ['A'])\nprint('err', file=sys.stderr)\ndisplay(6 * 7)\n1 / 0"
    sandbox.run_code(
        code=code,
        on_stdout=lambda message: out.append(message.line),
        on_stderr=lambda message: err.append(message.line),
        on_result=lambda result: results.append(result.text),
        on_error=lambda error: errors.append(error.name),
        envs={"A": "b"},
        timeout=30,
        request_timeout=5,
    )
    assert (out, err, results, errors) == (["b\n"], ["err\n"], ["42"], ["ZeroDivisionError"])


def test_contexts_by_names(sandbox: Sandbox) -> None:
    context = sandbox.create_code_context(cwd="/home/user", language="python", request_timeout=5)
    assert sandbox.run_code(code="x = 1; x", context=context).text == "1"
    assert sandbox.run_code("y = 2; y", language="python").text == "2"
    assert context.id in [one.id for one in sandbox.list_code_contexts()]
    sandbox.restart_code_context(context.id)
    assert sandbox.run_code("'x' in globals()", context=context).text == "False"
    sandbox.remove_code_context(context=context)
    assert context.id not in [one.id for one in sandbox.list_code_contexts()]


# --- commands --------------------------------------------------------------------------------------------------------


def test_commands_by_names(sandbox: Sandbox) -> None:
    said: list[str] = []
    done = sandbox.commands.run(
        cmd="pwd; echo $A; echo err >&2",
        background=False,
        envs={"A": "b"},
        user="user",
        cwd="/tmp",
        on_stdout=said.append,
        on_stderr=said.append,
        stdin=False,
        timeout=30,
        request_timeout=5,
        retain_output=False,
    )
    assert (done.stdout, done.exit_code, sorted("".join(said).split())) == (None, 0, ["/tmp", "b", "err"])
    reader = sandbox.commands.run("while read x; do echo got $x; done", background=True, stdin=True)
    sandbox.commands.send_stdin(pid=reader.pid, data="it\n")
    sandbox.commands.close_stdin(pid=reader.pid)
    assert reader.wait().stdout == "got it\n"
    sleeper = sandbox.commands.run("sleep 100", background=True)
    assert [row.pid for row in sandbox.commands.list(request_timeout=5)] == [sleeper.pid]
    assert sandbox.commands.kill(pid=sleeper.pid) is True


def test_a_command_is_followed_again(sandbox: Sandbox) -> None:
    first = sandbox.commands.run("read x; echo got $x; read y; echo bad $y >&2; cat", background=True, stdin=True)
    first.disconnect()
    again = sandbox.commands.connect(pid=first.pid, timeout=30, retain_output=True)
    again.send_stdin(data="one\ntwo\nrest")
    again.close_stdin()
    out: list[str] = []
    err: list[str] = []
    data: list[bytes] = []
    assert again.wait(on_pty=data.append, on_stdout=out.append, on_stderr=err.append).exit_code == 0
    assert ("".join(out), "".join(err), data) == ("got one\nrest", "bad two\n", [])
    assert (again.stdout, again.stderr, again.exit_code) == ("got one\nrest", "bad two\n", 0)
    assert again.kill() is False
    assert first.pid == again.pid


async def test_a_command_is_followed_with_await(image: str) -> None:
    async with AsyncSandbox(image=image, memory="512M") as sandbox:
        first = await sandbox.commands.run("read x; echo got $x; echo bad >&2", background=True, stdin=True)
        out: list[str] = []
        err: list[str] = []
        again = await sandbox.commands.connect(first.pid, on_stdout=out.append, on_stderr=err.append)

        async def slowly() -> AsyncIterator[str]:
            yield "o"
            await asyncio.sleep(0)
            yield "ne\n"

        await sandbox.commands.stream_input(first.pid, slowly(), timeout=30)
        await again.wait()
        assert ("".join(out), "".join(err)) == ("got one\n", "bad\n")
        assert (again.stdout, again.stderr, again.exit_code, again.error) == ("got one\n", "bad\n", 0, None)

        async def never() -> AsyncIterator[str]:
            await asyncio.Event().wait()
            yield ""

        with pytest.raises(CellTimeout, match="input"):
            await sandbox.commands.stream_input(first.pid, never(), timeout=0.1)

        data: list[bytes] = []
        shell = await sandbox.pty.create(size=SIZE, on_data=data.append, user="user", cwd="/tmp", envs={}, timeout=30)
        other: list[bytes] = []
        follower = await sandbox.pty.connect(pid=shell.pid, on_data=other.append, timeout=30)
        await sandbox.pty.stream_input(shell.pid, ["pw", "d; exit\n"])
        async with within(60):
            await follower.wait()
        assert b"/tmp" in b"".join(other)

        came, ended = asyncio.Event(), asyncio.Event()
        watch = await sandbox.files.watch_dir(
            path="",
            on_event=lambda _: came.set(),
            on_exit=lambda _: ended.set(),
            user="user",
            timeout=0,
            recursive=True,
            include_entry=True,
            allow_network_mounts=True,
        )
        await sandbox.files.write("new", "")
        async with within(60):
            await came.wait()
        await watch.stop()


def test_input_comes_piece_by_piece(sandbox: Sandbox) -> None:
    counter = sandbox.commands.run("head -n 3 | wc -c", background=True, stdin=True)
    sandbox.commands.stream_input(pid=counter.pid, data=(f"{n}\n" for n in range(3)), timeout=30)
    assert counter.wait().stdout == "6\n"
    whole: Any = "one piece"
    with pytest.raises(ConfigurationError, match="pieces"):
        sandbox.commands.stream_input(counter.pid, whole)
    shell = sandbox.pty.create(SIZE)
    sandbox.pty.stream_input(pid=shell.pid, data=["exi", b"t\n"], timeout=None)
    assert shell.wait().exit_code == 0


def test_a_shell_is_followed_again(sandbox: Sandbox) -> None:
    shell = sandbox.pty.create(size=SIZE, user="user", cwd="/tmp", envs={"A": "b"}, timeout=30, request_timeout=5)
    again = sandbox.pty.connect(pid=shell.pid, timeout=30)
    sandbox.pty.resize(pid=shell.pid, size=PtySize(rows=20, cols=90))
    sandbox.pty.send_stdin(pid=shell.pid, data=b"echo $A $PWD $(tput cols); exit\n")
    said: list[bytes] = []
    again.wait(on_pty=said.append)
    assert b"b /tmp 90" in b"".join(said)
    other = sandbox.pty.create(SIZE)
    assert sandbox.pty.kill(pid=other.pid) is True
    with pytest.raises(CommandExitException):
        other.wait()


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_by_names(sandbox: Sandbox) -> None:
    files, own = sandbox.files, {"user": "user", "request_timeout": 5}
    carried: dict[str, Any] = {"gzip": True, "use_octet_stream": True}
    assert files.write(path="n/a", data="text", user="user", **carried).path == "/home/user/n/a"
    files.write_files(files=[{"path": "n/b", "data": b"b"}], user="user", **carried)
    assert files.read(path="n/a", format="text", user="user", gzip=True, stream_idle_timeout=5) == "text"
    assert [entry.name for entry in files.list(path="n", depth=1, user="user")] == ["a", "b"]
    assert files.exists(path="n/a", user="user")
    assert files.get_info(path="n/a", **own).type is FileType.FILE
    assert files.make_dir(path="n/in", user="user") is True
    assert files.rename(old_path="n/a", new_path="n/in/a", user="user").path == "/home/user/n/in/a"
    watch = files.watch_dir(path="n", recursive=False, include_entry=True, **own, allow_network_mounts=True)
    files.remove(path="n/b", user="user")
    assert [event.name for event in watch.get_new_events(request_timeout=5)] == ["b"]
    watch.stop(request_timeout=5)
    files.write("/home/user/n/home.txt", "there")
    assert sandbox.run_code("open('/home/user/n/home.txt').read() == open('n/home.txt').read()").text == "True"
    assert files.read("/home/user/n/home.txt") == files.read("n/home.txt") == "there"
    assert {entry.path for entry in files.list("/home/user", depth=1)} == {"/home/user/n"}
    with pytest.raises(ConfigurationError, match="not as 'root'"):
        files.read("n/home.txt", user="root")
    with pytest.raises(ConfigurationError, match="not as 'root'"):
        sandbox.commands.run("id", user="root")
    for call in (lambda: files.write("n/x", "", metadata={}), lambda: files.write_files([], metadata={})):
        with pytest.raises(TypeError, match="metadata"):
            call()
