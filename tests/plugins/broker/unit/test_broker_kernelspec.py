"""A kernelspec whose engine is a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox_kernel.config.sources import read_argv
from tests.support.command_line import run
from tests.unit.setup.test_install import spec_of


@pytest.mark.slow
def test_a_kernel_of_a_broker_is_started_as_all_are(tmp_path: Path) -> None:
    assert run("install", "--prefix", tmp_path, "--engine", "broker", "--cpus", "1", cwd=tmp_path).returncode == 0
    argv = spec_of(tmp_path).argv
    assert argv[:6] == [sys.executable, "-I", "-m", "sandbox_kernel", "-f", "{connection_file}"]
    assert read_argv(argv[4:]) == ("{connection_file}", {"engine": "broker", "cpus": "1"})
