"""The Python tool of gpt-oss, which vLLM uses as well, with a kernel of ours: docs/chat.md."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels import eventually

docker_tool = pytest.importorskip("gpt_oss.tools.python_docker.docker_tool", reason="make recipes has it")


def listens(file: Path) -> bool:
    """Return whether the kernel of a connection file is there: gpt-oss takes one that is not yet for one that died."""
    try:
        port = json.loads(file.read_text())["hb_port"]
        socket.create_connection(("127.0.0.1", port), 1).close()
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Start a kernel as the page does, and return its connection file."""
    file = tmp_path / "gpt.json"
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    install = [sys.executable, "-m", "sandbox_kernel", "install", "--prefix", str(tmp_path), "--name", "sandbox-gpt"]
    subprocess.run([*install, "--memory", "512M"], check=True, capture_output=True)
    command = [str(Path(sys.executable).with_name("jupyter-kernel")), "--kernel=sandbox-gpt"]
    kernel = subprocess.Popen([*command, f"--KernelManager.connection_file={file}"], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: listens(file), 60, "the kernel listens")
        yield file
    finally:
        kernel.terminate()
        assert kernel.wait(30) == 0


def test_the_local_kernel_of_gpt_oss_is_a_sandbox(connection: Path) -> None:
    session = docker_tool.LocalJupyterSession(str(connection), timeout=60)
    assert session.execute("x = 6 * 7\nprint(x)\nx") == "42\n42\n"
    assert "ZeroDivisionError" in session.execute("x / 0")
    assert session.execute("import os; print(x, os.uname().nodename, os.getcwd())") == "42 sandbox /mnt/data\n"
    session.close()
