"""One sandbox that several kernels share: what they have in common, and what each has for itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from sandbox_kernel import ConfigurationError, EngineError, Sandbox
from sandbox_kernel.config import sources as config
from sandbox_kernel.engines import broker_sockets
from sandbox_kernel.engines.select import beneath, make_own_engine
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.shared.codes import SharedCode
from sandbox_kernel.plugins.shared.place import socket_of
from tests.support.command_line import run

ENGINE = "shared:///tests"


@pytest.fixture(scope="module")
def _folders() -> Iterator[list[Path]]:
    """The folders of all tests: no owner is left in any of them. Each stays for two seconds after its kernels."""
    used: list[Path] = []
    yield used
    until = time.monotonic() + 30
    for folder in used:
        while owners(folder):
            assert time.monotonic() < until, "its owner outlives the kernels"
            time.sleep(0.05)
        assert list((folder / "own").glob("shared/*.sock")) == []


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, _folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own for each test."""
    monkeypatch.setattr(broker_sockets, "own_folder", lambda: str(tmp_path / "own"))
    _folders.append(tmp_path)
    return tmp_path / "own" / "shared"


def owners(folder: Path) -> list[psutil.Process]:
    """Return the processes that own a sandbox of a test."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "sandbox_kernel.plugins.shared.owner" in words and any(word.startswith(str(folder)) for word in words):
            found.append(process)
    return found


def joined(image: str, **more: str) -> Sandbox:
    return Sandbox(engine=ENGINE, image=image, **more)  # type: ignore[arg-type]


def test_kernels_share_files_and_have_variables_of_their_own(image: str, tmp_path: Path) -> None:
    with joined(image) as one, joined(image) as other:
        one.run_code("word = 'one'; open('shared.txt', 'w').write('here')")
        other.run_code("word = 'other'")
        assert one.run_code("word").text == "'one'"
        assert other.run_code("word").text == "'other'"
        assert other.run_code("open('shared.txt').read()").text == "'here'"
        assert other.files.read("shared.txt") == "here"
        assert len(owners(tmp_path)) == 1


def test_an_end_of_one_leaves_the_other(image: str) -> None:
    with joined(image) as one:
        with joined(image) as other:
            one.run_code("kept = 1")
            died = other.run_code("import os; os._exit(3)")
            assert died.error is not None
            assert died.error.name == "KernelDied"
            other.restart()
            assert other.run_code("1 + 1").text == "2"
            assert one.run_code("kept").text == "1"
            pid = other.run_code("import subprocess; subprocess.Popen(['setsid', 'sleep', '600']).pid").text
        runs = f"import os; os.path.exists('/proc/{pid}/cwd') and os.readlink('/proc/{pid}/exe')"
        until = time.monotonic() + 30
        while one.run_code(runs).text not in {"False", None}:
            assert time.monotonic() < until, "what it left runs on"
        assert one.run_code("kept").text == "1"


def test_other_settings_are_refused_by_name(image: str) -> None:
    with joined(image):
        with pytest.raises(EngineError) as caught:
            joined(image, memory="1G").start()
        assert caught.value.code is SharedCode.SHARED_OTHER_SETTINGS
        with joined(image) as other:
            assert other.run_code("6 * 7").text == "42", "the control: the same settings"


def test_kernels_that_share_a_sandbox_see_the_same_dataset(image: str) -> None:
    """One that names another folder, or none, is refused."""
    with tempfile.TemporaryDirectory(prefix="dataset-") as data:
        Path(data).chmod(0o755)
        (Path(data) / "word").write_text("found", encoding="utf-8")
        look = "print(open('/mnt/datasets/a/word').read())"
        with Sandbox(engine=ENGINE, image=image, datasets={"a": data}) as one:
            with Sandbox(engine=ENGINE, image=image, datasets={"a": data}) as two:
                assert ["".join(each.run_code(look).logs.stdout) for each in (one, two)] == ["found\n"] * 2
            for other in ({"a": "/srv"}, {}):
                with pytest.raises(EngineError) as caught, Sandbox(engine=ENGINE, image=image, datasets=other):
                    pass
                assert caught.value.code is SharedCode.SHARED_OTHER_SETTINGS


def test_what_one_kernel_alone_may_have_is_refused(image: str) -> None:
    with pytest.raises(EngineError) as caught:
        joined(image, network="api.example.org").start()
    assert caught.value.code is SharedCode.SHARED_SERVES_NOTHING


def test_an_owner_that_is_killed_takes_the_sandbox_along_and_the_next_cell_has_another(
    image: str, tmp_path: Path
) -> None:
    with joined(image) as one:
        one.run_code("kept = 1")
        (owner,) = owners(tmp_path)
        owner.send_signal(signal.SIGKILL)
        owner.wait(30)
        lost = one.run_code("'kept' in globals()")
        if lost.error is not None:
            assert lost.error.name == "SandboxDied"
            lost = one.run_code("'kept' in globals()")
        assert lost.text == "False"


def test_a_socket_of_another_folder_owner_is_not_believed(folder: Path, image: str) -> None:
    with joined(image) as control:
        assert control.run_code("6 * 7").text == "42"
        folder.chmod(0o777)
        with pytest.raises(EngineError) as caught:
            joined(image).start()
        assert caught.value.code is SharedCode.SHARED_NOT_STARTED
        assert "others may write in the folder" in str(caught.value)
        folder.chmod(0o700)


@pytest.mark.parametrize("name", ["../x", "a/b", ".", "", "x" * 41])
def test_what_is_no_name_is_refused(name: str, image: str) -> None:
    with pytest.raises((ConfigurationError, EngineError)):
        Sandbox(engine=f"shared:///{name}", image=image).start()


def test_a_monitor_of_one_kernel_is_refused(image: str) -> None:
    """It would watch the others, and see their programs nowhere."""
    with pytest.raises(EngineError) as caught:
        joined(image, monitor="alert").start()
    assert caught.value.code is SharedCode.SHARED_SERVES_NOTHING


def test_a_restart_leaves_the_contexts_of_a_kernel(image: str) -> None:
    with joined(image) as one, joined(image) as other:
        made = one.create_context()
        one.run_code("kept = 1", context=made)
        other.run_code("kept = 2")
        one.restart()
        assert one.run_code("kept", context=made).text == "1"
        assert other.run_code("kept").text == "2"


def test_a_kernel_that_ends_alone_says_that_the_files_are_there(image: str) -> None:
    with joined(image) as one, joined(image) as other:
        agent = one.run_code("import os; os.getppid()").text
        other.run_code(f"import os; os.kill({agent}, 9)")
        lost = one.run_code("1")
        if lost.error is not None:
            assert lost.error.kept == "files"
        assert other.run_code("6 * 7").text == "42"


def test_who_looks_at_sandboxes_looks_at_one_by_itself(image: str) -> None:
    settings = config.from_keywords(engine=ENGINE, image=image)
    assert beneath(settings).engine == "auto"
    with pytest.raises(ConfigurationError):
        make_own_engine(settings)


def test_kernels_of_several_languages_that_join_have_names_of_their_own(image: str, tmp_path: Path) -> None:
    for more in ([], ["--kernel", "bash"]):
        assert run("install", "--prefix", tmp_path, "--image", image, "--join", "both", *more).returncode == 0
    found = {
        path.parent.name: json.loads(path.read_text())["display_name"]
        for path in tmp_path.glob("share/jupyter/kernels/*/kernel.json")
    }
    python, bash = "Python 3 (shared: both)", "Bash (shared: both)"
    assert found == {"sandbox-shared-both": python, "sandbox-shared-both-bash": bash}


START = {"op": "start", "n": 1, "protocol": packets.VERSION, "agent": ""}
SPECS: tuple[object, ...] = (None, [], {}, {"shared": "x"}, {"shared": []})
HOSTILE = [
    b"",
    b"{",
    b"[]",
    b'{"digest": 1}',
    json.dumps(START).encode(),
    *(json.dumps({**START, "spec": spec}).encode() for spec in SPECS),
    *(json.dumps({"op": op, "n": 1}).encode() for op in ("look", "kill", "list", "image", "reap", "info")),
    b"x" * packets.MAX_BYTES,
]


def test_what_is_no_request_gets_no_kernel(image: str) -> None:
    with joined(image) as one:
        path = socket_of(ENGINE)
        for said in HOSTILE:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.settimeout(30)
                sock.connect(str(path))
                sock.send(said)
                sock.shutdown(socket.SHUT_WR)
                answer, fds, _, _ = socket.recv_fds(sock, packets.MAX_BYTES, 4)
            assert not fds
            assert not answer or json.loads(answer).keys() & {"refused", "rows", "info", "count"}, said[:12]
            assert one.run_code("6 * 7").text == "42", said[:12]


def test_a_kernel_of_a_notebook_joins_by_its_kernelspec(image: str, tmp_path: Path) -> None:
    """`install --join`, and a restart of the kernel process: the files and the other notebook's variables stay."""
    name = f"t{os.getpid()}"
    assert run("install", "--prefix", tmp_path, "--join", name, "--image", image).returncode == 0
    spec = json.loads((tmp_path / f"share/jupyter/kernels/sandbox-shared-{name}/kernel.json").read_text())
    assert spec["display_name"] == f"Python 3 (shared: {name})"
    assert any(f"shared:///{name}" in word for word in spec["argv"]), spec["argv"]
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path / "share/jupyter/kernels")])
    with notebook(specs, name) as one, notebook(specs, name) as other:
        assert said(one, "word = 'one'; open('f', 'w').write('x'); print(word)") == "one\n"
        assert said(other, "word = 'other'; print(open('f').read())") == "x\n"
        one[0].restart_kernel()
        one[1].wait_for_ready(timeout=60)
        assert said(one, "print('word' in globals(), open('f').read())") == "False x\n"
        assert said(other, "print(word)") == "other\n"
    place = Path(NOT_OF_TESTS(), "shared")
    until = time.monotonic() + 30
    while list(place.glob(f"{name}-*.sock")):
        assert time.monotonic() < until, "its owner outlives the kernels"
        time.sleep(0.05)


Notebook = tuple[KernelManager, Any]
NOT_OF_TESTS = broker_sockets.own_folder
"""Where kernel processes meet: they know nothing of the folder of a test."""


@contextmanager
def notebook(specs: KernelSpecManager, name: str) -> Iterator[Notebook]:
    manager = KernelManager(kernel_name=f"sandbox-shared-{name}", kernel_spec_manager=specs)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def said(one: Notebook, code: str) -> str:
    texts: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        texts.append(message["content"].get("text", message["content"].get("evalue", "")))

    one[1].execute_interactive(code, timeout=60, output_hook=hear)
    return "".join(texts)
