"""The MCP server under the official inspector's command lines: one call a connection, and many on one connection.

They need Node.js, whose package manager fetches the inspector (and a newer Node.js, where the installed one is too old
for it) once into the user's cache. Without Node.js the tests are left out; the official client is tried elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.serve.container.server import McpServer
from tests.support.kernels import containers_of, eventually
from tests.support.mcp_hosts import COMMAND

VERSION = "2.12.0"
NODE = (22, 19)
"""What that version asks for."""
CACHE = Path("~/.cache/sandbox-kernel").expanduser() / f"inspector-{VERSION}"
PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("--memory", "512M")

pytestmark = pytest.mark.long

Inspector = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return the folder of the inspector's programs, installed as a whole or not at all."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("Node.js with npm is not installed")
    if not CACHE.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent, prefix="inspector-") as folder:
            packages = [f"@modelcontextprotocol/inspector@{VERSION}"]
            said = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout
            if tuple(map(int, re.findall(r"[0-9]+", said)[:2])) < NODE:
                packages.append("node@22")
            command = [npm, "install", "--prefix", folder, "--no-audit", "--no-fund", "--silent", *packages]
            subprocess.run(command, check=True, timeout=170, stdin=subprocess.DEVNULL)
            Path(folder).rename(CACHE)
            Path(folder).mkdir()  # for the end of its context
    return CACHE / "node_modules" / ".bin"


@pytest.fixture
def inspector(programs: Path, tmp_path: Path) -> Iterator[Inspector]:
    """Return a function that runs one of the inspector's programs; all of its files are in a temporary folder."""
    # A socket lies in it, whose path may not be long.
    with tempfile.TemporaryDirectory(prefix="mcp-") as folder:
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "MCP_INSPECTOR_DAEMON_DIR": folder,
            "MCP_INSPECTOR_DAEMON_TOKEN": "a-token-of-this-test",
        }

        def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(programs / program), *arguments],
                check=False, capture_output=True, text=True, timeout=90, env=environment, stdin=subprocess.DEVNULL,
            )  # fmt: skip

        try:
            yield call
        finally:
            call("mcpdo", "daemon", "stop")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_every_host_can_read_the_schemas_of_the_tools(inspector: Inspector, era: str) -> None:
    done = inspector(
        "mcp-inspector", "--cli", *COMMAND, *SMALL, "--protocol-era", era, "--method", "tools/list", "--strict"
    )
    assert done.returncode == 0, done.stderr  # 6 for a schema that some host cannot read
    tools = {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}
    assert len(tools) == 8
    assert tools["download_file"]["annotations"]["readOnlyHint"] is True
    assert tools["end_session"]["annotations"]["destructiveHint"] is True


def test_a_figure_over_http_and_a_refusal_without_the_token(inspector: Inspector, tmp_path: Path) -> None:
    with closing(McpServer(*SMALL, "--away-timeout", "1")) as server:
        code = "import matplotlib.pyplot as plt; plt.plot([1, 3, 2]); plt.show()"
        call = ("--method", "tools/call", "--tool-name", "run_code", "--tool-args-json", json.dumps({"code": code}))
        command = ("mcp-inspector", "--cli", server.url, "--transport", "http", "--stored-auth-only", *call)
        good = inspector(*command, "--header", f"Authorization: Bearer {server.token}", "--format", "json")
        assert good.returncode == 0, good.stderr
        (image,) = (block for block in json.loads(good.stdout)["result"]["content"] if block["type"] == "image")
        assert base64.b64decode(image["data"]).startswith(PNG)
        for headers in ((), ("--header", f"Authorization: Bearer {server.token[:-1]}")):
            refused = inspector(*command, *headers)
            assert refused.returncode != 0
            assert '"content"' not in refused.stdout
        eventually(lambda: not containers_of(server.pid), 10, "it left without a word, and its session ended")


def test_every_tool_and_a_file_of_20_mb_on_one_connection(inspector: Inspector) -> None:
    with closing(McpServer(*SMALL)) as server:
        header = ("--header", f"Authorization: Bearer {server.token}")
        joined = inspector("mcpdo", "connect", server.url, "--connection", "it", "--transport", "http", *header)
        assert joined.returncode == 0, joined.stderr

        def tool(name: str, **arguments: Any) -> Any:
            done = inspector(
                "mcpdo", "--connection", "it", "--format", "json", "tools/call", name, json.dumps(arguments)
            )
            assert done.returncode == 0, done.stderr or done.stdout
            return json.loads(done.stdout)

        def text(answer: Any) -> str:
            content = answer.get("result", answer)["content"]
            return "\n".join(block["text"] for block in content if block["type"] == "text")

        assert "is new" in text(tool("upload_file", path="a.txt", text="hello"))
        make = "import random; data = random.Random(6).randbytes(20_000_000); open('a.bin', 'wb').write(data)"
        assert text(tool("run_code", code=make)) == "20000000"
        assert "a.bin" in text(tool("list_files"))
        assert text(tool("download_file", path="a.txt")).endswith("hello")
        assert "sandbox://main/files/a.bin" in text(tool("download_file", path="a.bin"))
        read = inspector(
            "mcpdo", "--connection", "it", "--format", "json", "resources/read", "sandbox://main/files/a.bin"
        )
        found = json.loads(read.stdout)
        (content,) = found.get("result", found)["contents"]
        digest = hashlib.sha256(base64.b64decode(content["blob"])).hexdigest()
        assert digest in text(tool("run_code", code="import hashlib; hashlib.sha256(data).hexdigest()"))
        assert "main" in text(tool("list_sessions"))
        assert "Nothing runs" in text(tool("interrupt"))
        assert "files are kept" in text(tool("reset"))
        assert "False True" in text(tool("run_code", code="import os; print('data' in dir(), os.path.exists('a.bin'))"))
        assert "has ended" in text(tool("end_session"))
        assert not containers_of(server.pid)
