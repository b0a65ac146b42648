"""Packages into one session, for its caller or, where a setting allows it, for its cells.

The host resolves and fetches in a thread: wheels only, for the Python and the platform in there, and kept for the next
session. What the sandbox has keeps its version and is not fetched. Nothing of a package runs or is unpacked here. The
files go over the pipe into a hidden folder of scratch, and what is inside unpacks them (`inside`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ...core.answer_allowance import AnswerAllowance
from ...core.codes import Code
from ...core.errors import AnswerError, ConfigurationError, FileRefused
from ...core.events import Emit, SessionEvent
from ...core.model import MIB, Inside, Settings, format_bytes
from ...core.package_files import PACKAGE, brought
from ...engines.shipping import module_line
from ...files import scratch_files
from ...files.file_rules import printable
from ...files.scratch_files import Ask
from ...sdk.values import InstalledPackage
from ...wheels import image_wheels
from ...wheels.pip_process import OLDEST_GLIBC, Pip, PipFailed, PipTooLarge, PipTooSlow, WheelTarget
from ..api import SandboxHandle, SessionHandle, SessionService
from ..requirements import resolver
from ..requirements.codes import RequirementCode
from ..requirements.requirements import Wanted, asked
from ..tools.tool_calls import ToolCalls
from ..tools.tools import Tool, Tools
from .codes import PackageCode
from .settings import PackageSettings

# --- the wheels: chosen, fetched, checked -----------------------------------------------------------------------------

MAX_ENTRIES = 20_000
MAX_NAME_BYTES = 400
MAX_DEPTH = 30
MAX_METADATA = 8 * MIB


def check_wheel(path: Path, name: str, version: str, limit: int) -> int:
    """Return how many bytes a wheel takes unpacked. Raises `ConfigurationError` if it is no wheel, or too large."""
    try:
        if canonicalize_name(parse_wheel_filename(path.name)[0]) != canonicalize_name(name):
            raise _improper(path, "it has the name of another package")
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise _improper(path, f"it has more than {MAX_ENTRIES} files")
            seen: set[str] = set()
            for entry in entries:
                if (why := _wrong(entry, seen)) is not None:
                    raise _improper(path, f"its file {printable(entry.filename)[:100]!r} {why}")
                seen.add(entry.filename)
            if sum(entry.compress_size for entry in entries) > path.stat().st_size:
                raise _improper(path, "its files lie over each other")
            total = sum(entry.file_size for entry in entries)
            if total > limit:
                raise ConfigurationError(
                    PackageCode.PACKAGE_TOO_LARGE,
                    f"{name} {version} is too large when it is unpacked",
                    limit=format_bytes(limit),
                    value=format_bytes(total),
                    setting="packages_size",
                )
            _check_metadata(archive, path, name, version)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        raise _improper(path, "it cannot be read") from None
    return total


def _wrong(entry: zipfile.ZipInfo, seen: set[str]) -> str | None:
    """Return what is wrong with an entry, None if nothing is."""
    name = entry.filename
    parts = name.removesuffix("/").split("/")
    # zipfile cuts a name at a NUL; what stood there is another name to others.
    if name != entry.orig_filename or not name.isprintable() or "\\" in name or ":" in name:
        return "has a name with characters that have no place there"
    if any(part in ("", ".", "..") for part in parts):
        return "leads somewhere else"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        return "has a name that is too long"
    if name in seen:
        return "is there twice"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed in a way that wheels are not"
    return None


def _check_metadata(archive: zipfile.ZipFile, path: Path, name: str, version: str) -> None:
    found = [one for one in archive.infolist() if one.filename.count("/") == 1 and one.filename.endswith("/METADATA")]
    if len(found) != 1 or not found[0].filename.endswith(".dist-info/METADATA") or found[0].file_size > MAX_METADATA:
        raise _improper(path, "it does not say what it is")
    said = BytesHeaderParser().parsebytes(archive.read(found[0]))
    if canonicalize_name(str(said["Name"])) != canonicalize_name(name) or str(Version(str(said["Version"]))) != version:
        raise _improper(path, "it says that it is another package")


def _improper(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(RequirementCode.PACKAGE_IMPROPER, f"{printable(path.name)} is no proper wheel: {why}")


MAX_ASKED = 50
MAX_PACKAGES = 200
MAX_INSTALLED = 3000
"""Packages that a sandbox may say it has."""
SECONDS = 300.0
UNPACKED = 4
"""How many times its limit a package may take when it is unpacked."""
_PYTHON = re.compile(r"3\.(9|[12]\d)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_ARCHITECTURES = frozenset({"x86_64", "aarch64"})


@dataclass(frozen=True, slots=True)
class Has:
    """The packages of a sandbox, by its own word. A sandbox that lies gets wheels that do not fit."""

    target: WheelTarget
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
            if not known or not OLDEST_GLIBC <= glibc < 100 or len(said["versions"]) > MAX_INSTALLED:
                raise TypeError
            versions = {
                str(canonicalize_name(name)): str(Version(version))
                for name, version in said["versions"].items()
                if len(name) < 100 and len(version) < 100 and _NAME.fullmatch(name)
            }
        except (KeyError, TypeError, AttributeError, InvalidVersion):
            raise ConfigurationError(PackageCode.PACKAGES_UNKNOWN) from None
        return cls(WheelTarget(architecture, python, glibc), versions)


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel that is to go into a sandbox."""

    name: str
    version: str
    file: Path
    sha256: str
    size: int


@dataclass(slots=True)
class PackageSource:
    """Where packages come from, and how large they may be."""

    index: str | None = None
    """The address of an index, in place of what the user's pip is configured with."""
    limit_bytes: int = 256 * MIB
    seconds: float = SECONDS
    said: Callable[[str], None] = field(default=lambda text: None)
    """Hears what goes on, a line at a time."""


def resolve(texts: Sequence[str | os.PathLike[str]], has: Has, source: PackageSource, *, paths: bool) -> list[Package]:
    """Return the wheels that a sandbox lacks of what is asked for. Blocks, for `source.seconds` at most.

    With `paths`, a text may be the path of a wheel on this machine. Raises `ConfigurationError` and `EngineError`.
    """
    if len(texts) > MAX_ASKED:
        raise ConfigurationError(
            RequirementCode.PACKAGE_IMPROPER, f"at most {MAX_ASKED} packages are asked for at a time"
        )
    wanted = asked([os.fspath(one) for one in texts], paths=paths)
    wheel = image_wheels.installer(brought("images"), WheelTarget(os.uname().machine))
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as place:
        pip = Pip(Path(place), wheel, has.target, source.seconds, index=source.index, limit=source.limit_bytes)
        source.said("resolving " + ", ".join(Path(text).name if paths else str(text) for text in texts))
        try:
            # With hashes, what is asked for says alone which versions there are.
            kept = {} if wanted.has_hashes else has.versions
            found = resolver.resolve(wanted, pip, kept, are_there=True)
            missing = [one for one in found if has.versions.get(one.name) != one.version]
            if len(missing) > MAX_PACKAGES:
                raise ConfigurationError(
                    PackageCode.PACKAGE_TOO_LARGE, f"{len(missing)} packages are needed", limit=str(MAX_PACKAGES)
                )
            files = _files(missing, wanted, pip, source)
        except resolver.Unresolved as error:
            raise _unresolved(error) from None
        except resolver.WrongHash as error:
            raise ConfigurationError(PackageCode.PACKAGE_HASH_WRONG, str(error)) from None
        except PipFailed as error:
            raise _failed(str(error), has.target, source.limit_bytes) from None
        except PipTooLarge as error:
            raise _too_large("what is fetched", source.limit_bytes, error.size) from None
        except PipTooSlow:
            raise ConfigurationError(
                PackageCode.PACKAGES_TOO_SLOW, limit=f"{source.seconds:g} s", setting="packages_index"
            ) from None
        packages = []
        for one in missing:
            file = files[one.sha256]
            check_wheel(file, one.name, one.version, UNPACKED * source.limit_bytes)
            packages.append(Package(one.name, one.version, file, one.sha256, file.stat().st_size))
        total = sum(one.size for one in packages)
        if total > source.limit_bytes:
            raise _too_large(", ".join(one.name for one in packages), source.limit_bytes, total)
    return packages


def _files(chosen: Sequence[resolver.Chosen], wanted: Wanted, pip: Pip, source: PackageSource) -> dict[str, Path]:
    """Return the file of each wheel by its hash: the one that was kept, or a new one of the same hash."""
    files = {one.sha256: found for one in chosen if (found := _kept(one.sha256)) is not None}
    lacking = [one for one in chosen if one.sha256 not in files]
    for one in lacking:
        source.said(f"fetching {one.name} {one.version}")
    part = pip.place / "part"
    part.mkdir()
    came = resolver.fetch(lacking, wanted, pip, part)
    return files | {one.sha256: _keep(came[one.sha256], one.sha256) for one in lacking}


def _failed(said: str, target: WheelTarget, limit: int) -> ConfigurationError:
    if "DO NOT MATCH THE HASHES" in said:
        return ConfigurationError(PackageCode.PACKAGE_HASH_WRONG, "what came from the index does not have its hash")
    if "File too large" in said:
        return ConfigurationError(
            PackageCode.PACKAGE_TOO_LARGE, "a package is too large", limit=format_bytes(limit), setting="packages_size"
        )
    return _unresolved(resolver.explain(said, target))


def _unresolved(error: resolver.Unresolved) -> ConfigurationError:
    code = PackageCode.PACKAGE_CONFLICT if error.is_conflict else PackageCode.PACKAGE_WITHOUT_WHEEL
    return ConfigurationError(code, error.message)


def cache() -> Path:
    """Return the folder where packages are kept, by their hashes."""
    return image_wheels.cache().parent / "packages"


def _kept(sha256: str) -> Path | None:
    """Return a wheel of the cache, None if it is not there, or not as it was."""
    files = list((cache() / sha256).glob("*.whl"))
    return files[0] if len(files) == 1 and resolver.digest_of(files[0]) == sha256 else None


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


def _too_large(what: str, limit: int, value: int) -> ConfigurationError:
    return ConfigurationError(
        PackageCode.PACKAGE_TOO_LARGE,
        f"{what} would be too large",
        limit=format_bytes(limit),
        value=format_bytes(value),
        setting="packages_size",
    )


def described(packages: Sequence[Package]) -> list[dict[str, Any]]:
    """Return what was installed, for the record and for a cell."""
    return [{"name": one.name, "version": one.version, "sha256": one.sha256, "bytes": one.size} for one in packages]


# --- into a session ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which packages cells may ask for, by the setting: names, with the extras that they may have, or `*` for all."""

    rules: tuple[str, ...]

    def check(self, texts: Sequence[str]) -> None:
        """Raise `ConfigurationError` for what is not allowed."""
        extras: dict[str, set[str]] = {}
        for rule in self.rules:
            if rule != "*":
                parsed = Requirement(rule)
                extras.setdefault(canonicalize_name(parsed.name), set()).update(parsed.extras)
        for text in texts:
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                raise ConfigurationError(
                    RequirementCode.PACKAGE_IMPROPER, f"{text[:100]!r} is no name of a package with versions"
                ) from None
            name = canonicalize_name(wanted.name)
            if "*" not in self.rules and not (name in extras and wanted.extras <= extras[name]):
                shown = f"{name}[{','.join(sorted(wanted.extras))}]" if wanted.extras else name
                raise ConfigurationError(
                    PackageCode.PACKAGE_NOT_ALLOWED, f"{shown} is no package that cells may install", setting="packages"
                )


PLACE = ".packages"
"""A folder of scratch, the last in which modules are looked for; hidden, so that no folder of the host's gets it."""
MODULE = "_sandbox_packages"
TOOL = "pip_install"
TOOL_MODULE = "_sandbox_pip"
"""Where `%pip` finds it; apart from the tools of a caller, which a session may have besides."""
SLACK_SECONDS = 60.0
"""For what is fetched to go over the pipe."""

Said = Callable[[str], object]


class PackageInstalled(SessionEvent):
    """A package was sent into the sandbox."""

    name = "package"
    by: str
    about: Mapping[str, Any]

    def line(self) -> dict[str, Any]:
        return {"by": self.by, **self.about}


class PackagesRefused(SessionEvent):
    """Packages were asked for, and none was installed."""

    name = "packages"
    by: str
    asked: Sequence[str]
    code: Code
    reason: str


class Installing:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.of(PackageSettings)
        self._turn = asyncio.Lock()
        self.ask: Ask | None = None
        """The way to the sandbox, once there is a session."""
        self.emit: Emit = lambda event: None

    async def install(
        self, texts: Sequence[str | os.PathLike[str]], said: object, *, by: str, heard: Said = lambda text: None
    ) -> list[Package]:
        """Send what is asked for into the sandbox, and return it. `said` is what the sandbox says that it has.

        One at a time. Raises `ConfigurationError`, `EngineError` and `SandboxDied`.
        """
        has, loop = Has.read(said), asyncio.get_running_loop()

        def say(text: str) -> None:
            loop.call_soon_threadsafe(heard, text)

        source = PackageSource(self._settings.packages_index, self._settings.packages_size, SECONDS, say)
        async with self._turn:
            try:
                packages = await asyncio.to_thread(resolve, texts, has, source, paths=by == "caller")
                for one in packages:
                    await self._send(one)
            except (ConfigurationError, FileRefused) as error:
                shown = [str(text)[:200] for text in texts]
                self.emit(PackagesRefused(by=by, asked=shown, code=error.code, reason=error.message))
                raise
        for row in described(packages):
            self.emit(PackageInstalled(by=by, about=row))
        return packages

    async def _send(self, package: Package) -> None:
        assert self.ask is not None  # noqa: S101 (a session has made this)
        try:
            with package.file.open("rb") as file:
                await scratch_files.write(self.ask, f"{PLACE}/{package.file.name}", file, self._settings.packages_size)
        except FileRefused as error:
            what = f"{package.name} cannot go into the sandbox: {error.message}"
            raise ConfigurationError(PackageCode.PACKAGE_TOO_LARGE, what, setting="scratch_size") from None

    def tool(self) -> Tool:
        """Return the tool behind `%pip install` in cells: it installs what the setting `packages` allows."""
        allowed = Allowed(self._settings.packages)

        async def pip_install(requirements: list[str], has: dict[str, Any]) -> list[str]:
            """Install packages that this sandbox may have; use `%pip install NAME`."""
            try:
                allowed.check(requirements)
            except ConfigurationError as error:
                asked = requirements[:20]
                self.emit(PackagesRefused(by="cell", asked=asked, code=error.code, reason=error.message))
                raise
            return [one.file.name for one in await self.install(requirements, has, by="cell")]

        return Tool.of(pip_install, name=TOOL, seconds=SECONDS + SLACK_SECONDS, stops_clock=True)


class PackagesOfCells:
    """A `Preparation`: `%pip install` in cells."""

    def __init__(self, settings: Settings) -> None:
        self._installing = Installing(settings)
        self._tools = Tools([self._installing.tool()])
        self.inside = Inside(environment={}, lines=(self._tools.line_of(TOOL_MODULE), line()))

    def service(self, session: SessionHandle) -> SessionService:
        """Return what serves it."""
        self._installing.ask, self._installing.emit = session.ask, session.emit
        return ToolCalls(self._tools, session, TOOL_MODULE)

    def state(self) -> dict[str, Any]:
        """Return nothing: another process installs as this one does."""
        return {}


def source_inside() -> str:
    """Return the module of the sandbox's side."""
    return (PACKAGE / "plugins" / "packages" / "inside" / "sandbox_packages.py").read_text(encoding="utf-8")


def line() -> str:
    """Return one line of Python that gives a kernel its `%pip`."""
    return module_line(f"{source_inside()}\ninstall_magic()\n", MODULE)


def question(**fields: object) -> str:
    """Return an internal cell that asks what is installed, and prints the answer."""
    source = f"{source_inside()}\nanswer({json.dumps(fields)!r})\n"
    return f"exec({source!r}, {{'__name__': {MODULE!r}}})"


INSIDE_SECONDS = 120.0
"""Most seconds of a sandbox to list its packages, and to unpack wheels."""


class Packages:
    """The packages that callers install into one sandbox."""

    def __init__(self, sandbox: SandboxHandle) -> None:
        self._sandbox = sandbox
        self._installing: Installing | None = None

    async def install(
        self, packages: Sequence[str | os.PathLike[str]], progress: Callable[[str], object] | None
    ) -> list[InstalledPackage]:
        """See `AsyncSandbox.install`."""
        await self._sandbox.ready(fresh=True)
        if self._installing is None:
            session = self._sandbox.session
            self._installing = Installing(self._sandbox.settings)
            self._installing.ask, self._installing.emit = session.ask, session.emit
        has = await self._asked(question())
        heard = progress or (lambda text: None)
        found = await self._installing.install(packages, has, by="caller", heard=heard)
        heard("unpacking")
        said = await self._asked(question(unpack=[one.file.name for one in found]))
        if not isinstance(said, dict) or said.get("ok") is not True:
            raise ConfigurationError(PackageCode.PACKAGES_NOT_UNPACKED, setting="scratch_size")
        return [InstalledPackage(one.name, one.version, one.sha256, one.size) for one in found]

    async def _asked(self, code: str) -> object:
        """Return what the sandbox says, None if that is no answer."""
        execution = await self._sandbox.run_own(code, reads="", timeout=INSIDE_SECONDS)
        with suppress(AnswerError):
            return AnswerAllowance(self._sandbox.settings.limits).last_line(execution.logs.stdout)
        return None
