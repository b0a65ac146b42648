"""A cgroup whose processes stand still, all at once: they use no processor until they are let go on.

In version 1 a frozen process does not die of a signal before it is let go on, in version 2 it does; so whoever kills
lets go on first. Imports cgroups; reads and writes in their folders only.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from ..core.codes import EndCode
from ..core.errors import EngineError
from .cgroups import Group

FREEZE_SECONDS = 5.0
"""How long all processes may take to stand still: one that waits for a disk does so until that answers."""
LOOK_SECONDS = 0.002


class Freezer:
    """The switch of one sandbox's cgroup."""

    def __init__(self, group: Group | None) -> None:
        self._switch, self._said, self._words = _places(group)

    @property
    def there(self) -> bool:
        """Whether the machine has one for this cgroup."""
        return self._switch is not None and self._switch.exists()

    async def freeze(self) -> None:
        """Return when all processes stand still. Raises `EngineError` if that does not come about; they go on then."""
        try:
            self._write(self._words[0])
            async with asyncio.timeout(FREEZE_SECONDS):
                while not self._frozen():  # noqa: ASYNC110 (the machine's kernel does it, and tells nobody)
                    await asyncio.sleep(LOOK_SECONDS)
        except OSError as error:  # TimeoutError is one
            self.thaw()
            words = "the sandbox does not come to a standstill"
            raise EngineError(EndCode.ENGINE_SILENT, words, limit=f"{FREEZE_SECONDS:g} s") from error
        except BaseException:
            self.thaw()
            raise

    def thaw(self) -> None:
        """Let them go on; does nothing where there is no such cgroup any more."""
        with contextlib.suppress(OSError):
            self._write(self._words[1])

    def _write(self, word: str) -> None:
        if self._switch is None:
            raise FileNotFoundError
        self._switch.write_text(f"{word}\n", encoding="ascii")

    def _frozen(self) -> bool:
        return self._said is not None and self._words[2] in self._said.read_text(encoding="ascii").splitlines()


def _places(group: Group | None) -> tuple[Path | None, Path | None, tuple[str, str, str]]:
    """Return where it is switched, where that is said, and the words for on, for off, and for done."""
    if group is not None and group.version == 2:
        own = Path(group.folders[0][1])
        return own / "cgroup.freeze", own / "cgroup.events", ("1", "0", "frozen 1")
    words = ("FROZEN", "THAWED", "FROZEN")
    for name, folder in group.folders if group is not None else ():
        if "freezer" in name.split(","):
            place = Path(folder, "freezer.state")
            return place, place, words
    return None, None, words
