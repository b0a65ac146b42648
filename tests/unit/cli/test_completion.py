"""Completion of the command line, in the shells themselves: what a person gets who presses the tabulator key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from sandbox_kernel.cli.completion import SHELLS
from tests.support.command_line import run

LINES = {
    "doc": {"docs", "doctor"},
    "settings --js": {"--json"},
    "run --total": {"--total-timeout"},
    "install --cell": {"--cell-timeout"},
    "install --outputs ": {"safe", "strict", "trusted"},
    "run --fail-on-policy ": {"violation", "any", "never"},
    "build --kind d": {"data", "deno"},
    "completion ": set(SHELLS),
    "verify --format ": {"table", "json", "html"},
    "run dat": {"data.csv"},
    "build --requirements dat": {"data.csv"},
}
"""What stands behind the name of the program, and all that may follow."""

BASH = r"""
source "$1"
[[ $(complete -p sandbox-kernel) =~ -F\ ([a-z_]+) ]]
eval "COMP_WORDS=(sandbox-kernel $2)"
[[ $2 != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"${BASH_REMATCH[1]}" sandbox-kernel "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file, and a script for each shell."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "data.csv").touch()
    for shell in SHELLS:
        (folder / f"_{shell}").write_text(run("completion", shell).stdout)
    (folder / "functions").mkdir()
    (folder / "_zsh").rename(folder / "functions" / "_sandbox-kernel")
    return folder


def ask(place: Path, command: list[str]) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def needed(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_bash_completes(line: str, place: Path) -> None:
    shown = ask(place, [needed("bash"), "--norc", "-eu", "-c", BASH, "bash", "_bash", line])
    assert set(shown.split()) == LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_fish_completes(line: str, place: Path) -> None:
    """Fish also says what each is for, and which folders there are on the way to a file."""
    ask_for = ["--no-config", "-c", "source _fish; complete --do-complete $argv[1]", f"sandbox-kernel {line}"]
    shown = ask(place, [needed("fish"), *ask_for])
    assert {row.partition("\t")[0] for row in shown.splitlines()} == LINES[line]


def test_zsh_completes(place: Path) -> None:
    """At a terminal, as it completes nowhere else: it writes the rest of a word that has one ending only."""
    read, write = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "PS1": "$ ", "ZDOTDIR": str(place), "HOME": str(place)}
    shell = subprocess.Popen(
        [needed("zsh"), "-f", "-i"], stdin=write, stdout=write, stderr=write, cwd=place, env=environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(write)
    try:
        os.write(read, b"fpath=($PWD/functions $fpath); autoload -U compinit; compinit -u -D; print re''ady\n")
        until(read, "ready")
        for line in ("doc", "run --total", "install --cell", "build --kind d"):
            [whole] = LINES[line]
            os.write(read, f"sandbox-kernel {line}\t".encode())
            until(read, whole.removeprefix(line.split()[-1]))
            os.write(read, b"\x15print nex''t\n")  # Ctrl-U takes the line away
            until(read, "next")
    finally:
        shell.kill()
        shell.wait(10)
        os.close(read)


def until(terminal: int, text: str, seconds: float = 30.0) -> None:
    """Read until `text` is on the screen."""
    shown, end = "", time.monotonic() + seconds
    while text not in shown:
        assert select.select([terminal], [], [], max(0.0, end - time.monotonic()))[0], f"no {text!r} in {shown!r}"
        shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x08", "", os.read(terminal, 4096).decode(errors="replace"))


def test_a_shell_that_is_not_known_is_refused() -> None:
    done = run("completion", "csh")
    assert done.returncode == 2
    assert "invalid choice: 'csh'" in done.stderr
