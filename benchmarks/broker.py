"""`python -m benchmarks.broker`: sandboxes that are ready, beside a stock ipykernel and a cold start, in one run.

A broker of its own keeps one ready. Each sample waits until there is one; what a pool at rest costs is a line, too.
Then many at once, and many that do nothing (`crowd`). A row that fails says why, and the others come all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel import Sandbox, SandboxError
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine

from . import crowd
from .kernels import SANDBOX, STOCK, BenchmarkError, Kernel, write_forked, write_sandbox, write_stock
from .measures import start, start_at_once, start_forked

METRICS = "metrics.sock"
READY_SECONDS = 180.0
REST_SECONDS = 10.0
TRIES = 4
WARM, WARM_FORKED = "ready", "ready, forked"
TABLE = 500
"""Characters that the table below has at least, as text and as HTML."""
IMPORT = "import pandas; pandas.DataFrame({'a': [1, 2, 3]}).describe()"


class Ready:
    """Waits for sandboxes that were made ahead, and sees whether they were the ones that were claimed."""

    def __init__(self, address: str, metrics: str) -> None:
        self._engine = BrokerEngine(address)
        self._metrics = metrics
        self._others: set[str] = set()
        self.missed = 0

    def _containers(self) -> set[str]:
        return {row.container for row in asyncio.run(self._engine.list()) if row.state == "ready"}

    def rows(self) -> list[str]:
        """Return the containers of all sandboxes."""
        return [row.container for row in asyncio.run(self._engine.list())]

    def of_the_next_kind(self) -> None:
        """Note that those which wait now are of another kind than what is asked for from here on."""
        self._others = self._containers()

    def wait(self) -> None:
        """Return once one waits; a broker makes none while the machine is busy. Raises `BenchmarkError`."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self._containers() - self._others:
                return
            time.sleep(0.1)
        raise BenchmarkError("no sandbox got ready: the machine is busy, or the image is not there")

    def sample(self, measure: Callable[[], float]) -> float:
        """Return what `measure` gives for a sandbox that was ready; one that was not is no sample of it.

        Raises `BenchmarkError` if none of some is.
        """
        for _ in range(TRIES):
            self.wait()
            before = self._claimed()
            taken = measure()
            if self._claimed() == before + 1:
                return taken
            self.missed += 1
        raise BenchmarkError(f"of {TRIES} sandboxes that were ready none answered in time for its claim")

    def _claimed(self) -> int:
        """Return how many were ready when they were asked for, as the broker counts."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(self._metrics)
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
            page = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        return int(page.partition(b'claim_seconds_count{kind="warm"} ')[2].split(None, 1)[0])


def first_import(name: str, specs: KernelSpecManager, *, lingers: bool = True) -> float:
    """From the call that starts a kernel to the end of its first cell, which loads pandas, in seconds."""
    begin = time.perf_counter()
    kernel = Kernel(name, specs, lingers=lingers)
    try:
        cell = kernel.run(IMPORT)
        seconds = time.perf_counter() - begin
        if cell.status != "ok" or cell.display < TABLE:
            raise BenchmarkError(f"{name}: no table came of it, but {cell}")
        return seconds
    finally:
        kernel.stop()


def has_pandas(python: str) -> bool:
    return subprocess.run([python, "-c", "import pandas"], capture_output=True, check=False).returncode == 0


def sdk(settings: dict[str, str]) -> float:
    """From the call of `Sandbox` in a running program to its first result, in milliseconds."""
    begin = time.perf_counter()
    with Sandbox(**settings) as sandbox:
        assert sandbox.run_code("1 + 1").text == "2"
        return 1000 * (time.perf_counter() - begin)


def shown(what: str, unit: str, values: Sequence[float], than: Sequence[float] = ()) -> None:
    middle = statistics.median(values)
    ratio = f"  {middle / statistics.median(than):.2f} of the stock kernel's" if than else ""
    worst = sorted(values)[max(0, round(0.95 * len(values)) - 1)]
    print(f"{what:66} {middle:8.3f} {unit}  p95 {worst:.3f}, least {min(values):.3f}{ratio}", flush=True)


def at_rest(broker: psutil.Process, address: str) -> None:
    """Show what the pool costs while nobody asks: processor time and memory, of the broker and of what waits."""
    rows = asyncio.run(BrokerEngine(address).list())
    inside = [one for row in rows for one in processes_of(row.container)]
    groups = {"the broker": [broker, *broker.children(recursive=True)], "what waits": inside}
    before = {name: _seconds(processes) for name, processes in groups.items()}
    time.sleep(REST_SECONDS)
    for name, processes in groups.items():
        used = 100 * (_seconds(processes) - before[name]) / REST_SECONDS
        memory = sum(one.memory_full_info().pss for one in processes) / (1 << 20)
        what = f"a pool of {len(rows)} at rest, {name}"
        print(f"{what:66} {used:8.2f} % of a processor, {memory:.0f} MiB", flush=True)


def _seconds(processes: list[psutil.Process]) -> float:
    return float(sum(sum(one.cpu_times()[:2]) for one in processes))


def processes_of(container: str) -> list[psutil.Process]:
    """Return the processes of a container, as its control group's path names them."""
    found = []
    for process in psutil.process_iter():
        try:
            if container in Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8"):
                found.append(process)
        except OSError:
            continue
    return found


class Bench:
    """One broker, and what is asked of it."""

    def __init__(self, folder: Path, address: str, broker: int, options: argparse.Namespace) -> None:
        self.address, self.broker, self.options = address, broker, options
        self.ready = Ready(address, str(folder / METRICS))
        self.settings = {"image": options.image, "engine": address}
        self.specs = write_stock(folder, options.stock)
        write_sandbox(folder, SANDBOX, ["--image", options.image, "--engine", "docker"])
        write_sandbox(folder, WARM, ["--image", options.image, "--engine", address])
        write_forked(folder, WARM_FORKED, ["--image", options.image, "--engine", address])

    def kernels(self) -> None:
        """Starts of kernels: the stock one, a cold one and one that was ready, in turn."""
        table = "start to the first describe() of pandas"
        kinds: tuple[tuple[str, Callable[..., float]], ...] = (
            ("start to first result", start),
            ("start to first result, asked at once", start_at_once),
            (table, first_import),
            (f"{table}, asked at once", partial(first_import, lingers=False)),
        )
        pandas = has_pandas(self.options.stock)
        self.ready.of_the_next_kind()
        start(WARM, self.specs)  # what is asked for once is ready the next time
        start_forked(WARM_FORKED, self.specs)  # and by a fork server
        for what, measure in kinds:
            values: dict[str, list[float]] = {STOCK: [], SANDBOX: [], WARM: [], WARM_FORKED: []}
            if what.startswith(table) and not pandas:
                del values[STOCK]  # its Python has no pandas: the sandboxes stand alone
            for _ in range(self.options.repetitions):
                for one, taken in values.items():
                    call = partial(measure, one, self.specs)
                    taken.append(self.ready.sample(call) if one.startswith(WARM) else call())
            for one, taken in values.items():
                shown(f"{what}, {one}", "s", taken, () if one == STOCK else values.get(STOCK, ()))

    def calls(self) -> None:
        """`Sandbox()` in a running program; the first sandbox loads code, and is no sample."""
        self.ready.of_the_next_kind()
        sdk(self.settings)
        taken = [self.ready.sample(partial(sdk, self.settings)) for _ in range(2 * self.options.repetitions)]
        shown("Sandbox() to the first result, ready", "ms", taken)

    def pool(self) -> None:
        self.ready.of_the_next_kind()
        sdk(self.settings)
        self.ready.wait()
        time.sleep(REST_SECONDS)  # what was begun before is over
        at_rest(psutil.Process(self.broker), self.address)

    def at_once(self) -> None:
        settings = {**self.settings, "memory": "256M"}
        asyncio.run(crowd.at_once(self.broker, settings, self.options.sandboxes, self.options.cells))

    def idle(self) -> None:
        asyncio.run(crowd.idle({**self.settings, "memory": "256M"}, self.options.idle))


ROWS = ("kernels", "calls", "pool", "at_once", "idle")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__, allow_abbrev=False)
    parser.add_argument("--image", default="sandbox-kernel:data")
    parser.add_argument("--stock", metavar="PYTHON", default=sys.executable, help="runs the stock kernel; with pandas")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--sandboxes", type=int, default=50, help="at once")
    parser.add_argument("--cells", type=int, default=20, help="of each of these, two at least")
    parser.add_argument("--idle", type=int, default=100, help="that do nothing")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help=", ".join(ROWS))
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options, failed = parsed(arguments), 0
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder, path = Path(name), f"{name}/broker.sock"
        most = max(options.sandboxes, options.idle) + 10
        (folder / "broker.toml").write_text(
            f'[all]\nimages = ["{options.image}"]\nsessions = {most}\n', encoding="utf-8"
        )
        command = [sys.executable, "-m", "sandbox_kernel", "broker", "--socket", path, "--stay", "--engine", "docker"]
        command += ["--file", f"{name}/broker.toml", "--metrics", f"{name}/{METRICS}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr is not None
                assert b"listening" in process.stderr.readline()
                threading.Thread(target=process.stderr.read, daemon=True).start()  # else it waits for who reads it
                bench = Bench(folder, f"broker://{path}", process.pid, options)
                for row in options.only:
                    try:
                        getattr(bench, row)()
                        if bench.ready.missed:
                            print(f"  {bench.ready.missed} that were ready did not answer in time, and are no samples")
                            bench.ready.missed = 0
                    except (BenchmarkError, SandboxError, TimeoutError) as error:
                        failed += 1
                        print(f"{row}: FAILED: {error!r}"[:2000], flush=True)
            finally:
                process.terminate()
                process.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
