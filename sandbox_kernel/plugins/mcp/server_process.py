"""What commands that serve until they are told to end have in common. Needs no package of an extra."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import signal
import sys
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.remedies import install_words

CLOSE_SECONDS = 8.0
"""For the end of all sandboxes; what is left then ends with the process."""

Result = TypeVar("Result")


def require_packages(needed: Iterable[str], extra: str, who: str) -> None:
    """Raise `ConfigurationError` with how to install what is missing of the packages that a command needs."""
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        raise ConfigurationError(
            UsageCode.PACKAGE_MISSING,
            f"{who} needs more packages ({', '.join(missing)}): {install_words(extra)}",
        )


def count(text: str) -> int:
    """Return a number of an option. Raises `argparse.ArgumentTypeError`."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return int(text)


def say(text: str) -> None:
    """Print where people look; stdout may belong to a protocol."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def asked_to_end() -> asyncio.Event:
    """Return an event that is set when this process is asked to end."""
    event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


async def closed_in_time(closing: Awaitable[Result]) -> Result | None:
    """Wait for the end of all sandboxes, for a while; return what it returns."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            return await closing
    except TimeoutError:
        say("some sandboxes did not end in time; they end with this process")
        return None
