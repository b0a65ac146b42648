"""The demo's command as `make demo` has it, on the broker of the user's own that it starts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.broker.brokers import end_unused
from tests.support import ROOT


def command(output: Path, settings: str = "") -> list[str]:
    """Return what the Makefile runs after the setup, but for this Python and for another folder."""
    made = ["make", "--dry-run", "demo", f"SETTINGS={settings}"]
    said = subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    [line] = re.findall(r"^\S+/python (notebooks/demo\.py .*)$", said, re.MULTILINE)
    words = shlex.split(line)
    words[words.index("--output") + 1] = str(output)
    return [sys.executable, *words]


@pytest.mark.long
@pytest.mark.alone  # while its broker listens, sessions of other tests would take it
def test_it_ends_well_the_first_time_and_again(tmp_path: Path) -> None:
    try:
        for turn in ("first", "second"):
            done = subprocess.run(
                command(tmp_path / turn), cwd=ROOT, check=False, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "The notebook's answer:" in done.stdout
            assert (tmp_path / turn / "files/delays.png").is_file()
    finally:
        end_unused()
