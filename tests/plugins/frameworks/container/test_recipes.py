"""The recipes of docs/integrations.md for frameworks that not every checkout has: `make recipes` runs all of them.

Each runs as it stands there, with a model that replays what a model would write, and a real sandbox.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.frameworks.container.documents import run_example
from tests.plugins.frameworks.container.sandboxes import sessions

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what frameworks use is not ours to mend

FIBONACCI = "a, b = 0, 1\nfor _ in range(10):\n    a, b = b, a + b\nprint('it is', a)"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """A recipe leaves no sandbox."""
    before = sessions()
    yield
    assert not sessions() - before


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is reported anywhere, what a framework stores lies in a folder of the test, and our command is found."""
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
    quiet |= {"CREWAI_STORAGE_DIR": str(tmp_path), "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
    quiet["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name, value in quiet.items():
        monkeypatch.setenv(name, value)


# --- OpenAI Agents SDK -----------------------------------------------------------------------------------------------


def openai_scripted(*steps: tuple[str, dict[str, Any]] | str) -> Any:
    """Return a model that calls the tools of `steps`, one a turn, and says those that are text."""
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        def __init__(self) -> None:
            self.left, self.told = list(steps), ""

        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002
            self.told = str(input)
            step = self.left.pop(0)
            number = str(len(self.left))
            if isinstance(step, str):
                text = ResponseOutputText(text=step, type="output_text", annotations=[])
                said: Any = ResponseOutputMessage(
                    id=number, content=[text], role="assistant", status="completed", type="message"
                )
            else:
                said = ResponseFunctionToolCall(
                    call_id=number, name=step[0], arguments=json.dumps(step[1]), type="function_call"
                )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return Scripted()


def test_openai_agents_run_code_over_mcp() -> None:
    pytest.importorskip("agents")
    model = openai_scripted(("run_code", {"code": FIBONACCI}), "It is 55.")
    assert run_example("OpenAI Agents SDK", model=model)["answer"] == "It is 55."
    assert "it is 55" in model.told


def test_openai_agents_have_their_workspace_in_a_sandbox() -> None:
    pytest.importorskip("agents")
    command = "cat sales.csv; pwd; id -u; python3 -c 'import os; os.getppid()'; echo bad >&2; exit 3"
    model = openai_scripted(("exec_command", {"cmd": command}), "3")
    assert run_example("OpenAI Agents SDK", 2, model=model)["answer"] == "3"
    assert "north,3" in model.told
    assert "/mnt/data" in model.told
    assert "bad" in model.told


async def test_a_session_of_openai_agents_keeps_its_files_in_a_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("agents")
    from agents.sandbox import LocalSnapshotSpec, Manifest
    from agents.sandbox.errors import ExecTimeoutError, WorkspaceArchiveWriteError, WorkspaceReadNotFoundError

    from sandbox_kernel.plugins.frameworks.openai_agents import SandboxKernelClient

    client = SandboxKernelClient(memory="512M", cell_timeout=20)
    session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path), options=None)
    async with session:
        await session.write(Path("in/a.bin"), io.BytesIO(bytes(range(256))))
        done = await session.exec("ln -s in/a.bin link; wc -c < in/a.bin; echo why >&2; exit 4")
        assert (done.stdout, done.stderr, done.exit_code) == (b"256\n", b"why\n", 4)
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=0.3)
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("missing"))
        with pytest.raises(ValueError, match="never becomes 'root'"):
            await session.exec("id", user="root")
        evil = io.BytesIO()
        with tarfile.open(fileobj=evil, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("../outside"))
        evil.seek(0)
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.hydrate_workspace(evil)
        assert await session.running()
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    assert not await session.running()
    again = await client.resume(state)
    async with again:
        assert (await again.read(Path("in/a.bin"))).read() == bytes(range(256))
        assert (await again.exec("readlink link; ls")).stdout == b"in/a.bin\nin\nlink\n"
    await client.delete(again)
    with pytest.raises(ValueError, match="/mnt/data"):
        await client.create(manifest=Manifest(root="/srv"), options=None)


# --- pydantic-ai -----------------------------------------------------------------------------------------------------


def test_pydantic_ai_runs_code_over_mcp() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    told: list[str] = []
    code = f"{FIBONACCI}\nimport PIL.Image\nPIL.Image.new('RGB', (3, 3))"
    steps = [ToolCallPart("run_code", {"code": code}), TextPart("It is 55.")]

    def answer(messages: Any, _: Any) -> Any:
        told.append(str(messages))
        return ModelResponse(parts=[steps.pop(0)])

    assert run_example("pydantic-ai", model=FunctionModel(answer))["answer"] == "It is 55."
    assert "it is 55" in told[-1]
    assert "image/png" in told[-1]


# --- LangChain and Deep Agents ---------------------------------------------------------------------------------------


def langchain_scripted(answers: list[Any]) -> Any:
    """Return the framework's own fake of a chat model, which also takes tools."""
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel

    class Scripted(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    return Scripted(responses=answers)


def call(name: str, number: int, **given: Any) -> Any:
    from langchain_core.messages import AIMessage

    return AIMessage("", tool_calls=[{"name": name, "args": given, "id": str(number), "type": "tool_call"}])


def test_langchain_runs_code_with_a_function() -> None:
    pytest.importorskip("langchain")
    from langchain_core.messages import AIMessage

    step = call("run_python", 1, code="from statistics import mean\nmean([3, 1, 4, 1, 5])")
    names = run_example("LangChain", model=langchain_scripted([step, AIMessage("It is 2.8.")]))
    assert names["answer"] == "It is 2.8."
    assert [message.type for message in names["result"]["messages"]] == ["human", "ai", "tool", "ai"]
    assert names["result"]["messages"][2].content == "2.8"


def test_deep_agents_have_files_and_commands() -> None:
    pytest.importorskip("deepagents")
    from langchain_core.messages import AIMessage

    said_by_model = [
        call("execute", 1, command="tail -n +2 sales.csv | wc -l; echo bad >&2; exit 2"),
        call("write_file", 2, file_path="/mnt/data/notes/a.md", content="one\ntwo\n"),
        call("edit_file", 3, file_path="/mnt/data/notes/a.md", old_string="two", new_string="three"),
        call("read_file", 4, file_path="/mnt/data/notes/a.md"),
        call("grep", 5, pattern="three", path="/mnt/data"),
        call("execute", 6, command="seq 100000"),
        AIMessage("It has 1."),
    ]
    names = run_example("Deep Agents", model=langchain_scripted(said_by_model))
    assert names["answer"] == "It has 1."
    said = {message.tool_call_id: message.content for message in names["result"]["messages"] if message.type == "tool"}
    assert said["1"].startswith("1\nbad\n")
    assert "2" in said["1"].splitlines()[-1]
    assert "three" in said["4"]
    assert "a.md" in said["5"]
    assert "/mnt/data/agent/large_tool_results" in said["6"]


def test_what_fails_in_a_backend_is_text() -> None:
    pytest.importorskip("deepagents")
    from sandbox_kernel.core.errors import ConfigurationError
    from sandbox_kernel.plugins.frameworks.deepagents import SandboxBackend

    with SandboxBackend(memory="512M", cell_timeout=3) as backend:
        late = backend.execute("sleep 60", timeout=1)
        assert (late.exit_code, late.output[:12]) == (124, "CellTimeout:")
        refused = backend.execute("true", timeout=50)
        assert (refused.exit_code, "cell_timeout" in refused.output) == (1, True)
        written = backend.upload_files([("/mnt/data/a/b", b"\xff"), ("/etc/x", b"")])
        assert written[0].error is None
        assert written[1].error is not None
        read = backend.download_files(["/mnt/data/a/b", "/mnt/data/none"])
        assert (read[0].content, read[1].error) == (b"\xff", "file_not_found")
        assert backend.id == backend.sandbox.id
        backend.execute("mkdir /tmp/d; printf 'one\\na: two\\n' > '/tmp/d/a:b.txt'")
        matches = backend.grep("two", path="/tmp/d").matches
        assert matches == [{"path": "/tmp/d/a:b.txt", "line": 2, "text": "a: two"}]
        words = [one.error for one in backend.download_files(["relative", "/tmp/d", "/tmp/no", "/proc/kmsg"])]
        assert words == ["invalid_path", "is_directory", "file_not_found", "permission_denied"]
        assert [one.error for one in backend.upload_files([("r", b""), ("/etc/x", b"")])] == [
            "invalid_path",
            "permission_denied",
        ]
    with pytest.raises(ConfigurationError, match="did you mean memory"):
        SandboxBackend(memry="1G")


# --- CrewAI ----------------------------------------------------------------------------------------------------------


def test_crewai() -> None:
    pytest.importorskip("crewai")
    from crewai import BaseLLM

    code = json.dumps({"code": FIBONACCI})
    told: list[str] = []
    steps = [f"Thought: calculate\nAction: run_python\nAction Input: {code}", "Thought: done\nFinal Answer: It is 55."]

    class Scripted(BaseLLM):
        def call(self, messages: Any, *_: Any, **__: Any) -> str:
            told.append(str(messages))
            return steps.pop(0)

        def supports_function_calling(self) -> bool:
            return False

    assert run_example("CrewAI", model=Scripted(model="scripted"))["answer"] == "It is 55."
    assert "it is 55" in told[-1]


# --- LlamaIndex ------------------------------------------------------------------------------------------------------


def test_llamaindex() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    told: list[str] = []
    call = ToolCallBlock(tool_call_id="1", tool_name="run_python", tool_kwargs={"code": FIBONACCI})
    steps: list[Any] = [call, TextBlock(text="It is 55.")]

    def answer(messages: Any, **_: Any) -> Any:
        told.append(str(messages))
        return ChatMessage(role="assistant", blocks=[steps.pop(0)])

    model = MockFunctionCallingLLM(response_generator=answer)
    assert "It is 55." in run_example("LlamaIndex", model=model)["answer"]
    assert "it is 55" in told[-1]
