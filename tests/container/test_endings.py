"""Every way for a cell to end from outside: it ends with reply and idle, under its own name, and the next works."""

from __future__ import annotations

import ast
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.cases import some
from tests.support.kernels import WAIT, Kernel, close_all, eventually
from tests.support.patience import Stopwatch

Start = Callable[..., Kernel]

IGNORES_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
NATIVE = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'x', b'y', 2**31 - 1)"
SWALLOWS = "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass"


def test_timeout_keeps_variables(start_kernel: Start) -> None:
    """A Python loop over its time ends within 5 s for a limit of 3 s, and its variables are still there."""
    kernel = start_kernel("--cell-timeout", "3")
    kernel.run("kept = 42")
    with Stopwatch() as watch:
        result = kernel.run("while True: pass")
    assert result.ename == "CellTimeout"
    assert watch.seconds < 5
    assert "3 s" in result.reply["evalue"]
    assert "cell_timeout" in result.reply["evalue"]
    errors = [m for m in result.messages if m["msg_type"] == "error"]
    assert [m["content"]["ename"] for m in errors] == ["CellTimeout"]
    assert kernel.run("kept").value == "42"


@pytest.fixture(scope="module")
def impatient(launch_kernel: Start) -> Iterator[Kernel]:
    """A sandbox with little time for a cell, shared by those whose kernel is replaced."""
    kernel = launch_kernel("--cell-timeout", "2")
    yield kernel
    close_all([kernel])


@pytest.mark.parametrize(
    "code", some([IGNORES_INTERRUPT, NATIVE, SWALLOWS], of=3), ids=["ignored", "native", "swallowed"]
)
def test_timeout_of_a_cell_that_ignores_the_interrupt_keeps_files(impatient: Kernel, code: str) -> None:
    """The kernel is replaced within 10 s; files survive, variables do not, and later cells work."""
    word = secrets.token_hex(4)
    impatient.run(f"kept = 42; open('kept.txt', 'w').write({word!r})")
    with Stopwatch() as watch:
        result = impatient.run(code)
    assert result.ename == "CellTimeout"
    assert watch.seconds < 10
    assert "files" in result.reply["evalue"]
    assert impatient.run("print(open('kept.txt').read())").text() == f"{word}\n"
    assert impatient.run("kept").ename == "NameError"
    assert impatient.run("1 + 1").value == "2"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("print('runs', flush=True)\nwhile True: pass", "KeyboardInterrupt"),
        ("import time; print('runs', flush=True); time.sleep(60)", "KeyboardInterrupt"),
        ("import subprocess; subprocess.run('echo runs; sleep 60', shell=True)", "KeyboardInterrupt"),
        ("import asyncio; print('runs', flush=True)\nawait asyncio.Event().wait()", "CancelledError"),
    ],
    ids=["loop", "sleep", "subprocess", "await"],
)
def test_interrupt(kernel: Kernel, code: str, name: str) -> None:
    """An interrupt ends what waits and what works within 0.5 s.

    So does it what awaits: with Python's handler alone, the loop waits on, as it does in a kernel without a sandbox.
    """
    message_id, begin = kernel.start(code, until="stream")
    with Stopwatch() as watch:
        kernel.manager.interrupt_kernel()
        result = kernel.collect(message_id, begin)
    assert result.ename == name
    assert watch.seconds < 0.5
    assert kernel.run("1 + 1").value == "2"


def test_an_interrupt_between_cells_reaches_nothing(kernel: Kernel) -> None:
    """What a cell left running goes on; while a cell runs, it is interrupted with it."""
    kernel.run("import subprocess; left = subprocess.Popen(['sleep', '60'])")
    kernel.client.control_channel.send(kernel.client.session.msg("interrupt_request", {}))
    assert kernel.client.get_control_msg(timeout=WAIT)["msg_type"] == "interrupt_reply"  # before the next cell begins
    assert kernel.run("left.poll()").value == ""
    message_id, begin = kernel.start("print('runs', flush=True)\nwhile True: pass", until="stream")
    kernel.manager.interrupt_kernel()
    assert kernel.collect(message_id, begin).ename == "KeyboardInterrupt"
    assert kernel.run("left.wait()").value == "-2"


def test_out_of_memory_is_named(start_kernel: Start) -> None:
    kernel = start_kernel("--memory", "300M", "--scratch-size", "50M", "--tmp-size", "16M", "--shm-size", "16M")
    result = kernel.run("hog = []\nwhile True: hog.append(bytearray(10_000_000))")
    assert result.ename == "OutOfMemory"
    assert "300.0 MiB" in result.reply["evalue"]
    assert kernel.run("1 + 1").value == "2"


@pytest.mark.parametrize(
    ("code", "sign"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
    ids=["exit", "kill", "segfault"],
)
def test_kernel_died(kernel: Kernel, code: str, sign: str) -> None:
    """The kernel's own end is named with its reason; files are kept, and a new kernel takes the next cell."""
    kernel.run("open('kept.txt', 'w').write('yes')")
    result = kernel.run(code)
    assert result.ename == "KernelDied"
    assert sign in result.reply["evalue"]
    assert kernel.run("print(open('kept.txt').read())").text() == "yes\n"


def test_kernel_death_between_cells_is_said_in_the_next(kernel: Kernel) -> None:
    """The host knows of it when another kernel starts, which it asks for."""
    first = ast.literal_eval(kernel.run("import sys; sys.argv[sys.argv.index('-f') + 1]").value)

    def of_users() -> Iterator[tuple[str, int]]:
        for process in psutil.process_iter(["cmdline", "uids"]):
            for word in process.info["cmdline"] or ():
                if word.endswith("/connection.json"):
                    yield word, process.info["uids"].real

    ((_, user),) = (found for found in of_users() if found[0] == first)
    assert kernel.run("import threading, os\nthreading.Timer(3, os._exit, [5]).start()").reply["status"] == "ok"
    eventually(lambda: [name for name, of in of_users() if of == user and name != first], 20, "another kernel starts")
    result = kernel.run("1 + 1")
    assert result.value == "2"
    assert "exit code 5" in result.text("stderr")


def test_fork_bomb_is_an_ordinary_error(start_kernel: Start) -> None:
    kernel = start_kernel("--pids", "64")
    code = """
import os
children = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            import time; time.sleep(30); os._exit(0)
        children.append(pid)
finally:
    for pid in children: os.kill(pid, 9); os.waitpid(pid, 0)
"""
    result = kernel.run(code)
    assert result.ename == "BlockingIOError"
    assert "Limit: 64. Setting to change: pids." in result.text("stderr")
    assert kernel.run("1 + 1").value == "2"


def test_full_scratch_is_an_ordinary_error(start_kernel: Start) -> None:
    kernel = start_kernel("--scratch-size", "20M")
    result = kernel.run("with open('big', 'wb') as file:\n    while True: file.write(bytes(1 << 20))")
    assert result.ename == "OSError"
    assert "No space left" in result.reply["evalue"]
    assert "a folder of the sandbox is full. Limits: 20.0 MiB in /mnt/data (scratch_size)" in result.text("stderr")
    assert kernel.run("import os; os.remove('big'); open('small', 'w').write('x')").value == "1"


IN_PARALLEL = """
import numpy as np
from joblib import Parallel, delayed
table = np.ones((80, 131072))
print(Parallel(n_jobs=2)(delayed(np.sum)(table) for _ in range(2)))
"""
SHARED = """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=100 << 20)
block.buf[:] = bytes([1]) * (100 << 20)
print(sum(block.buf[::1 << 20]))
block.unlink()
"""


@pytest.mark.long
def test_what_processes_share_has_room_as_memory_has(start_kernel: Start, kernel: Kernel) -> None:
    """80 and 100 MiB; where there is no room, the settings are named, also by an exception that wraps another."""
    assert kernel.run(IN_PARALLEL).text().count("10485760.0") == 2
    assert kernel.run(SHARED).text() == "100\n"
    small = start_kernel("--tmp-size", "64M", "--shm-size", "64M")
    result = small.run(IN_PARALLEL)
    assert result.ename == "PicklingError"
    assert "64.0 MiB in /tmp (tmp_size)" in result.text("stderr")
    result = small.run(SHARED)
    assert result.ename == "KernelDied"
    assert "SIGBUS" in result.reply["evalue"]
    assert "Limit: 64.0 MiB." in result.reply["evalue"]
    assert "Setting to change: shm_size." in result.reply["evalue"]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("import urllib.request; urllib.request.urlopen('http://example.org/x.csv')", "the sandbox has no network"),
        ("import socket; socket.create_connection(('192.0.2.1', 80))", "the sandbox has no network"),
        ("import nosuch", "the sandbox has no module with this name"),
        ("bytearray(1 << 45)", "Limit: 2.0 GiB, files included. Setting to change: memory."),
        ("files = [open('/dev/null') for _ in range(2000)]", "Limit: 1024. Setting to change: open_files."),
        ("import locale; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')", "the image has one locale, C.UTF-8"),
        ("raise ValueError('no space left')", ""),
    ],
)
def test_an_exception_that_a_wall_of_the_sandbox_caused_is_explained(kernel: Kernel, code: str, hint: str) -> None:
    result = kernel.run(code)
    assert result.reply["status"] == "error"
    said = result.text("stderr")
    assert hint in said
    assert said.count("[sandbox_kernel] ") == bool(hint)
    kernel.run("files = None")


def test_too_much_output_ends_the_cell(start_kernel: Start) -> None:
    kernel = start_kernel("--output-limit", "5M")
    result = kernel.run("while True: print('x' * 1000)")
    assert result.ename == "OutputLimit"
    assert "output_limit" in result.reply["evalue"]
    assert kernel.run("1 + 1").value == "2"


def test_a_killed_container_is_said_and_the_next_cell_has_a_new_one(start_kernel: Start) -> None:
    kernel = start_kernel()
    kernel.run("kept = 42")
    message_id, begin = kernel.start("import time; time.sleep(60)")
    (row,) = kernel.containers()
    subprocess.run(["docker", "kill", row.container], check=True, capture_output=True)
    result = kernel.collect(message_id, begin)
    assert result.ename == "SandboxDied"
    assert "nothing" in result.reply["evalue"]
    assert kernel.run("kept").ename == "NameError"


def test_cells_behind_a_failed_one_are_aborted(kernel: Kernel) -> None:
    first = "import time; time.sleep(1); 1 / 0"  # however slowly the others are sent, they wait behind it
    ids = [kernel.client.execute(code) for code in (first, "print('never')", "print('never')")]
    replies: dict[str, str] = {}
    while not replies.keys() >= set(ids):  # a client that was not answered at once has asked twice who the kernel is
        reply = kernel.client.get_shell_msg(timeout=30)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert [replies[message_id] for message_id in ids] == ["error", "aborted", "aborted"]
    assert kernel.run("1 + 1").value == "2"


def test_cells_behind_a_failed_one_run_if_so_asked(kernel: Kernel) -> None:
    begin = time.monotonic()
    kernel.client.execute("1/0", stop_on_error=False)
    second = kernel.client.execute("print('after')")
    assert kernel.collect(second, begin).text() == "after\n"
