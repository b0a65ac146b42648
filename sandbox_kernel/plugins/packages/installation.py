"""Packages into one session, for its caller or, where a setting allows it, for its cells.

The host resolves and fetches in a thread (`wheel_selection`), and the files go over the pipe into a hidden folder of
scratch. What is inside unpacks them (`inside`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...core.answer_allowance import Allowance
from ...core.codes import UsageCode
from ...core.errors import AnswerError, ConfigurationError, FileRefused
from ...core.model import Inside, Settings
from ...core.package_files import PACKAGE
from ...engines.shipping import packed_line
from ...files import scratch_files
from ...files.scratch_files import Ask
from ...sdk.values import InstalledPackage
from ..api import SessionHandle, SessionService
from ..tools.tool_calls import ToolCalls
from ..tools.tools import Tool, Tools
from .codes import PackageCode
from .settings import PackageSettings
from .wheel_selection import SECONDS, Has, Package, Source, described, resolve

if TYPE_CHECKING:
    from ...sdk.instance import Instance


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
                    UsageCode.PACKAGE_IMPROPER, f"{text[:100]!r} is no name of a package with versions"
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

Record = Callable[..., None]
Said = Callable[[str], object]


class Installing:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.of(PackageSettings)
        self._turn = asyncio.Lock()
        self.ask: Ask | None = None
        """The way to the sandbox, once there is a session."""
        self.record: Record = lambda *event, **fields: None

    async def install(
        self, texts: Sequence[str | os.PathLike[str]], said: object, *, by: str, heard: Said = lambda text: None
    ) -> list[Package]:
        """Send what is asked for into the sandbox, and return it. `said` is what the sandbox says that it has.

        One at a time. Raises `ConfigurationError`, `EngineError` and `SandboxDied`.
        """
        has, loop = Has.read(said), asyncio.get_running_loop()

        def say(text: str) -> None:
            loop.call_soon_threadsafe(heard, text)

        source = Source(self._settings.packages_index, self._settings.packages_size, SECONDS, say)
        async with self._turn:
            try:
                packages = await asyncio.to_thread(resolve, texts, has, source, paths=by == "caller")
                for one in packages:
                    await self._send(one)
            except (ConfigurationError, FileRefused) as error:
                shown = [str(text)[:200] for text in texts]
                self.record("packages", by=by, asked=shown, code=error.code.code, reason=error.message)
                raise
        for row in described(packages):
            self.record("package", by=by, **row)
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
                self.record("packages", by="cell", asked=requirements[:20], code=error.code.code, reason=error.message)
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
        self._installing.ask, self._installing.record = session.ask, session.emit
        return ToolCalls(self._tools, session, TOOL_MODULE)

    def state(self) -> dict[str, Any]:
        """Return nothing: another process installs as this one does."""
        return {}


def source_inside() -> str:
    """Return the module of the sandbox's side."""
    return (PACKAGE / "plugins" / "packages" / "inside" / "sandbox_packages.py").read_text(encoding="utf-8")


def line() -> str:
    """Return one line of Python that gives a kernel its `%pip`."""
    return packed_line(f"{source_inside()}\ninstall_magic()\n", MODULE)


def question(**fields: object) -> str:
    """Return a cell of ours that asks what is inside, and prints the answer."""
    source = f"{source_inside()}\nanswer({json.dumps(fields)!r})\n"
    return f"exec({source!r}, {{'__name__': {MODULE!r}}})"


INSIDE_SECONDS = 120.0
"""What the sandbox may take to say what it has, and to unpack what came."""


class Packages:
    """The packages that callers install into one sandbox."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._installing: Installing | None = None

    async def install(
        self, packages: Sequence[str | os.PathLike[str]], progress: Callable[[str], object] | None
    ) -> list[InstalledPackage]:
        """See `AsyncSandbox.install`."""
        await self._instance.ready(fresh=True)
        if self._installing is None:
            session = self._instance.session
            self._installing = Installing(self._instance.settings)
            self._installing.ask, self._installing.record = session.ask, session.emit
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

        async def hear(kind: str, value: object) -> None:
            """Nobody wants to hear of anything before the end."""

        execution = await self._instance.run(code, INSIDE_SECONDS, False, frozenset(), hear, reads="")
        with suppress(AnswerError):
            return Allowance(self._instance.settings.limits).last_line(execution.logs.stdout)
        return None
