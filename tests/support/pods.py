"""Programs in a container that has no rights, as a pod is: with this machine's Python, this checkout and a root."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support import ROOT
from tests.support.ordinary import ROOT_OF_TESTS, with_packages
from tests.support.roots import IMAGE, root_of_tests

NUMBER_ALONE = ("--security-opt", "seccomp=unconfined", "--user", "1234", "--cap-drop", "ALL")
"""A pod without a profile for system calls: a user by its number, whose group is root's, without capabilities."""
FIRST = 'timeout "$0" "$@"; exit $?'
"""Of a shell, which as process 1 of the container takes in what others leave."""


def run(options: Sequence[str], arguments: Sequence[str], *, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run Python with `arguments` in a container that is started with `options`, for `seconds` at most."""
    root = root_of_tests()
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-pod-") as folder:
        Path(folder).chmod(0o755)
        program = with_packages(Path(folder))
        mounts = [f"--volume={path}:{path}:ro" for path in ("/usr", str(ROOT), root, folder)]
        variables = [f"--env={ROOT_OF_TESTS}={root}", "--env=HOME=/tmp/home", "--env=PYTHONDONTWRITEBYTECODE=1"]
        begins = [
            "docker",
            "run",
            "--rm",
            "--network=none",
            "--tmpfs=/tmp/home:mode=1777",
            f"--workdir={ROOT}",
            "--entrypoint=/bin/sh",
        ]
        return subprocess.run(
            [*begins, *options, *mounts, *variables, IMAGE, "-c", FIRST, str(seconds), program, *arguments],
            capture_output=True, text=True, timeout=seconds + 60, check=False,
        )  # fmt: skip


def run_tests(tests: Sequence[str], select: str, *, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run pytest there, one test after the other."""
    pytest = ["-m", "pytest", *tests, "-k", select, "-n0", "-q", "-rs", "-p", "no:cacheprovider"]
    return run(NUMBER_ALONE, pytest, seconds=seconds)
