"""Kernel processes that a fork server makes: started by jupyter_client's manager, and ended in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.manager import AsyncKernelManager, KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from sandbox_kernel.plugins.provisioner import forked_process
from sandbox_kernel.plugins.provisioner.forked_process import ForkedProcess, ForkServers
from tests.plugins.provisioner.specs import manager, provisioned
from tests.support.jupyter_servers import is_fork_server
from tests.support.kernels import Kernel, close_all, containers_of, eventually, install

Start = Callable[..., Kernel]
NAME = "sandbox-python"


def fork_servers(parent: int | None = None) -> list[psutil.Process]:
    """Return the fork servers of a process, of this one unless it is named."""
    return [one for one in psutil.Process(parent).children() if is_fork_server(one)]


def process_of(manager: KernelManager) -> Any:
    """Return what a kernel's manager has in place of a process."""
    assert manager.provisioner is not None
    return vars(manager.provisioner)["process"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have fork servers be started at once."""
    monkeypatch.setattr(forked_process, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(forked_process, "ANSWER_SECONDS", 30.0)


@pytest.fixture
def start(tmp_path: Path, image: str, servers: ForkServers) -> Iterator[Start]:
    """Start the installed kernel; the first is an ordinary process, and the fork server is there after it."""
    specs = install(tmp_path, "--image", image, "--cell-timeout", "60")
    kernels: list[Kernel] = []

    def started(**options: Any) -> Kernel:
        found = manager(specs, NAME)
        assert found.kernel_spec is not None
        found.kernel_spec.metadata |= provisioned()
        found.start_kernel(**options)
        kernels.append(Kernel(found))
        return kernels[-1]

    first = started()
    assert isinstance(process_of(first.manager), subprocess.Popen)
    close_all([kernels.pop()])
    eventually(lambda: servers._servers, 30, "a fork server is there")  # noqa: SLF001
    yield started
    close_all(kernels)


def test_the_second_kernel_is_forked_and_is_as_any_other(start: Start, tmp_path: Path) -> None:
    kernel = start(cwd=str(tmp_path), env=os.environ | {"JPY_SESSION_NAME": "/a/b.ipynb"})
    process = psutil.Process(kernel.pid)
    assert isinstance(process_of(kernel.manager), ForkedProcess)
    assert [process.parent()] == fork_servers()
    assert (os.getpgid(kernel.pid), os.getsid(kernel.pid)) == (kernel.pid, kernel.pid)
    assert process.cwd() == str(tmp_path)
    assert "sandbox_kernel" in process.cmdline()
    assert kernel.manager.connection_file in process.cmdline()
    assert kernel.run("print(6 * 7)").text() == "42\n"
    assert len(containers_of(kernel.pid)) == 1


def test_it_is_interrupted_restarted_and_shut_down(start: Start) -> None:
    kernel = start()
    message, begin = kernel.start("import time; open('f', 'w').close(); print(1); time.sleep(60)", until="stream")
    kernel.manager.interrupt_kernel()
    assert kernel.collect(message, begin).ename == "KeyboardInterrupt"
    before = kernel.pid
    kernel.restart()
    assert kernel.pid != before
    assert isinstance(process_of(kernel.manager), ForkedProcess)
    assert kernel.run("import os; print(os.listdir('.'))").text() == "['f']\n"
    last = kernel.pid
    kernel.close()
    assert not psutil.pid_exists(last)
    eventually(lambda: not containers_of(last), 10, "its container is gone")


@pytest.mark.usefixtures("start")
def test_nbclient_sees_a_dead_kernel_in_one_that_is_forked(tmp_path: Path, image: str) -> None:
    own = AsyncKernelManager(kernel_name=NAME, kernel_spec_manager=install(tmp_path, "--image", image))
    assert own.kernel_spec is not None
    own.kernel_spec.metadata |= provisioned()
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import os; os._exit(0)")])
    client = NotebookClient(document, timeout=60)
    client.km = own  # and it ends what is its own
    with client.setup_kernel():
        assert isinstance(process_of(own), ForkedProcess)
        with pytest.raises(DeadKernelError):
            client.execute_cell(document.cells[0], 0)


def test_two_at_once_have_nothing_in_common(start: Start) -> None:
    one, other = start(), start()
    one.run("x = 1; open('mine', 'w').close()")
    assert other.run("import os; print('x' in globals(), os.listdir('.'))").text() == "False []\n"
    kept = one.pid
    other.close()
    assert psutil.pid_exists(kept)
    assert one.run("print(x)").text() == "1\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_one_is_noticed_with_its_code(start: Start, number: signal.Signals) -> None:
    kernel = start()
    process = process_of(kernel.manager)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.kill(kernel.pid, number)
    assert process.wait(30) == (-number if number == signal.SIGKILL else 0)
    assert not kernel.manager.is_alive()
    eventually(lambda: not containers_of(kernel.pid), 30, "its container is gone")


def test_the_end_of_the_fork_server_ends_its_kernels_and_the_next_is_an_ordinary_one(start: Start) -> None:
    kernel = start()
    [server] = fork_servers()
    pid = kernel.pid
    server.kill()
    eventually(lambda: not psutil.pid_exists(pid), 30, "the kernel has ended")
    assert not kernel.manager.is_alive()
    eventually(lambda: not containers_of(pid), 30, "its container is gone")
    kernel.restart(now=True)
    assert isinstance(process_of(kernel.manager), subprocess.Popen)
    assert kernel.run("print(6 * 7)").text() == "42\n"


def test_control_an_ordinary_kernel_goes_on_without_the_fork_server(start: Start, servers: ForkServers) -> None:
    """So what ended above was the end of its parent."""
    [server] = fork_servers()
    server.kill()
    eventually(lambda: not fork_servers(), 30, "the fork server has ended")
    kernel = start()
    assert isinstance(process_of(kernel.manager), subprocess.Popen)
    assert kernel.run("print(6 * 7)").text() == "42\n"


STARTED = """
import sys, time
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from sandbox_kernel.plugins.provisioner import forked_process
forked_process.DELAY_SECONDS, forked_process.ANSWER_SECONDS = 0.0, 30.0
specs = KernelSpecManager(kernel_dirs=[sys.argv[1]])
def started():
    found = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=specs)
    found.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": "sandbox-kernel"}
    found.start_kernel()
    client = found.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    return found
first = started()
"""
PARENT = f"""{STARTED}
while not forked_process.SERVERS._servers: time.sleep(0.01)
second = started()
print(type(second.provisioner.process).__name__, first.provisioner.pid, second.provisioner.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_the_end_of_the_parent_leaves_nothing(tmp_path: Path, image: str, number: signal.Signals) -> None:
    folder = install(tmp_path, "--image", image).kernel_dirs[0]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        kind, *numbers = parent.stdout.readline().split()
        assert kind == "ForkedProcess"
        left = [*map(int, numbers), *(one.pid for one in fork_servers(parent.pid))]
        assert len(left) == 3
        assert len(containers_of(left[1])) == 1
        parent.send_signal(number)
    eventually(lambda: not any(map(psutil.pid_exists, left)), 30, "all its processes have ended")
    eventually(lambda: not any(map(containers_of, left)), 30, "the containers are gone")


FORKS = f"""{STARTED}
import multiprocessing
fork = multiprocessing.get_context("fork").Process(target=lambda: started().shutdown_kernel(now=True))
with forked_process.SERVERS._lock:
    fork.start()
fork.join(60)
print(fork.exitcode)
fork.kill()
first.shutdown_kernel(now=True)
"""


def test_a_fork_of_the_process_starts_kernels_too(tmp_path: Path, image: str) -> None:
    """As a pool of processes does: its event loop and its locks are copies, and the threads behind them are gone."""
    folder = install(tmp_path, "--image", image).kernel_dirs[0]
    command = [sys.executable, "-c", FORKS, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "0\n", done.stderr
