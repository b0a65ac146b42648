"""The wheels of an image or a root, fetched on the host by pip for the Python in there, and kept in a cache folder.

Nothing is built from source and no code of a wheel runs here. pip runs in an isolated Python, in a folder of ours, with
the few variables that say how to reach an index: whatever lies in the current folder is no module of it, and no
setting. uv would need no patch, but it is 38 MB and reads none of pip's configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, EngineError
from ..core.resources import environment_of_helpers
from .requirements import Wanted

PYTHON_VERSION = "3.13"
NEWEST_GLIBC, OLDEST_GLIBC = 41, 5
"""Debian 13 has glibc 2.41: wheels made for it or for any older one fit (manylinux_2_5 is the oldest there is)."""

LOCKED_FOR = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that there are locks for: that of the images, and those of machines (images/locks/)."""

DOWNLOAD_SECONDS = 1800.0
MOST_REJECTED = 50
"""Versions of whatever that are tried and do not fit one package that keeps its version: then nothing else is tried."""

RESOLVE_FOR_THE_IMAGE = """
import sys
wheel, architecture, version = sys.argv[1:4]
sys.path.insert(0, wheel)
from pip._vendor.packaging import markers
here = markers.default_environment
there = {"python_version": version, "python_full_version": version + ".0", "implementation_version": version + ".0",
         "platform_machine": architecture, "platform_system": "Linux", "sys_platform": "linux", "os_name": "posix",
         "implementation_name": "cpython", "platform_python_implementation": "CPython"}
markers.default_environment = lambda: {**here(), **there}
from pip._internal.exceptions import InstallationError
from pip._internal.operations.prepare import RequirementPreparer
prepare = RequirementPreparer._prepare_linked_requirement
def refuse(self, needed, *rest):
    raise InstallationError(f"{needed} is no wheel, and to build it would run its code on this machine")
def prepare_a_wheel(self, needed, *rest):
    if needed.editable or not needed.link.is_wheel or needed.link.is_existing_dir():
        refuse(self, needed)
    if needed.req is not None and needed.req.url:
        raise InstallationError(f"{needed} is an address, which is not asked")
    return prepare(self, needed, *rest)
RequirementPreparer._prepare_linked_requirement = prepare_a_wheel
RequirementPreparer.prepare_editable_requirement = refuse
import collections, json
from pip._internal.resolution.resolvelib.factory import Factory
from pip._internal.resolution.resolvelib.reporter import PipReporter
counts, conflicts = collections.Counter(), {}
rejecting, impossible = PipReporter.rejecting_candidate, Factory.get_installation_error
def note(wanted, constraints):
    package = wanted[0].requirement.project_name
    kept = constraints.get(package)
    needs = [[f"{one.parent.name} {one.parent.version}" if one.parent else "", one.requirement.format_for_error()]
             for one in wanted if one.requirement.project_name == package]
    counts[package] += 1
    conflicts.setdefault(package, {"package": package, "kept": str(kept.specifier) if kept else "", "needs": needs})
    return kept and counts[package] >= MOST_REJECTED
def note_rejected(self, criterion, candidate):
    rejecting(self, criterion, candidate)
    if note(list(criterion.information), self._constraints):
        raise InstallationError("no version was found that fits")
def note_impossible(self, error, constraints):
    note(list(error.causes), constraints)
    return impossible(self, error, constraints)
PipReporter.rejecting_candidate, Factory.get_installation_error = note_rejected, note_impossible
from pip._internal.cli.main import main
status = main(sys.argv[4:])
if status and conflicts:
    print("CONFLICT " + json.dumps(conflicts[counts.most_common(1)[0][0]]), file=sys.stderr)
sys.exit(status)
""".replace("MOST_REJECTED", str(MOST_REJECTED))
"""pip chooses wheels for another Python, but reads `; python_version >= "3.12"` for its own: this makes both agree.

And it takes wheels only, of what it finds by name: `--only-binary` says nothing of an address, such as any package may
name among what it needs.

And it says what the conflict is, which pip tells nobody who asked for quiet, and is done with it after a while: pip
tries each older version of whoever needs what cannot be had, of which some packages have a thousand.
"""

_KEPT = re.compile(
    r"HOME|USER|LOGNAME|LANG|LC_ALL|TZ|TMPDIR|XDG_(CACHE|CONFIG)_HOME|XDG_CONFIG_DIRS|(?i:https?|all|no)_(?i:proxy)"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|PIP_(INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|TRUSTED_HOST|CERT|CLIENT_CERT|PROXY|TIMEOUT|DEFAULT_TIMEOUT|RETRIES|NO_CACHE_DIR)"
)
"""Variables that pip is given: of the user, and how an index is reached."""
_KEPT_IF_ABSOLUTE = re.compile(r"PIP_(FIND_LINKS|CONFIG_FILE|CACHE_DIR)")


@dataclass(frozen=True, slots=True)
class Target:
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


@dataclass(frozen=True, slots=True)
class Wheels:
    """What to install: wheels, the installer among them, and the requirements file that pip reads there."""

    files: tuple[Path, ...]
    requirements: str


class PackageConflict(ConfigurationError):
    """Requirements that do not go together, or not with what an image has."""

    pin = ""
    """The package, and the version that it keeps, as a constraint has it."""
    keeps = False
    """Whether it keeps one."""


def lock_of(recipes: Path, name: str, python: str = PYTHON_VERSION) -> Path:
    """Return the lock of a kind for a version of Python, of `LOCKED_FOR`; pip itself is the same for all."""
    if name == "installer" or python == PYTHON_VERSION:
        return recipes / f"{name}.lock"
    return recipes / "locks" / f"{name}-{python}.lock"


def locked(recipes: Path, name: str, target: Target) -> Wheels:
    """Return the wheels of a lock; pip checks each hash here, and again where they are installed."""
    path = lock_of(recipes, name, target.python)
    lock = path.read_text()
    kept = f"{target.prefix}{name}"
    folder = cache() / f"{kept}-{_digest(lock, target.architecture)}"
    if not folder.is_dir():
        _fetch(folder, [*_pip(), "download", "--require-hashes", "--no-deps", "-r", str(path)], target, name)
        for old in cache().glob(f"{kept}-*"):
            if old != folder and ".part" not in old.name:
                shutil.rmtree(old, ignore_errors=True)
    files = tuple(sorted(folder.glob("*.whl")))
    return Wheels(files if name == "installer" else (*files, installer(recipes, target)), lock)


def installer(recipes: Path, target: Target) -> Path:
    """Return pip itself as a wheel, of the locked version: any Python runs it as it is."""
    return locked(recipes, "installer", Target(target.architecture)).files[0]


def resolved(recipes: Path, wanted: Wanted, target: Target, *, fresh: bool = False) -> Wheels:
    """Return wheels that meet a user's requirements, and all that these need.

    What the images have already keeps its version if that is possible at all; the kernel and what it needs always do.
    `fresh` asks the package index again, instead of taking what was found for the same text before.
    """
    pins = {name: _pins(lock_of(recipes, name, target.python)) for name in ("data", "base")}
    pip = installer(recipes, target)
    folder = cache() / f"{target.prefix}custom-{_digest(wanted.identity, *pins['data'], target.architecture)}"
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    patched = [RESOLVE_FOR_THE_IMAGE, str(pip), target.architecture, target.python]
    command = [sys.executable, "-I", "-c", *patched, "download"]
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as place:
        if not folder.is_dir():
            command += ["-r", str(wanted.write(Path(place)))]
        for name in pins if not folder.is_dir() else ():
            constraints = Path(place, "constraints.txt")
            # pip wants a hash for each constraint as soon as one requirement has one.
            ours = [] if wanted.has_hashes else pins[name]
            constraints.write_text("\n".join([*ours, *wanted.constraints, ""]), encoding="utf-8")
            try:
                _fetch(folder, [*command, "-c", str(constraints)], target, "custom")
                break
            except ConfigurationError as error:
                if name == "base" or (isinstance(error, PackageConflict) and error.pin in pins["base"]):
                    raise
    files = tuple(sorted(folder.glob("*.whl")))
    return Wheels((*files, pip), "\n".join(f"wheels/{file.name}" for file in files))


def cache() -> Path:
    """Return the folder where wheels are kept between builds."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen if chosen.startswith("/") else Path.home() / ".cache", "sandbox-kernel", "wheels")


def _pins(lock: Path) -> list[str]:
    return re.findall(r"^[\w.-]+==[^\s\\;]+", lock.read_text(), re.MULTILINE)


def _fetch(folder: Path, command: list[str], target: Target, name: str) -> None:
    """Fill `folder` with what `command` downloads; it appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part-", dir=folder.parent))
    try:
        result = subprocess.run(
            [*command, *fitting(target), f"--dest={part}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_SECONDS,
            cwd=part,  # an empty folder of ours
            env=environment(os.environ),
            check=False,
        )
        if result.returncode != 0:
            raise explain(result.stderr, name, target)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was faster
                raise
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            EndCode.WHEELS_NOT_FETCHED,
            f"pip did not fetch the wheels of {name}",
            limit=f"{DOWNLOAD_SECONDS:g} s",
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def fitting(target: Target) -> list[str]:
    """Return the options by which pip takes what runs there, and wheels only; it asks nobody and says little."""
    platforms = [f"--platform={tag}" for tag in platform_tags(target)]
    chosen = ["--only-binary=:all:", "--implementation=cp", f"--python-version={target.python}", *platforms]
    return [*chosen, "--quiet", "--disable-pip-version-check", "--no-input"]


def explain(stderr: str, name: str, target: Target) -> EngineError | ConfigurationError:
    """Return the error that a failed download is, from what pip said."""
    said = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR")]
    text = " ".join(said)[-1500:] or stderr[-1500:].strip()
    missing = re.search(r"No matching distribution found for ([^\s(]+)", text)
    conflict = _conflict(stderr) if name == "custom" else None
    if conflict is not None and (conflict.keeps or not missing):
        return conflict
    if name == "custom" and missing:
        none = "(from versions: none)" in text
        what = "has no wheel" if none else "has no wheel in a version that fits"
        return ConfigurationError(
            UsageCode.REQUIREMENTS_UNMET,
            f"{missing[1]} {what} for Python {target.python} on Linux {target.architecture}, or does not exist; the "
            "image has no compiler and is built offline. Ask for another version, or make the wheel on Debian 13 with "
            f"`pip wheel {missing[1]}` and name its path in the requirements",
            setting="requirements",
        )
    if name == "custom":
        return ConfigurationError(
            UsageCode.REQUIREMENTS_UNMET, f"pip cannot meet the requirements: {text}", setting="requirements"
        )
    return EngineError(EndCode.WHEELS_NOT_FETCHED, f"pip cannot fetch the wheels of images/{name}.lock: {text}")


def _conflict(stderr: str) -> PackageConflict | None:
    """Return what the resolver said of a conflict."""
    line = re.search(r"^CONFLICT (\{.*\})$", stderr, re.MULTILINE)
    if line is None:
        return None
    found = json.loads(line[1])
    pin = f"{found['package']}{found['kept']}"
    said = "; ".join(dict.fromkeys(f"{who or 'your file'} asks for {what}" for who, what in found["needs"]))[-1000:]
    kept = f", and the image keeps {pin}" if found["kept"] else ""
    what = f"pip cannot meet the requirements, because of {found['package']}: {said}{kept}"
    conflict = PackageConflict(UsageCode.REQUIREMENTS_UNMET, what, setting="requirements")
    conflict.pin, conflict.keeps = pin, bool(found["kept"])
    return conflict


def platform_tags(target: Target) -> list[str]:
    """Return the platforms whose wheels run there, newest first; pip wants each of them named."""
    architecture = target.architecture
    tags = [f"manylinux_2_{minor}_{architecture}" for minor in range(target.glibc, OLDEST_GLIBC - 1, -1)]
    older = ["manylinux2014", "manylinux2010", "manylinux1"] if architecture == "x86_64" else ["manylinux2014"]
    return [*tags, *(f"{tag}_{architecture}" for tag in older), f"linux_{architecture}"]


def _pip() -> list[str]:
    if _has_pip():
        return [sys.executable, "-I", "-m", "pip"]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise EngineError(
        EndCode.WHEELS_NOT_FETCHED,
        f"fetching wheels needs pip, which this Python lacks. Run `{sys.executable} -m ensurepip`",
    )


def _has_pip() -> bool:
    """Say whether an isolated Python has pip: one in the user's own folder is not found there."""
    command = [sys.executable, "-I", "-c", "import pip"]
    quiet = subprocess.run(command, cwd="/", env=environment_of_helpers(), capture_output=True, timeout=60, check=False)
    return quiet.returncode == 0


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


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
