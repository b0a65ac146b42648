"""A package of the documentation's, installed into a folder of its own, and Python that finds it there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install_package(factory: pytest.TempPathFactory, files: Mapping[str, str]) -> Path:
    """Build a package of these files and install it; return the folder of the installation."""
    package, target = factory.mktemp("package"), factory.mktemp("installed")
    for name, text in files.items():
        (package / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    command = [*pip, "--disable-pip-version-check", "--target", str(target), str(package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return target


def python(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the package is installed."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
