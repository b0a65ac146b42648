"""Clients of Jupyter's wire as they come from PyPI, against a real server: `make recipes` installs most of them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.plugins.serve.container.test_e2b_wire import run, sandbox
from tests.support.pages import snippets

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(120),
]
ANN = TOKENS["ann"]


@pytest.fixture
def where(server: Server) -> Iterator[str]:
    """The address of the wire; what a test starts has ended with it."""
    url = f"{server.url}/jupyter"
    yield url
    with httpx2.Client(base_url=url, params={"token": ANN}, timeout=30) as client:
        assert client.get("/api/kernels").json() == []


def test_jupyter_kernel_client(where: str) -> None:
    library = pytest.importorskip("jupyter_kernel_client", reason="make recipes has it")
    with library.JupyterKernelClient(server_url=where, token=ANN) as kernel:
        (output,) = kernel.execute("import os; x = 42; print(os.getcwd())")["outputs"]
        assert output["text"] == "/mnt/data\n"
        assert [one["name"] for one in kernel.list_variables()] == ["x"]
        kernel.restart()
        assert kernel.execute("'x' in globals()")["outputs"][0]["data"]["text/plain"] == "False"


async def test_jupyter_kernel_client_joins_a_sandbox(server: Server, where: str) -> None:
    library = pytest.importorskip("jupyter_kernel_client", reason="make recipes has it")
    async with sandbox(server) as (chat, said):
        await run(chat, "total = 41")
        kernel = library.JupyterKernelClient(server_url=where, token=ANN, kernel_id=said["sandboxID"])
        kernel.start()
        assert kernel.execute("total += 1; total")["outputs"][0]["data"]["text/plain"] == "42"
        kernel.stop(shutdown_kernel=False)
        assert (await run(chat, "total"))[0]["text"] == "42"


async def test_jupyter_mcp_server(server: Server, where: str) -> None:
    """Code runs in a sandbox of this server, also in one that another wire made; notebooks lie elsewhere."""
    pytest.importorskip("jupyter_mcp_server", reason="make recipes has it")
    from mcp import Client, StdioServerParameters

    words = ["start", "--transport", "stdio", "--code-sandbox-url", where, "--code-sandbox-token", ANN]
    words += ["--document-url", where, "--document-token", ANN, "--start-new-code-sandbox", "false"]
    command = str(Path(sys.executable).with_name("jupyter-mcp-server"))
    async with sandbox(server) as (chat, said):
        await run(chat, "total = 41")
        with httpx2.Client(base_url=where, params={"token": ANN}) as client:
            [kernel] = [one["id"] for one in client.get("/api/kernels").json()]
        async with Client(StdioServerParameters(command=command, args=words, env=dict(os.environ))) as host:
            assert kernel in str((await host.call_tool("list_kernels", {})).content)
            found = await host.call_tool("execute_code", {"code": "total += 1; print(total)", "kernel_id": kernel})
            assert "42" in str(found.content)
        assert (await run(chat, "total"))[0]["text"] == "42"
        assert said["sandboxID"] == kernel.replace("-", "")


@pytest.mark.filterwarnings("ignore:No approval function set for CodeExecutorAgent:UserWarning")
def test_autogen(where: str) -> None:
    """The example of docs/integrations.md: an agent writes code, runs it and reflects."""
    pytest.importorskip("autogen_ext", reason="make recipes has it")
    pytest.importorskip("asyncio_atexit", reason="make recipes has it")
    from autogen_ext.models.replay import ReplayChatCompletionClient

    code = "```python\na, b = 0, 1\nfor _ in range(10):\n    a, b = b, a + b\nprint('it is', a)\n```"
    model = ReplayChatCompletionClient([code, "The 10th Fibonacci number is 55."])
    names = {"model": model, "address": where.removeprefix("http://").removesuffix("/jupyter"), "token": ANN}
    [source] = [one for one in snippets("docs/integrations.md") if "DockerJupyterCodeExecutor" in one]
    exec(compile(source, "docs/integrations.md", "exec"), names)  # noqa: S102 (our own page)
    assert names["answer"] == "The 10th Fibonacci number is 55."
    assert "it is 55" in str(model.create_calls[-1]["messages"])


def test_ag2(where: str, tmp_path: Path) -> None:
    jupyter = pytest.importorskip("autogen.coding.jupyter", reason="make recipes has it")
    coding = pytest.importorskip("autogen.coding", reason="make recipes has it")
    connection = jupyter.JupyterConnectionInfo(host=where.removeprefix("http://"), use_https=False, token=ANN)
    with jupyter.JupyterCodeExecutor(connection, output_dir=tmp_path) as executor:

        def said(code: str) -> Any:
            return executor.execute_code_blocks([coding.CodeBlock(language="python", code=code)])

        assert said("x = 6; print(x * 7)").output.strip() == "42"
        assert (said("1/0").exit_code, "ZeroDivisionError" in said("1/0").output) == (1, True)
        executor.restart()
        assert said("'x' in globals()").output.strip() == "False"


async def test_open_webui(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own client of Jupyter, without the rest of it."""
    package = importlib.util.find_spec("open_webui")
    if package is None or package.submodule_search_locations is None:
        pytest.skip("make recipes has it")
    for name, module in {
        "open_webui.env": SimpleNamespace(AIOHTTP_CLIENT_ALLOW_REDIRECTS=True),
        "open_webui.utils.json_codec": SimpleNamespace(JSONCodec=json),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    path = Path(package.submodule_search_locations[0]) / "utils/code_interpreter.py"
    spec = importlib.util.spec_from_file_location("code_interpreter", path)
    assert spec is not None
    assert spec.loader is not None
    client: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    result = await client.execute_code_jupyter(where, "print('out'); 6 * 7", ANN, timeout=60)
    assert (result["stdout"], result["stderr"], result["result"]) == ("out", "", "42")
    result = await client.execute_code_jupyter(where, "1/0", ANN, timeout=60)
    assert "ZeroDivisionError" in result["stderr"]
    result = await client.execute_code_jupyter(where, "1", ANN[:-1], timeout=60)
    assert "401" in result["stderr"]
    # More than its connection takes in one message, which is 1 MiB
    result = await client.execute_code_jupyter(where, "print('é' * 1_500_000, 'end'); 'v' * 1_500_000", ANN, timeout=60)
    assert result["stdout"] == "é" * 1_500_000 + " end"
    assert (result["stderr"], "/mnt/data/outputs/" in result["result"]) == ("", True)
    code = (
        "import os, struct, zlib, IPython.display as shown\n"
        "rows = b''.join(b'\\0' + os.urandom(3000) for _ in range(500))\n"
        "number = lambda value: struct.pack('>I', value)\n"
        "part = lambda kind, data: number(len(data)) + kind + data + number(zlib.crc32(kind + data))\n"
        "head = part(b'IHDR', struct.pack('>IIBBBBB', 1000, 500, 8, 2, 0, 0, 0))\n"
        "png = b'\\x89PNG\\r\\n\\x1a\\n' + head + part(b'IDAT', zlib.compress(rows)) + part(b'IEND', b'')\n"
        "shown.display(shown.Image(png))\n"
        "print(1)"
    )
    result = await client.execute_code_jupyter(where, code, ANN, timeout=60)
    assert (result["stdout"], result["stderr"]) == ("1", "")
    assert "image/png of 1.9 MiB is not shown: this client takes 1.0 MiB in one message" in result["result"]
    result = await client.execute_code_jupyter(where, "raise ValueError('x' * 3_000_000)", ANN, timeout=60)
    assert "ValueError" in result["stderr"]
    assert len(result["stderr"]) < 1 << 20


@pytest.mark.long
async def test_the_gateway_client_of_a_jupyter_server(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `jupyter server --gateway-url=` is made of, without a page."""
    from jupyter_server.gateway import managers
    from jupyter_server.gateway.gateway_client import GatewayClient

    monkeypatch.setattr(GatewayClient, "_instance", None)
    client = GatewayClient.instance(url=where, auth_token=ANN)
    client.init_connection_args()
    try:
        assert (await managers.GatewayKernelSpecManager().get_kernel_spec("python3"))["name"] == "python3"
        kernels = managers.GatewayMappingKernelManager()
        kernel = await kernels.start_kernel(kernel_name="python3")
        [model] = await kernels.list_kernels()
        assert (model["id"], model["name"]) == (kernel, "python3")
        await kernels.interrupt_kernel(kernel)
        await kernels.restart_kernel(kernel)
        manager: Any = kernels.get_kernel(kernel)
        assert await manager.is_alive()
        await kernels.shutdown_kernel(kernel)
        assert await kernels.list_kernels() == []
    finally:
        GatewayClient.clear_instance()
