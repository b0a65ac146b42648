"""Folders of this machine that sandboxes may read, wherever pytest has its own."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sandbox_kernel.core.model import Attached


@contextlib.contextmanager
def a_folder(name: str = "data") -> Iterator[Path]:
    """Make an empty folder that every user of the machine may read; it is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-dataset-") as above:
        Path(above).chmod(0o755)
        folder = Path(above, name)
        folder.mkdir()
        folder.chmod(0o755)
        yield folder


def dataset(folder: Path, name: str = "sales") -> tuple[Attached, ...]:
    """Return what a spec has for it."""
    return (Attached(kind="dataset", name=name, source=str(folder)),)
