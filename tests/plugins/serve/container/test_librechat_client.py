"""The tools of LibreChat's agents, as they come from npm, against a real server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.plugins.serve.container.conftest import TOKENS, options
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


SOURCE = os.environ.get("SANDBOX_KERNEL_LIBRECHAT_SOURCE", "")


@pytest.mark.skipif(not SOURCE, reason="SANDBOX_KERNEL_LIBRECHAT_SOURCE names no checkout of LibreChat")
@pytest.mark.parametrize("signs", [False, True])
def test_librechat_s_own_source(tmp_path: Path, signs: bool) -> None:
    """It proves itself, sends files, has code run and fetches what that made, with a signing key and without one."""
    for words in (["genpkey", "-algorithm", "ed25519", "-out"], ["pkey", "-in", "key.pem", "-pubout", "-out"]):
        name = "key.pem" if words[0] == "genpkey" else "public.pem"
        subprocess.run(["openssl", *words, name], check=True, cwd=tmp_path, capture_output=True)
    with closing(Server(*options(tmp_path), "--librechat-key", f"ann={tmp_path / 'public.pem'}")) as server:
        environment = {**os.environ, "LIBRECHAT_SOURCE": SOURCE, "NODE_PATH": f"{HERE}/node_modules"}
        environment["LIBRECHAT_CODE_BASEURL"] = f"{server.url}/librechat/{'' if signs else TOKENS['ann'] + '/'}v1"
        if signs:
            environment |= {
                "CODEAPI_JWT_ENABLED": "true",
                "CODEAPI_JWT_PRIVATE_KEY": (tmp_path / "key.pem").read_text(),
            }
        script = Path(__file__).with_name("librechat_source.cjs")
        ended = subprocess.run(
            ["node", str(script)],
            check=False,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
    said = json.loads(ended.stdout.splitlines()[-1])
    assert "error" not in said, (said, ended.stderr)
    assert said["sends"] == (["Authorization"] if signs else [])
    plain, marked, spaced = said["sent"]
    assert (plain, spaced) == ("plain.csv", "(1).csv")
    assert marked.startswith("_mark~")
    for name in (plain, marked, spaced, "one.csv"):
        assert repr(name) in said["ran"]
    assert said["made"][1] == "gbk"
    assert said["made"][0] in said["ran"]
