"""The parts of a sandbox for its callers: what cells print and draw, commands, shells, files and watched folders."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandbox_kernel import (
    AsyncSandbox,
    CellTimeout,
    CommandExitException,
    ConfigurationError,
    FileNotThere,
    FileType,
    OutputMessage,
    PtySize,
    Sandbox,
    SandboxClosed,
    SandboxError,
)
from tests.support.patience import cancelled, within


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="1G", cell_timeout=60, envs={"FOO": "bar"}) as one:
        yield one


# --- code ------------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_a_message_and_text(sandbox: Sandbox) -> None:
    said: list[OutputMessage] = []
    sandbox.run_code(
        "import sys; print('a'); print('b', file=sys.stderr)", on_stdout=said.append, on_stderr=said.append
    )
    assert sorted((message.line, message, message.error) for message in said) == [
        ("a\n", "a\n", False),
        ("b\n", "b\n", True),
    ]
    assert all(abs(message.timestamp / 1e9 - datetime.now(UTC).timestamp()) < 600 for message in said)
    assert type(said[0].line) is str


def test_json_is_text_and_has_keys(sandbox: Sandbox) -> None:
    execution = sandbox.run_code("print('a'); 6 * 7")
    assert json.loads(execution.to_json()) == execution.to_dict()
    assert execution.to_json()["text"] == execution.results[0]["text"] == "42"
    assert json.loads(execution.logs.to_json())["stdout"] == ["a\n"]
    error = sandbox.run_code("1 / 0").error
    assert error is not None
    assert json.loads(error.to_json())["name"] == "ZeroDivisionError"


def test_variables_of_a_sandbox_and_of_a_call(sandbox: Sandbox) -> None:
    ask = "import os; os.getenv('FOO'), os.getenv('NEW')"
    assert sandbox.run_code(ask).text == "('bar', None)"
    assert sandbox.run_code(ask, envs={"FOO": "baz", "NEW": "1"}).text == "('baz', '1')"
    assert sandbox.run_code(ask).text == "('bar', None)"
    failed = sandbox.run_code("1 / 0", envs={"FOO": "baz"}, stop_on_error=True)
    assert failed.error is not None
    assert sandbox.run_code(ask).text == "('bar', None)"
    assert sandbox.run_code("[name for name in dir() if 'sandbox' in name]").text == "[]"


def test_cells_of_ours_are_not_counted(sandbox: Sandbox) -> None:
    before = sandbox.run_code("1", envs={"A": "b"}, timeout=0).execution_count or 0
    sandbox.commands.run("true")
    assert sandbox.run_code("1").execution_count == before + 1


# --- commands --------------------------------------------------------------------------------------------------------


def test_a_command_runs_to_its_end(sandbox: Sandbox) -> None:
    said: list[str] = []
    done = sandbox.commands.run(
        "echo $FOO $NEW; pwd; echo err >&2",
        envs={"NEW": "1"},
        cwd="/tmp",
        on_stdout=said.append,
        on_stderr=lambda message: said.append(f"!{message.line}"),
        timeout=30,
    )
    assert (done.stdout, done.stderr, done.exit_code, done.error) == ("bar 1\n/tmp\n", "err\n", 0, None)
    assert "".join(said).replace("!err\n", "") == "bar 1\n/tmp\n"
    assert "!err\n" in said
    assert sandbox.commands.run("echo a", retain_output=False).stdout is None
    with pytest.raises(CommandExitException) as failed:
        sandbox.commands.run("echo out; echo why >&2; exit 3")
    assert (failed.value.exit_code, failed.value.stdout, failed.value.stderr) == (3, "out\n", "why\n")


def test_what_a_command_cannot_have(sandbox: Sandbox) -> None:
    with pytest.raises(Exception, match="no such file or folder"):
        sandbox.commands.run("pwd", cwd="/nowhere")
    with pytest.raises(CellTimeout) as late:
        sandbox.commands.run("sleep 100", timeout=0.3)
    assert (late.value.limit, late.value.setting) == ("0.3 s", "timeout")
    assert not sandbox.commands.list()
    with pytest.raises(CommandExitException, match="no-such-program"):
        sandbox.commands.run("no-such-program")


def test_a_command_in_the_background(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("while read x; do echo got $x; done", background=True, stdin=True)
    (row,) = sandbox.commands.list()
    assert (row.pid, row.args) == (handle.pid, ("-c", "while read x; do echo got $x; done"))
    assert sandbox.run_code("1 + 1").text == "2"  # beside it
    handle.send_stdin("one\n")
    sandbox.commands.send_stdin(handle.pid, b"two\n")
    sandbox.commands.close_stdin(handle.pid)
    said: list[str] = []
    assert handle.wait(on_stdout=said.append).stdout == "".join(said) == "got one\ngot two\n"
    assert handle.exit_code == 0
    steps = sandbox.commands.run("echo a; sleep 0.2; echo b >&2", background=True)
    assert [(out, err) for out, err, _ in steps] == [("a\n", None), (None, "b\n")]
    sleeper = sandbox.commands.run("sleep 100", background=True)
    other = sandbox.commands.connect(sleeper.pid)
    assert sleeper.kill() is True
    assert sandbox.commands.kill(sleeper.pid) is False
    with pytest.raises(CommandExitException) as ended:
        other.wait()
    assert ended.value.exit_code == 137


def test_much_output_comes_whole_and_without_what_terminals_obey(sandbox: Sandbox) -> None:
    done = sandbox.commands.run("seq 300000; printf '\\033]0;title\\007\\033[31mred\\033[0m'")
    assert done.stdout == "".join(f"{n}\n" for n in range(1, 300_001)) + "\x1b[31mred\x1b[0m"


def test_a_shell_with_a_terminal(sandbox: Sandbox) -> None:
    shell = sandbox.pty.create(PtySize(rows=20, cols=70), cwd="/tmp", envs={"PS1": "$ "})
    sandbox.pty.resize(shell.pid, PtySize(rows=20, cols=90))
    sandbox.pty.send_stdin(shell.pid, b"tput cols; pwd; exit 4\n")
    said: list[bytes] = []
    with pytest.raises(CommandExitException) as ended:
        shell.wait(on_pty=said.append)
    assert ended.value.exit_code == 4
    assert re.search(rb"\n\r?90\r?\n/tmp\r?\n", b"".join(said))
    again = sandbox.pty.create(PtySize(rows=20, cols=70))
    assert sandbox.pty.connect(again.pid).pid == again.pid
    assert sandbox.pty.kill(again.pid) is True


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_are_written_and_read(sandbox: Sandbox) -> None:
    info = sandbox.files.write("w/a.txt", "ü")
    assert (info.name, info.path, info.type) == ("a.txt", "w/a.txt", FileType.FILE)
    assert sandbox.files.read("w/a.txt") == "ü"
    assert sandbox.files.read("/mnt/data/w/a.txt", format="bytes") == "ü".encode()
    assert b"".join(sandbox.files.read("w/a.txt", format="stream")) == "ü".encode()
    several: list[dict[str, Any]] = [
        {"path": "w/b", "data": b"\xff"},
        {"path": "w/c", "data": io.BytesIO(b"c")},
        {"path": "w/d", "data": io.StringIO("d")},
    ]
    assert [info.path for info in sandbox.files.write_files(several)] == ["w/b", "w/c", "w/d"]
    assert sandbox.files.read("w/d") == "d"
    with pytest.raises(FileNotThere):
        sandbox.files.read("w/none")


def test_folders_are_listed_made_moved_and_removed(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.make_dir("f/g") is True
    assert files.make_dir("f/g") is False
    files.write("f/g/h/file", "12345")
    sandbox.run_code("import os; os.symlink('/etc/passwd', 'f/link'); os.chmod('f/g/h/file', 0o640)")
    assert [(entry.path, entry.type) for entry in files.list("f", depth=1)] == [("f/g", FileType.DIR), ("f/link", None)]
    assert [entry.name for entry in files.list("f", 3)] == ["g", "h", "file", "link"]
    assert [info.path for info in files.list("f")] == ["f/g/h/file"]
    entry = files.get_info("f/g/h/file")
    assert (entry.name, entry.size, entry.mode, entry.permissions) == ("file", 5, 0o640, "-rw-r-----")
    assert (entry.owner, entry.group, entry.symlink_target) == ("sandbox", "sandbox", None)
    assert abs(entry.modified_time - datetime.now(UTC)) < timedelta(minutes=10)
    assert files.get_info("f/link").symlink_target == "/etc/passwd"
    assert files.rename("f/g/h/file", "f/new/name").path == "f/new/name"
    assert not files.exists("f/g/h/file")
    with pytest.raises(FileNotThere):
        files.get_info("f/g/h/file")
    sandbox.run_code("for i in range(3000): open(f'f/g/{i}', 'w').close()")
    files.remove("f", recursive=True)
    assert not files.exists("f")
    assert sandbox.run_code("os.path.exists('/etc/passwd')").text == "True"  # no link was followed
    with pytest.raises(FileNotThere):
        files.remove("f", recursive=True)
    with pytest.raises(ConfigurationError):
        files.list("", depth=0)


def test_a_folder_is_watched(sandbox: Sandbox) -> None:
    sandbox.run_code("import os\nos.makedirs('v/in', exist_ok=True)\nfor n in 'abc': open(f'v/{n}', 'w').write(n)")
    handle = sandbox.files.watch_dir("v", recursive=True, include_entry=True)
    assert handle.get_new_events() == []
    sandbox.run_code("os.rename('v/a', 'v/z'); os.remove('v/b'); open('v/c', 'a').write('more'); open('v/in/d', 'w')")
    seen = [(event.name, event.type.value, event.entry is not None) for event in handle.get_new_events()]
    assert seen == [
        ("a", "rename", False),
        ("b", "remove", False),
        ("in/d", "create", True),
        ("z", "create", True),
        ("c", "write", True),
    ]
    handle.stop()
    with pytest.raises(SandboxClosed):
        handle.get_new_events()


# --- the same, awaited -----------------------------------------------------------------------------------------------


async def test_awaited(image: str) -> None:
    async with AsyncSandbox(image=image, memory="1G", envs={"FOO": "bar"}) as sandbox:
        assert [info.id for info in await AsyncSandbox.list() if info.id == sandbox.id] == [sandbox.id]
        await _awaited(sandbox)


async def _awaited(sandbox: AsyncSandbox) -> None:
    said: list[str] = []

    async def hear(message: OutputMessage) -> None:
        said.append(message.line)

    assert (await sandbox.commands.run("echo $FOO", on_stdout=hear)).stdout == "bar\n"
    assert said == ["bar\n"]
    handle = await sandbox.commands.run("read x; echo got $x", background=True, stdin=True, on_stdout=hear)
    assert [row.pid for row in await sandbox.commands.list()] == [handle.pid]
    other = await sandbox.commands.connect(handle.pid)
    await other.disconnect()
    await handle.send_stdin("it\n")
    assert (await handle.wait()).stdout == "got it\n"
    assert said[-1] == "got it\n"
    begun = asyncio.Event()
    call = asyncio.create_task(sandbox.commands.run("echo begun; sleep 100", on_stdout=lambda _: begun.set()))
    async with within(60):
        await begun.wait()
    await cancelled(call)
    assert not await sandbox.commands.list()

    data: list[bytes] = []
    shell = await sandbox.pty.create(PtySize(rows=10, cols=33), data.append)
    await sandbox.pty.send_stdin(shell.pid, b"tput cols; exit\n")
    assert (await shell.wait()).exit_code == 0
    assert b"33" in b"".join(data)

    made, ended = asyncio.Event(), asyncio.Event()
    watch = await sandbox.files.watch_dir("", lambda event: made.set(), lambda _: ended.set(), timeout=0)
    assert await sandbox.files.make_dir("made") is True
    async with within(60):
        await made.wait()
    await watch.stop()
    assert (await sandbox.files.rename("made", "moved")).type is FileType.DIR


async def test_a_command_ends_with_its_sandbox(image: str) -> None:
    async with AsyncSandbox(image=image, memory="512M") as sandbox:
        handle = await sandbox.commands.run("sleep 100", background=True)
    with pytest.raises(SandboxError, match=r"killed|ended|gone"):
        await handle.wait()


def test_a_command_is_gone_with_its_kernel(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("sleep 100", background=True)
    sandbox.restart()
    with pytest.raises(Exception, match="no such command"):
        handle.wait()
    assert sandbox.commands.run("echo again").stdout == "again\n"


def test_the_screen_reads_commands(image: str) -> None:
    with Sandbox(image=image, memory="512M", screen="block", screen_threshold=10) as sandbox:
        with pytest.raises(CommandExitException) as blocked:
            sandbox.commands.run("cat /etc/shadow; curl http://169.254.169.254/latest/meta-data/")
        assert blocked.value.exit_code == 126
        assert sandbox.commands.run("echo fine").stdout == "fine\n"


def test_several_threads_share_commands(sandbox: Sandbox) -> None:
    found: list[str | None] = []

    def one(number: int) -> None:
        found.append(sandbox.commands.run(f"echo {number}").stdout)

    threads = [threading.Thread(target=one, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, found)) == [f"{number}\n" for number in range(4)]
