"""The renderers of front ends, from npm, as one script for a page: installed and bundled once into `.cache`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.setup.engine_setup import Steps, install_packages

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "renderers"
SOURCES = ("package.json", "package-lock.json")
SECONDS = 600
"""For all packages, over a network."""
BUNDLE = (
    "--bundle", "--format=iife", "--log-level=error", "--legal-comments=none",
    "--loader:.svg=text", "--loader:.raw=text",
    '--define:process.env.NODE_ENV="production"', "--define:global=globalThis",
)  # fmt: skip


class MissingError(Exception):
    """What is missing on this machine, in one sentence."""


def installed() -> Path:
    """Return the folder of the page: `page.js`, `page.css` and MathJax 2 for exports; make it if it is not there.

    Packages are those of the lock, and none of their scripts runs. Raises `MissingError` without Node.js and npm.
    """
    npm = _npm()
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = CACHE / f"packages-{_digest(HERE / name for name in SOURCES)}"
        if not packages.exists():
            _install(npm, packages)
        page = CACHE / f"page-{_digest([*(HERE / name for name in SOURCES), *sorted((HERE / 'page').iterdir())])}"
        if not page.exists():
            _bundle(packages, page)
    return page


def _npm() -> str:
    """Return npm's program; install it where that is possible."""
    if not shutil.which("npm") and os.geteuid() == 0 and shutil.which("apt-get"):
        with suppress(EngineError):
            install_packages(["npm"], Steps())
    npm = shutil.which("npm")
    if npm is None:
        raise MissingError("Node.js with npm is not installed, and only root on Debian or Ubuntu may install it here")
    return npm


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _install(npm: str, packages: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="new-") as name:
        folder = Path(name)
        for source in SOURCES:
            shutil.copy(HERE / source, folder)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], folder)
        folder.rename(packages)
        folder.mkdir()  # for the end of its context


def _bundle(packages: Path, page: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="new-") as name:
        folder = Path(name)
        # Beside the packages, where their names are looked up.
        sources = packages / "page"
        shutil.rmtree(sources, ignore_errors=True)
        shutil.copytree(HERE / "page", sources)
        bundler = packages / "node_modules/esbuild/bin/esbuild"
        _run([str(bundler), "page/main.js", f"--outfile={folder / 'page.js'}", *BUNDLE], packages)
        (folder / "mathjax").symlink_to(Path("..", packages.name, "node_modules/mathjax"))
        folder.rename(page)
        folder.mkdir()


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_UPDATE_NOTIFIER": "1"},
    )  # fmt: skip
    if done.returncode:
        raise MissingError(f"`{' '.join(command[:2])}` failed: {(done.stderr or done.stdout)[-2000:]}")


if __name__ == "__main__":
    print(installed())
