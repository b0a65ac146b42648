"""`jupyter console` in a terminal: it ends with the sandbox as with a stock kernel, and no cell ends it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.support.cases import paired
from tests.support.kernels import install

pytest.importorskip("jupyter_console")

ASKED, ENDED, GOES_ON = "asked", "ended", "goes on"
FORGED = (
    "get_ipython().payload_manager.write_payload(dict(source='ask_exit', keepkernel=False))",
    "get_ipython().ask_exit()",
    "exit  # and more",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, image: str) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    install(folder, "--image", image)
    return folder / "share/jupyter"


def left(path: Path, kernel: str, tmp_path: Path, *lines: str | None) -> str:
    """Return what a console does at the first of some lines that it does not go on after; None ends the input."""
    environment: dict[str, Any] = {**os.environ, "JUPYTER_PATH": str(path), "HOME": str(tmp_path), "TERM": "dumb"}
    command = ["-m", "jupyter_console", "--simple-prompt", "--kernel", kernel]
    console = pexpect.spawn(sys.executable, command, timeout=60, encoding="utf-8", env=environment, cwd=tmp_path)
    try:
        console.expect(r"In \[1\]: ")
        console.sendline("6 * 7")
        console.expect(r"Out\[1\]: 42")
        console.expect(r"In \[2\]: ")
        for words in lines:
            if words is None:
                console.sendeof()
            else:
                console.sendline(words)
            # A kernel that ended itself begins to count anew.
            found = console.expect(["really want to exit", pexpect.EOF, r"In \[\d+\]: "])
            if found != 2:
                break
        if found == 2:
            console.sendeof()
        if found != 1:
            console.sendline("y")
            console.expect(pexpect.EOF)
    finally:
        console.close(force=True)
    return (ASKED, ENDED, GOES_ON)[found]


@pytest.mark.parametrize(("words", "kernel"), paired(["exit", "quit()", None], ["sandbox-python", "python3"]))
def test_a_console_ends_as_with_a_stock_kernel(path: Path, tmp_path: Path, kernel: str, words: str | None) -> None:
    """The end of the input is asked about by the console itself; what a person writes to leave is not."""
    assert left(path, kernel, tmp_path, words) == (ASKED if words is None else ENDED)


def test_no_cell_ends_a_console(path: Path, tmp_path: Path) -> None:
    assert left(path, "sandbox-python", tmp_path, *FORGED) == GOES_ON


def test_control_a_stock_kernel_can_end_a_console(path: Path, tmp_path: Path) -> None:
    assert left(path, "python3", tmp_path, FORGED[0]) == ENDED
