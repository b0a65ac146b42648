"""A broker without a file descriptor for one more connection rests, and serves who waited."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from tests.plugins.broker.unit.test_listening import rests, without_files
from tests.support.kernels import WAIT, eventually


@pytest.fixture
def a_broker() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        path = f"{folder}/broker.sock"
        command = [sys.executable, "-m", "sandbox_kernel", "broker", "--socket", path, "--engine", "docker", "--pool=0"]
        few = (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        command = [*("prlimit", f"--nofile={few[0]}:{few[1]}"), *command]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                eventually(lambda: answers(path), WAIT, "the broker listens")
                yield process, path
            finally:
                process.terminate()


def answers(path: str) -> bool:
    async def asked() -> bool:
        return "version" in await BrokerEngine(f"broker://{path}").status()

    try:
        return asyncio.run(asked())
    except Exception:
        return False


@pytest.mark.slow
def test_a_broker_without_file_descriptors_rests_and_serves_who_waited(
    a_broker: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, path = a_broker
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(WAIT)
        with without_files(process.pid):
            peer.connect(path)
            assert rests(process.pid)
        peer.send(b'{"op": "status", "n": 1}')
        assert b"version" in peer.recv(1 << 16)


def test_a_broker_takes_as_many_file_descriptors_as_it_may(a_broker: tuple[subprocess.Popen[bytes], str]) -> None:
    soft, hard = resource.prlimit(a_broker[0].pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 1 << 16)
