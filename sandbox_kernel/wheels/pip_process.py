"""pip as a process of its own: with which options and variables it runs, and within which bounds.

Its command line is all that is used of it. It runs in an isolated Python and in a folder of ours, with the few
variables that say how to reach an index: a module or a setting in the current folder has no effect.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.codes import EndCode
from ..core.errors import EngineError
from ..core.helper_processes import environment_of_helpers
from ..core.model import MIB

PYTHON_VERSION = "3.13"
NEWEST_GLIBC, OLDEST_GLIBC = 41, 5
"""Debian 13 has glibc 2.41: wheels made for it or for any older one fit (manylinux_2_5 is the oldest there is)."""

MAX_MEMORY = 4 << 30
"""Bytes of pip's address space, where the size of what comes is bounded."""
MAX_REPORT = 64 * MIB
LOOK_SECONDS = 0.1
"""How often the folder of what comes is looked at."""

_KEPT = re.compile(
    r"HOME|USER|LOGNAME|LANG|LC_ALL|TZ|TMPDIR|XDG_(CACHE|CONFIG)_HOME|XDG_CONFIG_DIRS|(?i:https?|all|no)_(?i:proxy)"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|PIP_(INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|TRUSTED_HOST|CERT|CLIENT_CERT|PROXY|TIMEOUT|DEFAULT_TIMEOUT|RETRIES|NO_CACHE_DIR)"
)
"""Variables that pip is given: of the user, and how an index is reached."""
_KEPT_IF_ABSOLUTE = re.compile(r"PIP_(FIND_LINKS|CONFIG_FILE|CACHE_DIR)")


@dataclass(frozen=True, slots=True)
class WheelTarget:
    """What wheels are for; an image's Python and system, unless it is said otherwise."""

    architecture: str
    """As `uname -m` says it: x86_64, aarch64."""
    python: str = PYTHON_VERSION
    glibc: int = NEWEST_GLIBC
    """36 stands for glibc 2.36."""

    @property
    def prefix(self) -> str:
        """What the names of folders in the cache begin with."""
        is_image = (self.python, self.glibc) == (PYTHON_VERSION, NEWEST_GLIBC)
        return "" if is_image else f"python{self.python}-glibc{self.glibc}-"

    @property
    def markers(self) -> dict[str, str]:
        """The variables of environment markers there, but for those of the machine's kernel."""
        version = f"{self.python}.0"
        return {
            "python_version": self.python,
            "python_full_version": version,
            "implementation_version": version,
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_machine": self.architecture,
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
        }


class PipFailed(Exception):
    """What pip wrote to stderr before it failed."""


class PipTooSlow(Exception):
    """pip did not end within its time."""


class PipTooLarge(Exception):
    """How many bytes pip's folder takes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Pip:
    """One pip, for several runs that share a folder and a time."""

    def __init__(
        self,
        place: Path,
        wheel: Path | None,
        target: WheelTarget,
        seconds: float,
        *,
        index: str | None = None,
        limit: int | None = None,
    ) -> None:
        """Work in `place`, an empty folder, with pip's own wheel; None stands for the pip of this machine.

        `index` takes the place of what the user's pip is configured with. No file may have more than `limit` bytes,
        and the folder not many more than twice as much. Raises `EngineError` if the machine has no pip.
        """
        self.place = place
        self.target, self._index, self._limit = target, index, limit
        self._until = time.monotonic() + seconds
        self._runs = 0
        self._program = _pip_of_the_machine() if wheel is None else [sys.executable, "-I", str(_unpacked(wheel))]

    def choose(self, lines: Sequence[str]) -> list[dict[str, Any]]:
        """Return a row of pip's installation report for each line of a requirements file, and for nothing else.

        pip takes no more of a package than it needs for that. Raises what `run` raises.
        """
        self._runs += 1
        asked, report = self.place / f"asked-{self._runs}.txt", self.place / f"report-{self._runs}.json"
        asked.write_text("\n".join([*lines, ""]), encoding="utf-8")
        options = ["--dry-run", "--ignore-installed", "--no-deps", f"--target={self.place / 'no'}"]
        self.run("install", *options, f"--report={report}", "-r", str(asked))
        if report.stat().st_size > MAX_REPORT:
            raise PipTooLarge(report.stat().st_size)
        rows: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        report.unlink()
        return rows

    def download(self, folder: Path, requirements: Path) -> None:
        """Fetch what a requirements file names, each with its hash. Raises what `run` raises."""
        self.run("download", "--no-deps", "--require-hashes", "-r", str(requirements), f"--dest={folder}")

    def run(self, *arguments: str) -> None:
        """Run pip for the target, for wheels alone. Raises `PipFailed`, `PipTooSlow` and `PipTooLarge`."""
        temporary = self.place / "tmp"
        temporary.mkdir(exist_ok=True)
        given = environment(os.environ) | {"TMPDIR": str(temporary)}
        command = [*self._program, *arguments, *fitting(self.target)]
        if self._index is not None:
            given = {name: value for name, value in given.items() if not name.startswith("PIP_")}
            given["PIP_CONFIG_FILE"] = os.devnull
            command.append(f"--index-url={self._index}")
        limit = self._limit

        def bound() -> None:
            if limit is not None:  # else an image is made, as large as its owner likes
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))

        with (self.place / "stderr").open("w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                cwd=temporary,
                env=given,
                preexec_fn=bound,  # noqa: PLW1509 (two calls of the system, which are safe in a forked child)
                start_new_session=True,
            )
            try:
                self._wait(process)
            finally:
                process.kill()
                process.wait()
            said.seek(0)
            text = said.read(MIB)
        if process.returncode != 0:
            raise PipFailed(text)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                if self._limit is not None and (size := _size(self.place)) > 2 * self._limit + 64 * MIB:
                    raise PipTooLarge(size) from None
                if time.monotonic() > self._until:
                    raise PipTooSlow from None
            else:
                return


_BROKEN = re.compile(r"Retrying \(Retry\(total=0\b.*? broken by ['\"]?(\w+)\((.*)", re.IGNORECASE)
"""pip's last try of an index; it says "No matching distribution" afterwards, whatever the index has."""


def _unreached(stderr: str) -> str:
    """Return why pip reached no index, nothing if it did."""
    found = _BROKEN.search(stderr)
    if found is None or "(from versions: none)" not in stderr:
        return ""
    kind, why = found[1], re.findall(r"\[Errno -?\d+\] [^'\")]+|timed out|CERTIFICATE_VERIFY_FAILED", found[2])
    words = f"{kind}: {why[0]}" if why else kind
    return f"the index was not reached ({words}): is there a network, and are https_proxy and the like right?"


def errors_of(stderr: str) -> str:
    """Return what pip said of errors; where it reached no index, that: what it says of versions then is of none."""
    if unreached := _unreached(stderr):
        return unreached
    said = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR")]
    return " ".join(said)[-1500:] or stderr[-1500:].strip()


def fitting(target: WheelTarget) -> list[str]:
    """Return pip's options for wheels of that target alone; pip asks for no input and prints little."""
    platforms = [f"--platform={tag}" for tag in platform_tags(target)]
    chosen = ["--only-binary=:all:", "--implementation=cp", f"--python-version={target.python}", *platforms]
    return [*chosen, "--quiet", "--disable-pip-version-check", "--no-input"]


def platform_tags(target: WheelTarget) -> list[str]:
    """Return the platforms whose wheels run there, newest first; pip wants each of them named."""
    architecture = target.architecture
    tags = [f"manylinux_2_{minor}_{architecture}" for minor in range(target.glibc, OLDEST_GLIBC - 1, -1)]
    older = ["manylinux2014", "manylinux2010", "manylinux1"] if architecture == "x86_64" else ["manylinux2014"]
    return [*tags, *(f"{tag}_{architecture}" for tag in older), f"linux_{architecture}"]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that pip is given."""
    kept = {
        name: value
        for name, value in given.items()
        if _KEPT.fullmatch(name)
        or (_KEPT_IF_ABSOLUTE.fullmatch(name) and all(map(re.compile(r"/|https?://|file:///").match, value.split())))
    }
    places = [place for place in given.get("PATH", "").split(os.pathsep) if place.startswith("/")]
    return {**kept, "PATH": os.pathsep.join(places) or os.defpath}


def _unpacked(wheel: Path) -> Path:
    """Return pip's program beside its wheel, unpacked: out of a wheel, all of it would be compiled at each run."""
    folder = wheel.with_suffix("")
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=wheel.parent, prefix=".part-") as part, zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(part, "new"))
            try:
                Path(part, "new").rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    return folder / "pip"


def _pip_of_the_machine() -> list[str]:
    # Isolated, it does not find pip in the user's own folder.
    command = [sys.executable, "-I", "-c", "import pip"]
    quiet = subprocess.run(command, cwd="/", env=environment_of_helpers(), capture_output=True, timeout=60, check=False)
    if quiet.returncode == 0:
        return [sys.executable, "-I", "-m", "pip"]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise EngineError(
        EndCode.WHEELS_NOT_FETCHED,
        f"fetching wheels needs pip, which this Python lacks. Run `{sys.executable} -m ensurepip`",
    )


def _size(folder: Path) -> int:
    """Return the bytes below a folder in which another process works."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total
