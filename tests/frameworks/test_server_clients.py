"""Clients of a Jupyter Server that starts sandboxes only, as they come from PyPI: `make recipes` installs them."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.trap import Trap

if TYPE_CHECKING:
    from tests.support.jupyter_servers import Server

kernel_client = pytest.importorskip("jupyter_kernel_client")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Server]:
    from tests.support.jupyter_servers import EXTENSION, served

    folder = tmp_path_factory.mktemp("server")
    words = ["--SandboxKernels.allowed=sandbox-python", f"--SQLiteYStore.db_path={folder / 'changes.db'}"]
    with served(folder, image, EXTENSION, *words) as found:
        yield found


@pytest.fixture
def kernel(server: Server) -> Iterator[Any]:
    with kernel_client.JupyterKernelClient(server_url=server.url.rstrip("/"), token=server.token) as found:
        yield found


def test_a_client_that_names_no_kernel_gets_a_sandbox(kernel: Any) -> None:
    """It asks for python3."""
    (output,) = kernel.execute("import os; x = 42; print(os.getcwd())")["outputs"]
    assert output["text"] == "/mnt/data\n"
    assert [one["name"] for one in kernel.list_variables()] == ["x"]


def test_who_asks_for_a_variable_is_told_what_to_do(kernel: Any) -> None:
    kernel.execute("x = 42")
    with pytest.raises(RuntimeError, match="Failed to get variable x"):
        kernel.get_variable("x")
    said = kernel.execute("import jupyter_mimetypes")["outputs"]
    assert any("Print the value as JSON instead" in one.get("text", "") for one in said)
    (output,) = kernel.execute("import json; print(json.dumps(x))")["outputs"]
    assert output["text"] == "42\n"


ANSWER = """
import sys, types
module = types.ModuleType("jupyter_mimetypes")
kind = "application/x-python-pickle"
def get_variable(name, mimetype, globals_dict):
    display({{kind: {trap!r}}}, metadata={{kind: {{"type": ["builtins", "int"]}}}}, raw=True)
module.get_variable = get_variable
sys.modules["jupyter_mimetypes"] = module
"""


def test_no_pickle_of_a_sandbox_is_opened_by_a_client(kernel: Any, tmp_path: Path) -> None:
    """The client unpickles what it gets on its own computer; of a sandbox it gets none."""
    trap = base64.b64encode(pickle.dumps(Trap(tmp_path / "sprung"))).decode()
    kernel.execute(ANSWER.format(trap=trap))
    with pytest.raises(RuntimeError, match="No valid deserialization data"):
        kernel.get_variable("x")
    assert not list(tmp_path.iterdir())
    mimetypes = pytest.importorskip("jupyter_mimetypes")
    kind = "application/x-python-pickle"
    mimetypes.deserialize_object({kind: trap}, {kind: {"type": ["builtins", "int"]}})
    assert [path.name for path in tmp_path.iterdir()] == ["sprung"], "the control: the client opens such a pickle"


async def test_jupyter_mcp_server_works_as_it_is_documented(server: Server) -> None:
    """It asks for python3, and nobody can have it ask for another."""
    pytest.importorskip("jupyter_mcp_server")
    from mcp import Client, StdioServerParameters

    words = ["start", "--transport", "stdio", "--jupyter-url", server.url.rstrip("/")]
    words += ["--jupyter-token", server.token]
    command = str(Path(sys.executable).with_name("jupyter-mcp-server"))
    async with Client(StdioServerParameters(command=command, args=words, env=dict(os.environ))) as client:
        notebook = {"notebook_name": "a", "notebook_path": "a.ipynb", "mode": "create"}
        await client.call_tool("use_notebook", notebook)
        found = await client.call_tool("execute_code", {"code": "import os; print(os.getcwd(), 6 * 7)"})
        assert "/mnt/data 42" in str(found.content)
