"""From start to end: shutdown and SIGKILL leave nothing, a restart keeps the files, an idle sandbox ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import zmq

from sandbox_kernel.container.process import LEASE
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.session.agent_link import PING_SECONDS
from tests.support.cases import some
from tests.support.kernels import WAIT, Kernel, all_containers, arguments_of, containers_of, eventually, here_too
from tests.support.patience import Stopwatch

Start = Callable[..., Kernel]

STARTS = int(os.environ.get("SANDBOX_KERNEL_TEST_STARTS", "2"))


def test_shutdown_leaves_nothing(start_kernel: Start) -> None:
    """Before jupyter_client sends SIGTERM, which it does when half of its patience is over."""
    kernel = start_kernel()
    kernel.run("1 + 1")
    pid = kernel.pid
    assert len(containers_of(pid)) == 1
    kernel.client.stop_channels()
    least = kernel.manager.shutdown_wait_time / 2
    kernel.manager.shutdown_wait_time *= WAIT  # seconds of a busy machine are short
    with Stopwatch() as watch:
        kernel.manager.shutdown_kernel()
    assert watch.seconds < least
    assert not containers_of(pid)


def test_the_killed_proxy_takes_its_container_along(start_kernel: Start) -> None:
    """After SIGKILL in the middle of a cell, nothing of ours is there a second later."""
    before = set(volumes())
    for _ in range(STARTS):
        kernel = start_kernel()
        kernel.start("import time; time.sleep(60)")
        pid, ports = kernel.pid, [getattr(kernel.manager, f"{name}_port") for name in ("shell", "iopub", "hb")]
        assert len(containers_of(pid)) == 1
        inside = processes_in(containers_of(pid)[0].container)
        assert len(inside) >= 2
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: not containers_of(pid), 1.0, "the container of a killed proxy is gone")  # type: ignore[misc]
        eventually(lambda inside=inside: not any(p.is_running() for p in inside), 1.0, "its processes are gone")  # type: ignore[misc]
        for port in ports:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)
    assert set(volumes()) <= before


STARVE = """
import os, signal
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError:
        return None
for thread in map(int, os.listdir("/proc/1/task")):
    attempt(os.sched_setscheduler, thread, os.SCHED_IDLE, os.sched_param(0))
    attempt(os.sched_setaffinity, thread, {0})
attempt(os.kill, 1, signal.SIGSTOP)
for _ in range(SPINNERS):
    if attempt(os.fork) == 0:
        attempt(os.sched_setaffinity, 0, {0})
        while True: pass
print("starving", flush=True)
while True: pass
"""
"""Gives the processor to so many spinners and as little of it as can be to the agent, and stops that where it can."""


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_a_starved_agent_s_container_goes_with_its_proxy(start_kernel: Start, runtime: str) -> None:
    """What is too slow here did not end at all. gVisor's own threads count towards `pids`, so it has fewer spinners."""
    if runtime not in asyncio.run(DockerEngine().info()).runtimes:
        pytest.skip(f"the engine has no runtime {runtime!r}")
    kernel = start_kernel("--runtime", runtime, "--cell-timeout", "600")
    kernel.start(STARVE.replace("SPINNERS", "200" if runtime == "runc" else "8"), until="stream")
    pid = kernel.pid
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not containers_of(pid), 8, "the container of a killed proxy is gone")
    print(f"{runtime}: gone after {time.monotonic() - killed:.2f} s")
    assert time.monotonic() - killed < LEASE - 2 * PING_SECONDS, "it may have ended by itself, having heard of nobody"


def test_a_starved_sandbox_is_replaced_for_the_next_cell(start_kernel: Start) -> None:
    kernel = start_kernel("--cell-timeout", "1")
    for _ in range(2):  # the second in a sandbox that was itself a replacement
        assert kernel.run(STARVE.replace("SPINNERS", "200")).ename in {"CellTimeout", "SandboxDied"}
        assert kernel.run("6 * 7").value == "42"


def processes_in(container: str) -> list[psutil.Process]:
    """Return the processes whose control group names the container, both with cgroup v1 and v2."""
    return [process for process in psutil.process_iter() if container in control_group(process.pid)]


def control_group(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


def gone(pid: int) -> bool:
    """Whether a process has ended; whoever inherited it may not have collected its status yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def volumes() -> list[str]:
    return subprocess.run(
        ["docker", "volume", "ls", "-q"], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_a_killed_group_takes_its_container_along(start_kernel: Start) -> None:
    """`shutdown_kernel(now=True)` sends SIGKILL to the process group; batch runners do it all day."""
    kernel = start_kernel()
    kernel.run("1 + 1")
    pid = kernel.pid
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    eventually(lambda: not containers_of(pid), 1.0, "the container is gone")


def test_restart_keeps_files_and_clears_variables(kernel: Kernel) -> None:
    first = kernel.run("kept = 42; open('kept.txt', 'w').write('yes')").header["session"]
    container = kernel.containers()[0].container
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=30)
    result = kernel.run("print(open('/mnt/data/kept.txt').read())")
    assert result.text() == "yes\n"
    assert result.header["session"] != first
    assert kernel.run("kept").ename == "NameError"
    assert kernel.containers()[0].container == container
    again = kernel.run("1 + 1").header["session"]
    assert again == result.header["session"]


def test_who_is_slow_to_listen_again_hears_the_first_cell_after_a_restart(kernel: Kernel) -> None:
    """Its requests may be there long before its ears are: a busy client connects to each socket when it gets to it."""
    with kernel.manager.context.socket(zmq.SUB) as slow:
        slow.reconnect_ivl = 2000
        slow.subscribe(b"")
        slow.connect(f"tcp://{kernel.manager.ip}:{kernel.manager.iopub_port}")
        assert slow.poll(10_000), "it is welcomed"
        kernel.manager.restart_kernel()
        while slow.poll(0):
            slow.recv_multipart()
        kernel.run("print('heard')")
        content = b""
        while rb"heard\n" not in content:
            assert slow.poll(10_000), "it hears the output"
            content = slow.recv_multipart()[-1]


def test_restart_in_the_middle_of_a_cell(kernel: Kernel) -> None:
    kernel.run("open('kept.txt', 'w').write('yes')")
    kernel.start("while True: pass")
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=30)
    assert kernel.run("print(open('kept.txt').read())").text() == "yes\n"


def pipe_holders() -> set[psutil.Process]:
    return {p for p in psutil.process_iter(["cmdline"]) if "pipe_holder.py" in " ".join(p.info["cmdline"] or [])}


def processes_of(kernel: Kernel) -> set[int]:
    return {one.pid for one in psutil.process_iter() if kernel.manager.connection_file in arguments_of(one)}


def restarted(kernel: Kernel) -> str:
    """Restart a kernel; return its container, which is the one before, and which its new process owns."""
    [before] = kernel.containers()
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=30)
    kernel.run("1 + 1")  # a client may have taken an earlier answer for the sign that it is ready
    [after] = kernel.containers()
    assert after.container == before.container
    assert processes_of(kernel) == {kernel.pid} == {after.owner_pid} != {before.owner_pid}
    return after.container


def is_gone(container: str) -> bool:
    return container not in {row.container for row in all_containers()}


def test_shutdown_after_a_restart_leaves_nothing(start_kernel: Start) -> None:
    before = pipe_holders()  # of another kernel on this machine, which may wait for its successor
    kernel = start_kernel()
    container = restarted(kernel)
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel()
    eventually(lambda: is_gone(container), 5, "the container is gone")
    eventually(lambda: not processes_of(kernel), 5, "its process is gone")
    eventually(lambda: pipe_holders() <= before, 5, "its pipe holder is gone")


def test_restart_after_restart_is_alike(kernel: Kernel) -> None:
    """The files are there, the variables are not, and each process has as many files open as the one before."""
    kernel.run("open('kept.txt', 'w').write('yes')")
    restarted(kernel)
    assert kernel.run("print(open('kept.txt').read()); gone = 1").text() == "yes\n"
    open_files = {int(path.name) for path in Path(f"/proc/{kernel.pid}/fd").iterdir()}
    for _ in range(3):
        restarted(kernel)
        assert kernel.run("print('gone' in dir(), open('kept.txt').read()); gone = 1").text() == "False yes\n"
    eventually(
        lambda: len(list(Path(f"/proc/{kernel.pid}/fd").iterdir())) <= len(open_files),
        10,
        "no file is open that was not",
    )


FEATURES: dict[str, tuple[list[str], str, str]] = {
    "folders": (["--uploads", "{up}", "--downloads", "{down}"], "open('made', 'w').write(open('given').read())", "5"),
    "a way out": (
        ["--network", "example.test"],
        "import socket; socket.create_connection(('other.test', 443)).recv(1)",
        "",
    ),
    "alerts, a screen, an audit and packages": (
        [
            *("--monitor", "alert", "--monitor-command", f"{sys.executable} -c pass"),
            *("--screen", "warn", "--audit", "{up}.audit", "--package", "*"),
        ],
        "eval('6 * 7')",
        "42",
    ),
}
"""By what a session has: its settings, a cell that uses it, and what the cell's value is."""


@pytest.mark.parametrize("feature", some(FEATURES, of=2))
def test_a_restart_keeps_what_a_session_has(start_kernel: Start, tmp_path: Path, feature: str) -> None:
    settings, code, value = FEATURES[feature]
    up, down = tmp_path / "up", tmp_path / "down"
    for folder in (up, down):
        folder.mkdir()
    (up / "given").write_text("given")
    kernel = start_kernel(*(one.format(up=up, down=down) for one in settings))
    for _ in range(2):
        assert kernel.run(code).value == value
        restarted(kernel)
    if feature == "folders":
        assert (down / "made").read_text() == "given"
        (up / "later").write_text("x")
        assert kernel.run("open('later').read()").value == "'x'"


SOLVED = """
import numpy
numbers = numpy.random.default_rng(7).random((300, 300)) + numpy.eye(300) * 300
print(bool(numpy.allclose(numbers @ numpy.linalg.solve(numbers, numbers[0]), numbers[0])))
print(numpy.random.random())
"""


@pytest.mark.long
def test_libraries_with_threads_compute_before_and_after_a_restart(kernel: Kernel, image: str) -> None:
    """And what they draw by chance is not drawn again."""
    drawn = []
    for _ in range(3):
        right, number = here_too(kernel, SOLVED, image).text().split()
        assert right == "True"
        drawn.append(number)
        restarted(kernel)
    assert len(set(drawn)) == 3


def test_the_next_process_has_the_variables_and_the_folder_of_the_next_start(
    start_kernel: Start, tmp_path: Path
) -> None:
    """And it keeps the container of the one before, whatever these were."""
    kernel = start_kernel()
    kernel.run("open('kept.txt', 'w').write('yes')")
    [before] = kernel.containers()
    kernel.manager.shutdown_kernel(restart=True)
    kernel.manager.start_kernel(env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "131072"}, cwd=str(tmp_path))
    kernel.client.wait_for_ready(timeout=30)
    assert kernel.run("print(open('kept.txt').read())").text() == "yes\n"
    [after] = kernel.containers()
    assert after.container == before.container
    assert processes_of(kernel) == {kernel.pid} == {after.owner_pid}
    assert Path(f"/proc/{kernel.pid}/cwd").resolve() == tmp_path.resolve()


def test_restart_after_a_kill_starts_afresh(start_kernel: Start) -> None:
    """What jupyter_server's restarter does with a kernel that died."""
    kernel = start_kernel()
    kernel.run("open('kept.txt', 'w').write('yes')")
    os.kill(kernel.pid, signal.SIGKILL)
    eventually(lambda: not kernel.manager.is_alive(), 10, "jupyter_client sees the death")
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=30)
    assert kernel.run("open('kept.txt')").ename == "FileNotFoundError"


def test_the_kernel_ends_with_the_process_that_started_it(start_kernel: Start, tmp_path: Path) -> None:
    """As ipykernel does: a server that is killed leaves no kernel behind."""
    kernel = start_kernel()
    spec = kernel.manager.kernel_spec
    assert spec is not None
    connection = tmp_path / "connection.json"
    code = (
        "import os, subprocess, sys\n"
        "os.environ['JPY_PARENT_PID'] = str(os.getpid())\n"
        "process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, start_new_session=True)\n"
        "print(process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    from jupyter_client.connect import write_connection_file

    write_connection_file(str(connection))
    argv = [str(connection) if part == "{connection_file}" else part for part in spec.argv]
    server = subprocess.Popen(
        [sys.executable, "-c", code, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    with server.stdout, server.stdin:
        pid = int(server.stdout.readline())
        eventually(lambda: containers_of(pid), 30, "the kernel has a container")
        server.kill()
        server.wait()
    eventually(lambda: gone(pid), 10, "the kernel has ended")
    eventually(lambda: not containers_of(pid), 5, "its container is gone")


def test_an_idle_sandbox_ends_and_the_next_cell_says_so(start_kernel: Start) -> None:
    kernel = start_kernel("--idle-timeout", "2")
    kernel.run("kept = 42")
    eventually(lambda: not kernel.containers(), 10, "the idle container is gone")
    assert kernel.manager.is_alive()
    result = kernel.run("1 + 1")
    assert result.value == "2"
    assert "idle" in result.text("stderr")
    assert kernel.run("kept").ename == "NameError"


def test_input_that_never_comes_ends_with_the_session(start_kernel: Start) -> None:
    """Waiting for input stops the cell's clock, but not the session's."""
    kernel = start_kernel("--cell-timeout", "2", "--idle-timeout", "5")
    result = kernel.run("input('name?')", allow_stdin=True)
    assert result.ename == "SandboxDied"
    assert "idle_timeout" in result.reply["evalue"]
    assert result.seconds > 3


@pytest.mark.parametrize("limits", [("--image", "no-such-image:at-all")], ids=["image missing"])
def test_a_start_that_fails_is_said_in_the_cell(start_kernel: Start, limits: tuple[str, ...]) -> None:
    kernel = start_kernel(*limits)
    result = kernel.run("1 + 1")
    assert result.ename == "ImageMissing"
    assert "it is never pulled" in result.reply["evalue"]
    assert kernel.manager.is_alive()
