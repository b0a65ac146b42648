"""`install`: packages into a sandbox that runs, by its caller."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...core.answer_allowance import Allowance
from ...core.errors import AnswerError, ConfigurationError
from ...sdk.instance import Instance
from ...sdk.values import InstalledPackage
from .codes import PackageCode

if TYPE_CHECKING:
    from .installing import Installing

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
        from . import installing

        await self._instance.ready(fresh=True)
        if self._installing is None:
            session = self._instance.session
            self._installing = installing.Installing(self._instance.settings)
            self._installing.ask, self._installing.record = session.ask, session.emit
        has = await self._asked(installing.question())
        heard = progress or (lambda text: None)
        found = await self._installing.install(packages, has, by="caller", heard=heard)
        heard("unpacking")
        said = await self._asked(installing.question(unpack=[one.file.name for one in found]))
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
