"""An agent ends when its host has been silent for too long, and not while it speaks: each kind of agent."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.plugins import index

LEASE = 1.0
MAX_FRAME = 1 << 20
SECONDS = 30
AGENT = """
from sandbox_kernel.container import process
from {module} import {kind}

process.LEASE = {lease}
agent = {kind}({{"max_frame": {frame}, "port": 0}}, None)
wake_read = process.prepare_pipes(0, 1)
agent.begin(wake_read, process.read("/proc/self/status"), {{"threads": []}})
agent.run(wake_read, lambda: None)
"""
KINDS = {"as it is": ("sandbox_kernel.container.agent", "Agent")}
if index.is_here("streams"):
    of_streams = f"sandbox_kernel.plugins.{index.INSIDE['stream_relay']}.inside"
    KINDS["with connections"] = (f"{of_streams}.stream_relay", "StreamingAgent")


class Host:
    """The other end of an agent's two pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._decoder = wire.Decoder(MAX_FRAME)

    def hears_more(self) -> bool:
        """Wait for something that the agent says; return False at its end."""
        assert self.process.stdout is not None
        file = self.process.stdout.fileno()
        assert select.select([file], [], [], SECONDS)[0], "it neither speaks nor ends"
        data = os.read(file, 1 << 16)
        self._decoder.feed(data)
        return bool(data)

    def ping(self) -> None:
        assert self.process.stdin is not None
        request = json.dumps({"op": "ping", "id": 1}).encode()
        self.process.stdin.write(b"".join(wire.encode(wire.AGENT, [request])))
        self.process.stdin.flush()


@contextmanager
def agent_of(module: str, kind: str) -> Iterator[Host]:
    program = AGENT.format(module=module, kind=kind, lease=LEASE, frame=MAX_FRAME)
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Host(process)
        finally:
            process.kill()


@pytest.mark.slow
def test_each_agent_stays_while_its_host_speaks_and_ends_when_it_is_silent() -> None:
    with ExitStack() as stack:
        hosts = {name: stack.enter_context(agent_of(*kind)) for name, kind in KINDS.items()}
        for name, host in hosts.items():
            assert host.hears_more(), name
        until = time.monotonic() + 3 * LEASE
        while time.monotonic() < until:
            for name, host in hosts.items():
                host.ping()
                assert host.hears_more(), f"the agent {name} ended, although its host spoke"
                host.process.send_signal(signal.SIGCHLD)  # a turn of its loop, in which the host says nothing
        for name, host in hosts.items():
            while host.hears_more():
                pass
            assert host.process.wait(SECONDS) == 0, name
