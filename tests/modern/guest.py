"""Runs in the machine: takes commands from the host over one virtio port, a line each, and tells how they go.

Standard library only, and nothing of ours. A line is JSON: {"run": [...], "seconds": 60} is answered by a line for each
line that the command prints and {"exit": 0} at its end, {"read": "/path"} by {"data": "..."} in base 64.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

PORT = "/dev/virtio-ports/host"
LINE_BYTES = 1 << 20


def orders(port: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield what the host asks for; while nobody is there, a read returns nothing."""
    left = b""
    while True:
        data = port.read(65536)
        if not data:
            time.sleep(0.1)
            continue
        *lines, left = (left + data).split(b"\n")
        yield from map(json.loads, lines)


def say(port: BinaryIO, **words: object) -> None:
    data = json.dumps(words).encode() + b"\n"
    while data:
        data = data[port.write(data) or 0 :]


def run(port: BinaryIO, command: list[str], seconds: float) -> None:
    """Run a command in a session of its own; one that takes longer is ended, with all that it started there."""
    until = time.monotonic() + seconds
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    file, left = process.stdout.fileno(), b""
    while time.monotonic() < until:
        if not select.select([file], [], [], 1)[0]:
            if process.poll() is not None:
                break  # something that it left behind has its output
            continue
        if not (data := os.read(file, 65536)):
            break
        *lines, left = (left + data).split(b"\n")
        for line in lines:
            say(port, line=line[:LINE_BYTES].decode(errors="replace"))
    if left:
        say(port, line=left[:LINE_BYTES].decode(errors="replace"))
    try:
        code: int | None = process.wait(max(0, until - time.monotonic()) + 1)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        code = None
    process.stdout.close()
    say(port, exit=code)


def main() -> None:
    with open(PORT, "r+b", buffering=0) as port:  # noqa: PTH123 (a device)
        with open("/proc/uptime", encoding="ascii") as file:  # noqa: PTH123
            say(port, up=float(file.read().split()[0]))
        for order in orders(port):
            try:
                if "run" in order:
                    run(port, order["run"], order["seconds"])
                else:
                    with open(order["read"], "rb") as wanted:  # noqa: PTH123
                        say(port, data=base64.b64encode(wanted.read()).decode())
            except OSError as error:
                say(port, exit=127, data="", error=str(error))


if __name__ == "__main__":
    main()
