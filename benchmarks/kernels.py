"""The kernels that are compared, each driven by one and the same client code, with a bound on every wait.

Imports no module of sandbox_kernel: what is measured is what a front end gets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

START_SECONDS = 90.0
ASK_AGAIN_SECONDS = 1.0
PUBLISHED_SECONDS = 0.2
"""As in jupyter_client's `wait_for_ready`: how long after a request a reply is waited for, and then a publication."""
REPLY_SECONDS = 60.0
INSTALL_SECONDS = 60.0

STOCK, TWIN, SANDBOX, TRUSTED, FORKED = "stock", "no history", "sandbox", "trusted", "forked"

MARK = "SANDBOX_KERNEL_BENCHMARK"
"""An environment variable that the processes of one kernel inherit, so that all of them are found."""


class BenchmarkError(Exception):
    """A measurement has no value: something did not come, or came incomplete."""


def write_kernelspecs(folder: Path, settings: Sequence[str]) -> KernelSpecManager:
    """Write a kernelspec for each contestant beneath the folder; nothing is installed anywhere else."""
    specs = write_stock(folder)
    for name, extra in ((SANDBOX, []), (TRUSTED, ["--outputs", "trusted"])):
        write_sandbox(folder, name, [*settings, *extra])
    write_forked(folder, FORKED, settings)
    return specs


def write_forked(folder: Path, name: str, settings: Sequence[str]) -> None:
    """Write a kernelspec as it is in an environment that has Jupyter: it names the provisioner."""
    write_sandbox(folder, name, settings)
    path = folder / "share" / "jupyter" / "kernels" / spec_name(name) / "kernel.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["metadata"]["kernel_provisioner"] = {"provisioner_name": "sandbox-kernel"}
    path.write_text(json.dumps(spec), encoding="utf-8")


def write_stock(folder: Path, python: str = sys.executable) -> KernelSpecManager:
    """Write the kernelspecs of the stock kernel and its twin; return what finds all beneath the folder."""
    stock = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    for name, argv in ((STOCK, stock), (TWIN, [*stock, "--HistoryManager.enabled=False"])):
        place = folder / "share" / "jupyter" / "kernels" / spec_name(name)
        place.mkdir(parents=True)
        spec = {"argv": argv, "display_name": name, "language": "python"}
        (place / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    return KernelSpecManager(kernel_dirs=[str(folder / "share" / "jupyter" / "kernels")])


def write_sandbox(folder: Path, name: str, settings: Sequence[str]) -> None:
    """Write the kernelspec of a sandbox with these settings. Raises `BenchmarkError`."""
    command = [sys.executable, "-m", "sandbox_kernel", "install", "--prefix", str(folder), "--name", spec_name(name)]
    done = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"no kernelspec for {name}: {done.stdout}{done.stderr}")


def spec_name(name: str) -> str:
    return "benchmark-" + "-".join(name.lower().replace(",", "").split())


@dataclass(frozen=True)
class Cell:
    """What came back for one cell: seconds until both its reply and its idle status, and what it put out."""

    seconds: float
    status: str
    text: int
    """Characters on the standard streams."""
    display: int
    """Characters of text/plain and text/html in displays and results."""


class Kernel:
    """A running kernel and its client; the same code for each contestant."""

    def __init__(self, name: str, specs: KernelSpecManager, *, lingers: bool = True) -> None:
        """Start the kernel and wait until a client may use it.

        Where it lingers, jupyter_client's own check decides, which ends by listening for 0.2 s in which nothing comes.
        """
        self.name = name
        self.lingers = lingers
        self.mark = uuid.uuid4().hex
        # Bytecode is cached as on a user's machine, whatever this shell says: a kernel that compiles its imports at
        # every start would flatter the other one.
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.manager = KernelManager(kernel_name=spec_name(name), kernel_spec_manager=specs)
        self.manager.start_kernel(env={**env, MARK: self.mark}, stderr=subprocess.DEVNULL)
        self.client: Any = self.manager.client()
        try:
            self.client.start_channels()
            self.client.allow_stdin = False  # as a batch client, which is given everything
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def is_forked(self) -> bool:
        """Whether a fork server made its process."""
        return type(vars(self.manager.provisioner).get("process")).__name__ == "ForkedProcess"

    def wait_until_ready(self) -> None:
        if not self.lingers:
            self.wait_until_answering()
            return
        try:
            self.client.wait_for_ready(timeout=START_SECONDS)
        except RuntimeError as error:
            raise BenchmarkError(f"{self.name}: it did not get ready: {error}") from error

    def wait_until_answering(self) -> None:
        """Return once the kernel has replied and a publication has come. Raises `BenchmarkError`."""
        end = time.perf_counter() + START_SECONDS
        asked = set()
        while time.perf_counter() < end:
            asked.add(self.client.kernel_info())
            if self.heard("shell", ASK_AGAIN_SECONDS, asked) and self.heard("iopub", PUBLISHED_SECONDS, asked):
                return
            if not self.manager.is_alive():
                break
        raise BenchmarkError(f"{self.name}: it did not get ready")

    def heard(self, channel: str, seconds: float, asked: set[str]) -> bool:
        """Return whether an answer to one of these requests comes in time.

        What else comes is the kernel's before a restart: the next one may not be subscribed to yet.
        """
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            try:
                message = getattr(self.client, f"get_{channel}_msg")(timeout=left)
            except Empty:
                return False
            if message["parent_header"].get("msg_id") in asked:
                return True
        return False

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, code: str, seconds: float = REPLY_SECONDS) -> Cell:
        """Run one cell to its end."""
        start = time.perf_counter()
        return self.finish(self.client.execute(code), start, seconds)

    def evaluate(self, expression: str) -> str:
        """Return the repr of an expression in the kernel."""
        request = self.client.execute("", user_expressions={"value": expression})
        reply = self.next("shell", request, time.perf_counter() + REPLY_SECONDS)
        content = reply["content"]
        found = content.get("user_expressions", {}).get("value", content)  # one that cannot start answers for the cell
        if found["status"] != "ok":
            raise BenchmarkError(f"{self.name}: {found['evalue']}")
        return str(found["data"]["text/plain"]).strip("'")

    def finish(self, request: str, start: float, seconds: float = REPLY_SECONDS) -> Cell:
        """Read all that belongs to a request, until its idle status and its reply."""
        end = start + seconds
        text = display = 0
        while True:
            message = self.next("iopub", request, end)
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    text += len(content["text"])
                case "display_data" | "execute_result":
                    data = content["data"]
                    display += len(data.get("text/plain", "")) + len(data.get("text/html", ""))
                case "status" if content["execution_state"] == "idle":
                    break
        reply = self.next("shell", request, end)
        return Cell(time.perf_counter() - start, reply["content"]["status"], text, display)

    def next(self, channel: str, request: str, end: float) -> Mapping[str, Any]:
        """Return the next message of a channel that answers the request, before the clock says `end`."""
        get = getattr(self.client, f"get_{channel}_msg")
        while True:
            left = end - time.perf_counter()
            try:
                message: Mapping[str, Any] = get(timeout=max(left, 0.001))
            except Empty:
                raise BenchmarkError(
                    f"{self.name}: nothing more on {channel}, and the request is not answered"
                ) from None
            if message["parent_header"].get("msg_id") == request:
                return message
            if left < 0:
                raise BenchmarkError(f"{self.name}: {channel} brings other messages only")
