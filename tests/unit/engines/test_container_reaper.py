"""What this process starts inherits no secret: a small process of ours gets the few variables that it needs."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core import helper_processes
from sandbox_kernel.core.helper_processes import environment_of_helpers
from sandbox_kernel.engines import container_reaper
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


SHELLS = [shell for shell in ("/bin/sh", "/bin/bash", "/bin/dash") if Path(shell).exists()]
ECHO = [sys.executable, "-I", "-S", "-c", "import sys; print(sys.argv[1:], sys.stdin.read().split())"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param(["+name", "+id", "-name"], "['+id'] []", id="what is left when its owner ends"),
        pytest.param(["+id", "=id"], "['=id'] []", id="the last word counts"),
        pytest.param(["+id", "-id", "-other"], "", id="all is gone"),
        pytest.param(["+a", "!b", "+c", "-a"], "['+a', '!b'] ['+c', '-a']", id="at once, and the rest by the program"),
        pytest.param(["+*", "+$(id)", "-b"], "['+*', '+$(id)'] []", id="words are words"),
        pytest.param([f"+{n}" for n in range(20)], f"{[f'+{n}' for n in range(17)]} ['+17', '+18', '+19']", id="many"),
        pytest.param([f"{word}{n}" for n in range(99) for word in "+-"], "", id="many in turn"),
    ],
)
def test_a_shell_waits_and_passes_on_what_counts(shell: str, lines: list[str], printed: str) -> None:
    command = [shell, container_reaper.WAITS, *ECHO]
    told = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=told, env={}, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == (printed, "")


def test_where_there_is_no_shell_the_program_waits_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text("import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())", encoding="utf-8")
    monkeypatch.setattr(helper_processes, "SHELL", "/nonexistent/sh")
    process = helper_processes.start_helper(str(script), str(tmp_path / "said"), waits=container_reaper.WAITS)
    process.returncode = None  # unlike a helper of a kernel's, it is waited for
    process.communicate(b"+a\n+b\n", timeout=60)
    assert process.returncode == 0
    assert (tmp_path / "said").read_text(encoding="utf-8") == "+a\n+b\n"
