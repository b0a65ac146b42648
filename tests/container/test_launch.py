"""Kernels of a user's own broker through jupyter_client: from the second on, they are forked from what is prepared."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.broker.kernels import SUFFIX
from sandbox_kernel.engines.about import Listed
from sandbox_kernel.engines.sightings import waits_for
from tests.support.brokers import Daemon, a_broker
from tests.support.kernels import WAIT, Kernel, eventually, replied
from tests.support.launching import words_of

IMAGE = "sandbox-kernel:base"
Start = Callable[..., Kernel]


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with a_broker("--kernels", "--pool", "1") as one:
        yield one


def running(daemon: Daemon) -> list[Listed]:
    return [row for row in asyncio.run(daemon.engine().list()) if row.state == "running"]


def copied(daemon: Daemon) -> int | None:
    """Return the process that kernels are copies of, None until there is one."""
    children = psutil.Process(daemon.process.pid).children()
    return next((one.pid for one in children if any("prepared" in word for word in words_of(one.pid))), None)


def prepared_kernel(daemon: Daemon, start_kernel: Start) -> Kernel:
    """Return a kernel that was forked; the first one asks for that, and is an ordinary one."""
    first = start_kernel("--engine", daemon.address, "--image", IMAGE)
    assert first.run("1 + 1").value == "2"
    assert "-m" in words_of(first.pid)
    eventually(lambda: copied(daemon), WAIT, "something is prepared")
    kernel = start_kernel("--engine", daemon.address, "--image", IMAGE)
    eventually(lambda: not waits(daemon), WAIT, "it is up")
    if "-m" in words_of(kernel.pid):  # it was a moment too early
        kernel = start_kernel("--engine", daemon.address, "--image", IMAGE)
    assert words_of(kernel.pid)[3].endswith("launch.py")
    return kernel


def waits(daemon: Daemon) -> bool:
    """Return whether the broker itself still answers who asks for kernels."""
    inode = Path("/proc/net/unix").read_text(encoding="ascii")
    [line] = [one for one in inode.splitlines() if one.endswith(daemon.path + SUFFIX) and " 00010000 " in one]
    pid = copied(daemon)
    if pid is None:
        return True
    return not any(f"[{line.split()[6]}]" in str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir())


def owner(daemon: Daemon, kernel: Kernel) -> int:
    """Return the process that was forked for a kernel: it has the sandbox, and the launcher waits for its end."""
    [pid] = {row.owner_pid for row in running(daemon)} & waits_for(kernel.pid)
    assert pid is not None
    assert pid != kernel.pid
    return pid


def test_a_forked_kernel_is_a_kernel(daemon: Daemon, start_kernel: Start, tmp_path: Path) -> None:
    """Cells, an interrupt, a restart that keeps the files, and an end that leaves nothing."""
    kernel = prepared_kernel(daemon, start_kernel)
    forked = owner(daemon, kernel)
    parent = psutil.Process(forked).parent()
    assert parent is not None
    assert parent.pid == copied(daemon)
    assert kernel.run("open('kept', 'w').write('x'); gone = 1").value == ""
    message, begin = kernel.start("while True: pass")
    kernel.manager.interrupt_kernel()
    assert kernel.collect(message, begin).ename == "KeyboardInterrupt"
    container = next(row.container for row in running(daemon) if row.owner_pid == forked)

    kernel.manager.restart_kernel()
    assert kernel.run("open('kept').read(), 'gone' in dir()").value == "('x', False)"
    again = owner(daemon, kernel)
    assert again != forked
    assert next(row.container for row in running(daemon) if row.owner_pid == again) == container

    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel()
    eventually(lambda: not psutil.pid_exists(again), WAIT, "the kernel is gone")
    eventually(lambda: container not in {row.container for row in running(daemon)}, WAIT, "its sandbox is gone")


@pytest.mark.parametrize("how", ["the launcher", "its group", "the kernel"])
def test_who_kills_one_has_killed_both(daemon: Daemon, start_kernel: Start, how: str) -> None:
    kernel = prepared_kernel(daemon, start_kernel)
    forked = owner(daemon, kernel)
    container = next(row.container for row in running(daemon) if row.owner_pid == forked)
    match how:
        case "the launcher":
            os.kill(kernel.pid, signal.SIGKILL)
        case "its group":
            os.killpg(kernel.pid, signal.SIGKILL)
        case _:
            os.kill(forked, signal.SIGKILL)
    eventually(lambda: not kernel.manager.is_alive() and not psutil.pid_exists(forked), WAIT, "both are gone")
    eventually(lambda: container not in {row.container for row in running(daemon)}, WAIT, "their sandbox is gone")


def test_a_broker_that_is_killed_takes_no_kernel_along(daemon: Daemon, start_kernel: Start) -> None:
    """What it prepared is gone; the kernel runs on, and its end is as ever."""
    kernel = prepared_kernel(daemon, start_kernel)
    forked, copy = owner(daemon, kernel), copied(daemon)
    assert copy is not None
    message, begin = kernel.start("import time; time.sleep(1); print('on')")
    daemon.kill()
    eventually(lambda: not psutil.pid_exists(copy), WAIT, "what was prepared is gone")
    assert kernel.collect(message, begin).text() == "on\n"
    assert replied(kernel.client, kernel.client.kernel_info(), WAIT)
    kernel.close()
    eventually(lambda: not psutil.pid_exists(forked), WAIT, "the kernel is gone")


def test_what_is_prepared_ends_with_its_broker_and_is_made_anew(daemon: Daemon, start_kernel: Start) -> None:
    kernel = prepared_kernel(daemon, start_kernel)
    first = copied(daemon)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(first), WAIT, "it is gone")
    assert kernel.run("1 + 1").value == "2"
    assert prepared_kernel(daemon, start_kernel).run("1 + 1").value == "2"
    second = copied(daemon)
    assert second not in {first, None}
    daemon.end()
    assert second is not None
    eventually(lambda: not psutil.pid_exists(second), WAIT, "it is gone with its broker")
