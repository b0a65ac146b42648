"""How the kernel inside is started, without a sandbox: what it publishes waits for who reads slowly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session

from sandbox_kernel.container.kernel import program
from sandbox_kernel.core.model import Limits
from sandbox_kernel.engines.shipping import agent_config

MANY = 6000
"""Messages of a kilobyte: more than the system's buffers hold, and many times what ZeroMQ keeps by itself."""
CELL = f"""
from IPython.display import publish_display_data as show
for n in range({MANY}): show({{"text/plain": "x" * 1000}})
"""


def shown(folder: Path, config: dict[str, Any]) -> int:
    """Return how many of a cell's displays reach a client that reads none before its reply has come."""
    (folder / "kernel.py").write_text(program(config, 1))
    connection = {"transport": "ipc", "ip": str(folder / "s"), "key": "", "signature_scheme": "hmac-sha256"}
    ports = {f"{name}_port": number for number, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
    (folder / "c.json").write_text(json.dumps(connection | ports))
    words = [word.replace("{connection_file}", str(folder / "c.json")) for word in config["kernel"]]
    command = [sys.executable, str(folder / "kernel.py"), *words]
    session, context = Session(key=b""), zmq.Context()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        published, asked = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        for socket, port in ((published, 2), (asked, 1)):
            socket.linger, socket.rcvtimeo, socket.rcvhwm = 0, 120_000, 1
            socket.connect(f"ipc://{folder / 's'}-{port}")
        published.subscribe(b"")
        published.recv_multipart()  # it is there, and hears of the subscription
        session.send(asked, "execute_request", {"code": CELL, "silent": False})
        asked.recv_multipart()
        count, idle = 0, False
        published.rcvtimeo = 5_000  # seconds after which nothing more comes: idle may be among what was dropped
        while not idle:
            try:
                message = session.deserialize(session.feed_identities(published.recv_multipart())[1])
            except zmq.Again:
                break
            count += message["msg_type"] == "display_data"
            idle = message["content"].get("execution_state") == "idle" and count > 0
        return count
    finally:
        process.kill()
        process.wait()
        context.destroy(linger=0)


def test_no_message_is_dropped_where_nobody_reads_meanwhile(tmp_path: Path) -> None:
    assert shown(tmp_path, agent_config(Limits())) == MANY


@pytest.mark.long
def test_control_a_kernel_as_it_is_drops_what_is_over_a_thousand(tmp_path: Path) -> None:
    assert shown(tmp_path, agent_config(Limits()) | {"lines": []}) < MANY
