"""A clock of its own for another process, which a test moves while that process runs: libfaketime."""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.setup.command_steps import Steps
from sandbox_kernel.setup.engine_setup import install_packages

LIBRARY = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}/faketime/libfaketime.so.1"
DAY = 86400


class Clock:
    """The clock that tells the time of day, for each process that has `environment`; how long things take is real."""

    def __init__(self, folder: Path) -> None:
        if not Path(LIBRARY).exists():
            try:
                install_packages(["libfaketime"], Steps(lambda text: None))
            except (EngineError, OSError):
                pytest.skip("it takes libfaketime: apt-get install libfaketime")
        self._file = folder / "time"
        self.jump(0)
        self.environment = {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, days: int) -> None:
        """Have it be so many days later than it is, or earlier."""
        self.days = days
        new = self._file.with_suffix(".new")
        new.write_text(f"{days * DAY:+d}s\n")
        new.rename(self._file)  # it is read at any moment

    def shows(self, seconds: float) -> bool:
        """Return whether it was this time there, in seconds since 1970, just now."""
        return abs(seconds - time.time() - self.days * DAY) < DAY / 2
