"""The wheels of an image, fetched on the host by pip for the image's Python, and kept in a cache folder.

Imports errors only. Nothing is built from source and no code of a wheel runs here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigurationError, EngineError

PYTHON_VERSION = "3.13"
NEWEST_GLIBC, OLDEST_GLIBC = 41, 5
"""Debian 13 has glibc 2.41: wheels made for it or for any older one fit (manylinux_2_5 is the oldest there is)."""

DOWNLOAD_SECONDS = 1800.0

_RESOLVE_FOR_THE_IMAGE = """
import sys
wheel, architecture, version = sys.argv[1:4]
sys.path.insert(0, wheel)
from pip._vendor.packaging import markers
here = markers.default_environment
there = {"python_version": version, "python_full_version": version + ".0", "implementation_version": version + ".0",
         "platform_machine": architecture, "platform_system": "Linux", "sys_platform": "linux", "os_name": "posix",
         "implementation_name": "cpython", "platform_python_implementation": "CPython"}
markers.default_environment = lambda: {**here(), **there}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[4:]))
"""
"""pip chooses wheels for another Python, but reads `; python_version >= "3.12"` for its own: this makes both agree."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """What to install in an image: wheels, the installer among them, and the requirements file that pip reads there."""

    files: tuple[Path, ...]
    requirements: str


def locked(recipes: Path, name: str, architecture: str) -> Wheels:
    """Return the wheels of `images/{name}.lock`; pip checks each hash here, and again in the image."""
    lock = (recipes / f"{name}.lock").read_text()
    folder = cache() / f"{name}-{_digest(lock, architecture)}"
    if not folder.is_dir():
        command = [*_pip(), "download", "--require-hashes", "--no-deps", "-r", str(recipes / f"{name}.lock")]
        _fetch(folder, command, architecture, name)
        for old in cache().glob(f"{name}-*"):
            if old != folder and ".part" not in old.name:
                shutil.rmtree(old, ignore_errors=True)
    files = tuple(sorted(folder.glob("*.whl")))
    return Wheels(files if name == "installer" else (*files, installer(recipes, architecture)), lock)


def installer(recipes: Path, architecture: str) -> Path:
    """Return pip itself as a wheel, of the locked version: Python runs it as it is."""
    return locked(recipes, "installer", architecture).files[0]


def resolved(recipes: Path, requirements: Path, architecture: str, *, fresh: bool = False) -> Wheels:
    """Return wheels that meet a user's requirements, and all that these need.

    What the images have already keeps its version if that is possible at all; the kernel and what it needs always do.
    `fresh` asks the package index again, instead of taking what was found for the same text before.
    """
    wanted = requirements.read_text()
    pins = {name: _pins(recipes / f"{name}.lock") for name in ("data", "base")}
    pip = installer(recipes, architecture)
    folder = cache() / f"custom-{_digest(identity(requirements), *pins['data'], architecture)}"
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-c", _RESOLVE_FOR_THE_IMAGE, str(pip), architecture, PYTHON_VERSION, "download"]
    command += ["-r", str(requirements.resolve())]
    for name in pins if not folder.is_dir() else ():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
            # pip wants a hash for each constraint as soon as one requirement has one.
            constraints.write("" if "--hash" in wanted else "\n".join(pins[name]))
            constraints.flush()
            try:
                _fetch(folder, [*command, "-c", constraints.name], architecture, "custom", requirements.parent)
                break
            except ConfigurationError:
                if name == "base":
                    raise
    files = tuple(sorted(folder.glob("*.whl")))
    return Wheels((*files, pip), "\n".join(f"wheels/{file.name}" for file in files))


def identity(requirements: Path) -> str:
    """Return what stands for a user's requirements in a digest: its text, and the wheels it names by path."""
    text = requirements.read_text()
    named = [requirements.parent / line.strip() for line in text.splitlines() if line.strip().endswith(".whl")]
    return "\0".join([text, *(hashlib.sha256(path.read_bytes()).hexdigest() for path in named if path.is_file())])


def cache() -> Path:
    """Return the folder where wheels are kept between builds."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sandbox-kernel", "wheels")


def _pins(lock: Path) -> list[str]:
    return re.findall(r"^[\w.-]+==[^\s\\;]+", lock.read_text(), re.MULTILINE)


def _fetch(folder: Path, command: list[str], architecture: str, name: str, cwd: Path | None = None) -> None:
    """Fill `folder` with what `command` downloads; it appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    platforms = [f"--platform={tag}" for tag in platform_tags(architecture)]
    target = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON_VERSION}", *platforms]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", f"--dest={part}"]
    try:
        result = subprocess.run(
            [*command, *target, *quiet],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_SECONDS,
            cwd=cwd,
            check=False,
        )
        if result.returncode != 0:
            raise explain(result.stderr, name, architecture)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was faster
                raise
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"pip did not fetch the wheels of {name}", limit=f"{DOWNLOAD_SECONDS:g} s") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def explain(stderr: str, name: str, architecture: str) -> EngineError | ConfigurationError:
    """Return the error that a failed download is, from what pip said."""
    said = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR")]
    text = " ".join(said)[-1500:] or stderr[-1500:].strip()
    missing = re.search(r"No matching distribution found for ([^\s(]+)", text)
    if name == "custom" and missing:
        none = "(from versions: none)" in text
        what = "has no wheel" if none else "has no wheel in a version that fits"
        return ConfigurationError(
            f"{missing[1]} {what} for Python {PYTHON_VERSION} on Linux {architecture}, or does not exist; the image "
            "has no compiler and is built offline. Ask for another version, or make the wheel on Debian 13 with "
            f"`pip wheel {missing[1]}` and name its path in the requirements",
            setting="requirements",
        )
    if name == "custom":
        return ConfigurationError(f"pip cannot meet the requirements: {text}", setting="requirements")
    return EngineError(f"pip cannot fetch the wheels of images/{name}.lock: {text}")


def platform_tags(architecture: str) -> list[str]:
    """Return the platforms whose wheels run in the image, newest first; pip wants each of them named."""
    tags = [f"manylinux_2_{minor}_{architecture}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)]
    older = ["manylinux2014", "manylinux2010", "manylinux1"] if architecture == "x86_64" else ["manylinux2014"]
    return [*tags, *(f"{tag}_{architecture}" for tag in older), f"linux_{architecture}"]


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise EngineError(f"fetching wheels needs pip, which this Python lacks. Run `{sys.executable} -m ensurepip`")


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
