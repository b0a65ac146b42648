"""Real kernels for the tests: what they are, how to talk to them, and how to see that they are gone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from sandbox_kernel.cli import main
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.inspectable import Listed
from sandbox_kernel.engines.select import make_engine
from tests.support.patience import SLOWNESS, STEP, Patience

ENGINE = os.environ.get("SANDBOX_KERNEL_TEST_ENGINE", "docker")
LIMITS = os.environ.get("SANDBOX_KERNEL_TEST_LIMITS", "enforced")
"""Of kernels on an engine that is not Docker."""
WAIT = 60.0 * SLOWNESS
"""Seconds for what takes two on a quiet machine."""
said: deque[str] = deque(maxlen=20)
"""What the last cells that did not end well were, and how they ended: a test that fails shows it."""


class Result:
    """What one execute request brought back."""

    def __init__(self, reply: dict[str, Any], messages: list[dict[str, Any]], seconds: float) -> None:
        self.reply = reply["content"]
        self.header = reply["header"]
        self.messages = messages
        self.seconds = seconds

    def text(self, name: str = "stdout") -> str:
        streams = (m["content"] for m in self.messages if m["msg_type"] == "stream")
        return "".join(content["text"] for content in streams if content["name"] == name)

    @property
    def ename(self) -> str:
        return str(self.reply.get("ename", ""))

    @property
    def value(self) -> str:
        """The plain text of the last result or display."""
        shown = [m for m in self.messages if m["msg_type"] in {"execute_result", "display_data"}]
        return str(shown[-1]["content"]["data"]["text/plain"]) if shown else ""

    def end(self) -> str:
        """Return how it ended, and what it was, shortly."""
        [code, *_] = [m["content"]["code"] for m in self.messages if m["msg_type"] == "execute_input"] or [""]
        said = f"{self.reply.get('status')} {self.ename} {self.reply.get('evalue', '')} {self.text('stderr')}"
        return f"after {self.seconds:.2f} s: {code[:300]!r}: {said[:2000]}"

    def __repr__(self) -> str:
        return f"<{self.reply.get('status')} {self.ename} {self.reply.get('evalue', '')} {self.messages}>"


class Kernel:
    """A kernel process and one client."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = connect(manager)

    @property
    def pid(self) -> int:
        assert self.manager.provisioner is not None
        return int(self.manager.provisioner.pid)  # type: ignore[attr-defined]

    def restart(self, *, now: bool = False) -> None:
        """Restart it as its manager does; what has its messages is a new client."""
        self.client.stop_channels()
        self.manager.restart_kernel(now=now)
        self.client = connect(self.manager)

    def run(
        self, code: str, timeout: float = WAIT, client: BlockingKernelClient | None = None, **kwargs: Any
    ) -> Result:
        """Run a cell and wait for its reply and its idle."""
        client = client or self.client
        begin = time.monotonic()
        message_id = client.execute(code, **kwargs)
        return self.collect(message_id, begin, timeout, client)

    def collect(
        self, message_id: str, begin: float, timeout: float = WAIT, client: BlockingKernelClient | None = None
    ) -> Result:
        client = client or self.client
        messages = []
        while True:
            message = client.get_iopub_msg(timeout=max(0.1, begin + timeout - time.monotonic()))
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            messages.append(message)
        while True:
            reply = client.get_shell_msg(timeout=max(0.1, begin + timeout - time.monotonic()))
            if reply["parent_header"].get("msg_id") == message_id:
                result = Result(reply, messages, time.monotonic() - begin)
                if result.reply.get("status") != "ok":
                    said.append(result.end())
                return result

    def start(self, code: str, until: str = "execute_input", **kwargs: Any) -> tuple[str, float]:
        """Send a cell and return once the kernel runs it, or once the cell has sent a message of another type."""
        begin = time.monotonic()
        message_id = self.client.execute(code, **kwargs)
        while True:
            message = self.client.get_iopub_msg(timeout=WAIT)
            if message["parent_header"].get("msg_id") == message_id and message["msg_type"] == until:
                return message_id, begin

    def containers(self) -> list[Listed]:
        """Return what is this kernel's process's."""
        own = {one.pid for one in psutil.process_iter() if self.manager.connection_file in arguments_of(one)}
        return [row for row in all_containers() if row.owner_pid in own]

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=not self.manager.is_alive())


LOOK = """
import os, sys
print(sys.path, sys.meta_path, os.getcwd(), os.getuid(), sys.path_importer_cache)
for folder in sys.path:
    try:
        found = os.listdir(folder)
        print(folder, len(found), [os.path.exists(f"{folder}/{name}/__init__.py") for name in ("numpy", "pandas")],
              os.stat(folder), sorted(found)[:400])
    except OSError as error:
        print(repr(error))
"""
"""What an import that finds nothing looked at: shown beside a test that fails."""


def looked_at(kernel: Kernel, image: str) -> str:
    """Return what an import looks at in a kernel, and which images its name and its container stand for."""
    things = [("image", image, "{{.Id}}"), *(("container", row.container, "{{json .}}") for row in kernel.containers())]
    shown = [
        subprocess.run(
            ["docker", kind, "inspect", "--format", form, name], check=False, capture_output=True, text=True
        ).stdout
        for kind, name, form in things
    ]
    return "\n".join([kernel.run(LOOK).text(), repr(kernel.containers()), *shown])


def here_too(kernel: Kernel, code: str, image: str, runtime: str = "runc") -> Result:
    """Run a cell; skip the test if it does not end well, and its code fails without a session, too.

    Libraries that compute choose their code by the processor, and a virtual one may not have all that it promises.
    """
    result = kernel.run(code)
    if result.reply["status"] != "ok":
        why = looked_at(kernel, image) if result.ename == "ModuleNotFoundError" else ""
        command = ["docker", "run", "--rm", "--network", "none", "--runtime", runtime, "--workdir", "/tmp", image]
        bare = subprocess.run(
            [*command, "python3", "-c", code], check=False, capture_output=True, text=True, timeout=300
        )
        if bare.returncode:
            pytest.skip(f"fails in a plain container of this machine, too: exit code {bare.returncode}, {bare.stderr}")
        pytest.fail(f"{result.end()}\n{why}")
    return result


def control(client: BlockingKernelClient, kind: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send a request on control and return the content of its reply."""
    message = client.session.msg(kind, content or {})
    client.control_channel.send(message)
    while True:
        reply = client.get_control_msg(timeout=WAIT)
        if reply["parent_header"]["msg_id"] == message["header"]["msg_id"]:
            return dict(reply["content"])


def connect(manager: KernelManager) -> BlockingKernelClient:
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=WAIT)
    return client


def connect_another(manager: KernelManager) -> BlockingKernelClient:
    """Return a client with an identity of its own; those that a manager makes share the manager's."""
    client = BlockingKernelClient()
    client.load_connection_file(manager.connection_file)
    client.start_channels()
    client.wait_for_ready(timeout=WAIT)
    return client


def replied(client: BlockingKernelClient, message_id: str, seconds: float) -> bool:
    """Return whether a request is replied to within a time."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            if client.get_shell_msg(timeout=left)["parent_header"].get("msg_id") == message_id:
                return True
        except Empty:
            break
    return False


def all_containers() -> tuple[Listed, ...]:
    return tuple(asyncio.run(make_engine(Settings(engine=ENGINE)).list()))


def containers_of(pid: int) -> list[Listed]:
    return [row for row in all_containers() if row.owner_pid == pid]


def arguments_of(process: psutil.Process) -> list[str]:
    """Return the arguments of a process; one that has ended has none, whether it was waited for or not."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def eventually(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until `condition` holds; return how long it took. Fails when it does not in time.

    A second counts for as much as the machine has to give in it, both in the bound and in what is returned.
    """
    patience = Patience()
    while not condition():
        assert patience.count() < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(STEP)  # the step of a bounded wait, not a wait itself
    return patience.count()


def install(folder: Path, *settings: str, name: str = "sandbox-python") -> KernelSpecManager:
    """Install a kernelspec below `folder` as the command line does, and return a manager that finds only that."""
    assert main(["install", "--prefix", str(folder), "--name", name, "--force", *settings]) == 0
    return KernelSpecManager(kernel_dirs=[str(folder / "share/jupyter/kernels")])


def close_all(kernels: Sequence[Kernel]) -> None:
    """End kernels, and see that none of them leaves a container."""
    pids = [kernel.pid for kernel in kernels if kernel.manager.has_kernel]
    for kernel in kernels:
        kernel.close()
    for pid in pids:
        eventually(lambda pid=pid: not containers_of(pid), 10, "its container is gone")  # type: ignore[misc]
