"""What an agent says, as values: each number of its type and within its range, each text of bounded length, or nothing.

A cell may speak in the agent's place, so whatever uses a number or a text of it takes it from here. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..container import wire
from ..plugins.api import Figures

LONGEST_SECONDS = 1e9
MAX_BYTES = 1 << 60
MAX_PROCESSES = 1 << 22
"""Linux has no more of them (PID_MAX_LIMIT)."""
MAX_KILLS = 1 << 31
TAIL = 8192
"""Characters of a kernel's last output. The agent keeps as many bytes."""
PARENT = 4096


def count(value: object, most: int) -> int | None:
    """Return a whole number from 0 to `most`; None for all else, true and 1.0 among it."""
    return value if type(value) is int and 0 <= value <= most else None


def seconds(value: object) -> float | None:
    """Return a duration, None for any other value: NaN and infinity compare as false."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= LONGEST_SECONDS else None


def text(value: object, longest: int) -> str:
    """Return the end of a text, "" for any other value."""
    return value[-longest:] if type(value) is str else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUsage:
    """What a sandbox uses now, as it says itself; a cell can make it lie. None where it is not known."""

    memory_bytes: int | None
    cpu_seconds: float | None
    processes: int | None
    scratch_bytes: int | None


def usage_of(said: Mapping[str, Any]) -> SandboxUsage:
    """Return what an agent says that its sandbox uses."""
    return SandboxUsage(
        memory_bytes=count(said.get("memory_used"), MAX_BYTES),
        cpu_seconds=seconds(said.get("cpu_seconds")),
        processes=count(said.get("pids_used"), MAX_PROCESSES),
        scratch_bytes=count(said.get("scratch_used"), MAX_BYTES),
    )


def figures_of(said: Mapping[str, Any], memory_bytes: int) -> Figures:
    """Return what an agent says of a stretch of time. Cells can make it lie: nothing may depend on these figures."""
    return seconds(said.get("cpu_seconds")), count(said.get("memory_peak"), memory_bytes)


@dataclass(frozen=True, slots=True)
class Death:
    """How a kernel ended: with an exit code, or by a signal. `ooms`: how many processes the system ended meanwhile."""

    code: int | None
    signal: int | None
    ooms: int
    tail: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Death:
        return cls(
            code=count(event.get("code"), 255),
            signal=count(event.get("signal"), 64),
            ooms=count(event.get("ooms"), MAX_KILLS) or 0,
            tail=text(event.get("tail"), TAIL),
        )


@dataclass(frozen=True, slots=True)
class Oversized:
    """A message that was too large to be sent, or had too many parts: `many` says which.

    `parent` is the beginning of its parent header, as JSON.
    """

    size: int
    parent: str
    many: bool = False

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Oversized | None:
        size = count(event.get("bytes"), MAX_BYTES)
        many = (count(event.get("parts"), MAX_BYTES) or 0) > wire.MAX_PARTS
        return None if size is None else cls(size, text(event.get("parent"), PARENT), many)

    @property
    def parent_id(self) -> object:
        """The id of the request that it belongs to, if its parent header says one."""
        try:
            return orjson.loads(self.parent)["msg_id"]
        except (ValueError, LookupError, TypeError):
            return None
