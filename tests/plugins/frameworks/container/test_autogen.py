"""AutoGen: its code executor agent and its code execution tool, with our sandbox behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from sandbox_kernel.core.errors import ConfigurationError
from tests.plugins.frameworks.container.documents import run_example
from tests.plugins.frameworks.container.sandboxes import sessions
from tests.support.patience import within

if TYPE_CHECKING:
    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor, SandboxCodeResult

pytestmark = pytest.mark.filterwarnings("ignore:No approval function set for CodeExecutorAgent:UserWarning")
"""It would have a person approve the code; what the sandbox is for is to run it without."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[SandboxCodeExecutor]:
    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor

    async with SandboxCodeExecutor(memory="512M") as shared:
        yield shared


async def execute(executor: SandboxCodeExecutor, *codes: str, language: str = "python") -> SandboxCodeResult:
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    blocks = [CodeBlock(code=code, language=language) for code in codes]
    return await executor.execute_code_blocks(blocks, CancellationToken())


# --- the framework's own examples ------------------------------------------------------------------------------------


def test_the_example_of_the_document_writes_code_runs_it_and_reflects() -> None:
    from autogen_ext.models.replay import ReplayChatCompletionClient

    model = ReplayChatCompletionClient(
        [
            "```python\na, b = 0, 1\nfor _ in range(10):\n    a, b = b, a + b\nprint('it is', a)\n```",
            "The 10th Fibonacci number is 55.",
        ]
    )
    before = sessions()
    assert run_example("AutoGen", model=model)["answer"] == "The 10th Fibonacci number is 55."
    assert "it is 55" in str(model.create_calls[-1]["messages"])
    assert not sessions() - before


@pytest.mark.asyncio(loop_scope="module")
async def test_an_agent_without_a_model_runs_the_blocks_of_a_message(executor: SandboxCodeExecutor) -> None:
    from autogen_agentchat.agents import CodeExecutorAgent
    from autogen_agentchat.messages import TextMessage
    from autogen_core import CancellationToken

    agent = CodeExecutorAgent("code_executor", code_executor=executor)
    task = TextMessage(content="Here is some code\n```python\nprint('Hello world')\n```\n", source="user")
    response = await agent.on_messages([task], CancellationToken())
    assert response.chat_message.to_text().strip() == "Hello world"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_code_execution_tool_runs_in_the_sandbox(executor: SandboxCodeExecutor) -> None:
    from autogen_core import CancellationToken
    from autogen_ext.tools.code_execution import CodeExecutionInput, PythonCodeExecutionTool

    tool = PythonCodeExecutionTool(executor)
    result = await tool.run(CodeExecutionInput(code="import os; os.getcwd()"), CancellationToken())
    assert (result.success, result.output) == (True, "'/mnt/data'")
    result = await tool.run(CodeExecutionInput(code="1 / 0"), CancellationToken())
    assert not result.success
    assert "ZeroDivisionError" in result.output


# --- the contract of a code executor ---------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
async def test_blocks_share_variables_and_stop_at_the_first_that_fails(executor: SandboxCodeExecutor) -> None:
    result = await execute(executor, "x = 20", "print(x + 1)", "x + 2")
    assert (result.exit_code, result.output) == (0, "21\n\n22")
    result = await execute(executor, "print('one')", "raise ValueError('two')", "print('three')")
    assert result.exit_code == 1
    assert result.output.startswith("one")
    assert "ValueError: two" in result.output
    assert "three" not in result.output
    assert "\x1b" not in result.output


@pytest.mark.asyncio(loop_scope="module")
async def test_blocks_of_a_shell_run_beside_those_of_python(executor: SandboxCodeExecutor) -> None:
    await execute(executor, "open('there.txt', 'w').write('there')")
    for language in ("sh", "bash", "shell"):
        result = await execute(executor, "cat there.txt; exit 3", language=language)
        assert result.exit_code == 1
        assert result.output.startswith("there")
    result = await execute(executor, "echo $((6 * 7))", language="bash")
    assert (result.exit_code, result.output) == (0, "42\n")
    result = await execute(executor, "console.log(1)", language="javascript")
    assert (result.exit_code, result.output) == (
        1,
        "blocks of 'javascript' cannot be executed, only python and sh",
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_shown_becomes_files_of_the_output_folder(
    executor: SandboxCodeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_output_dir", tmp_path / "new" / "folder")
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    table = "import pandas as pd\npd.DataFrame({'a': [1, 2]})"
    result = await execute(executor, plot, table)
    assert result.exit_code == 0
    picture, page = result.output_files
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "<table" in page.read_text(encoding="utf-8")
    assert [file.suffix for file in result.output_files] == [".png", ".html"]
    assert {file.parent for file in result.output_files} == {tmp_path / "new" / "folder"}


async def test_what_blocks_show_is_so_many_files_at_most(tmp_path: Path) -> None:
    """A block may display a hundred thousand times, and each display would be a file of this machine."""
    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor

    show = "from IPython.display import HTML\nfor number in range({}): display(HTML('<b>1</b>'))"
    async with SandboxCodeExecutor(output_dir=tmp_path, folder_files=20) as executor:
        result = await execute(executor, show.format(15), show.format(15))
        assert (result.exit_code, result.error_code) == (1, "answer-too-large")
        assert "Limit: 20 files. Reached: 21 files." in result.output
        assert "folder_files" in result.output
        assert len(result.output_files) == len([*tmp_path.iterdir()]) == 20  # noqa: ASYNC240 (of a test)
        assert (await execute(executor, show.format(15))).exit_code == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancelled_token_interrupts_the_block_and_the_kernel_lives_on(executor: SandboxCodeExecutor) -> None:
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    await execute(executor, "kept = 'kept'")
    token = CancellationToken()
    endless = "open('running', 'w').close()\nwhile True: pass"
    work = asyncio.create_task(executor.execute_code_blocks([CodeBlock(endless, "python")], token))
    async with within(30):
        while not await executor.sandbox.files.exists("running"):
            pass
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await execute(executor, "print(kept)")).output == "kept\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_block_that_runs_out_of_time_is_a_result_and_not_an_exception(
    executor: SandboxCodeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_timeout", 1.0)
    result = await execute(executor, "while True: pass")
    assert (result.exit_code, result.error_code) == (124, "cell-timeout")
    assert "CellTimeout" in result.output
    assert "variables and files" in result.output
    forged = "class CellTimeout(Exception): pass\nraise CellTimeout('not from the host')"
    result = await execute(executor, forged)
    assert (result.exit_code, result.error_code) == (1, None)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_restart_forgets_variables_and_keeps_files(executor: SandboxCodeExecutor) -> None:
    await execute(executor, "y = 1; open('kept.txt', 'w').write('kept')")
    await executor.restart()
    result = await execute(executor, "print('y' in globals(), open('kept.txt').read())")
    assert result.output == "False kept\n"


@pytest.mark.long
async def test_a_component_file_brings_the_same_executor_back(tmp_path: Path) -> None:
    from autogen_core.code_executor import CodeExecutor

    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor

    component = SandboxCodeExecutor(memory="512M", cell_timeout=7, timeout=5, output_dir=tmp_path).dump_component()
    assert component.provider == "sandbox_kernel.plugins.frameworks.autogen.SandboxCodeExecutor"
    async with CodeExecutor.load_component(component) as loaded:
        assert isinstance(loaded, SandboxCodeExecutor)
        assert loaded.dump_component() == component
        assert loaded.sandbox.settings.limits.cell_timeout == 7
        assert (await execute(loaded, "print(1)")).output == "1\n"


async def test_the_files_of_a_block_appear_in_the_output_folder_and_a_picture_is_one_file(tmp_path: Path) -> None:
    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor

    async with SandboxCodeExecutor(memory="512M", output_dir=tmp_path / "coding") as executor:
        assert executor.output_dir == tmp_path / "coding"
        picture = "from PIL import Image\nopen('made.csv', 'w').write('a')\nImage.new('RGB', (4, 4))"
        (shown,) = (await execute(executor, picture)).output_files
        assert shown.suffix == ".png"
        assert (tmp_path / "coding" / "made.csv").read_text() == "a"


@pytest.mark.long
async def test_files_without_an_output_folder_last_until_the_executor_stops() -> None:
    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor

    async with SandboxCodeExecutor(memory="512M") as executor:
        (page,) = (await execute(executor, "from IPython.display import HTML\nHTML('<b>x</b>')")).output_files
        assert page.is_file()
    assert not page.parent.exists()
    with pytest.raises(RuntimeError, match="not started"):
        await execute(executor, "1")


def test_wrong_settings_are_told_at_once() -> None:
    from sandbox_kernel.plugins.frameworks.autogen import SandboxCodeExecutor

    with pytest.raises(ConfigurationError, match="did you mean memory"):
        SandboxCodeExecutor(memry="1G")
    with pytest.raises(ConfigurationError, match="timeout must be positive"):
        SandboxCodeExecutor(timeout=0)
    with pytest.raises(ValueError, match="timeout must be positive"):  # as the framework's own executors say it
        SandboxCodeExecutor(timeout=-1)
    with pytest.raises(ValueError, match=r"Allowed: up to 7 s\. Given: 8 s\. Setting to change: cell_timeout"):
        SandboxCodeExecutor(timeout=8, cell_timeout=7)
