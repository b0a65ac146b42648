"""How a kernel begins: what it imports, what its threads do meanwhile, and what it reads of programs."""

from __future__ import annotations

import importlib.util
import marshal
import site
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ipykernel.control import ControlThread

from sandbox_kernel.container import kernel_launcher
from sandbox_kernel.container.kernel_launcher import register_alone

SECONDS = 20


@pytest.fixture
def threads() -> Iterator[list[ControlThread]]:
    """The two threads of a kernel that have a loop of their own, as ipykernel makes them."""
    made = [ControlThread(daemon=True), ControlThread(daemon=True)]
    for thread in made:
        thread.start()
    yield made
    for thread in made:
        thread.stop()
        thread.join(SECONDS)


def kernel_of(threads: list[ControlThread], start: Callable[[], None]) -> SimpleNamespace:
    return SimpleNamespace(control_thread=threads[0], shell_channel_thread=threads[1], start=start)


def test_no_thread_goes_on_while_the_main_one_registers(threads: list[ControlThread]) -> None:
    went_on = [threading.Event() for _ in threads]

    def start() -> None:
        for thread, event in zip(threads, went_on, strict=True):
            thread.io_loop.add_callback(event.set)
        assert not any(event.wait(0.1) for event in went_on)

    kernel = kernel_of(threads, start)
    register_alone(kernel)
    kernel.start()
    assert all(event.wait(SECONDS) for event in went_on)


def test_control_threads_go_on_meanwhile(threads: list[ControlThread]) -> None:
    went_on = threading.Event()

    def start() -> None:
        threads[1].io_loop.add_callback(went_on.set)
        assert went_on.wait(SECONDS)

    kernel_of(threads, start).start()


def test_they_go_on_if_it_fails(threads: list[ControlThread]) -> None:
    def start() -> None:
        raise OSError("no file is left")

    kernel = kernel_of(threads, start)
    register_alone(kernel)
    with pytest.raises(OSError, match="no file is left"):
        kernel.start()
    went_on = threading.Event()
    threads[0].io_loop.add_callback(went_on.set)
    assert went_on.wait(SECONDS)


def test_a_kernel_without_such_threads_starts() -> None:
    started = threading.Event()
    kernel = SimpleNamespace(shell_channel_thread=None, start=started.set)
    register_alone(kernel)
    kernel.start()
    assert started.is_set()


BYTECODE = compile("value = 'prepared'", "module.py", "exec")


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Write a file of bytecode with one module, which has a source; return that."""
    monkeypatch.setattr(kernel_launcher, "BYTECODE", str(tmp_path / "bytecode"))
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "users"))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])

    def prepare(**changed: Any) -> Path:
        source = tmp_path / "a_module_of_a_start.py"
        source.write_text("value = 'of its source'", encoding="utf-8")
        status, content = source.stat(), marshal.dumps(BYTECODE)
        stamp = struct.pack("<II", int(status.st_mtime), status.st_size)
        said = {"python": importlib.util.MAGIC_NUMBER, "paths": [*sys.path], "stamp": stamp} | changed
        modules = {source.stem: (str(source), False, said["stamp"], 0, len(content))}
        head = marshal.dumps((said["python"], said["paths"], modules))
        (tmp_path / "bytecode").write_bytes(len(head).to_bytes(8, "little") + head + content)
        return source

    yield prepare
    sys.modules.pop("a_module_of_a_start", None)


def value() -> str:
    return str(importlib.import_module("a_module_of_a_start").value)


def test_a_module_is_found_in_the_one_file(prepare: Callable[..., Path]) -> None:
    prepare()
    prepared = kernel_launcher.PreparedBytecode()
    assert value() == "prepared"
    loader: Any = sys.modules["a_module_of_a_start"].__loader__
    assert loader.get_code("a_module_of_a_start") == BYTECODE
    prepared.close()
    assert loader.get_code("a_module_of_a_start") != BYTECODE, "which is asked for by debuggers"


def test_what_is_older_than_its_source_does_not_count(prepare: Callable[..., Path]) -> None:
    prepare(stamp=struct.pack("<II", 1, 2))
    prepared = kernel_launcher.PreparedBytecode()
    assert value() == "of its source"
    prepared.close()


@pytest.mark.parametrize("changed", [{"python": b"1234"}, {"paths": ["/elsewhere"]}, {"python": 1}])
def test_what_another_python_or_another_path_has_is_not_used(
    prepare: Callable[..., Path], changed: dict[str, Any]
) -> None:
    prepare(**changed)
    prepared = kernel_launcher.PreparedBytecode()
    with pytest.raises(ModuleNotFoundError):
        value()
    prepared.close()


def test_packages_of_the_user_come_first(prepare: Callable[..., Path]) -> None:
    source = prepare()
    (source.parent / "users" / "package").mkdir(parents=True)
    prepared = kernel_launcher.PreparedBytecode()
    with pytest.raises(ModuleNotFoundError):
        value()
    prepared.close()


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, (4).to_bytes(8, "little") + b"\x80\x02}."])
def test_a_file_of_something_else_hurts_nothing(tmp_path: Path, monkeypatch: Any, content: bytes) -> None:
    monkeypatch.setattr(kernel_launcher, "BYTECODE", str(tmp_path / "bytecode"))
    (tmp_path / "bytecode").write_bytes(content)
    kernel_launcher.PreparedBytecode().close()


DEFERRED = """
import sys
sys.path.insert(0, sys.argv[1])
import kernel_launcher
complete = kernel_launcher.defer_clients() if sys.argv[2] == "deferred" else int
from ipykernel.kernelapp import IPKernelApp
application = IPKernelApp()
complete()
print("jupyter_client.manager" in sys.modules)
"""
USES = {
    "a name": "from jupyter_client import AsyncKernelManager, BlockingKernelClient as made\nprint(made.__module__)",
    "a module": "import jupyter_client.blocking.client\nprint(jupyter_client.blocking.client.BlockingKernelClient)",
    "another module": "from jupyter_client.ioloop import manager\nprint(manager.__name__)",
    "its version": "import jupyter_client\nprint(jupyter_client.__version__, jupyter_client)",
    "its names": "import jupyter_client\nprint(jupyter_client.KernelClient, sorted(vars(jupyter_client)))",
    "again": "import importlib, jupyter_client\nprint(importlib.reload(jupyter_client).KernelManager)",
    "all modules": (
        "import importlib, pkgutil, jupyter_client\n"
        "names = [found.name for found in pkgutil.walk_packages(jupyter_client.__path__, 'jupyter_client.')]\n"
        "for name in names[::-1]: print(importlib.import_module(name))\n"
        "print(jupyter_client.manager, jupyter_client.KernelManager)"
    ),
    "no name of it": "import jupyter_client\nprint([hasattr(jupyter_client, name) for name in ('nothing', '__x__')])",
    "no module of it": "try: import jupyter_client.no_such_module\nexcept ImportError as error: print(error)",
    "a client": "print(type(application.blocking_client()).__module__)",
    "many threads": (
        "import concurrent.futures, jupyter_client\n"
        "with concurrent.futures.ThreadPoolExecutor(9) as pool:\n"
        "    print(set(pool.map(lambda _: jupyter_client.AsyncKernelClient.__name__, range(99))))"
    ),
}


def printed_after_start(how: str, use: str) -> list[str]:
    words = [sys.executable, "-c", f"{DEFERRED}\n{use}", str(Path(kernel_launcher.__file__).parent), how]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("use", USES)
def test_what_a_kernel_does_not_need_is_there_for_cells(use: str) -> None:
    loaded, *lines = printed_after_start("deferred", USES[use])
    assert loaded == "False"
    assert lines
    assert ["True", *lines] == printed_after_start("at once", USES[use])


def test_another_version_of_the_clients_is_loaded_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == kernel_launcher.CLIENTS]:
        monkeypatch.delitem(sys.modules, name)
    package = tmp_path / kernel_launcher.CLIENTS
    package.mkdir()
    (package / "__init__.py").write_text("value = 1", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kernel_launcher.defer_clients() is int
    assert kernel_launcher.CLIENTS not in sys.modules


RAW = """
import os, select, subprocess, sys, threading
from types import SimpleNamespace

import zmq
from ipykernel.iostream import IOPubThread, OutStream
from jupyter_client.session import Session

from sandbox_kernel.container.kernel_launcher import PIPE_BYTES, read_raw_outputs

read_last, sent = read_raw_outputs(), []
threading.Thread.start = lambda self: None  # a machine so busy that the thread that reads never runs
socket = SimpleNamespace(context=zmq.Context.instance(), send_multipart=lambda message, **_: sent.append(message))
sys.stdout = OutStream(Session(), IOPubThread(socket), "stdout", watchfd="force")
kernel = SimpleNamespace(post_handler_hook=lambda: print("handled"))
if sys.argv[1] == "read last":
    read_last(kernel)


def published():
    kernel.post_handler_hook()
    sys.stdout.flush()
    said = b"".join(part for message in sent for part in message)
    sent.clear()
    return said


os.system("echo a program")
said = published()
print(b"handled" in said, b"a program" in said, b"a program" in published(), file=sys.stderr)
with subprocess.Popen(["yes", "on and on"]) as writer:
    select.select([sys.stdout._fid], [], [], 30)
    said = published()
    writer.kill()
print(b"on and on" in said, len(said) < 2 * PIPE_BYTES, file=sys.stderr)
"""


@pytest.mark.parametrize(("how", "read"), [("read last", "True"), ("as ipykernel does", "False")])
def test_what_programs_wrote_is_published_at_the_end_of_the_request(how: str, read: str) -> None:
    """And no more of a program that writes on than a pipe holds."""
    words = [sys.executable, "-c", RAW, how]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines() == [f"True {read} False", f"{read} True"]
