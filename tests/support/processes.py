"""Programs of a test's own in other processes, each until the end of a block."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support import ROOT


@contextmanager
def python(
    code: str, *words: str | Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a program in the checkout; give its process, killed with the block, and the first line that it prints."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=env) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()
