"""`install`: packages into a sandbox that runs, by its caller."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.allowance import Allowance
from ..core.codes import UsageCode
from ..core.errors import AnswerError, ConfigurationError
from ..core.model import Settings
from .execution import Execution

if TYPE_CHECKING:
    from ..gateway.installing import Installing
    from ..session.session import Session

INSIDE_SECONDS = 120.0
"""What the sandbox may take to say what it has, and to unpack what came."""


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package that came into a sandbox."""

    name: str
    version: str
    sha256: str
    """Of its wheel."""
    bytes: int


class Installs:
    """The part of a sandbox that installs packages."""

    settings: Settings
    _session: Session
    _run: Callable[..., Awaitable[Execution]]
    _ready: Callable[..., Awaitable[None]]
    _installing: Installing | None = None

    async def install(
        self, *packages: str | os.PathLike[str], progress: Callable[[str], object] | None = None
    ) -> list[InstalledPackage]:
        """Install packages from the index that this machine's pip uses, or wheels by their paths, and what they need.

        `await sandbox.install("humanize>=4", "dist/mine-1.0-py3-none-any.whl")`. Wheels only, for the sandbox's Python
        and platform; what it has already keeps its version, and is not fetched. Nothing of a package runs on this
        machine. They are there until the sandbox ends, and are importable at once. `progress` hears a line at a time.
        Returns what came. Raises `ConfigurationError` with a code for each way in which that cannot be.
        """
        from ..gateway import installing

        await self._ready(fresh=True)
        if self._installing is None:
            self._installing = installing.Installing(self.settings)
            self._installing.ask, self._installing.record = self._session.ask, self._session.audit
        has = await self._asked(installing.question())
        heard = progress or (lambda text: None)
        found = await self._installing.install(packages, has, by="caller", heard=heard)
        heard("unpacking")
        said = await self._asked(installing.question(unpack=[one.file.name for one in found]))
        if not isinstance(said, dict) or said.get("ok") is not True:
            raise ConfigurationError(UsageCode.PACKAGES_NOT_UNPACKED, setting="scratch_size")
        return [InstalledPackage(one.name, one.version, one.sha256, one.size) for one in found]

    async def _asked(self, code: str) -> object:
        """Return what the sandbox says, None if that is no answer."""

        async def hear(kind: str, value: object) -> None:
            """Nobody wants to hear of anything before the end."""

        execution = await self._run(code, INSIDE_SECONDS, False, frozenset(), hear, reads="")
        with suppress(AnswerError):
            return Allowance(self.settings.limits).last_line(execution.logs.stdout)
        return None
