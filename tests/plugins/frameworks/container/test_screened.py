"""What the screen finds arrives in each framework: a warning beside the output, and the reason where it blocks."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.frameworks import as_text

pytestmark = pytest.mark.parametrize("screen", ["warn", "block"])

SLIGHT = "import os\nprint('it', os.path.exists('/etc/passwd'))"
"""40 points: it runs, also where 60 are blocked."""
GRAVE = "mark = 1\nimport os\nos.system('rm -rf /nowhere/at/all /etc/nothing')"
WARNED = "[sandbox_kernel] screen: line 2: file-read-system"
WHY = "line 3: file-delete-system"
CODES = "file-delete-system"


@pytest.mark.long
async def test_smolagents_observes_it(screen: str) -> None:
    from smolagents import CodeAgent, LogLevel

    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor, StepFailed
    from tests.plugins.frameworks.container.test_smolagents import scripted

    with SandboxExecutor(memory="512M", screen=screen) as executor:
        model = scripted(SLIGHT, GRAVE, "final_answer('mark' in globals())")
        agent = CodeAgent(tools=[], model=model, executor=executor, verbosity_level=LogLevel.OFF)
        assert agent.run("?") is (screen == "warn")
        slight, grave, _ = agent.memory.steps[1:]
        assert WARNED in slight.observations
        assert "it True" in slight.observations
        assert WHY in (grave.observations if screen == "warn" else str(grave.error))
        assert WHY in model.told
        if screen == "block":
            with pytest.raises(StepFailed) as caught:
                executor(GRAVE)
            assert caught.value.code == "screen-blocked"
            assert CODES in [one.code for one in caught.value.findings]


@pytest.mark.long
def test_a_function_of_any_framework_has_it_as_text(screen: str) -> None:
    with Sandbox(memory="512M", screen=screen) as sandbox:
        slight, grave = as_text(sandbox.run_code(SLIGHT)), as_text(sandbox.run_code(GRAVE))
        assert WARNED in slight
        assert "it True" in slight
        assert WHY in grave
        assert as_text(sandbox.run_code("'mark' in globals()")) == str(screen == "warn")


async def test_inspect_ai_tells_it_beside_what_a_command_says(screen: str) -> None:
    """A command is read as what it is: the cell that starts it is ours, and of no interest."""
    from sandbox_kernel.plugins.frameworks.inspect_ai import KernelSandboxEnvironment, SandboxKernelConfig

    config = SandboxKernelConfig(memory="512M", screen=screen)  # type: ignore[call-arg]
    environments = await KernelSandboxEnvironment.sample_init("test", config, {})
    try:
        one = environments["default"].as_type(KernelSandboxEnvironment)
        fine = await one.exec(["bash", "--login", "-c", "echo fine; pwd"])
        assert (fine.returncode, fine.stdout, fine.stderr) == (0, "fine\n/mnt/data\n", "")
        slight = await one.exec(["bash", "-c", "true\ncat /etc/passwd"])
        assert (slight.returncode, slight.stdout[:5]) == (0, "root:")
        assert slight.stderr.startswith(WARNED)
        for cmd, given in (
            (["bash", "--login", "-c", "touch ran\ntrue\nrm -rf /etc/nothing"], None),
            (["rm", "-rf", "/etc/nothing"], None),
            (["python3", "-c", "import os; os.system('rm -rf /etc/nothing')"], None),
            (["bash", "--login", "-c", "python3 -"], GRAVE),
            (["python3", "-"], GRAVE.encode()),
        ):
            grave = await one.exec(cmd, input=given)
            assert CODES in grave.stderr
            assert (grave.returncode == 126) is (screen == "block")
        assert WHY in grave.stderr
        assert (await one.exec(["test", "-e", "ran"])).success is (screen == "warn")
        await one.write_file("a.txt", "rm -rf /")
        assert await one.read_file("a.txt") == "rm -rf /"
        left = await one.exec(["sh", "-c", "ls -A | grep inspect"])
        assert left.stdout == "", "nothing of what was given to a blocked command stays"
    finally:
        await KernelSandboxEnvironment.sample_cleanup("test", config, environments, interrupted=False)


async def test_mcp_says_it_in_the_text_and_for_programs(screen: str) -> None:
    from tests.support.mcp_hosts import over_stdio, text_of

    async with over_stdio("--memory", "512M", "--screen", screen) as client:
        slight = await client.call_tool("run_code", {"code": SLIGHT})
        grave = await client.call_tool("run_code", {"code": GRAVE})
        assert WARNED in text_of(slight)
        assert "it True" in text_of(slight)
        assert WHY in text_of(grave)
        assert ("ScreenBlocked" in text_of(grave)) is (screen == "block")
        for answer, code in ((slight, "file-read-system"), (grave, CODES)):
            assert code in str(answer.meta)
        after = await client.call_tool("run_code", {"code": "'mark' in globals()"})
        assert str(screen == "warn") in text_of(after)
