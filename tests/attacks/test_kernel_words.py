"""What a cell writes onto the connections between its kernel and the agent, and servers in place of the kernel's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.sdk.execution import Execution

pytestmark = pytest.mark.timeout(300)

MODULE = """
import os, socket, struct, threading

def connection(port):
    "Return the kernel's end of the agent's connection to one of its sockets; to some, the kernel has one of its own."
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # it is no socket
        if one.family == socket.AF_UNIX and str(one.getsockname()).endswith(f"/s-{port}"):
            peer, = struct.unpack("i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4))
            if peer == 1 and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return one
    raise LookupError(port)

def frame(data, flags=0):
    return bytes((flags | 2,)) + len(data).to_bytes(8, "big") + data

def message(parts):
    return b"".join(frame(part, part is not parts[-1]) for part in parts)

def instead(port, words):
    "Listen where the kernel did, break the agent's connection, and say something to all that come."
    one = connection(port)
    path = one.getsockname()
    os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    came = threading.Event()
    def serve():
        while True:
            end, _ = listener.accept()
            came.set()
            try:
                end.sendall(words)
                while end.recv(1 << 16):
                    pass
            except OSError:
                pass
    threading.Thread(target=serve, daemon=True).start()
    one.sendall(bytes((255,)) * 1000)
    one.shutdown(socket.SHUT_RDWR)
    return came.wait(5)
"""
IOPUB, SHELL = 2, 1


@pytest.fixture(scope="module")
def one(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, cell_timeout="2s") as sandbox:
        sandbox.files.write("connections.py", MODULE)
        sandbox.files.write("kept.txt", "kept")
        yield sandbox


def run(sandbox: Sandbox, code: str) -> Execution:
    return sandbox.run_code("import sys; sys.path.insert(0, '/mnt/data')\nfrom connections import *\n" + code)


def still_works(sandbox: Sandbox) -> None:
    """The agent is the same and well; the kernel may have been replaced for a cell that could not end."""
    for _ in range(3):
        done = sandbox.run_code("print(open('kept.txt').read())")
        if done.error is None:
            break
    assert "".join(done.logs.stdout) == "kept\n"
    assert sandbox.run_code("1 + 1").text == "2"


def test_control_what_is_written_there_is_heard(one: Sandbox) -> None:
    for _ in range(3):  # the kernel's own thread may write there in the same moment, and then neither is understood
        done = run(
            one,
            """
kernel = get_ipython().kernel
said = kernel.session.msg("stream", {"name": "stdout", "text": "written by hand"}, kernel.get_parent())
connection(2).sendall(message([b"topic", *kernel.session.serialize(said)]))
""",
        )
        if done.logs.stdout:
            break
    assert "".join(done.logs.stdout) == "written by hand"


WORDS = {
    "noise": "bytes(range(255, -1, -1)) * 100",
    "an impossible frame": "b'\\2' + (1 << 63).to_bytes(8, 'big')",
    "a frame without end": "b'\\2' + (1 << 39).to_bytes(8, 'big')",
    "a message without end": "b'\\1\\0' * 1_000_000",
    "half a frame": "b'\\0\\100half'",
    "a large message of nothing": "message([b'<IDS|MSG>', bytes(300 << 20)])",
}


@pytest.mark.parametrize("port", [IOPUB, pytest.param(SHELL, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", WORDS)
def test_whatever_is_written_there_a_cell_ends_and_the_next_works(one: Sandbox, what: str, port: int) -> None:
    run(one, f"connection({port}).sendall({WORDS[what]})")
    still_works(one)


HELLO = "b'\\xff' + bytes(8) + b'\\x7f\\3\\0NULL' + bytes(48)"
READY = HELLO + " + b'\\4\\x1c\\5READY\\x0bSocket-Type\\0\\0\\0\\6ROUTER'"
SERVERS = {
    "noise": "b'noise' * 1000",
    "nothing": "b''",
    "a greeting": HELLO,
    "a handshake and noise": READY + " + b'\\xff' * 1000",
    "messages of nothing": READY + " + b'\\0\\0' * 10_000_000",
}


@pytest.mark.parametrize(
    ("what", "port"),
    [pytest.param("noise", SHELL, marks=pytest.mark.long), ("nothing", IOPUB),
     pytest.param("a greeting", IOPUB, marks=pytest.mark.long), ("a handshake and noise", IOPUB),
     ("messages of nothing", SHELL)],
)  # fmt: skip
def test_a_server_in_place_of_the_kernel_s_gets_its_own_kernel_replaced(one: Sandbox, what: str, port: int) -> None:
    done = run(one, f"open('came.txt', 'w').write(str(instead({port}, {SERVERS[what]})))")
    assert done.error is None or done.error.name in ("CellTimeout", "KernelDied")
    still_works(one)
    assert one.files.read("came.txt") == "True"
