"""Agent frameworks' own tools for E2B, with the client that they bring, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

MISSING = "make recipes has it"


@pytest.fixture(autouse=True)
def variables(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("E2B_API_URL", server.url),
        ("E2B_SANDBOX_URL", server.url),
        ("E2B_API_KEY", TOKENS["ann"]),
        ("CREWAI_DISABLE_TELEMETRY", "true"),  # nothing is reported anywhere
        ("CREWAI_TRACING_ENABLED", "false"),
        ("OTEL_SDK_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)


@pytest.fixture
def box() -> Iterator[Any]:
    client = pytest.importorskip("e2b_code_interpreter", reason=MISSING)
    made = client.Sandbox.create(timeout=120)
    yield made
    made.kill()


def test_langchain_s_sandbox_for_deep_agents(box: Any) -> None:
    """Its grep is not among these: it parts names from lines by a null character, and no output has one."""
    backend = pytest.importorskip("langchain_e2b", reason=MISSING).E2BSandbox(sandbox=box)
    ran = backend.execute("echo hi; pwd; exit 3")
    assert (ran.output, ran.exit_code) == ("hi\n/home/user\n", 3)
    assert backend.write("/home/user/a.txt", "one\ntwo\n").error is None
    assert backend.edit("/home/user/a.txt", "two", "2").occurrences == 1
    assert backend.read("/home/user/a.txt").file_data["content"] == "one\n2"
    assert [one["path"] for one in backend.ls("/home/user").entries] == ["/home/user/a.txt"]
    assert [one["path"] for one in backend.glob("*.txt", path="/home/user").matches] == ["a.txt"]
    assert backend.upload_files([("/home/user/u.bin", b"\0\1")])[0].error is None
    downloads = backend.download_files(["/home/user/u.bin", "/home/user/none"])
    assert [(one.content, one.error) for one in downloads] == [(b"\0\1", None), (None, "file_not_found")]


def test_smolagents_executor() -> None:
    executors = pytest.importorskip("smolagents.remote_executors", reason=MISSING)
    pytest.importorskip("e2b_code_interpreter", reason=MISSING)
    smolagents = pytest.importorskip("smolagents")
    executor = executors.E2BExecutor([], smolagents.AgentLogger())
    try:
        said = executor("x = 6 * 7\nprint('hi')\nx")
        assert (said.output, said.logs, said.is_final_answer) == ("42", "hi\n", False)
        executor.send_variables({"given": [1, 2]})
        executor.send_tools({"final_answer": smolagents.FinalAnswerTool()})
        said = executor("final_answer({'sum': sum(given)})")
        assert (said.output, said.is_final_answer) == ({"sum": 3}, True)
        with pytest.raises(smolagents.AgentError, match="ZeroDivisionError"):
            executor("1/0")
    finally:
        executor.cleanup()


def test_llama_index_function_tool(box: Any) -> None:
    tools = pytest.importorskip("llama_index.core.tools", reason=MISSING)

    def run_python(code: str) -> str:
        """Run code in a sandbox."""
        return str(box.run_code(code).text)

    tool = tools.FunctionTool.from_defaults(run_python)
    assert tool.call(code="6 * 7").raw_output == "42"


def test_crewai_tools(box: Any) -> None:
    tools = pytest.importorskip("crewai_tools.tools.e2b_sandbox_tool", reason=MISSING)
    alone = tools.E2BPythonTool().run(code="6 * 7")
    assert (alone["text"], alone["error"]) == ("42", None)
    joined = {"sandbox_id": box.sandbox_id}
    python = tools.E2BPythonTool(**joined)
    python.run(code="x = 5")
    assert python.run(code="x / 0")["error"]["name"] == "ZeroDivisionError"
    ran = tools.E2BExecTool(**joined).run(command="pwd")
    assert (ran["stdout"], ran["exit_code"]) == ("/home/user\n", 0)
    files = tools.E2BFileTool(**joined)
    files.run(action="write", path="/home/user/a.txt", content="one")
    assert files.run(action="read", path="/home/user/a.txt")["content"] == "one"
