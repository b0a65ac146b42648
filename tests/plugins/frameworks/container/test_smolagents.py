"""smolagents: code agents whose steps run in our sandbox, with a model that replays what a model would write."""

from __future__ import annotations

import asyncio
import base64
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.plugins.frameworks.container.documents import run_example
from tests.plugins.frameworks.container.sandboxes import sessions
from tests.support.kernels import eventually
from tests.support.trap import Trap

if TYPE_CHECKING:
    from smolagents import CodeAgent

    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor


@pytest.fixture(scope="module")
def executor() -> Iterator[SandboxExecutor]:
    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    with SandboxExecutor(memory="512M") as shared:
        yield shared


def scripted(*steps: str) -> Any:
    """Return a model that answers each time with the next block of code, and remembers what it was told."""
    from smolagents import ChatMessage, Model

    class Scripted(Model):
        def __init__(self) -> None:
            super().__init__(model_id="scripted")
            self.left, self.told = list(steps), ""

        def generate(self, messages: list[Any], **_: Any) -> Any:
            self.told = "\n".join(str(part) for message in messages for part in message.content)
            return ChatMessage(role="assistant", content=f"<code>\n{self.left.pop(0)}\n</code>")

    return Scripted()


def agent_of(executor: SandboxExecutor, *steps: str, tools: Any = (), **options: Any) -> CodeAgent:
    from smolagents import CodeAgent, LogLevel

    return CodeAgent(
        tools=list(tools), model=scripted(*steps), executor=executor, verbosity_level=LogLevel.OFF, **options
    )


FIBONACCI = "a, b = 0, 1\nfor _ in range(118):\n    a, b = b, a + b"


def test_the_example_of_the_document_gives_the_answer_and_leaves_nothing() -> None:
    before = sessions()
    assert (
        run_example("smolagents", model=scripted(FIBONACCI, "final_answer(a)"))["answer"] == 2046711111473984623691759
    )
    assert not sessions() - before


def test_an_error_is_an_observation_and_variables_last(executor: SandboxExecutor) -> None:
    agent = agent_of(executor, "x = 40\nprint('printed')\nx + 1", "1 / 0", "final_answer(x + 2)")
    assert agent.run("?") == 42
    first, second, _ = agent.memory.steps[1:]
    assert "printed" in first.observations
    assert first.action_output == "41"
    assert "ZeroDivisionError" in str(second.error)
    assert "\x1b" not in str(second.error)
    assert "ZeroDivisionError" in agent.model.told


def test_tools_run_in_the_sandbox(executor: SandboxExecutor) -> None:
    from smolagents import tool

    @tool  # type: ignore[untyped-decorator]
    def where(name: str) -> str:
        """Say where a tool runs.

        Args:
            name: whom to tell.
        """
        from pathlib import Path

        return f"{name}: {Path.cwd()}"

    agent = agent_of(executor, "final_answer(where('you'))", tools=[where])
    assert agent.run("?") == "you: /mnt/data"


def test_an_agent_runs_again_and_again(executor: SandboxExecutor) -> None:
    agent = agent_of(executor, "n = 1\nfinal_answer(n)", "final_answer(n + 1)")
    assert [agent.run("?"), agent.run("?", reset=False)] == [1, 2]


def test_variables_and_answers_keep_their_types(executor: SandboxExecutor) -> None:
    import PIL.Image

    given = {"pair": (1, 2), "raw": b"\x00\xff", "names": {"a", "b"}}
    agent = agent_of(executor, "final_answer((pair, raw, names))")
    assert agent.run("?", additional_args=given) == ((1, 2), b"\x00\xff", {"a", "b"})
    agent = agent_of(executor, "import numpy\nfinal_answer(numpy.arange(3) * 2)")
    assert agent.run("?").tolist() == [0, 2, 4]
    agent = agent_of(executor, "import PIL.Image\nfinal_answer(PIL.Image.new('RGB', (30, 20), 'red'))")
    answer = agent.run("?").to_raw()
    assert isinstance(answer, PIL.Image.Image)
    assert (answer.size, answer.getpixel((0, 0))) == ((30, 20), (255, 0, 0))


def test_a_picture_as_the_value_of_a_step_is_an_image(executor: SandboxExecutor) -> None:
    agent = agent_of(executor, "import PIL.Image\nPIL.Image.new('RGB', (5, 6))", "final_answer('done')")
    assert agent.run("?") == "done"
    assert agent.memory.steps[1].action_output.size == (5, 6)


def test_an_answer_that_is_a_pickle_is_not_opened(executor: SandboxExecutor, tmp_path: Path) -> None:
    """The code in the sandbox may raise what it likes under the name that ends a run."""
    trap = base64.b64encode(pickle.dumps(Trap(tmp_path / "sprung"))).decode()
    forged = f"class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('pickle:{trap}')"
    agent = agent_of(executor, forged, "final_answer('mended')")
    assert agent.run("?") == "mended"
    assert "not JSON with types" in str(agent.memory.steps[1].error)
    assert not list(tmp_path.iterdir())


MANY_IMAGES = """
import base64, io, json, PIL.Image
file = io.BytesIO()
PIL.Image.new("L", (6000, 6000)).save(file, "PNG")
image = {"__type__": "PIL.Image", "data": base64.b64encode(file.getvalue()).decode()}
class FinalAnswerException(BaseException): pass
raise FinalAnswerException("safe:" + json.dumps([image] * 30))
"""


def test_an_answer_of_many_images_is_a_step_that_says_the_limit(executor: SandboxExecutor) -> None:
    """Each has fewer pixels than one image may have; together they are a thousand million."""
    from sandbox_kernel.plugins.frameworks.smolagents import StepFailed

    with pytest.raises(StepFailed, match=r"Limit: 512\.0 MiB of memory.* Setting to change: output_limit") as caught:
        executor(MANY_IMAGES)
    assert caught.value.code == "answer-too-large"
    one = executor(MANY_IMAGES.replace("* 30", ""))
    assert one.output[0].size == (6000, 6000)


def test_pickle_cannot_be_allowed() -> None:
    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    with pytest.raises(ValueError, match="never unpickled"):
        SandboxExecutor(allow_pickle=True)


@pytest.mark.long
def test_a_lost_kernel_gets_tools_and_variables_again(executor: SandboxExecutor) -> None:
    agent = agent_of(
        executor,
        "open('kept.txt', 'w').write('kept'); x = 1",
        "import os\nos.kill(os.getpid(), 9)",
        "print(given, open('kept.txt').read(), 'x' in globals())",
        "final_answer(given)",
    )
    assert agent.run("?", additional_args={"given": 7}) == 7
    assert "KernelDied" in str(agent.memory.steps[2].error)
    assert "7 kept False" in agent.memory.steps[3].observations
    assert "the variables of earlier steps are gone" in agent.memory.steps[3].observations
    assert "variables" not in agent.memory.steps[4].observations


@pytest.mark.long
def test_a_step_that_fails_for_what_was_lost_before_it_is_told_so() -> None:
    from sandbox_kernel.engines.docker.engine import DockerEngine
    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    with agent_of(SandboxExecutor(), "open('a', 'w').close(); data = [1]", "len(data)", "final_answer(1)") as agent:
        executor: Any = agent.python_executor
        run = executor.run_code_raise_errors

        def lose(code: str) -> object:
            """Lose the sandbox behind the first step, as it is lost to an idle timeout."""
            output = run(code)
            if "data = [1]" in code:
                executor.run_code_raise_errors = run
                (row,) = [row for row in asyncio.run(DockerEngine().list()) if row.session == executor.sandbox.id]
                asyncio.run(DockerEngine().remove(row.container))
                eventually(lambda: not executor.sandbox.is_alive, 20, "its loss is known")
            return output

        executor.run_code_raise_errors = lose
        agent.run("?")
    said = str(agent.memory.steps[2].error)
    assert "NameError" in said
    assert "Kept: nothing" in said
    assert "the variables of earlier steps are gone" in said


@pytest.mark.long
def test_a_step_that_runs_out_of_time_is_told_with_what_is_left() -> None:
    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    with agent_of(SandboxExecutor(cell_timeout=4), "x = 5", "while True: pass", "final_answer(x)") as agent:
        assert agent.run("?") == 5
    assert "CellTimeout" in str(agent.memory.steps[2].error)
    assert "Kept: variables and files" in str(agent.memory.steps[2].error)
    assert agent.memory.steps[2].error.__context__.code == "cell-timeout"  # the framework makes an error of its own


def test_packages_must_be_in_the_image(executor: SandboxExecutor) -> None:
    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    there = ["numpy", "matplotlib.pyplot", "scikit-learn>=1", "pillow", "*"]
    assert executor.install_packages(there) == there
    assert executor.sandbox.run_code("[name for name in globals() if 'absent' in name]").text == "[]"
    before = sessions()
    with pytest.raises(ValueError, match=r"not in the image: torch, no_such\.package;"):
        SandboxExecutor(["numpy", "torch", "no_such.package"])
    assert not sessions() - before


def test_an_agent_cannot_be_sent_as_a_tool(executor: SandboxExecutor) -> None:
    helper = agent_of(executor, name="helper", description="helps")
    with pytest.raises(TypeError, match="helper is an agent"):
        agent_of(executor, managed_agents=[helper]).run("?")


def test_a_sandbox_that_was_given_is_left_running(executor: SandboxExecutor) -> None:
    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    with agent_of(SandboxExecutor(sandbox=executor.sandbox), "y = 3\nfinal_answer(y)") as agent:
        assert agent.run("?") == 3
    assert executor.sandbox.run_code("y").text == "3"
    with pytest.raises(ValueError, match="memory"):
        SandboxExecutor(sandbox=executor.sandbox, memory="1G")
