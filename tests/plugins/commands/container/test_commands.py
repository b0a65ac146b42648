"""Commands of a sandbox and shells with a terminal, for callers of the SDK."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel import (
    AsyncSandbox,
    CellTimeout,
    CommandExitException,
    OutputMessage,
    PtySize,
    Sandbox,
    SandboxError,
)
from tests.support.patience import cancelled, within


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="1G", cell_timeout=60, envs={"FOO": "bar"}) as one:
        yield one


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


def test_cells_of_ours_are_not_counted(sandbox: Sandbox) -> None:
    before = sandbox.run_code("1", envs={"A": "b"}, timeout=0).execution_count or 0
    sandbox.commands.run("true")
    assert sandbox.run_code("1").execution_count == before + 1


async def test_awaited(image: str) -> None:
    async with AsyncSandbox(image=image, memory="1G", envs={"FOO": "bar"}) as sandbox:
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
