"""Input of a command that comes piece by piece, and takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable

from ..core.codes import EndCode, UsageCode
from ..core.errors import CellTimeout, ConfigurationError
from .following import Requests
from .values import seconds

Streamed = Iterable[str | bytes] | AsyncIterable[str | bytes]


async def stream(requests: Requests, pid: int, data: Streamed, timeout: float | None) -> None:
    """Write pieces to the stdin of a command as they come.

    Raises `CellTimeout` after `timeout` seconds; None and 0 are no limit.
    """
    limit = limit_of(timeout)
    try:
        async with asyncio.timeout(limit):
            if isinstance(data, AsyncIterable):
                async for piece in data:
                    await requests.send(pid, piece)
            else:
                for piece in pieces(data):
                    await requests.send(pid, piece)
    except TimeoutError:
        raise late(limit or 0) from None


def limit_of(timeout: float | None) -> float | None:
    """Return a limit in seconds, None for none. Raises `ConfigurationError`."""
    return seconds(timeout) if timeout else None


def pieces(data: object) -> Iterable[str | bytes]:
    """Return what is to be sent, piece by piece. Raises `ConfigurationError` for what is one piece, or none."""
    if isinstance(data, (str, bytes, bytearray, memoryview)) or not isinstance(data, Iterable):
        why = "data must be pieces of text or bytes, such as a list or a generator"
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, setting="data")
    return data


def late(limit: float) -> CellTimeout:
    """Return the error for input that took too long."""
    return CellTimeout(
        EndCode.COMMAND_TIMEOUT, "the input of the command took too long", limit=f"{limit:g} s", setting="timeout"
    )
