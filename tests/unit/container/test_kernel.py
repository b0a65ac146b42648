"""However many interrupts meet a kernel, and when: it stays, and each of its cells is answered."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from sandbox_kernel.container import kernel_launcher
from sandbox_kernel.container.kernel import program, spawn
from sandbox_kernel.core.model import Limits
from sandbox_kernel.engines.shipping import agent_config
from tests.support.kernels import WAIT, eventually

IPYKERNEL = ["-m", "ipykernel_launcher"]
CELLS = [
    "1 + 1",
    "for _ in range(50): pass",
    "import asyncio\nawait asyncio.sleep(0)",
    "try: 1 / 0\nexcept ZeroDivisionError: pass",
]


def launcher(folder: Path) -> list[str]:
    file = folder / "kernel.py"
    file.write_text(program(agent_config(Limits()) | {"lines": []}, 1))
    return [str(file)]


@contextmanager
def kernel(words: list[str], folder: Path, *, ignored: bool = True) -> Iterator[tuple[BlockingKernelClient, int]]:
    """Start a kernel as the agent does: SIGINT is ignored until it says otherwise."""
    path, _ = write_connection_file(str(folder / "connection.json"), ip=str(folder / "k"), transport="ipc", key=b"k")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        process = subprocess.Popen([sys.executable, *words, "-f", path, "--HistoryManager.hist_file=:memory:"])
    finally:
        signal.signal(signal.SIGINT, before)
    client = BlockingKernelClient(connection_file=path)
    client.load_connection_file()
    client.start_channels(iopub=False, stdin=False, hb=False)
    try:
        client.kernel_info()
        client.get_shell_msg(timeout=WAIT)
        yield client, process.pid
    finally:
        client.stop_channels()
        process.kill()
        process.wait()


@contextmanager
def storm(pid: int, every: float = 0.0003) -> Iterator[None]:
    """Interrupt a process again and again."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(every):
            os.kill(pid, signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def answers(client: BlockingKernelClient, code: str, seconds: float = WAIT) -> dict[str, Any]:
    identity = client.execute(code, stop_on_error=False)
    while True:
        reply = client.get_shell_msg(timeout=seconds)
        if reply["parent_header"].get("msg_id") == identity:
            return dict(reply["content"])


def lost(client: BlockingKernelClient, pid: int, cells: int, seconds: float) -> int:
    """Return how many of so many cells in a storm were not answered, all from the first on if the kernel ended."""
    with storm(pid):
        for done in range(cells):
            try:
                answers(client, CELLS[done % len(CELLS)], seconds)
            except Exception:
                return cells - done
    return 0


@pytest.mark.slow
def test_a_storm_ends_no_kernel_and_takes_no_reply(tmp_path: Path) -> None:
    """No sibling is left: what is not the code of a user cannot be met, whatever ipykernel does there."""
    with kernel(launcher(tmp_path), tmp_path) as (client, pid):
        assert lost(client, pid, 80, WAIT) == 0
        assert answers(client, "x = 1 + 1")["status"] == "ok"


@pytest.mark.long
@pytest.mark.slow
def test_control_a_storm_is_too_much_for_ipykernel_alone(tmp_path: Path) -> None:
    with kernel(IPYKERNEL, tmp_path) as (client, pid):
        assert lost(client, pid, 3000, 5) > 0


def test_a_kernel_on_its_way_is_not_ended_by_an_interrupt() -> None:
    """The agent ignores SIGINT, and so does what it starts: ipykernel, until it handles a request."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pid = spawn([sys.executable, "-c", "import time; time.sleep(60)"], {}, 0, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        assert ignored is not None
        assert int(ignored[1], 16) & 1 << signal.SIGINT - 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ename"),
    [
        ("{said}\nwhile True: pass", "KeyboardInterrupt"),
        ("import time\n{said}\ntime.sleep(60)", "KeyboardInterrupt"),
        ("async def loop():\n    {said}\n    while True: pass\nawait loop()", "KeyboardInterrupt"),
        (
            "import signal\nsignal.signal(2, lambda *_: 1 / 0)\n{said}\nwhile True: pass",
            "ZeroDivisionError",
        ),
        (
            "def after(_):\n    get_ipython().events.unregister('post_run_cell', after)\n"
            "    {said}\n    while True: pass\n"
            "get_ipython().events.register('post_run_cell', after)",
            "",
        ),
    ],
    ids=["a loop", "a wait", "a coroutine", "with a handler of its own", "what comes after a cell"],
)
def test_code_of_a_user_is_interrupted(tmp_path: Path, code: str, ename: str) -> None:
    """And the traceback shows the user's own lines, not ours."""
    out = tmp_path / "out"
    with kernel(launcher(tmp_path), tmp_path) as (client, pid):
        identity = client.execute(stop_on_error=False, code=code.format(said=f"open({str(out)!r}, 'w').close()"))
        eventually(out.exists, WAIT, "the cell runs")
        os.kill(pid, signal.SIGINT)
        reply = client.get_shell_msg(timeout=WAIT)
        assert reply["parent_header"]["msg_id"] == identity
        assert reply["content"].get("ename", "") == ename
        assert "interrupts" not in "".join(reply["content"].get("traceback", []))
        assert answers(client, "1")["status"] == "ok"


def test_an_interrupt_before_the_code_of_a_cell_is_for_that_code(tmp_path: Path) -> None:
    """It comes while IPython makes the code ready, and is not lost."""
    prepare = (
        "import os, signal\n"
        "def transform(lines):\n"
        "    if any('wanted' in line for line in lines): os.kill(os.getpid(), signal.SIGINT)\n"
        "    return lines\n"
        "get_ipython().input_transformers_post.append(transform)"
    )
    with kernel(launcher(tmp_path), tmp_path) as (client, _):
        assert answers(client, prepare)["status"] == "ok"
        assert answers(client, "'wanted'\nwhile True: pass")["ename"] == "KeyboardInterrupt"
        assert answers(client, "1")["status"] == "ok"


@pytest.mark.parametrize("met", [0, 1, 2])
@pytest.mark.parametrize("ends", ["with a value", "with an error"])
def test_interrupts_on_the_way_out_of_a_cell_leave_none_of_its_handler(
    monkeypatch: pytest.MonkeyPatch, met: int, ends: str
) -> None:
    """Each is raised in the place of the change that would have put the kernel's own handler back."""
    handlers: list[Any] = [signal.SIG_IGN]
    due = [signal.default_int_handler] * met

    def change(number: int, handler: Any) -> Any:
        if handler is signal.SIG_IGN and due:
            due.pop()(number, None)
        handlers.append(handler)
        return handlers[-2]

    class Stand:
        SIGINT = signal.SIGINT
        default_int_handler = signal.default_int_handler
        signal = staticmethod(change)
        getsignal = staticmethod(lambda number: handlers[-1])

    def code() -> int:
        assert handlers[-1] is signal.default_int_handler
        return 1 if ends == "with a value" else 1 // 0

    monkeypatch.setattr(kernel_launcher, "signal", Stand)
    with suppress(KeyboardInterrupt, ZeroDivisionError):
        kernel_launcher.Interrupts().runs(code)
    assert not due
    assert handlers[-1] is signal.SIG_IGN
