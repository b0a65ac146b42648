"""One source again and again: so many times, for so long, or under other circumstances; and what it did otherwise.

Each time is a run and a sandbox of its own, as of several sources.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from ...config.forms import number, seconds
from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from .many import MAX_SOURCES, Job, run_all
from .variations import asked

MAX_REPEATS = 1000
MAX_SECONDS = 7 * 24 * 3600.0


def is_asked(options: argparse.Namespace) -> bool:
    """Return whether one of its options is given."""
    return any(value is not None for value in (options.repeat, options.during, options.time_bomb, options.dates))


def run(options: argparse.Namespace) -> int:
    """Run them all, compare each with the first, and return the exit code that counts most."""
    if len(options.source) != 1 or options.source[0] == "-" or Path(options.source[0]).is_dir():
        words = "what is run again is one notebook or script, from a file"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, value=" ".join(options.source)[:200])
    for name in ("receipt", "variation", "jobs", "cached"):
        if getattr(options, name) is not None:
            flag = {"variation": "--as"}.get(name, f"--{name}")
            raise ConfigurationError(
                UsageCode.NOT_TOGETHER, f"{flag} is of one run, and not of a comparison", setting=flag
            )
    if options.repeat is not None and options.during is not None:
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER, "a run is repeated so often or for so long", setting="--repeat"
        )
    asked_for = asked(time_bomb=options.time_bomb, dates=options.dates)
    times = 1 if options.repeat is None else int(number(int, 2, MAX_REPEATS)("--repeat", options.repeat))
    until = None
    if options.during is not None:
        until = time.monotonic() + seconds(1, MAX_SECONDS)("--for", options.during)
        times = MAX_SOURCES // len(asked_for)
    [source] = options.source
    base = Path(options.output or f"{Path(source).stem}-output")
    jobs = [
        Job(source, base / (re.sub(r"[^A-Za-z0-9._-]+", "-", word) + (f"-{turn}" if times > 1 else "")), word)
        for turn in range(1, times + 1)
        for word in asked_for
    ]
    return run_all(jobs, options, 1, until=until)
