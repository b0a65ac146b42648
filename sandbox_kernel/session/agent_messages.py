"""What an agent says, as values: each number of its type and within its range, each text of bounded length, or nothing.

A cell may speak in the agent's place, so whatever uses a number or a text of it takes it from here. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..container import wire
from ..core.events import ABSENT, CallTried
from ..engines.seccomp import WATCHED, WATCHED_IN_PART
from ..files.file_rules import printable
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
    undone: bool = False
    """Whether the next kernel has the variables from before the cell that ran."""
    out_of_fuel: bool = False

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Death:
        return cls(
            code=count(event.get("code"), 255),
            signal=count(event.get("signal"), 64),
            ooms=count(event.get("ooms"), MAX_KILLS) or 0,
            tail=text(event.get("tail"), TAIL),
            undone=event.get("undone") is True,
            out_of_fuel=event.get("fuel") is True,
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


def watches(report: object) -> bool:
    """Return whether an agent says in its report that it sees which calls are tried."""
    filters = report.get("own_filters") if isinstance(report, dict) else None
    return isinstance(filters, dict) and filters.get("watching") is True


_CALLS = frozenset((*WATCHED, *WATCHED_IN_PART, "secret", "program"))
_ADDRESS = re.compile(r"\?|(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9a-f:.]{2,45}\]):[0-9]{1,5}")
_NAME = re.compile(r"[\w.+-]{1,40}", re.ASCII)
MAX_TRIES, MAX_TRIED = 1_000_000, 64
"""How often at once one thing is tried, and how many different ones a word of the agent has."""
SECRETS = (
    "an engine's socket",
    "password hashes",
    "who may become root",
    "keys of SSH",
    "credentials of a cloud",
    "stored passwords",
    "a pod's token",
    "root's files",
    "another process's memory or variables",
    "the machine's memory or kernel",
    "a change of files of the system",
)
"""By the numbers of `plugins/monitor/inside/secret_watch.py`: what comes out is a number, and no word of a cell's."""


def calls_of(event: Mapping[str, Any]) -> Iterator[CallTried]:
    """Yield what an agent says that was tried; what is no proper row of it is left out."""
    rows = event.get("rows")
    for row in rows[:MAX_TRIED] if isinstance(rows, list) else ():
        call, program, target, times, thread = row if isinstance(row, list) and len(row) == 5 else [None] * 5
        if type(call) is not str or call not in _CALLS:
            continue
        if call == "secret":
            number = text(target, 2)
            if number not in map(str, range(len(SECRETS))):
                continue
            shown = SECRETS[int(number)]
        elif call == "connect":
            shown = text(target, 60)
            shown = shown if _ADDRESS.fullmatch(shown) else "?"
        elif call == "program":
            shown = text(target, 60)
            shown = shown if _NAME.fullmatch(shown) else "?"
        else:
            shown = ABSENT
        yield CallTried(
            call=call,
            target=shown,
            program=printable(text(program, 16)),
            thread=count(thread, MAX_PROCESSES) or 0,
            count=count(times, MAX_TRIES) or MAX_TRIES,
        )
