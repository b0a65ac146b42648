"""inspect_ai: evaluations whose tools run in our sandbox, and what its commands meet there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from sandbox_kernel.plugins.frameworks import inspect_commands
from tests.support import ROOT
from tests.support.cases import some
from tests.support.patience import cancelled, within

if TYPE_CHECKING:
    from sandbox_kernel.plugins.frameworks.inspect_ai import KernelSandboxEnvironment

LIVING = """
import sys
from pathlib import Path

commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
print(sum(sys.argv[1].encode() in command and b"LIVING" not in command for command in commands))
LIVING = 0
"""
"""Counts the processes with a mark in their command line, but for itself: the image has no ps."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[KernelSandboxEnvironment]:
    async for environment in new():
        yield environment


async def new(**settings: Any) -> AsyncIterator[KernelSandboxEnvironment]:
    from sandbox_kernel.plugins.frameworks.inspect_ai import KernelSandboxEnvironment, SandboxKernelConfig

    config = SandboxKernelConfig(**settings) if settings else None
    environments = await KernelSandboxEnvironment.sample_init("test", config, {})
    yield environments["default"].as_type(KernelSandboxEnvironment)
    await KernelSandboxEnvironment.sample_cleanup("test", config, environments, interrupted=False)


def evaluate(folder: Path, *steps: Any, **request: Any) -> dict[str, Any]:
    """Run an evaluation in a process of its own, and return what it said."""
    command = [
        sys.executable,
        "-m",
        "tests.plugins.frameworks.container.evaluation",
        json.dumps({"steps": steps, **request}),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["attempts"] == []
    assert said["status"] == "success", said["error"]
    return said


# --- evaluations -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_example_of_the_document_is_an_evaluation_that_succeeds(tmp_path: Path) -> None:
    said = evaluate(
        tmp_path,
        ("bash", {"command": "cat greeting.txt; pwd"}),
        ("python", {"code": "print(open('greeting.txt').read() * 2)"}),
        "It says hello.",
    )
    assert said["accuracy"] == 1
    assert said["tools"] == ["hello/mnt/data\n", "hellohello\n"]


@pytest.mark.long
def test_a_task_finds_the_environment_by_its_name_alone(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"memory": "512M", "open_files": 512}), encoding="utf-8")
    said = evaluate(tmp_path, ("bash", {"command": "cat /tmp/made; ulimit -n; id -u"}), "done", settings=str(settings))
    made, files, uid = said["tools"][0].split()
    assert (made, files) == ("42", "512")
    assert int(uid) > 0


def test_a_wrong_setting_ends_the_evaluation_before_a_sandbox_starts() -> None:
    from inspect_ai.util import SandboxEnvironmentSpec

    from sandbox_kernel.plugins.frameworks.inspect_ai import SandboxKernelConfig

    with pytest.raises(ValueError, match="did you mean memory"):
        SandboxKernelConfig(memry="1G")  # type: ignore[call-arg]
    spec = SandboxEnvironmentSpec.model_validate({"type": "sandbox_kernel", "config": {"memory": "1G"}})
    assert spec.config == SandboxKernelConfig(memory="1G")  # type: ignore[call-arg]


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
async def test_commands_run_side_by_side(shared: KernelSandboxEnvironment) -> None:
    """Each waits for the other: one after the other they would never end."""
    wait = "touch $0; for i in $(seq 500); do if [ -e $1 ]; then exit 0; fi; sleep 0.02; done; exit 1"
    results = await asyncio.gather(
        shared.exec(["sh", "-c", wait, "/tmp/a", "/tmp/b"], timeout=30),
        shared.exec(["sh", "-c", wait, "/tmp/b", "/tmp/a"], timeout=30),
    )
    assert [result.returncode for result in results] == [0, 0]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_that_runs_out_of_time_ends_with_its_children_and_tells_what_it_said(
    shared: KernelSandboxEnvironment,
) -> None:
    with pytest.raises(TimeoutError, match="longer than 1 s") as caught:
        await shared.exec(["sh", "-c", "echo begun; sleep 100.25 & sleep 100.25; :"], timeout=1)
    assert getattr(caught.value, "truncated_output", None) == "begun\n"
    assert (await shared.exec(["python3", "-c", LIVING, "100.25"])).stdout == "0\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancelled_command_ends(shared: KernelSandboxEnvironment) -> None:
    task = asyncio.create_task(shared.exec(["sh", "-c", "touch running; sleep 100.5; :"]))
    async with within(30):
        while not (await shared.exec(["test", "-e", "running"])).success:
            pass
    assert (await shared.exec(["python3", "-c", LIVING, "100.5"])).stdout == "2\n"
    await cancelled(task)
    assert (await shared.exec(["python3", "-c", LIVING, "100.5"])).stdout == "0\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_command_leaves_running_does_not_hold_it_up(shared: KernelSandboxEnvironment) -> None:
    result = await shared.exec(["sh", "-c", "sleep 100.75 & echo started"], timeout=20)
    assert (result.returncode, result.stdout) == (0, "started\n")
    assert (await shared.exec(["python3", "-c", LIVING, "100.75"])).stdout == "1\n"
    assert (await shared.exec(["python3", "-c", "import os; os.killpg(0, 0)"])).success


@pytest.mark.asyncio(loop_scope="module")
async def test_output_over_the_limit_keeps_its_end(shared: KernelSandboxEnvironment) -> None:
    from inspect_ai.util._sandbox.limits import override_max_exec_output_size

    with override_max_exec_output_size(5000):
        result = await shared.exec(["seq", "100000"])
    assert len(result.stdout) == 5000
    assert result.stdout.endswith("\n99999\n100000\n")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("cmd", "cwd", "code", "said"),
    [
        (["no-such-command"], None, 127, "no-such-command: command not found"),
        (["ls"], "no/such/folder", 127, "/mnt/data/no/such/folder: no such folder"),
        (["true", "x" * 200_000], None, 126, "Argument list too long"),
    ],
)
async def test_a_command_that_cannot_start_fails_as_in_a_shell(
    shared: KernelSandboxEnvironment, cmd: list[str], cwd: str | None, code: int, said: str
) -> None:
    result = await shared.exec(cmd, cwd=cwd)
    assert (result.success, result.returncode) == (False, code)
    assert said in result.stderr


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_that_is_no_file_is_refused_and_not_waited_for(shared: KernelSandboxEnvironment) -> None:
    await shared.exec(["mkfifo", "pipe"])
    for name in ("pipe", "/dev/zero"):
        with pytest.raises(PermissionError, match=name):
            await shared.read_file(name)
    with pytest.raises(FileNotFoundError, match="embedded null"):
        await shared.read_file("a\0b")
    with pytest.raises(PermissionError, match="/etc/made"):
        await shared.write_file("/etc/made", "read-only")
    assert "processor" in await shared.read_file("/proc/cpuinfo")  # whose size is said to be 0


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_of_the_adapter_lies_in_the_working_folder(shared: KernelSandboxEnvironment) -> None:
    await shared.write_file("/tmp/there", b"x" * 100)
    await shared.read_file("/tmp/there")
    with pytest.raises(PermissionError):
        await shared.write_file("/etc/there", "x")
    await shared.exec(["cat"], input="x" * 100)
    assert ".inspect" not in (await shared.exec(["ls", "-A"])).stdout


async def test_too_much_memory_ends_the_command_and_not_the_sandbox() -> None:
    async for environment in new(memory="256M", scratch_size="64M"):
        await environment.write_file("kept.txt", "kept")
        result = await environment.exec(["python3", "-c", "x = bytearray(10**9)"], timeout=60)
        assert result.returncode in {1, 137}, result  # MemoryError, or the end
        assert await environment.read_file("kept.txt") == "kept"


async def test_a_command_that_ends_the_kernel_returns_137_and_the_files_stay() -> None:
    async for environment in new():
        await environment.write_file("kept.txt", "kept")
        result = await environment.exec(["sh", "-c", "kill -9 -1"])
        assert result.returncode == 137
        assert (await environment.exec(["cat", "kept.txt"])).stdout == "kept"


async def test_a_command_without_a_time_of_its_own_has_that_of_a_cell() -> None:
    async for environment in new(cell_timeout=1):
        with pytest.raises(TimeoutError, match="longer than 1 s"):
            await environment.exec(["sleep", "100"])
        assert (await environment.exec(["echo", "still here"])).stdout == "still here\n"


@pytest.mark.parametrize("first", some(["exec", "input", "write", "read"], of=2))
async def test_a_sample_never_goes_on_in_an_empty_sandbox(first: str) -> None:
    from inspect_ai.util import SandboxUnavailableError

    from sandbox_kernel.engines.docker.engine import DockerEngine

    async for environment in new():
        await environment.write_file("made.txt", "made")
        (row,) = [row for row in await DockerEngine().list() if row.session == environment.sandbox.id]
        await DockerEngine().remove(row.container)
        uses: dict[str, Any] = {
            "exec": partial(environment.exec, ["cat", "made.txt"]),
            "input": partial(environment.exec, ["cat"], input="x"),
            "write": partial(environment.write_file, "new.txt", "new"),
            "read": partial(environment.read_file, "made.txt"),
        }
        for use in (first, *uses):
            with pytest.raises(SandboxUnavailableError):
                await uses[use]()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "printed",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[]",
        '{"returncode": "0", "timed_out": false, "stdout": "", "stderr": ""}',
        '{"returncode": 0, "timed_out": false, "stdout": "é", "stderr": ""}',
        '{"returncode": 0, "timed_out": false, "stdout": "a", "stderr": ""}',
        '{"returncode": 1e999}',
    ],
    ids=lambda text: text[:20],
)
async def test_a_sandbox_that_answers_nonsense_is_not_believed(shared: KernelSandboxEnvironment, printed: str) -> None:
    from inspect_ai.util import SandboxUnavailableError

    assert (await shared.exec(["true"])).success
    forged = f"_real, _sandbox_commands.answer = _sandbox_commands.answer, lambda request: print({printed!r})"
    assert (await shared.sandbox.run_code(forged)).ok
    with pytest.raises(SandboxUnavailableError, match="no proper answer"):
        await shared.exec(["true"])
    assert (await shared.sandbox.run_code("_sandbox_commands.answer = _real")).ok
    assert (await shared.exec(["true"])).success


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_that_is_larger_than_it_was_said_to_be_is_not_read(shared: KernelSandboxEnvironment) -> None:
    from inspect_ai.util import OutputLimitExceededError
    from inspect_ai.util._sandbox.limits import override_max_read_file_size

    forged = """
def _forged(request):
    fields = __import__('json').loads(request)
    open(fields['staged'], 'wb').write(b'x' * 5_000_000)
    print('{"size": 1}')
_real, _sandbox_commands.answer = _sandbox_commands.answer, _forged
"""
    assert (await shared.exec(["true"])).success
    assert (await shared.sandbox.run_code(forged)).ok
    with override_max_read_file_size(1000), pytest.raises(OutputLimitExceededError):
        await shared.read_file("small.txt")
    assert (await shared.sandbox.run_code("_sandbox_commands.answer = _real")).ok


def test_what_is_sent_into_the_sandbox_is_plain_python_of_any_age() -> None:
    import ast

    tree = ast.parse(Path(inspect_commands.__file__).read_text(encoding="utf-8"), feature_version=(3, 9))
    imports = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    imports |= {str(n.module).split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imports <= sys.stdlib_module_names
