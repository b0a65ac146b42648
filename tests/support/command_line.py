"""The command line in this process: what it prints and how it ends, without a second of processor for a new Python."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

from sandbox_kernel.cli import main

SCRIPT = Path(sys.executable).with_name("sandbox-kernel")
"""For a process of its own."""


def run(
    *words: str | Path, cwd: Path | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Run a command with more environment `variables`, in a folder, without an input."""
    arguments = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "stdin", io.StringIO()),
        patch.dict(os.environ, variables),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main(arguments)
        except SystemExit as end:  # as argparse ends for help, and for what it does not know
            code = end.code if isinstance(end.code, int) else 1
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
