"""Several kernels in one sandbox: what each has for itself, and what meets one and not the others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox, ConfigurationError, Context, Sandbox, SandboxError
from sandbox_kernel.core.codes import EndCode, UsageCode
from sandbox_kernel.plugins.contexts.codes import ContextCode
from tests.support.roots import root_of_tests

ENGINES = ("docker", "bubblewrap")
EAT = "held = bytearray(1 << 32)\nfor place in range(0, len(held), 4096):\n    held[place] = 1"
ORPHAN = "import subprocess; child = subprocess.Popen(['setsid', 'sleep', '600']); child.pid"
RUNS = "import os; os.path.exists('/proc/{}') and open('/proc/{}/stat').read().rpartition(')')[2].split()[0] != 'Z'"


def options(engine: str, image: str) -> dict[str, Any]:
    return {"engine": "docker", "image": image} if engine == "docker" else {"engine": engine, "image": root_of_tests()}


def wait_for_end(sandbox: Sandbox, process: str | None) -> None:
    """Wait until a process that was killed has ended, which takes its turn of the processor."""
    until = time.monotonic() + 30
    while sandbox.run_code(RUNS.format(process, process)).text != "False":
        assert time.monotonic() < until


@pytest.fixture(scope="module", params=ENGINES)
def sandbox(request: pytest.FixtureRequest, image: str) -> Iterator[Sandbox]:
    with Sandbox(**options(request.param, image), memory="512M", pids=150) as sandbox:
        yield sandbox


@pytest.fixture
def context(sandbox: Sandbox) -> Iterator[Context]:
    made = sandbox.create_context()
    yield made
    if made in sandbox.list_contexts():
        sandbox.remove_context(made)


def test_each_has_variables_of_its_own_and_all_have_the_same_files(sandbox: Sandbox, context: Context) -> None:
    sandbox.run_code("word = 'own'; open('shared.txt', 'w').write('here')")
    sandbox.run_code("word = 'other'", context=context)
    assert sandbox.run_code("word").text == "'own'"
    assert sandbox.run_code("word", context=context.id).text == "'other'"
    assert sandbox.run_code("open('shared.txt').read()", context=context).text == "'here'"


def test_what_else_can_run_is_listed_and_starts_with_its_first_cell(sandbox: Sandbox, context: Context) -> None:
    before = sandbox.list_contexts()
    listed = sandbox.list_contexts(offered=True)
    assert (listed[0], listed[-1]) == (before[0], context)
    [bash] = [one for one in listed if one.language == "bash"]
    assert sandbox.list_contexts() == before
    try:
        assert sandbox.run_code("x=1; echo $((x + 1))", context=bash).logs.stdout == ["2\n"]
        assert sandbox.run_code("echo $x", context=bash.id).logs.stdout == ["1\n"]
        assert [one.language for one in sandbox.list_contexts(offered=True)].count("bash") == 1
        sandbox.restart_context(bash)
        assert sandbox.run_code("echo .$x", language="bash").logs.stdout == [".\n"]
    finally:
        sandbox.remove_context(next(one for one in sandbox.list_contexts() if one.language == "bash"))
    with pytest.raises(ConfigurationError):
        sandbox.run_code("1", context="f" * 32)


def test_they_are_listed_with_that_of_the_sandbox_first(sandbox: Sandbox, context: Context) -> None:
    own, *added = sandbox.list_contexts()
    assert (own.id, own.language, own.cwd) == (sandbox.id, "python", "/mnt/data")
    assert context in added
    assert sandbox.run_code("6 * 7", context=own).text == "42"


def test_one_begins_in_a_folder(sandbox: Sandbox) -> None:
    made = sandbox.create_context(cwd="reports/today", language="python")
    assert made.cwd == "/mnt/data/reports/today"
    assert sandbox.run_code("import os; os.getcwd()", context=made).text == "'/mnt/data/reports/today'"
    sandbox.remove_context(made)


def test_a_language_alone_has_one_context(sandbox: Sandbox) -> None:
    """The sandbox's own kernel is that of Python."""
    sandbox.run_code("mine = 3")
    assert sandbox.run_code("mine", language="python").text == "3"


def test_cells_of_several_run_at_the_same_time(image: str) -> None:
    async def both() -> tuple[float, list[str | None]]:
        async with AsyncSandbox(image=image) as sandbox:
            made = await sandbox.create_context()
            begun = time.monotonic()
            wait = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
            cells = await asyncio.gather(
                sandbox.run_code(f"{wait}1", timeout=20),
                sandbox.run_code("open('go', 'w').close()\n2", context=made, timeout=20),
            )
            return time.monotonic() - begun, [cell.text for cell in cells]

    seconds, texts = asyncio.run(both())
    assert texts == ["1", "2"], "the first waits for the second"
    assert seconds < 20


def test_the_kernel_that_eats_the_memory_ends_alone(sandbox: Sandbox, context: Context) -> None:
    sandbox.run_code("kept = 1")
    other = sandbox.create_context()
    sandbox.run_code("kept = 2", context=other)
    ended = sandbox.run_code(EAT, context=context)
    if sandbox.info.engine != "bubblewrap" or ended.error is not None:
        assert ended.error is not None
        assert ended.error.name == "OutOfMemory"
    assert sandbox.run_code("kept").text == "1"
    assert sandbox.run_code("kept", context=other).text == "2"
    assert sandbox.run_code("1 + 1", context=context).text == "2", "it has a new kernel"
    sandbox.remove_context(other)


def test_a_kernel_that_is_killed_ran_out_of_no_memory_because_another_did(sandbox: Sandbox, context: Context) -> None:
    """The system counts what it killed for memory in the whole sandbox. The control is the one that it killed."""
    if sandbox.info.engine == "bubblewrap":
        pytest.skip("bubblewrap looks at memory from outside")
    other = sandbox.create_context()
    ended = sandbox.run_code(EAT, context=context)
    assert ended.error is not None
    assert ended.error.name == "OutOfMemory"
    for each in (other, None):
        killed = sandbox.run_code("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", context=each)
        assert killed.error is not None
        assert killed.error.name == "KernelDied"
    sandbox.remove_context(other)


@pytest.mark.parametrize(
    ("code", "timeout", "error"),
    [
        ("import os; os._exit(3)", None, "KernelDied"),
        ("import time; time.sleep(600)", 0.5, "CellTimeout"),
        ("import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(600)", 0.5, "CellTimeout"),
    ],
    ids=["death", "time", "deaf"],
)
def test_an_end_of_one_leaves_the_others(
    sandbox: Sandbox, context: Context, code: str, timeout: float | None, error: str
) -> None:
    sandbox.run_code("kept = 'still'")
    ended = sandbox.run_code(code, context=context, timeout=timeout)
    assert ended.error is not None
    assert ended.error.name == error
    assert sandbox.run_code("kept").text == "'still'"
    assert sandbox.run_code("1 + 1", context=context).text == "2"


def test_an_end_of_the_sandboxs_own_kernel_leaves_the_others(sandbox: Sandbox, context: Context) -> None:
    sandbox.run_code("kept = 'still'", context=context)
    ended = sandbox.run_code("import os; os._exit(3)")
    assert ended.error is not None
    assert ended.error.name == "KernelDied"
    sandbox.restart()
    assert sandbox.run_code("kept", context=context).text == "'still'"


def test_a_restart_takes_the_variables_and_processes_of_one(sandbox: Sandbox, context: Context) -> None:
    sandbox.run_code("kept = 1")
    own = sandbox.run_code(ORPHAN).text
    orphan = sandbox.run_code(ORPHAN, context=context).text
    assert sandbox.run_code(RUNS.format(orphan, orphan)).text == "True", "the control: it runs"
    sandbox.restart_context(context)
    gone = sandbox.run_code("orphan", context=context)
    assert gone.error is not None
    assert gone.error.name == "NameError"
    wait_for_end(sandbox, orphan)
    assert sandbox.run_code(RUNS.format(own, own)).text == "True"
    assert sandbox.run_code("kept").text == "1"
    sandbox.run_code("child.kill(); child.wait()")


def test_one_that_is_removed_is_gone_with_its_processes(sandbox: Sandbox) -> None:
    made = sandbox.create_context()
    orphan = sandbox.run_code(ORPHAN, context=made).text
    assert sandbox.run_code(RUNS.format(orphan, orphan)).text == "True", "the control: it runs"
    sandbox.remove_context(made)
    assert made not in sandbox.list_contexts()
    wait_for_end(sandbox, orphan)
    with pytest.raises(ConfigurationError) as caught:
        sandbox.run_code("1", context=made)
    assert caught.value.code is ContextCode.CONTEXT_UNKNOWN


def test_a_fork_bomb_ends_with_its_context(sandbox: Sandbox) -> None:
    made = sandbox.create_context()
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    sandbox.run_code(bomb, context=made, timeout=1)
    sandbox.remove_context(made)
    count = "import os; len([name for name in os.listdir('/proc') if name.isdigit()])"
    until = time.monotonic() + 60
    while int(sandbox.run_code(count).text or 0) > 60:  # those that were killed are still to be collected
        assert time.monotonic() < until


def test_a_flood_of_one_ends_its_cell_and_holds_up_no_other(image: str) -> None:
    async def flood() -> tuple[Any, str | None]:
        async with AsyncSandbox(image=image, output_limit="8M") as sandbox:
            made = await sandbox.create_context()
            flooding = asyncio.create_task(sandbox.run_code("while True: print('x' * 10_000)", context=made))
            text = (await sandbox.run_code("6 * 7", timeout=20)).text
            return (await flooding).error, text

    error, text = asyncio.run(flood())
    assert error.name == "OutputLimit"
    assert text == "42"


def test_much_comes_and_goes_through_one(sandbox: Sandbox, context: Context) -> None:
    """More than the windows of its pipe, in both directions."""
    text = "x" * 4_000_000
    assert sandbox.run_code(f"text = {text!r}; len(text)", context=context).text == "4000000"
    said = sandbox.run_code("print('y' * 8_000_000)", context=context)
    assert len(said.logs.stdout[0] if len(said.logs.stdout) == 1 else "".join(said.logs.stdout)) == 8_000_001


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP"])
def test_a_cell_that_ends_or_stops_the_agent_of_a_context_harms_that_one(image: str, number: str) -> None:
    """It has the rights for that, as towards a kernel; process 1 is what it cannot reach."""
    with Sandbox(image=image) as sandbox:
        made = sandbox.create_context()
        sandbox.run_code("import os, signal")
        agent = sandbox.run_code("import os; os.getppid()", context=made).text
        refused = sandbox.run_code(f"os.kill(1, signal.{number})")
        assert refused.error is not None, "the control: process 1 is out of reach"
        assert sandbox.run_code(f"os.kill({agent}, signal.{number})").error is None
        if number == "SIGKILL":
            lost = sandbox.run_code("1", context=made)
            assert lost.error is None or lost.error.code == EndCode.CONTEXT_DIED.code
            assert sandbox.run_code("1 + 1", context=made).text == "2", "it has begun again"
        sandbox.remove_context(made)
        assert sandbox.run_code("6 * 7").text == "42"


@pytest.mark.parametrize("whom", ["{agent}", "-{agent}", "-1", "0"])
def test_cells_of_a_context_cannot_end_its_agent(sandbox: Sandbox, context: Context, whom: str) -> None:
    """What a kernel leaves behind is found by its agent alone."""
    agent = sandbox.run_code("import os, signal; os.getppid()", context=context).text
    code = f"{{}}os.kill({whom.format(agent=agent)}, signal.SIGSTOP)"
    if whom != "0":
        refused = sandbox.run_code(code.format(""), context=context)
        assert refused.error is not None
        assert refused.error.name in {"PermissionError", "ProcessLookupError"}
    else:  # the group of the kernel, and of nobody else
        sandbox.run_code(code.format("os.getpgid(0) != os.getpgid(os.getppid()) or "), context=context)
    assert sandbox.run_code("6 * 7", context=context).text == "42"
    assert sandbox.run_code("os.kill(os.getpid(), 0)", context=context).error is None, "the control"


def test_a_folder_that_is_gone_ends_no_restart(sandbox: Sandbox) -> None:
    made = sandbox.create_context(cwd="gone")
    sandbox.run_code("import shutil; shutil.rmtree('/mnt/data/gone')", context=made)
    sandbox.restart_context(made)
    assert sandbox.run_code("import os; os.getcwd()", context=made).text == "'/mnt/data'"
    sandbox.remove_context(made)


def test_all_of_them_pause_and_go_on(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        made = sandbox.create_context()
        sandbox.run_code("kept = 1", context=made)
        assert sandbox.pause()
        sandbox.resume()
        assert sandbox.run_code("kept", context=made).text == "1"


def test_they_end_with_their_sandbox_and_begin_again_with_the_next(image: str) -> None:
    with Sandbox(image=image, idle_timeout=1) as sandbox:
        made = sandbox.create_context()
        sandbox.run_code("kept = 1", context=made)
        until = time.monotonic() + 120
        while sandbox.is_alive:
            assert time.monotonic() < until
            time.sleep(0.01)
        again = sandbox.run_code("'kept' in globals()", context=made)
        while again.error is not None:  # on a busy machine the next one may have been idle for a second as well
            assert time.monotonic() < until
            again = sandbox.run_code("'kept' in globals()", context=made)
        assert again.text == "False"


def test_use_of_one_is_use_of_the_sandbox(image: str) -> None:
    with Sandbox(image=image, idle_timeout=2) as sandbox:
        made = sandbox.create_context()
        assert sandbox.run_code("import time; time.sleep(3); 'done'", context=made).text == "'done'"
        assert sandbox.is_alive


def test_what_there_is_not_is_refused(sandbox: Sandbox) -> None:
    own = sandbox.list_contexts()[0]
    calls: dict[str, Callable[[], object]] = {
        ContextCode.LANGUAGE_UNKNOWN.code: lambda: sandbox.run_code("1", language="cobol"),
        ContextCode.CONTEXT_UNKNOWN.code: lambda: sandbox.restart_context("nothing"),
        ContextCode.CONTEXT_OF_SANDBOX.code: lambda: sandbox.remove_context(own),
        UsageCode.NOT_TOGETHER.code: lambda: sandbox.run_code("1", language="python", context=own),
        UsageCode.WRONG_ARGUMENT.code: lambda: sandbox.create_context(cwd="a\0b"),
        ContextCode.NO_FOLDER.code: lambda: sandbox.create_context(cwd="/etc/passwd"),
    }
    for code, call in calls.items():
        with pytest.raises(ConfigurationError) as caught:
            call()
        assert caught.value.code.code == code
    assert sandbox.run_code("6 * 7").text == "42"


def test_cells_of_all_are_in_the_audit(image: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with Sandbox(image=image, audit=str(audit), audit_source="text") as sandbox:
        made = sandbox.create_context()
        sandbox.run_code("'of the sandbox'")
        sandbox.run_code("'of the context'", context=made)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    text = json.dumps([line for line in lines if line.get("event") == "source"])
    assert "of the sandbox" in text
    assert "of the context" in text
    assert "sandbox_ended" not in {line.get("event") for line in lines}, "its owner ended it"


def test_the_monitor_ends_what_a_context_does(image: str) -> None:
    """The sandbox's own kernel goes on, which runs nothing. The control is in the tests of the monitor."""
    code = (
        "import urllib.request, time\n"
        "try: urllib.request.urlopen('http://169.254.169.254/', timeout=5)\n"
        "except Exception: pass\n"
        "end = time.monotonic() + 20\n"
        "while time.monotonic() < end: pass"
    )
    with Sandbox(image=image, network=["api.example.org"], monitor="kill") as sandbox:
        made = sandbox.create_context()
        sandbox.run_code("kept = 1")
        ended = sandbox.run_code(code, context=made)
        assert ended.error is not None
        assert ended.error.name == "BehaviourBlocked"
        assert sandbox.run_code("kept").text == "1"


@pytest.mark.long
def test_twenty_in_one_sandbox_and_one_killed_by_memory(image: str) -> None:
    async def run() -> tuple[Any, list[str | None]]:
        async with AsyncSandbox(image=image, memory="3G", pids=1024) as sandbox:
            made = await asyncio.gather(*(sandbox.create_context() for _ in range(20)))
            await asyncio.gather(*(sandbox.run_code(f"kept = {i}", context=one) for i, one in enumerate(made)))
            ended = await sandbox.run_code(EAT, context=made[7])
            others = [one for one in made if one is not made[7]]
            cells = await asyncio.gather(*(sandbox.run_code("kept", context=one) for one in others))
            return ended.error, [cell.text for cell in cells]

    error, texts = asyncio.run(run())
    assert error.name == "OutOfMemory"
    assert texts == [str(i) for i in range(20) if i != 7]


def test_a_sandbox_that_cannot_start_makes_none(tmp_path: Path) -> None:
    sandbox = Sandbox(image="no-such-image:here")
    with pytest.raises(SandboxError):
        sandbox.create_context()
