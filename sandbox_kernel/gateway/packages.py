"""Packages for a session that runs: resolved and fetched on the host for what the sandbox has, and kept for the next.

pip resolves in a process of its own with bounds, for the Python and the platform in there, and takes wheels only. What
the sandbox has already keeps its version and is not fetched. Nothing of a package runs or is unpacked here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError, SandboxError
from ..core.model import MIB, format_bytes
from ..core.resources import brought
from . import wheels
from .requirements import Wanted, asked
from .wheel_check import check_wheel

MOST_ASKED = 50
MOST_PACKAGES = 200
MOST_INSTALLED = 3000
"""Packages that a sandbox may say it has."""
SECONDS = 300.0
MEMORY = 4 << 30
"""Bytes of pip's address space."""
LOOK_SECONDS = 0.1
"""How often the folder of what comes is looked at."""
UNPACKED = 4
"""How many times its limit a package may take when it is unpacked."""
_PYTHON = re.compile(r"3\.(9|[12]\d)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_ARCHITECTURES = frozenset({"x86_64", "aarch64"})


@dataclass(frozen=True, slots=True)
class Has:
    """What a sandbox has, as it says itself: one that lies gets what it does not fit."""

    target: wheels.Target
    versions: Mapping[str, str]
    """By canonical names."""

    @classmethod
    def read(cls, said: object) -> Has:
        """Check what a sandbox says. Raises `ConfigurationError`."""
        try:
            if not isinstance(said, dict):
                raise TypeError
            python, architecture, glibc = said["python"], said["architecture"], said["glibc"]
            known = _PYTHON.fullmatch(python) and architecture in _ARCHITECTURES and type(glibc) is int
            if not known or not wheels.OLDEST_GLIBC <= glibc < 100 or len(said["versions"]) > MOST_INSTALLED:
                raise TypeError
            versions = {
                str(canonicalize_name(name)): str(Version(version))
                for name, version in said["versions"].items()
                if len(name) < 100 and len(version) < 100 and _NAME.fullmatch(name)
            }
        except (KeyError, TypeError, AttributeError, InvalidVersion):
            raise ConfigurationError(UsageCode.PACKAGES_UNKNOWN) from None
        return cls(wheels.Target(architecture, python, glibc), versions)


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel that is to go into a sandbox."""

    name: str
    version: str
    file: Path
    sha256: str
    size: int


@dataclass(slots=True)
class Source:
    """Where packages come from, and how large they may be."""

    index: str | None = None
    """The address of an index, in place of what the user's pip is configured with."""
    limit_bytes: int = 256 * MIB
    seconds: float = SECONDS
    said: Callable[[str], None] = field(default=lambda text: None)
    """Hears what goes on, a line at a time."""


def resolve(texts: Sequence[str | os.PathLike[str]], has: Has, source: Source, *, paths: bool) -> list[Package]:
    """Return the wheels that a sandbox lacks of what is asked for. Blocks, for `source.seconds` at most.

    With `paths`, a text may be the path of a wheel on this machine. Raises `ConfigurationError` and `EngineError`.
    """
    if len(texts) > MOST_ASKED:
        raise ConfigurationError(UsageCode.PACKAGE_IMPROPER, f"at most {MOST_ASKED} packages are asked for at a time")
    wanted = asked([os.fspath(one) for one in texts], paths=paths)
    until = time.monotonic() + source.seconds
    pip = wheels.installer(brought("images"), wheels.Target(os.uname().machine))
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as place:
        work = _Work(Path(place), pip, has, source, until)
        source.said("resolving " + ", ".join(Path(text).name if paths else str(text) for text in texts))
        found = work.plan(wanted)
        missing = [one for one in found if has.versions.get(one.name) != one.version]
        if len(missing) > MOST_PACKAGES:
            raise ConfigurationError(
                UsageCode.PACKAGE_TOO_LARGE, f"{len(missing)} packages are needed", limit=str(MOST_PACKAGES)
            )
        packages = []
        files = work.fetch(missing)
        for one in missing:
            file = files[one.sha256]
            check_wheel(file, one.name, one.version, UNPACKED * source.limit_bytes)
            packages.append(Package(one.name, one.version, file, one.sha256, file.stat().st_size))
        total = sum(one.size for one in packages)
        if total > source.limit_bytes:
            raise _too_large(", ".join(one.name for one in packages), source.limit_bytes, total)
    return packages


@dataclass(frozen=True, slots=True)
class _Chosen:
    name: str
    version: str
    sha256: str
    url: str


@dataclass(slots=True)
class _Work:
    place: Path
    pip: Path
    has: Has
    source: Source
    until: float

    def plan(self, wanted: Wanted) -> list[_Chosen]:
        """Have pip choose, and download no more than it needs for that."""
        constraints = self.place / "constraints.txt"
        kept = [] if wanted.has_hashes else [f"{name}=={version}" for name, version in self.has.versions.items()]
        constraints.write_text("\n".join([*kept, ""]), encoding="utf-8")
        folder, report = self.place / "asked", self.place / "report.json"
        folder.mkdir()
        arguments = [
            "install",
            "--dry-run",
            "--ignore-installed",
            f"--report={report}",
            f"--target={self.place / 'no'}",
        ]
        self.run([*arguments, "-r", str(wanted.write(folder)), "-c", str(constraints)])
        if report.stat().st_size > 64 * MIB:
            raise _too_large("what pip says", 64 * MIB, report.stat().st_size)
        found = []
        for row in json.loads(report.read_text(encoding="utf-8"))["install"]:
            name, version = canonicalize_name(row["metadata"]["name"]), str(Version(row["metadata"]["version"]))
            digest = row["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
            if not re.fullmatch("[0-9a-f]{64}", digest):
                raise ConfigurationError(UsageCode.PACKAGE_HASH_WRONG, f"the index has no sha256 of {name} {version}")
            found.append(_Chosen(name, version, digest, row["download_info"]["url"]))
        return found

    def fetch(self, chosen: Sequence[_Chosen]) -> dict[str, Path]:
        """Return the file of each wheel by its hash: the one that was kept, or a new one of the same hash."""
        files = {one.sha256: found for one in chosen if (found := _kept(one.sha256)) is not None}
        lacking = [one for one in chosen if one.sha256 not in files]
        part = self.place / "part"
        part.mkdir()
        lines = []
        for one in lacking:
            self.source.said(f"fetching {one.name} {one.version}")
            if one.url.startswith(f"file://{self.place}/"):
                shutil.copy(one.url.removeprefix("file://"), part)
            else:
                lines.append(f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n")
        if lines:
            (self.place / "chosen.txt").write_text("".join(lines), encoding="utf-8")
            chosen_file = str(self.place / "chosen.txt")
            self.run(["download", "--no-deps", "--require-hashes", "-r", chosen_file, f"--dest={part}"])
        came = {_digest(path): path for path in part.glob("*.whl")}
        for one in lacking:
            if one.sha256 not in came:
                what = f"what came of {one.name} {one.version} does not have its sha256"
                raise ConfigurationError(UsageCode.PACKAGE_HASH_WRONG, what)
            files[one.sha256] = _keep(came[one.sha256], one.sha256)
        return files

    def run(self, arguments: Sequence[str]) -> None:
        """Run pip within bounds. Raises what it says."""
        target, room = self.has.target, self.place / "tmp"
        room.mkdir(exist_ok=True)
        command = [sys.executable, "-I", "-c", wheels.RESOLVE_FOR_THE_IMAGE, str(self.pip)]
        command += [target.architecture, target.python, *arguments, *wheels.fitting(target)]
        environment = wheels.environment(os.environ) | {"TMPDIR": str(room)}
        if self.source.index is not None:
            environment = {name: value for name, value in environment.items() if not name.startswith("PIP_")}
            environment["PIP_CONFIG_FILE"] = os.devnull
            command.append(f"--index-url={self.source.index}")
        limit = self.source.limit_bytes

        def bound() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

        with (self.place / "said").open("w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                cwd=room,
                env=environment,
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
            raise _explained(text, target, limit)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                size = _size(self.place)
                if size > 2 * self.source.limit_bytes + 64 * MIB:
                    raise _too_large("what is fetched", self.source.limit_bytes, size) from None
                if time.monotonic() > self.until:
                    raise ConfigurationError(
                        UsageCode.PACKAGES_TOO_SLOW, limit=f"{self.source.seconds:g} s", setting="packages_index"
                    ) from None
            else:
                return


def _explained(said: str, target: wheels.Target, limit: int) -> SandboxError:
    if "DO NOT MATCH THE HASHES" in said:
        return ConfigurationError(UsageCode.PACKAGE_HASH_WRONG, "what came from the index does not have its hash")
    if "File too large" in said:
        return ConfigurationError(
            UsageCode.PACKAGE_TOO_LARGE, "a package is too large", limit=format_bytes(limit), setting="packages_size"
        )
    error = wheels.explain(said, "custom", target)
    code = UsageCode.PACKAGE_CONFLICT if isinstance(error, wheels.PackageConflict) else UsageCode.PACKAGE_WITHOUT_WHEEL
    return ConfigurationError(code, error.message)


def cache() -> Path:
    """Return the folder where packages are kept, by their hashes."""
    return wheels.cache().parent / "packages"


def _kept(sha256: str) -> Path | None:
    """Return a wheel of the cache, None if it is not there, or not as it was."""
    files = list((cache() / sha256).glob("*.whl"))
    return files[0] if len(files) == 1 and _digest(files[0]) == sha256 else None


def _keep(file: Path, sha256: str) -> Path:
    """Copy a wheel into the cache, where it appears complete or not at all."""
    folder = cache() / sha256
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-") as beside:
        new = Path(beside, "new")
        new.mkdir()
        shutil.copy(file, new)
        if folder.is_dir() and _kept(sha256) is None:
            shutil.rmtree(folder)  # it is not as it was
        try:
            new.rename(folder)
        except OSError:
            if _kept(sha256) is None:  # else another session was faster
                raise
    return folder / file.name


def _size(folder: Path) -> int:
    """Return the bytes below a folder in which another process works."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _too_large(what: str, limit: int, value: int) -> ConfigurationError:
    return ConfigurationError(
        UsageCode.PACKAGE_TOO_LARGE,
        f"{what} would be too large",
        limit=format_bytes(limit),
        value=format_bytes(value),
        setting="packages_size",
    )


def described(packages: Sequence[Package]) -> list[dict[str, Any]]:
    """Return what was installed, for the record and for a cell."""
    return [{"name": one.name, "version": one.version, "sha256": one.sha256, "bytes": one.size} for one in packages]
