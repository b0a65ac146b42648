"""The tools of LibreChat's agents, as they come from npm, against a real server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

HERE = os.environ.get("SANDBOX_KERNEL_LIBRECHAT", "")
pytestmark = pytest.mark.skipif(not HERE or shutil.which("node") is None, reason="make recipes has it")


def test_the_tools_of_librechat_s_agents(server: Server) -> None:
    environment = {**os.environ, "LIBRECHAT_CODE_BASEURL": f"{server.url}/librechat/{TOKENS['ann']}/v1"}
    script = Path(__file__).with_name("librechat_agent.mjs")
    with script.open() as source:
        ended = subprocess.run(
            ["node", "--input-type=module"],
            check=False,
            stdin=source,
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    content, artifact = said["made"]
    assert content.startswith("stdout:\n42\n")
    assert "1 persisted file(s)" in content
    assert [file["name"] for file in artifact["files"]] == ["a.csv"]
    assert said["bash"] == "stdout:\n1,2"
    assert "ZeroDivisionError: division by zero" in said["wrong"]
    assert said["again"] == ["stdout:\nkept", "reused"]
    assert "[{'city': 'Oslo', 'degrees': 4}, {'city': 'Rome!', 'degrees': 5}]" in said["program"][0]
    assert 'got {"city":"Oslo","degrees":4}' in said["shell"][0]
    assert "not authorized" in said["closed"]
