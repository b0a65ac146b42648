"""A root for engines without images, made of the test's image once for each run of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.turns import once

IMAGE = os.environ.get("SANDBOX_KERNEL_TEST_IMAGE", "sandbox-kernel:base")

_folder: list[tempfile.TemporaryDirectory[str]] = []
shared: list[Path] = []
"""The folder that the workers of a run have in common, if there are several."""


@cache
def root_of_tests() -> str:
    """Return the folder of a root that has what the image has; `SANDBOX_KERNEL_TEST_ROOT` names one that is there."""
    if there := os.environ.get("SANDBOX_KERNEL_TEST_ROOT"):
        return there
    if shared:
        return once(shared[0] / "root.json", lambda: _made(shared[0] / "root"))
    _folder.append(tempfile.TemporaryDirectory(prefix="sandbox-kernel-root-", ignore_cleanup_errors=True))
    return _made(Path(_folder[0].name))


def _made(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    let_others_in(folder)
    unpack(IMAGE, folder)
    return str(folder)


def unpack(image: str, folder: Path) -> None:
    """Make a root of what an image has, in a folder that is there."""
    tree = folder / "root"
    tree.mkdir()
    created = subprocess.run(["docker", "create", image, "true"], check=True, capture_output=True, text=True)
    try:
        with subprocess.Popen(["docker", "export", created.stdout.strip()], stdout=subprocess.PIPE) as exporting:
            subprocess.run(["tar", "-x", "-C", tree], check=True, stdin=exporting.stdout)
    finally:
        subprocess.run(["docker", "rm", created.stdout.strip()], check=True, capture_output=True)
    for name in ("passwd", "group"):  # an image has links there; the engine puts files of its own over what is there
        (tree / "etc" / name).unlink()
        (tree / "etc" / name).touch()
    describe(folder)


def let_others_in(folder: Path) -> None:
    """Let every user enter a temporary folder of the tests: pytest keeps others out of those above it."""
    for each in (folder, *folder.parents):
        if str(each) == tempfile.gettempdir():
            return
        if each.stat().st_mode & 0o055 != 0o055:
            each.chmod(0o755)


def describe(folder: Path, **fields: Any) -> None:
    """Write what a root is."""
    said = {
        "format": 1,
        "contents": "sha256:test",
        "made": "2026-01-31",
        "size_bytes": 1,
        "tree": "root",
        "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
        **fields,
    }
    (folder / "root.json").write_text(json.dumps({key: value for key, value in said.items() if value is not None}))
