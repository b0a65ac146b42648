"""Two users of one broker, as its operator sees them: in `ps`, in the figures, and on the page to look at."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from tests.browser.lab import chromium
from tests.plugins.broker.container.test_broker import FILE, NOBODY, asking, fetched
from tests.support.command_line import run
from tests.support.kernels import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

HOLDS = """
import json, socket, sys
def ask(said):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(60)
    sock.connect(sys.argv[1])
    sock.send(said.encode())
    data, files, _, _ = socket.recv_fds(sock, 1 << 17, 1)
    return sock, files, json.loads(data)
first, second = ask(sys.argv[2]), ask(sys.argv[2])
print(json.dumps([first[2].get("session"), second[2].get("refused", {}).get("code")]), flush=True)
sys.stdin.read()
"""


@contextmanager
def broker(folder: Path) -> Iterator[tuple[str, str]]:
    """Give the socket of a broker for all users, and that of its figures."""
    file = folder / "broker.toml"
    file.write_text(FILE, encoding="utf-8")
    path, metrics = str(folder / "broker.sock"), str(folder / "metrics.sock")
    options = ["--for-all", "--file", str(file), "--socket", path, "--metrics", metrics, "--pool", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox_kernel", "broker", *options], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "listening" in process.stderr.readline()
        yield path, metrics
    finally:
        process.terminate()
        process.communicate(timeout=20)


@contextmanager
def holding(path: str, uid: int) -> Iterator[str]:
    """Give the session of a sandbox that a user has, who was refused a second one."""
    process = subprocess.Popen(
        ["/usr/bin/python3", "-I", "-c", HOLDS, path, asking().decode()],
        user=uid, group=uid, extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        session, code = json.loads(process.stdout.readline())
        assert code == "quota-exceeded"
        yield session
    finally:
        process.communicate(timeout=20)


@contextmanager
def page(engine: str) -> Iterator[str]:
    """Give the address that the command prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox_kernel", "dashboard", "--port", "0", "--engine", engine],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        address = process.stderr.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/dashboard#e2b_[0-9a-f]{40}", address)
        yield address
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stderr.close()


def test_an_operator_sees_who_uses_what(tmp_path: Path) -> None:
    names = {pwd.getpwuid(uid).pw_name: uid for uid in (0, NOBODY)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="broker-")))
        folder.chmod(0o755)
        path, metrics = stack.enter_context(broker(folder))
        sessions = {name: stack.enter_context(holding(path, uid)) for name, uid in names.items()}
        engine = f"broker://{path}"

        rows = {row["user"]: row for row in json.loads(run("ps", "--json", "--engine", engine).stdout)}
        assert {name: row["session"] for name, row in rows.items()} == sessions
        for row in rows.values():
            assert 0 < row["memory_used_bytes"] < row["memory_bytes"]
            assert row["cpu_seconds"] > 0
            assert row["reaches_hosts"] is False

        figures = asyncio.run(fetched(metrics, "/metrics")).splitlines()
        for name in names:
            for line in (f'sandboxes{{user="{name}"}} 1', f'started_total{{user="{name}"}} 1'):
                assert f"sandbox_kernel_broker_user_{line}" in figures
            assert f'sandbox_kernel_broker_user_refusals_total{{user="{name}"}} 1' in figures
        used = [line for line in figures if line.startswith("sandbox_kernel_broker_user_memory_used_bytes{")]
        assert [line.rpartition(" ")[2] for line in used if line.endswith(" 0")] == []
        assert len(used) == len(names)

        browser = stack.enter_context(chromium(tmp_path))
        browser.get(stack.enter_context(page(engine)))

        def words() -> str:
            return browser.find_element(By.TAG_NAME, "main").text

        eventually(lambda: all(one[:12] in words() for one in sessions.values()), 30, "both sandboxes are seen")
        assert all(name in words() for name in names)
        browser.set_window_size(1300, 700)
        picture = Path(os.environ.get("SANDBOX_KERNEL_PICTURES", tmp_path), "dashboard-broker.png")
        assert browser.save_screenshot(str(picture))


def test_another_user_asks_for_its_own_use_alone(tmp_path: Path) -> None:
    asks = """
import json, socket, sys
for said in json.loads(sys.argv[2]):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(60)
    sock.connect(sys.argv[1])
    sock.send(json.dumps({"n": 1, **said}).encode())
    print(sock.recv(1 << 17).decode())
"""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="broker-")))
        folder.chmod(0o755)
        path, _ = stack.enter_context(broker(folder))
        stack.enter_context(holding(path, 0))
        (row,) = json.loads(run("ps", "--json", "--engine", f"broker://{path}").stdout)
        said = json.dumps([{"op": "used", "container": row["container"]}, {"op": "crowd"}])
        found = []
        for uid in (NOBODY, 0):
            done = subprocess.run(
                ["/usr/bin/python3", "-I", "-c", asks, path, said],
                user=uid, group=uid, extra_groups=[], capture_output=True, text=True, check=True,
            )  # fmt: skip
            found.append([json.loads(line) for line in done.stdout.splitlines()])
        (used, crowd), (all_used, all_crowd) = found
        assert (used["memory_bytes"], crowd["ready"]) == (None, 0)
        assert [(one["name"], one["sandboxes"]) for one in crowd["rows"]] == [(pwd.getpwuid(NOBODY).pw_name, 0)]
        assert all_used["memory_bytes"] > 0, "the control"
        assert [one["name"] for one in all_crowd["rows"]] == ["root"]
