"""Takes one state, and ends (`state_capture`). It is bounded by the engine, and by an alarm besides."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from .engine import QemuEngine
from .state_capture import spec_asked

MAX_SECONDS = 400
NICENESS = 10


def main(argument: str) -> None:
    """Take it; where that fails, the reason is with the states."""
    signal.alarm(MAX_SECONDS)
    os.nice(NICENESS)
    said = json.loads(argument)
    engine = QemuEngine(cgroup=said["cgroup"], preload=tuple(said["preload"]), folder=Path(said["folder"]), ahead=False)
    asyncio.run(engine.prepare(spec_asked(said)))


if __name__ == "__main__":
    main(sys.argv[1])
