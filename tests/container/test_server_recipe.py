"""The recipe for a Jupyter Server: docs/examples/server_client.py, as it stands there, against a real server."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import websocket

from tests.support.jupyter_servers import EXAMPLE, EXTENSION, Server, asked, example_client, served
from tests.support.kernels import containers_of, eventually

DEFAULT = "--MappingKernelManager.default_kernel_name=sandbox-python"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("server"), image, DEFAULT) as found:
        yield found


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return example_client()


@pytest.fixture
def kernel(server: Server, example: ModuleType) -> Iterator[Any]:
    before = {process.pid for process in server.kernels()}
    with example.Kernel(server.url, server.token, patience=60) as kernel:
        (process,) = [process for process in server.kernels() if process.pid not in before]
        yield kernel
    eventually(lambda: not containers_of(process.pid), 10, "its container is gone")


def text(messages: list[dict[str, Any]]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["header"]["msg_type"] == "stream")


def test_the_program_shows_all_of_it(server: Server, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("a,b\n" + "1,2\n" * 100)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), server.url, "sales.csv"],
        env={**os.environ, "JUPYTER_TOKEN": server.token},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"memory: {2 << 30}", "uploaded: 404 bytes", "100 rows"]
    assert re.search(r"\[100 rows x 2 columns\] \['text/html', 'text/plain'\]", done.stdout)
    assert "[ok]" in lines
    size = (tmp_path / "plot.png").stat().st_size
    assert f"downloaded: {size} bytes" in lines
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert lines[-4:-2] == ["KeyboardInterrupt: ", "[error]"]
    assert "3" in lines
    assert "999" not in lines
    assert lines[-2:] == ["False ['data.csv', 'plot.png']", "[ok]"]
    assert not server.kernels()


def test_twenty_megabytes_through_the_server(kernel: Any) -> None:
    data = os.urandom(20_000_000)
    assert kernel.upload(io.BytesIO(data), "in.bin") == len(data)
    shown = list(kernel.run("import hashlib; print(hashlib.sha256(open('in.bin', 'rb').read()).hexdigest())"))
    assert text(shown).strip() == hashlib.sha256(data).hexdigest()
    assert shown[-1]["content"]["status"] == "ok"
    back = io.BytesIO()
    assert kernel.download("in.bin", back) == len(data)
    assert back.getvalue() == data
    assert [(file["path"], file["size"]) for file in kernel.files()] == [("in.bin", len(data))]
    kernel.remove("in.bin")
    assert kernel.files() == []


def test_files_move_while_a_cell_runs_and_the_server_knows_it_is_busy(kernel: Any) -> None:
    code = (
        "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('gone')"
    )
    shown = []
    for message in kernel.run(code):
        shown.append(message)
        if text(shown) == "begun\n":
            assert kernel.files() == []
            eventually(lambda: kernel.state() == "busy", 10, "the server shows the cell that runs")
            kernel.upload(io.BytesIO(b""), "go")
    assert text(shown) == "begun\ngone\n"
    eventually(lambda: kernel.state() == "idle", 10, "the server shows that it ended")


def test_output_streams_while_the_cell_runs(kernel: Any) -> None:
    """The cell waits for a file that is sent once its first output is seen: so that came before its end."""
    seen = []
    for message in kernel.run("import os, time\nprint(1)\nwhile not os.path.exists('x'): time.sleep(0.01)\nprint(2)"):
        if message["header"]["msg_type"] == "stream":
            seen.append(message["content"]["text"])
            if len(seen) == 1:
                kernel.upload(io.BytesIO(b"x"), "x")
    assert "".join(seen) == "1\n2\n"


@pytest.mark.long
@pytest.mark.alone
def test_the_first_cell_after_a_restart_is_heard(kernel: Any) -> None:
    """The new kernel is ready before the server has connected again to all of its sockets."""
    for number in range(4):
        kernel.restart()
        assert text(list(kernel.run(f"print({number})"))) == f"{number}\n"


def test_a_refusal_names_its_reason(kernel: Any, example: ModuleType) -> None:
    with pytest.raises(example.FileError, match=r"contains '\.\.'"):
        kernel.upload(io.BytesIO(b"x"), "../x")
    with pytest.raises(example.FileError, match="no such file"):
        kernel.download("none", io.BytesIO())
    failed = list(kernel.run("1 / 0"))
    assert failed[-1]["content"]["ename"] == "ZeroDivisionError"


def test_a_kernel_process_that_dies_is_told_to_whoever_waits(kernel: Any, example: ModuleType, server: Server) -> None:
    (process,) = server.kernels()
    cell = kernel.run("import time\nprint(1)\ntime.sleep(50)")
    while next(cell)["header"]["msg_type"] != "stream":
        pass
    process.kill()
    with pytest.raises(example.KernelGone):  # the server's restarter looks every 3 s
        list(cell)
    assert text(list(kernel.run("print('the next one')"))) == "the next one\n"


def test_the_older_form_of_the_websocket_carries_buffers_and_base64_too(server: Server, kernel: Any) -> None:
    """Without the subprotocol, messages are JSON text, or JSON and offsets in one binary frame."""
    address = f"{server.url.replace('http', 'ws', 1)}api/kernels/{kernel.id}/channels?session_id=old"
    old = websocket.create_connection(address, header=[f"Authorization: token {server.token}"], timeout=60)
    try:

        def ask(kind: str, content: dict[str, Any]) -> str | bytes:
            header = {"msg_id": kind, "msg_type": f"sandbox_file_{kind}_request", "session": "old", "version": "5.4"}
            message = {"header": header | {"username": "", "date": ""}, "parent_header": {}, "metadata": {}}
            old.send(json.dumps({**message, "content": content, "channel": "control"}))
            while True:
                answer: str | bytes = old.recv()
                if b"_reply" in (answer if isinstance(answer, bytes) else answer.encode()):
                    return answer

        written = json.loads(ask("write", {"path": "b", "data": base64.b64encode(b"\x00\xff").decode()}))
        assert written["content"]["status"] == "ok"
        read = json.loads(ask("read", {"path": "b", "encoding": "base64"}))
        assert base64.b64decode(read["content"]["data"]) == b"\x00\xff"
        binary = ask("read", {"path": "b"})
        assert isinstance(binary, bytes)
        assert binary.endswith(b"\x00\xff")
    finally:
        old.close()


def test_without_the_token_nothing_is_answered(server: Server, kernel: Any) -> None:
    for path in ("api/kernels", f"api/kernels/{kernel.id}"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(server.url + path, timeout=30)  # noqa: S310
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        websocket.create_connection(
            f"{server.url.replace('http', 'ws', 1)}api/kernels/{kernel.id}/channels", timeout=30
        )


def test_a_default_is_for_front_ends_that_name_no_kernel(server: Server) -> None:
    status, kernel = asked(server, "kernels", {})
    assert (status, kernel["name"]) == (201, "sandbox-python")
    assert asked(server, f"kernels/{kernel['id']}", {}, "DELETE")[0] == 204


def test_a_server_that_is_told_so_starts_sandboxes_only(tmp_path: Path, image: str) -> None:
    """Open WebUI names no kernel; others could name python3. The control is the same server without the setting."""
    notebook = {"path": "a.ipynb", "type": "notebook", "name": ""}
    with served(tmp_path, image, EXTENSION, "--SandboxKernels.allowed=sandbox-python") as server:
        status, kernel = asked(server, "kernels", {})
        assert (status, kernel["name"]) == (201, "sandbox-python")
        status, info = asked(server, "kernelspecs", {}, "GET")
        assert (status, list(info["kernelspecs"]), info["default"]) == (200, ["sandbox-python"], "sandbox-python")
        for name in ("python3x", "none"):
            status, answer = asked(server, "kernels", {"name": name})
            assert (status, "starts sandboxes only" in answer["message"]) == (403, True)
            status, answer = asked(server, "sessions", notebook | {"kernel": {"name": name}})
            assert (status, "starts sandboxes only" in answer["message"]) == (500, True)  # so Jupyter Server says it
        assert [one["name"] for one in asked(server, "kernels", {}, "GET")[1]] == ["sandbox-python"]
        status, usual = asked(server, "kernels", {"name": "python3"})  # as jupyter-mcp-server asks, and many others
        assert (status, usual["name"]) == (201, "sandbox-python")
        assert asked(server, f"kernels/{usual['id']}", {}, "DELETE")[0] == 204
        status, session = asked(server, "sessions", notebook | {"kernel": {"name": "python3"}})
        assert (status, session["kernel"]["name"]) == (201, "sandbox-python")
        assert asked(server, f"sessions/{session['id']}", {}, "DELETE")[0] == 204
        assert asked(server, f"kernels/{kernel['id']}/restart", {})[0] == 200
        assert asked(server, f"kernels/{kernel['id']}", {}, "DELETE")[0] == 204
    (tmp_path / "control").mkdir()
    with served(tmp_path / "control", image, EXTENSION) as server:
        status, kernel = asked(server, "kernels", {})
        assert (status, kernel["name"]) == (201, "python3")
        assert asked(server, f"kernels/{kernel['id']}", {}, "DELETE")[0] == 204
