"""Front ends that start a kernelspec's command themselves, as they do it: VS Code and Zed.

Both choose ports, write a connection file, and read of a kernelspec `argv`, `env` and the language: no provisioner.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from tests.support.kernels import WAIT

Command = Callable[[dict[str, Any], str], list[str]]


def vs_code(spec: dict[str, Any], file: str) -> list[str]:
    """`-f FILE` becomes `--f=FILE`, in quotes if it has a blank, and only where the language is Python."""
    at = spec["argv"].index("{connection_file}")
    if spec["language"] != "python":
        return [file if word == "{connection_file}" else word for word in spec["argv"]]
    quoted = f'"{file}"' if " " in file else file
    return [*spec["argv"][: at - 1], *spec["argv"][at + 1 :], f"--f={quoted}", "--debug"]


def zed(spec: dict[str, Any], file: str) -> list[str]:
    return [file if word == "{connection_file}" else word for word in spec["argv"]]


@contextmanager
def started(command: Command, spec: dict[str, Any], folder: Path) -> Iterator[tuple[int, Callable[[str], str]]]:
    """Start a kernelspec so; yield the process's id, and what runs a cell and returns what it prints, or its error."""
    (folder / "run time").mkdir()
    file, _ = write_connection_file(str(folder / "run time/c.json"), ip="127.0.0.1", key=os.urandom(16).hex().encode())
    environment = os.environ | spec.get("env", {})
    with subprocess.Popen(command(spec, file), env=environment, cwd=folder, stderr=sys.stderr) as process:
        client = BlockingKernelClient(connection_file=file)
        client.load_connection_file()
        client.start_channels(hb=False)  # one that is slow to start would count as dead
        try:
            client.wait_for_ready(timeout=WAIT)
            yield process.pid, lambda code: _run(client, code)
        finally:
            client.shutdown()
            client.stop_channels()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _run(client: BlockingKernelClient, code: str) -> str:
    shown: list[dict[str, Any]] = []
    reply = client.execute_interactive(code, timeout=WAIT, output_hook=shown.append)["content"]
    if reply["status"] == "error":
        return f"{reply['ename']}: {reply['evalue']}"
    return "".join(one["content"]["text"] for one in shown if one["msg_type"] == "stream")
