"""Who may speak to a kernel's sockets, and what one who may not can cost: real kernels, a real other user."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from sandbox_kernel.kernel import peer_check
from tests.attacks.test_floods import status
from tests.support.kernels import Kernel, close_all, containers_of, eventually, install

Start = Callable[..., Kernel]
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Only once it runs: the interpreter may lie where nobody may go.
STRANGER = f"""
import contextlib, json, os, socket, sys, time, zmq, zmq.backend
if sys.argv[1] == "nobody":
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
connection = json.loads(sys.argv[2])
context = zmq.Context()

def connected(kind, channel, **options):
    one = context.socket(kind)
    one.linger = 0
    for name, value in options.items():
        setattr(one, name, value)
    separator = "-" if connection["transport"] == "ipc" else ":"
    one.connect(connection["transport"] + "://" + connection["ip"] + separator + str(connection[channel + "_port"]))
    return one
"""
LISTEN = """
def listener(ipv6):
    one = connected(zmq.SUB, "iopub", subscribe=b"")
    one.setsockopt(zmq.RCVTIMEO, 0)
    return one
listeners = [connected(zmq.SUB, "iopub", subscribe=b"") for _ in range(4)]
print("listening", flush=True)
poller = zmq.Poller()
for one in listeners:
    poller.register(one, zmq.POLLIN)
heard = b""
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end and b"secret" not in heard:
    for one, _ in poller.poll(100):
        heard += b"".join(one.recv_multipart())
print("heard" if b"secret" in heard else "nothing", flush=True)
"""
FLOOD = """
MIB = b"x" * (1 << 20)
senders = [connected(zmq.DEALER, channel, sndhwm=0) for channel in ("shell", "control", "stdin", "hb")]
senders += [connected(zmq.XSUB, "iopub", sndhwm=0)]
for one in senders:  # parts of a message that never ends
    for _ in range(int(sys.argv[3])):
        one.send(MIB, zmq.SNDMORE)
    one.send(b"the last")
for n in range(2000):
    senders[-1].send(b"\\x01" + n.to_bytes(4, "big") + MIB[:900])
print("sent", flush=True)
time.sleep(60)
"""


def connection_of(kernel: Kernel) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(kernel.manager.connection_file).read_text())
    return found


@contextlib.contextmanager
def stranger(code: str, who: str, kernel: Kernel, argument: str) -> Iterator[subprocess.Popen[str]]:
    """Another process with the connection file, but for the keys, in a user's or in nobody's name."""
    keyless = {name: value for name, value in connection_of(kernel).items() if "key" not in name}
    command = [sys.executable, "-c", STRANGER + code, who, json.dumps(keyless), argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def overheard(kernel: Kernel, who: str, seconds: float = 3.0) -> str:
    with stranger(LISTEN, who, kernel, str(seconds)) as process:
        assert line(process) == "listening"
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            kernel.run("print('secret')")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        return line(process)


@pytest.fixture(scope="module")
def open_kernel(launch_kernel: Start) -> Iterator[Kernel]:
    """A kernel for the controls: to its sockets anybody may connect."""
    kernel = launch_kernel("--clients", "any")
    yield kernel
    close_all([kernel])


@root_only
def test_another_user_hears_nothing(kernel: Kernel) -> None:
    assert overheard(kernel, "nobody") == "nothing"
    assert overheard(kernel, "self", 20) == "heard"  # the control: one of the same user does


@root_only
def test_control_where_anybody_may_connect_another_user_hears_everything(open_kernel: Kernel) -> None:
    assert overheard(open_kernel, "nobody", 20) == "heard"


def grown(kernel: Kernel, who: str, mebibytes: int) -> int:
    """Return the bytes by which the kernel process grows when somebody without a key sends so much to each socket."""
    before = status(kernel.pid, "VmRSS")
    with stranger(FLOOD, who, kernel, str(mebibytes)) as process:
        assert line(process) == "sent"
        end, most = time.monotonic() + 3, 0
        while time.monotonic() < end:
            most = max(most, status(kernel.pid, "VmRSS") - before)
            time.sleep(0.02)  # the step of a bounded wait
    assert kernel.run("1 + 1").value == "2"
    return most


@root_only
def test_a_flood_of_another_user_costs_nothing(kernel: Kernel) -> None:
    assert grown(kernel, "nobody", 64) < 32 << 20


@root_only
def test_control_the_same_flood_of_one_who_may_connect_costs_memory(open_kernel: Kernel) -> None:
    assert grown(open_kernel, "nobody", 64) > 64 << 20


def speaking(kernel: Kernel, channel: str) -> socket.socket:
    """Return a connection that has got as far as its first message, without ZMQ: that dies of such topics itself."""
    peer = socket.create_connection(("127.0.0.1", connection_of(kernel)[f"{channel}_port"]), timeout=20)
    kind = b"SUB" if channel == "iopub" else b"DEALER"
    ready = b"\x05READY" + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
    peer.sendall(greeting + b"\x04" + bytes([len(ready)]) + ready)
    return peer


def test_a_frame_over_the_limit_ends_its_connection(start_kernel: Start) -> None:
    """Without a key, also of the same user: the length is refused before there is room for it."""
    kernel = start_kernel("--message-limit", "1M")
    for channel in ("shell", "control", "stdin", "iopub", "hb"):
        before, sent = status(kernel.pid, "VmRSS"), 0
        with speaking(kernel, channel) as peer:
            peer.sendall(b"\x02" + (64 << 20).to_bytes(8, "big"))
            with contextlib.suppress(ConnectionError):
                while sent < 64 << 20:
                    sent += peer.send(b"x" * (1 << 20))
        assert sent < 64 << 20, f"{channel} took it all"
        assert status(kernel.pid, "VmRSS") - before < 16 << 20, channel
    assert kernel.run("1 + 1").value == "2"


def test_four_subscriptions_of_a_large_topic_cost_nothing(start_kernel: Start) -> None:
    kernel = start_kernel()
    before, size = status(kernel.pid, "VmHWM"), 4 << 20
    with contextlib.ExitStack() as peers:
        for _ in range(4):
            peer = peers.enter_context(speaking(kernel, "iopub"))
            with contextlib.suppress(ConnectionError):
                peer.sendall(b"\x02" + (size + 1).to_bytes(8, "big") + b"\x01" + b"\xff" * size)
                while peer.recv(1 << 20):  # until the connection is ended
                    pass
        assert kernel.run("1 + 1").value == "2"
    assert status(kernel.pid, "VmHWM") - before < 16 << 20


# --- the table of connections ---


@contextlib.contextmanager
def pair(family: socket.AddressFamily, bound: str, wanted: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a client and the accepted end of its connection."""
    with socket.socket(socket.AF_INET6 if ":" in bound else socket.AF_INET) as listener:
        try:
            listener.bind((bound, 0))
        except OSError:
            pytest.skip("this machine has no such address")
        listener.listen()
        with socket.socket(family) as client:
            client.connect((wanted, listener.getsockname()[1]))
            accepted, _ = listener.accept()
            with accepted:
                yield client, accepted


ENDS = {
    "IPv4": (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    "another loopback": (socket.AF_INET, "127.0.0.2", "127.0.0.2"),
    "IPv6": (socket.AF_INET6, "::1", "::1"),
    "IPv6 that means IPv4": (socket.AF_INET6, "127.0.0.1", "::ffff:127.0.0.1"),
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_the_user_of_a_connection_is_found(
    ends: tuple[socket.AddressFamily, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pair(*ends) as (client, accepted):
        assert peer_check.owner(accepted.getpeername()[:2], accepted.getsockname()[:2]) == os.geteuid()
        assert peer_check.why_not(accepted) is None
        if os.geteuid() == 0:
            os.fchown(client.fileno(), NOBODY, NOBODY)  # as if nobody had made it
            assert peer_check.why_not(accepted) == f"a connection of another user of this machine, uid {NOBODY}"
            monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
            assert peer_check.why_not(accepted) is None


def test_a_connection_that_was_closed_belongs_to_nobody() -> None:
    with pair(*ENDS["IPv4"]) as (client, accepted):
        client.close()
        assert peer_check.why_not(accepted) == "a connection that was closed at once"


def test_a_table_that_cannot_be_read_lets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_check, "TABLES", (str(tmp_path / "missing"), str(tmp_path / "missing6")))
    with pair(*ENDS["IPv4"]) as (_, accepted):
        assert "cannot be read" in str(peer_check.why_not(accepted))


def test_one_of_another_machine_is_left_to_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far:
        family = socket.AF_INET

        def getsockname(self) -> tuple[str, int]:
            return "192.0.2.1", 1

        def getpeername(self) -> tuple[str, int]:
            return "192.0.2.2", 2

    assert peer_check.why_not(Far()) is None  # type: ignore[arg-type]


# --- ipc and CURVE ---


@pytest.fixture
def start_with(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Callable[..., Kernel]]:
    """Start kernels whose manager has options of its own."""
    kernels: list[Kernel] = []

    def start(**options: Any) -> Kernel:
        specs = install(tmp_path_factory.mktemp("spec"), "--image", image)
        manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=specs, **options)
        manager.start_kernel()
        kernels.append(Kernel(manager))
        return kernels[-1]

    yield start
    for kernel in kernels:
        pid = kernel.pid
        kernel.close()
        eventually(lambda pid=pid: not containers_of(pid), 10, "its container is gone")  # type: ignore[misc]


def test_ipc_is_for_one_user(start_with: Callable[..., Kernel]) -> None:
    kernel = start_with(transport="ipc")
    assert kernel.run("1 + 1").value == "2"
    connection = connection_of(kernel)
    assert connection["transport"] == "ipc"
    channels = ("shell", "control", "stdin", "iopub", "hb")
    files = [Path(f"{connection['ip']}-{connection[channel + '_port']}") for channel in channels]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 5
    kernel.run("open('kept', 'w').write('kept')")
    kernel.restart()
    assert kernel.run("open('kept').read()").value == "'kept'"


@root_only
def test_another_user_hears_nothing_by_ipc_wherever_the_files_lie(start_with: Callable[..., Kernel]) -> None:
    """Neither by their mode, nor with a mode for everybody in a folder for everybody."""
    kernel = start_with(transport="ipc")
    connection = connection_of(kernel)
    assert overheard(kernel, "nobody") == "nothing"
    folder = Path(connection["ip"]).parent
    opened = []
    try:
        for one in (*folder.parents, folder):
            mode = stat.S_IMODE(one.stat().st_mode)
            opened.append((one, mode))
            one.chmod(mode | 0o755)
        for file in folder.glob(Path(connection["ip"]).name + "-*"):
            file.chmod(0o777)
        assert overheard(kernel, "nobody") == "nothing"
        assert overheard(kernel, "self", 20) == "heard"
    finally:
        for one, mode in opened:
            one.chmod(mode)


def test_with_curve_nobody_hears_anything_without_the_key(start_with: Callable[..., Kernel]) -> None:
    kernel = start_with(transport_encryption="required")
    assert kernel.run("1 + 1").value == "2"
    assert connection_of(kernel)["curve_secretkey"]
    assert kernel.client.is_alive()
    assert overheard(kernel, "self") == "nothing"
    kernel.restart()
    assert kernel.run("1 + 1").value == "2"
