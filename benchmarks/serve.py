"""`python -m benchmarks.serve`: sandboxes over HTTP from a pool, beside a stock ipykernel, in one run.

A broker of its own keeps one ready, and a server has its sandboxes there. Samples are taken in turn. Then many creates
at once, and the memory of sandboxes that do nothing, with what the server and the broker need for each. `--only soak`
goes on for an hour or more: 10,000 sandboxes and 200,000 cells, and what is held after each tenth of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from .broker import METRICS, Ready, processes_of, shown
from .kernels import STOCK, BenchmarkError, write_stock
from .many import percentile
from .measures import start_at_once

TOKEN = "e2b_" + "0" * 40
SECONDS = 300
CLIENTS, PARTS = 4, 10
"""Of a soak: how many ask at a time, and how often it is looked what is held."""


class Wire:
    """E2B's wire as its clients speak it, on one connection that is kept."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)

    def reconnect(self) -> None:
        """Have the next request connect again: the server ends connections that are idle for seconds."""
        self._http.close()

    def create(self, **asked: Any) -> dict[str, Any]:
        self.reconnect()
        found: dict[str, Any] = json.loads(self._asked("POST", "/sandboxes", {"templateID": "base", **asked}, {}))
        return found

    def first_result(self, said: dict[str, Any]) -> None:
        headers = {
            "E2b-Sandbox-Id": said["sandboxID"],
            "E2b-Sandbox-Port": "49999",
            "E2B-Traffic-Access-Token": said["trafficAccessToken"],
        }
        lines = self._asked("POST", "/execute", {"code": "1 + 1"}, headers).splitlines()
        if [one["text"] for one in map(json.loads, lines) if one["type"] == "result"] != ["2"]:
            raise BenchmarkError(f"a sandbox answered {lines!r}")

    def end(self, said: dict[str, Any]) -> None:
        self.reconnect()
        self._asked("DELETE", f"/sandboxes/{said['sandboxID']}", None, {})

    def _asked(self, method: str, path: str, body: Any, headers: dict[str, str]) -> bytes:
        content = None if body is None else json.dumps(body)
        head = {"X-API-Key": TOKEN, "Content-Type": "application/json", **headers}
        self._http.request(method, path, content, head)
        answer = self._http.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise BenchmarkError(f"{method} {path}: {answer.status} {said[:500]!r}")
        return said


class Bench:
    """One server, and what is asked of it."""

    def __init__(self, folder: Path, port: int, processes: dict[str, int], options: argparse.Namespace) -> None:
        self.port, self.options = port, options
        self.processes = {name: psutil.Process(pid) for name, pid in processes.items()}
        self.address = f"broker://{folder}/broker.sock"
        self.ready = Ready(self.address, str(folder / METRICS))
        self.specs = write_stock(folder, options.stock)

    def first(self) -> None:
        """From the request for a sandbox to the first result of a cell."""
        wire = Wire(self.port)
        wire.end(wire.create())  # what is asked for once is ready the next time
        for what, asked in (("", {}), (", with metadata", {"metadata": {"b": "b"}})):
            stock: list[float] = []
            parts: dict[str, list[float]] = {"create": [], "first run_code": [], "both": []}

            def sample(asked: dict[str, Any] = asked, parts: dict[str, list[float]] = parts) -> float:
                begin = time.perf_counter()
                said = wire.create(**asked)
                made = time.perf_counter()
                wire.first_result(said)
                end = time.perf_counter()
                wire.end(said)
                for name, taken in zip(parts, (made - begin, end - made, end - begin), strict=True):
                    parts[name].append(1000 * taken)
                return end - begin

            for _ in range(self.options.repetitions):
                stock.append(1000 * start_at_once(STOCK, self.specs))
                self.ready.sample(sample)
            shown("stock kernel, start to the first result", "ms", stock)
            for name, values in parts.items():
                shown(f"ready{what}: {name}", "ms", values, stock)

    def at_once(self) -> None:
        """Many creates in the same moment, each from a client of its own, and then a cell in each."""
        count = self.options.sandboxes
        wires = [Wire(self.port) for _ in range(count)]
        before = {name: one.memory_full_info().pss for name, one in self.processes.items()}

        def timed(work: Any) -> tuple[float, Any]:
            begin = time.perf_counter()
            found = work()
            return time.perf_counter() - begin, found

        with ThreadPoolExecutor(count) as pool:
            begin = time.perf_counter()
            made = list(pool.map(lambda wire: timed(wire.create), wires))
            took = time.perf_counter() - begin
            for wire in wires:
                wire.reconnect()
            there = [(wire, said) for wire, (_, said) in zip(wires, made, strict=True)]
            try:
                cells = list(pool.map(lambda one: timed(lambda: one[0].first_result(one[1])), there))
                _quantiles(f"{count} at once: create", [seconds for seconds, _ in made])
                _quantiles(f"{count} at once: run_code", [seconds for seconds, _ in cells])
                print(f"  all were made in {took:.1f} s", flush=True)
                time.sleep(5)
                self._memory(before)
            finally:
                list(pool.map(lambda one: one[0].end(one[1]), there))

    def soak(self) -> None:
        """The same for a long time: what the server and the broker hold, and how long a request takes, in ten parts."""
        self._in_parts("create, run and end", self.options.cycles, lambda wire, _: self._cycle(wire))
        wires = [Wire(self.port) for _ in range(CLIENTS)]
        made = [wire.create() for wire in wires]
        try:
            self._in_parts("a cell", self.options.cells, lambda wire, number: wire.first_result(made[number]))
        finally:
            for wire, said in zip(wires, made, strict=True):
                wire.end(said)

    def _cycle(self, wire: Wire) -> None:
        said = wire.create()
        wire.first_result(said)
        wire.end(said)

    def _in_parts(self, what: str, count: int, work: Callable[[Wire, int], None]) -> None:
        """Do something so often, by a few clients, and show what a tenth of it took and left."""
        each = max(1, count // PARTS // CLIENTS)

        def client(number: int) -> list[float]:
            wire, taken = Wire(self.port), []
            for _ in range(each):
                begin = time.perf_counter()
                work(wire, number)
                taken.append(1000 * (time.perf_counter() - begin))
            wire.reconnect()
            return taken

        with ThreadPoolExecutor(CLIENTS) as pool:
            for part in range(1, PARTS + 1):
                taken = [value for values in pool.map(client, range(CLIENTS)) for value in values]
                held = ", ".join(f"{name}: {_held(one)}" for name, one in self.processes.items())
                files = sum(1 for _ in Path(tempfile.gettempdir()).iterdir())
                times = f"{statistics.median(taken):6.1f} ms, p99 {percentile(taken, 0.99):.1f}"
                print(f"{f'{what}, {part * each * CLIENTS}':32} {times}; {held}; {files} temporary files", flush=True)

    def _memory(self, before: dict[str, int]) -> None:
        """Show what an idle sandbox takes, in it and outside of it."""
        count = self.options.sandboxes
        inside = [one for row in self.ready.rows() for one in processes_of(row)]
        found = {"in it": sum(one.memory_full_info().pss for one in inside) / max(1, len(self.ready.rows()))}
        for name, one in self.processes.items():
            found[name] = (one.memory_full_info().pss - before[name]) / count
        rows = ", ".join(f"{name} {each / (1 << 20):.2f} MiB" for name, each in found.items())
        print(f"{f'memory of each of {count} that are idle':66} {rows}", flush=True)


def _held(process: psutil.Process) -> str:
    memory = process.memory_full_info().pss / (1 << 20)
    return f"{memory:.1f} MiB, {process.num_fds()} descriptors, {process.num_threads()} threads"


def _quantiles(what: str, values: Sequence[float]) -> None:
    middle, last = statistics.median(values), percentile(values, 0.99)
    print(f"{what:66} {middle:8.3f} s  p99 {last:.3f}, least {min(values):.3f}", flush=True)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__, allow_abbrev=False)
    parser.add_argument("--image", default="sandbox-kernel:data")
    parser.add_argument("--stock", metavar="PYTHON", default=sys.executable, help="runs the stock kernel")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--sandboxes", type=int, default=100, help="at once")
    parser.add_argument("--cycles", type=int, default=10_000, help="of a soak: sandboxes, one after another")
    parser.add_argument("--cells", type=int, default=200_000, help="of a soak")
    rows = ("first", "at_once")
    parser.add_argument("--only", nargs="+", choices=(*rows, "soak"), default=rows, metavar="ROW")
    return parser.parse_args(arguments)


def begun(command: list[str], said: str) -> tuple[subprocess.Popen[str], str]:
    """Start a daemon; return it with the line that says that it listens."""
    process = subprocess.Popen([sys.executable, "-m", "sandbox_kernel", *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if said in line)
    threading.Thread(target=process.stderr.read, daemon=True).start()  # else it waits for who reads it
    return process, line


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    most = options.sandboxes + 10
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name)
        (folder / "broker.toml").write_text(f"[all]\nsessions = {most}\ndetached = {most}\n", encoding="utf-8")
        (folder / "tokens").touch(0o600)
        (folder / "tokens").write_text(f"me {TOKEN}\n", encoding="utf-8")
        path, small = f"{name}/broker.sock", ["--memory", "256M", "--image", options.image]
        own = ["--socket", path, "--file", f"{name}/broker.toml", "--metrics", f"{name}/{METRICS}"]
        broker, _ = begun(["broker", "--stay", "--engine", "docker", *own], "listening")
        try:
            limits = ["--sandboxes", str(most), "--sandboxes-per-tenant", str(most)]
            where = ["--port", "0", "--token-file", f"{name}/tokens", "--engine", f"broker://{path}"]
            server, url = begun(["serve", *where, *limits, *small], "http")
            try:
                processes = {"the server": server.pid, "the broker": broker.pid}
                bench = Bench(folder, int(url.strip().rpartition(":")[2]), processes, options)
                for row in options.only:
                    getattr(bench, row)()
            finally:
                server.terminate()
                server.wait()
        finally:
            broker.terminate()
            broker.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
