"""`python -m benchmarks.kubernetes`: start to first result, cold and warm, as pods and as containers, in one run.

Each contestant has several processes, which are asked in turn; the first answer of each loads code and is no sample.
Warm is a container that a broker has ready, and with `--pool` a pod that waits in a warm pool of agent-sandbox: its
name's first part, as `sandbox-kernel warm-pool` with the same image, processors and memory makes it. KUBECONFIG names
the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from sandbox_kernel.plugins.broker.client.engine import BrokerEngine

PROGRAM = """
import json, sys, time
from sandbox_kernel import Sandbox
settings = json.loads(sys.argv[1])
for _ in sys.stdin:
    begin = time.perf_counter()
    with Sandbox(**settings) as sandbox:
        assert sandbox.run_code("1 + 1").text == "2"
        print(time.perf_counter() - begin, flush=True)
"""
READY_SECONDS = 120.0
AGAINST = "docker, cold"


class Contestant:
    """Processes that start sandboxes with the same settings."""

    def __init__(self, stack: ExitStack, settings: Mapping[str, str], processes: int, pause: float = 0.0) -> None:
        self.broker = settings["engine"] if settings["engine"].startswith("broker://") else None
        self.pause = pause
        """Seconds that a pool which cannot be asked gets for the next one."""
        command = [sys.executable, "-c", PROGRAM, json.dumps(settings)]
        self._processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(processes)
        ]
        self.seconds: list[float] = []

    def turn(self, *, counts: bool) -> None:
        for process in self._processes:
            if self.broker is not None and counts:
                self._wait(self.broker)
            time.sleep(self.pause)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("start\n")
            process.stdin.flush()
            said = process.stdout.readline()
            if counts:
                self.seconds.append(float(said))

    def end(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()

    def _wait(self, address: str) -> None:
        until = time.monotonic() + READY_SECONDS
        while not any(row.state == "ready" for row in asyncio.run(BrokerEngine(address).list())):
            if time.monotonic() > until:
                raise SystemExit("no sandbox got ready")
            time.sleep(0.1)


def a_broker(stack: ExitStack, folder: Path) -> str:
    path = folder / "broker.sock"
    command = [sys.executable, "-m", "sandbox_kernel", "broker", f"--socket={path}", "--stay", "--engine=docker"]
    process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE))
    stack.callback(process.terminate)
    assert process.stderr is not None
    assert b"listening" in process.stderr.readline()
    return f"broker://{path}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kubernetes", description=__doc__, allow_abbrev=False)
    parser.add_argument("--image", default="sandbox-kernel:base")
    parser.add_argument("--namespace", default="sandboxes")
    parser.add_argument("--pool", help="the first part of the name of warm pools")
    parser.add_argument("--cpus", default="0.5")
    parser.add_argument("--memory", default="512m")
    parser.add_argument("--processes", type=int, default=3, help="of each contestant")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    common = {"image": options.image, "cpus": options.cpus, "memory": options.memory}
    pods = {**common, "engine": "kubernetes", "kubernetes_namespace": options.namespace}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        broker = a_broker(stack, Path(name))
        contestants = {
            AGAINST: Contestant(stack, {**common, "engine": "docker"}, options.processes),
            "docker, a broker's": Contestant(stack, {**common, "engine": broker}, options.processes),
            "pods, cold": Contestant(stack, pods, options.processes),
        }
        if options.pool:
            claimed = {**pods, "kubernetes_warm_pool": options.pool}
            contestants["pods, claimed"] = Contestant(stack, claimed, options.processes, pause=6.0)
        for number in range(options.rounds + 1):
            for one in contestants.values():
                one.turn(counts=number > 0)
        for one in contestants.values():
            one.end()
        against = statistics.median(contestants[AGAINST].seconds)
        for title, one in contestants.items():
            middle = statistics.median(one.seconds)
            print(
                f"start to first result, {title:20} {middle:7.3f} s  least {min(one.seconds):.3f}, "
                f"most {max(one.seconds):.3f}, of {len(one.seconds)}  {middle / against:.2f} of {AGAINST}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
