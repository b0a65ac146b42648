"""What is measured, one small function each, with the bar that it should meet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jupyter_client.kernelspec import KernelSpecManager

from .kernels import FORKED, REPLY_SECONDS, SANDBOX, STOCK, TRUSTED, TWIN, BenchmarkError, Cell, Kernel
from .memory import COUNTED, container_bytes, session_bytes

LINES, LINE = 200_000, 100
"""The prints: so many lines of so many characters, 20 MB."""

DISPLAY = 50_000_000
FORK_SERVER_TRIES = 30
TRIVIAL_CELLS = 30
"""Cells in one repetition; its figure is their median."""

FRAME_START = """<div>
<style scoped>
    .dataframe tbody tr th:only-of-type {
        vertical-align: middle;
    }

    .dataframe tbody tr th {
        vertical-align: top;
    }

    .dataframe thead th {
        text-align: right;
    }
</style>
<table border="1" class="dataframe">
  <thead>
    <tr style="text-align: right;">
      <th></th>
      <th>name</th>
    </tr>
  </thead>
  <tbody>
"""
FRAME_ROW = "    <tr>\n      <th>100</th>\n" + "      <td>0.123456</td>\n" * 20 + "    </tr>\n"
FRAME_END = "  </tbody>\n</table>\n</div>"
"""Parts of a data frame as pandas writes it, for the cost of the output policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A target for the last contestant, against the one named: a ratio or a difference in the measure's unit."""

    kind: Literal["ratio at most", "ratio at least", "difference at most"]
    value: float
    against: str = STOCK

    def reached(self, subject: float, other: float) -> float:
        return subject - other if self.kind == "difference at most" else subject / other

    def met(self, subject: float, other: float) -> bool:
        reached = self.reached(subject, other)
        return reached >= self.value if self.kind == "ratio at least" else reached <= self.value

    def __str__(self) -> str:
        sign = {"ratio at most": "≤ {}x", "ratio at least": "≥ {}x", "difference at most": "≤ +{}"}[self.kind]
        return sign.format(f"{self.value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the table. `live` takes a running kernel of its own and `fresh` starts one; each gives one sample."""

    name: str
    what: str
    unit: str
    repetitions: int
    quick: int
    """Repetitions with --quick."""
    live: Callable[[Kernel], float] | None = None
    fresh: Callable[[str, KernelSpecManager], float] | None = None
    generations: int = 1
    """How often the live kernels are started again, for a measure small enough that a process's luck shows in it."""
    contestants: tuple[str, ...] = (STOCK, SANDBOX)
    """The last one is the subject."""
    bar: Bar | None = None
    counted: str = ""
    """What the figure is of, where its name does not say it."""


def checked(cell: Cell, **expected: object) -> Cell:
    """Return the cell, if it brought all it should."""
    for name, value in expected.items():
        if getattr(cell, name) != value:
            raise BenchmarkError(f"incomplete: {name} is {getattr(cell, name)!r}, should be {value!r}")
    return cell


def start(name: str, specs: KernelSpecManager, *, lingers: bool = True) -> float:
    """From the call that starts a kernel to the end of its first cell, in seconds."""
    begin = time.perf_counter()
    kernel = Kernel(name, specs, lingers=lingers)
    try:
        checked(kernel.run("1 + 1"), status="ok", display=1)
        return time.perf_counter() - begin
    finally:
        kernel.stop()


def start_at_once(name: str, specs: KernelSpecManager) -> float:
    return start(name, specs, lingers=False)


def start_forked(name: str, specs: KernelSpecManager, *, lingers: bool = True) -> float:
    """The same where the process that asks has a fork server, which comes some seconds after its first kernel."""
    for _ in range(0 if name == STOCK else FORK_SERVER_TRIES):
        kernel = Kernel(name, specs)
        forked = kernel.is_forked  # its provisioner forgets that with the process
        kernel.stop()
        if forked:
            break
        time.sleep(1)
    return start(name, specs, lingers=lingers)


def start_forked_at_once(name: str, specs: KernelSpecManager) -> float:
    return start_forked(name, specs, lingers=False)


def call(name: str, specs: KernelSpecManager) -> float:
    """From `Sandbox()` in a program that runs to its first result, beside a stock kernel's start, in seconds."""
    if name == STOCK:
        return start(name, specs)
    from sandbox_kernel import Sandbox

    begin = time.perf_counter()
    with Sandbox(engine="docker") as sandbox:
        if sandbox.run_code("1 + 1").text != "2":
            raise BenchmarkError("no result of 1 + 1")
        return time.perf_counter() - begin


def trivial(kernel: Kernel) -> float:
    return 1000 * statistics.median(checked(kernel.run("1 + 1"), display=1).seconds for _ in range(TRIVIAL_CELLS))


def completion(kernel: Kernel) -> float:
    checked(kernel.run("import os"), status="ok")
    samples = []
    for _ in range(5):
        begin = time.perf_counter()
        request = kernel.client.complete("os.path.joi", 11)
        reply = kernel.next("shell", request, begin + REPLY_SECONDS)
        samples.append(time.perf_counter() - begin)
        if not any("join" in match for match in reply["content"]["matches"]):
            raise BenchmarkError(f"{kernel.name}: a completion without its answer")
    return 1000 * statistics.median(samples)


def prints(kernel: Kernel) -> float:
    code = f"line = 'x' * {LINE - 1}\nfor _ in range({LINES}): print(line)"
    return LINES * LINE / 1e6 / checked(kernel.run(code), status="ok", text=LINES * LINE).seconds


def printing(kernel: Kernel) -> float:
    """The same prints, in seconds."""
    return LINES * LINE / 1e6 / prints(kernel)


def display(kernel: Kernel) -> float:
    code = f"from IPython.display import display\ndisplay({{'text/plain': 'x' * {DISPLAY}}}, raw=True)"
    return checked(kernel.run(code), status="ok", display=DISPLAY).seconds


def tables(kernel: Kernel) -> float:
    """One display of a data frame of 200 rows, in milliseconds."""
    frame = f"{FRAME_START!r} + {FRAME_ROW!r} * 200 + {FRAME_END!r}"
    code = f"from IPython.display import display, HTML\ndisplay(HTML({frame}))"
    samples = [kernel.run(code) for _ in range(5)]
    if not all(cell.status == "ok" and cell.display for cell in samples):
        raise BenchmarkError(f"{kernel.name}: a table was not shown")
    return 1000 * statistics.median(cell.seconds for cell in samples)


def interrupt(kernel: Kernel) -> float:
    """From the interrupt of a Python loop to the end of its cell, in seconds."""
    request = kernel.client.execute("print('running', flush=True)\nwhile True: pass")
    end = time.perf_counter() + REPLY_SECONDS
    while kernel.next("iopub", request, end)["msg_type"] != "stream":
        pass
    begin = time.perf_counter()
    kernel.manager.interrupt_kernel()
    return checked(kernel.finish(request, begin), status="error").seconds


def restart(kernel: Kernel, *, lingers: bool = True) -> float:
    """From the call that restarts a kernel to the end of its first cell, in seconds."""
    kernel.lingers = lingers
    begin = time.perf_counter()
    kernel.manager.restart_kernel()
    kernel.wait_until_ready()
    checked(kernel.run("1 + 1"), display=1)
    return time.perf_counter() - begin


def restart_at_once(kernel: Kernel) -> float:
    return restart(kernel, lingers=False)


def memory(kernel: Kernel) -> float:
    """All that an idle session holds, in MB (10⁶ bytes)."""
    checked(kernel.run("1 + 1"), display=1)
    return session_bytes(kernel) / 1e6


def cgroup(kernel: Kernel) -> float:
    """What the memory limit of an idle sandbox counts, in MB (10⁶ bytes)."""
    checked(kernel.run("1 + 1"), display=1)
    return container_bytes(kernel) / 1e6


MEASURES = (
    Measure(
        name="start",
        what="start to first result",
        unit="s",
        repetitions=10,
        quick=3,
        fresh=start,
        bar=Bar(kind="ratio at most", value=1.35),
    ),
    Measure(
        name="start-at-once",
        what="the same, asked at once",
        unit="s",
        repetitions=10,
        quick=3,
        fresh=start_at_once,
    ),
    Measure(
        name="start-forked",
        what="start by a fork server",
        unit="s",
        repetitions=10,
        quick=3,
        fresh=start_forked,
        contestants=(STOCK, FORKED),
        bar=Bar(kind="ratio at most", value=0.9),
    ),
    Measure(
        name="start-forked-at-once",
        what="the same, asked at once",
        unit="s",
        repetitions=10,
        quick=3,
        fresh=start_forked_at_once,
        contestants=(STOCK, FORKED),
    ),
    Measure(
        name="call",
        what="Sandbox() to first result, Docker",
        unit="s",
        repetitions=10,
        quick=3,
        fresh=call,
        bar=Bar(kind="ratio at most", value=0.65),
    ),
    Measure(
        name="trivial",
        what="cell 1 + 1",
        unit="ms",
        repetitions=12,
        quick=4,
        live=trivial,
        generations=4,
        contestants=(STOCK, TWIN, SANDBOX),
        bar=Bar(kind="ratio at most", value=1.15, against=TWIN),
    ),
    Measure(name="completion", what="completion", unit="ms", repetitions=8, quick=3, live=completion),
    Measure(
        name="prints",
        what="20 MB of prints",
        unit="MB/s",
        repetitions=5,
        quick=2,
        live=prints,
        bar=Bar(kind="ratio at least", value=0.8),
    ),
    Measure(
        name="display",
        what="one 50 MB display",
        unit="s",
        repetitions=11,
        quick=2,
        live=display,
        bar=Bar(kind="ratio at most", value=1.3),
    ),
    Measure(
        name="policy-cell",
        what="cell 1 + 1, policy on",
        unit="ms",
        repetitions=12,
        quick=4,
        live=trivial,
        generations=4,
        contestants=(TRUSTED, SANDBOX),
        bar=Bar(kind="ratio at most", value=1.1, against=TRUSTED),
    ),
    Measure(
        name="policy-prints",
        what="20 MB of prints, policy on",
        unit="s",
        repetitions=12,
        quick=4,
        live=printing,
        contestants=(TRUSTED, SANDBOX),
        bar=Bar(kind="ratio at most", value=1.1, against=TRUSTED),
    ),
    Measure(
        name="policy",
        what="data frame, policy on",
        unit="ms",
        repetitions=8,
        quick=3,
        live=tables,
        contestants=(TRUSTED, SANDBOX),
        bar=Bar(kind="ratio at most", value=1.5, against=TRUSTED),
    ),
    Measure(
        name="interrupt",
        what="interrupt of a loop",
        unit="s",
        repetitions=6,
        quick=2,
        live=interrupt,
        bar=Bar(kind="difference at most", value=0.3),
    ),
    Measure(name="restart", what="restart to first result", unit="s", repetitions=5, quick=2, live=restart),
    Measure(
        name="restart-at-once",
        what="the same, asked at once",
        unit="s",
        repetitions=5,
        quick=2,
        live=restart_at_once,
        bar=Bar(kind="ratio at most", value=1.0),
    ),
    Measure(
        name="memory",
        what="memory of an idle session",
        unit="MB",
        repetitions=3,
        quick=1,
        live=memory,
        counted=COUNTED,
        bar=Bar(kind="ratio at most", value=1.8),
    ),
    Measure(
        name="memory-forked",
        what="the same, by a fork server",
        unit="MB",
        repetitions=3,
        quick=1,
        live=memory,
        contestants=(STOCK, FORKED),
        bar=Bar(kind="ratio at most", value=1.25),
    ),
    Measure(
        name="cgroup",
        what="of it, counted by the limit",
        unit="MB",
        repetitions=3,
        quick=1,
        live=cgroup,
        contestants=(SANDBOX,),
    ),
)
