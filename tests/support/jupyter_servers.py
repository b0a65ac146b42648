"""A real Jupyter Server on loopback, and how to ask its API."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from tests.support import ROOT
from tests.support.kernels import eventually, install

EXTENSION = "--ServerApp.jpserver_extensions={'sandbox_kernel.server_extension': True}"
EXAMPLE = ROOT / "docs/examples/server_client.py"

FORK_SERVER = "sandbox_kernel.plugins.provisioner.fork_server"


class Server:
    """A Jupyter Server on loopback, and what it was started with."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, token: str) -> None:
        self.process, self.url, self.token = process, url, token

    def kernels(self) -> list[psutil.Process]:
        """Return the processes of its kernels: its own children, and those of its fork servers; none that has ended."""
        children = psutil.Process(self.process.pid).children()
        servers = [one for one in children if is_fork_server(one)]
        found = [
            *(one for one in children if one not in servers),
            *(one for server in servers for one in server.children()),
        ]
        return [one for one in found if command(one)]


def command(process: psutil.Process) -> list[str]:
    """Return what a process was started with; nothing of one that has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def is_fork_server(process: psutil.Process) -> bool:
    """Return whether a process makes those of kernels, and has not ended."""
    return FORK_SERVER in command(process)


def listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(folder: Path, image: str, *words: str) -> Iterator[Server]:
    """Run a Jupyter Server in a folder of its own, with further words of its command line."""
    for name in ("notebooks", "runtime", "config", "data", "home"):
        (folder / name).mkdir()
    install(folder / "prefix", "--image", image, "--cell-timeout", "60")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}"]
    command += [f"--ServerApp.root_dir={folder / 'notebooks'}", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    environment |= {"HOME": str(folder / "home"), "JUPYTER_PATH": str(folder / "prefix/share/jupyter")}
    environment |= {f"JUPYTER_{name.upper()}_DIR": str(folder / name) for name in ("runtime", "config", "data")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    found = folder / "runtime" / f"jpserver-{process.pid}.json"
    try:
        eventually(lambda: found.exists() or process.poll() is not None, 60, "the server runs")
        assert found.exists(), (folder / "log").read_text()
        eventually(lambda: listens(port), 60, "the server listens")  # it writes that file a little before
        yield Server(process, json.loads(found.read_text())["url"], token)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()


def asked(server: Server, path: str, body: dict[str, Any], method: str = "POST") -> tuple[int, Any]:
    """Ask a server's API; return the status and what it answers."""
    headers = {"Authorization": f"token {server.token}"}
    request = urllib.request.Request(f"{server.url}api/{path}", json.dumps(body).encode(), headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (loopback)
            return answer.status, json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def example_client() -> ModuleType:
    """Return the client of docs/jupyter-server.md."""
    spec = importlib.util.spec_from_file_location("server_client", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
