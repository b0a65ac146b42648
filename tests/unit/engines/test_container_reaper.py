"""What this process starts inherits no secret: a small process of ours gets the few variables that it needs."""

from __future__ import annotations

import ast
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.helper_processes import environment_of_helpers
from sandbox_kernel.engines.container_reaper import ContainerGuard
from tests.support import ROOT

VALUE = "sk-live-8Jd02kQm3vXz71LpRt5W"
PLUGINS = ("mcp", "network", "packages", "tools")
ROOMS = ("core", "engines", "files", "kernel", *(f"plugins/{name}" for name in PLUGINS), "sdk", "session", "wheels")
"""Of which something runs beside a session; setting a machine up is another matter."""


def inheriting(source: str) -> list[int]:
    """Return the lines on which a process is started with all variables of this one."""
    starts = {"Popen", "run", "check_call", "check_output", "create_subprocess_exec", "call"}
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) in {"subprocess", "asyncio"}
        and node.func.attr in starts
        and "env" not in {keyword.arg for keyword in node.keywords}
        and ast.unparse(node.func) != "asyncio.run"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_no_process_is_started_with_all_variables(room: str) -> None:
    paths = sorted((ROOT / "sandbox_kernel" / room).rglob("*.py"))
    assert paths
    for path in paths:
        assert inheriting(path.read_text(encoding="utf-8")) == [], path.name


def test_control_a_process_with_all_variables_is_seen() -> None:
    assert inheriting(
        "subprocess.Popen(['x'])\nsubprocess.run(['x'], env={})\nawait asyncio.create_subprocess_exec('x')"
    )


def test_the_guard_of_containers_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noting(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*words, **options))
        return started[-1]

    monkeypatch.setenv("API_KEY", VALUE)
    monkeypatch.setattr(subprocess, "Popen", noting)
    guard = ContainerGuard("/nonexistent/engine.sock")
    guard.expect("a-container")
    try:
        end = time.monotonic() + 20
        while not (variables := Path(f"/proc/{started[0].pid}/environ").read_bytes()) and time.monotonic() < end:
            pass  # a process that begins has none for a moment
        words = Path(f"/proc/{started[0].pid}/cmdline").read_bytes()
    finally:
        guard.forget("a-container")
        started[0].returncode = None
        started[0].terminate()
        started[0].wait(20)
    assert b"PATH=" in variables
    assert VALUE.encode() not in variables + words
    assert VALUE not in environment_of_helpers().values()
