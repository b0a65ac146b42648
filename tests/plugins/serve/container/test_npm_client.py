"""The official client of E2B, as it comes from npm, against a real server: by two addresses, and by a domain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

HERE = os.environ.get("SANDBOX_KERNEL_E2B_NPM", "")
pytestmark = pytest.mark.skipif(not HERE or shutil.which("node") is None, reason="make recipes has it")


@pytest.fixture(params=["headers", "names"])
def said(request: pytest.FixtureRequest, named_server: tuple[Server, Path]) -> dict[str, Any]:
    """Return what the client saw of all that it was asked to do."""
    server, certificates = named_server
    port = server.url.rpartition(":")[2]
    found = {"E2B_DOMAIN": f"sandbox.localhost:{port}"}
    if request.param == "headers":
        found = {"E2B_API_URL": server.url, "E2B_SANDBOX_URL": server.url}
    trusted = {"NODE_EXTRA_CA_CERTS": str(certificates / "ca.pem"), "E2B_API_KEY": TOKENS["ann"]}
    with Path(__file__).with_name("e2b_client.mjs").open() as script:
        ended = subprocess.run(
            ["node", "--input-type=module"],
            check=False,
            stdin=script,
            cwd=HERE,
            env={**os.environ, **found, **trusted},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert ended.returncode == 0, ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return seen


def test_all_methods(said: dict[str, Any]) -> None:
    assert said["cell"] == ["1é", ["out\n"], ["err\n"], ["err\n", "out\n"]]
    assert (said["error"], said["envs"], said["late"]) == ("ZeroDivisionError", "q/home/user", "TimeoutError")
    assert said["chart"] == ["bar", "string"]
    assert (said["context"], said["contexts"]) == (["python", "/home/user", "5"], [False, True])
    assert (said["restarted"], said["removed"]) == ("NameError", "NotFoundError")
    assert (said["written"], said["many"]) == ("/home/user/d/a.txt", ["/home/user/m1", "/home/user/m/2"])
    assert said["read"] == ["text", [0, 1], 2, 3_000_000]
    assert (said["made"], said["moved"], said["there"]) == ([True, False], "/home/user/f/b.txt", [True, False])
    assert said["listed"] == [["/home/user/f/b.txt", "file"], ["/home/user/f/g", "dir"]]
    assert (said["info"], said["gone"]) == (["b.txt", 4, "user"], ["FileNotFoundError", "InvalidArgumentError"])
    assert (said["events"], said["signed"]) == (True, [200, "signed"])
    assert said["command"] == ["hi\né\n/home/user\n", "err\n", 0]
    assert (said["failed"], said["tooLong"], said["running"]) == ([True, 3], "TimeoutError", True)
    assert (said["typed"], said["killed"], said["again"]) == ("one\n", [True, False], "end\n")
    assert (said["shell"], said["ended"]) == (True, True)
    assert said["about"] == [True, {"job": "a b"}, "code-interpreter-v1"]
    assert (said["metrics"], said["found"], said["longer"], said["connected"]) == (True, 1, True, "42")
    assert (said["paused"], said["end"]) == ([True, False, "43"], [True, False, False])
    assert said["copies"][2] == []
    for refused, words in (
        (said["root"], "root"),
        (said["copies"][0], "Setting to change: engine"),
        (said["copies"][1], "Setting to change: engine"),
        (said["network"], "allowOut"),
        (said["internet"], "allow_internet_access"),
    ):
        assert words in refused[1], refused
