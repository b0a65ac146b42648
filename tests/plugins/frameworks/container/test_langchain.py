"""LangChain: a tool whose calls run in our sandbox. Its standard tests for tools are in test_langchain_standard.py."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from tests.plugins.frameworks.container.documents import run_example
from tests.plugins.frameworks.container.sandboxes import sessions
from tests.support.patience import within

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, ToolMessage

    from sandbox_kernel.plugins.frameworks.langchain import SandboxTool


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxTool]:
    from sandbox_kernel.plugins.frameworks.langchain import SandboxTool

    with SandboxTool(memory="512M") as tool:
        yield tool


def request(code: str) -> dict[str, Any]:
    return {"name": "python_sandbox", "args": {"code": code}, "id": "1", "type": "tool_call"}


# --- calls -----------------------------------------------------------------------------------------------------------


def scripted(*answers: AIMessage) -> Any:
    """Return the framework's own fake of a chat model, which also takes tools."""
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel

    class Scripted(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    return Scripted(responses=list(answers))


def test_the_example_of_the_document_calls_the_tool_and_answers() -> None:
    from langchain_core.messages import AIMessage

    call = request("from statistics import mean\nmean([3, 1, 4, 1, 5])")
    before = sessions()
    names = run_example("LangChain", model=scripted(AIMessage("", tool_calls=[call]), AIMessage("It is 2.8.")))
    assert names["answer"] == "It is 2.8."
    assert [message.type for message in names["result"]["messages"]] == ["human", "ai", "tool", "ai"]
    assert names["result"]["messages"][2].content == "2.8"
    assert not sessions() - before


async def test_calls_with_and_without_await_share_one_session(shared: SandboxTool) -> None:
    await shared.ainvoke({"code": "x = 20"})
    assert await asyncio.to_thread(shared.invoke, {"code": "x += 1; print(x)"}) == "21"
    assert await shared.ainvoke({"code": "x"}) == "21"
    assert shared.invoke({"code": "x + 1"}) == "22"


def test_images_are_in_the_artifact(shared: SandboxTool) -> None:
    plot = "import matplotlib.pyplot as plt\nprint('a plot')\nplt.plot([1, 2])\nplt.show()"
    message: ToolMessage = shared.invoke(request(plot))
    assert message.content == "a plot\n[image 1]"
    (result,) = message.artifact.results
    assert base64.b64decode(result.png).startswith(b"\x89PNG")


def test_images_are_in_the_content_for_models_that_see(shared: SandboxTool) -> None:
    seeing = shared.model_copy(update={"show_images": True})
    message: ToolMessage = seeing.invoke(request("import PIL.Image\nPIL.Image.new('RGB', (4, 4))"))
    text, picture = message.content_blocks
    assert text == {"type": "text", "text": "[image 1]"}
    assert (picture["type"], picture["mime_type"]) == ("image", "image/png")  # type: ignore[typeddict-item]
    assert base64.b64decode(picture["base64"]).startswith(b"\x89PNG")  # type: ignore[typeddict-item]


def test_a_failing_cell_is_text_for_the_model(shared: SandboxTool) -> None:
    message: ToolMessage = shared.invoke(request("print('before')\n1 / 0"))
    assert str(message.content).startswith("before\n")
    assert "ZeroDivisionError: division by zero" in str(message.content)
    assert message.artifact.error.name == "ZeroDivisionError"
    assert shared.invoke({"code": "None"}) == "(no output)"


def test_long_output_is_shortened_for_the_model_and_whole_in_the_artifact(shared: SandboxTool) -> None:
    short = shared.model_copy(update={"max_characters": 100})
    message: ToolMessage = short.invoke(request("print('begin', '.' * 100_000, 'end')"))
    assert len(message.content) < 200
    assert str(message.content).startswith("begin")
    assert str(message.content).endswith("end")
    assert "characters left out" in str(message.content)
    assert len("".join(message.artifact.logs.stdout)) > 100_000


async def test_a_cancelled_call_interrupts_the_cell(shared: SandboxTool) -> None:
    await shared.ainvoke({"code": "kept = 'kept'"})
    task = asyncio.create_task(shared.ainvoke({"code": "open('running', 'w').close()\nwhile True: pass"}))
    async with within(30):
        while not await asyncio.to_thread(shared.sandbox.files.exists, "running"):
            pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await shared.ainvoke({"code": "kept"}) == "'kept'"


@pytest.mark.long
def test_a_closed_tool_has_no_sandbox_and_starts_a_new_one() -> None:
    from sandbox_kernel.plugins.frameworks.langchain import SandboxTool

    tool = SandboxTool(memory="512M", cell_timeout=2)
    before = sessions()
    assert tool.invoke({"code": "z = 1\nz"}) == "1"
    assert sessions() - before == {tool.sandbox.id}
    assert "CellTimeout" in tool.invoke({"code": "while True: pass"})
    tool.close()
    assert not sessions() - before
    assert tool.invoke({"code": "'z' in globals()"}) == "False"
    tool.close()


def test_wrong_settings_are_told_at_once() -> None:
    from sandbox_kernel.plugins.frameworks.langchain import SandboxTool

    with pytest.raises(ConfigurationError, match="memory"):
        SandboxTool(memory="lots")
    with pytest.raises(ConfigurationError, match="did you mean memory"):
        SandboxTool(settings={"memry": "1G"})
