"""What callers of the SDK give and get besides executions and files.

Public: plugins may import it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol

from ..config.forms import seconds as parse_seconds
from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.model import Limits, format_bytes
from .keywords import SettingKeywords


class ToolSource(Protocol):
    """What has tools of another framework."""

    def as_tools(self) -> Iterable[Any]:
        """Return each as a `Tool`."""


class AttachedSandbox(NamedTuple):
    """A detached sandbox that is to be taken over, as `AsyncSandbox` takes it."""

    name: str
    take: bool
    prepared: Mapping[str, Any] = {}
    """What plugins of its first owner's have inside, by their names."""


@dataclass(frozen=True, slots=True)
class PtySize:
    """The size of a terminal, in characters."""

    rows: int
    cols: int


class CommandResult(NamedTuple):
    """How a command ended."""

    stdout: str | None
    """None if it was not to be kept (`retain_output=False`)."""
    stderr: str | None
    exit_code: int
    error: str | None = None


class ProcessInfo(NamedTuple):
    """A command that runs, as the sandbox says."""

    pid: int
    cmd: str
    args: tuple[str, ...]
    envs: Mapping[str, str]
    cwd: str | None
    tag: str | None = None

    def __str__(self) -> str:
        return f"{self.pid}: {shlex.join((self.cmd, *self.args))}"


@dataclass(frozen=True, slots=True)
class Context:
    """One of the kernels of a sandbox: it has variables of its own."""

    id: str
    language: str
    cwd: str
    """The folder in which it began."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A sandbox that was written down."""

    name: str
    made: float
    """Seconds since 1970."""
    bytes: int
    about: Mapping[str, Any]
    """The data that its maker stored with it: plain JSON."""


class Missed(NamedTuple):
    """The part of a cell's output that was dropped."""

    messages: int = 0
    bytes: int = 0


class Keywords(SettingKeywords, total=False):
    """The settings, and what is of one sandbox."""

    timeout: float | None
    """Seconds after its start in which it ends, in use or not; `idle_timeout` counts from its last use."""
    detached: bool | AttachedSandbox | None
    """Whether it outlives this process: a broker keeps it until its lifetime is over."""
    lifetime: str | float | None
    """How long a detached sandbox lasts from its start on; one hour by default."""
    metadata: Mapping[str, str] | None
    """Texts to find it by."""
    envs: Mapping[str, str] | None
    """Variables of its cells and commands."""
    tools: ToolSource | Iterable[Any] | None
    """Functions of the caller's that cells call: `from sandbox_tools import ...`."""


State = Literal["running", "paused", "not running", "ended"]
"""Of a sandbox: one that is not running starts with the next call, one that has ended never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """What a sandbox is."""

    id: str
    image: str
    engine: str
    runtime: str
    outputs: str
    network: tuple[str, ...] | Literal["none", "unknown"]
    """The rules of what its cells may reach; unknown of one that another process uses."""
    secrets: tuple[str, ...]
    """The variables in which its cells have placeholders; of one that another process uses none are known."""
    tools: tuple[str, ...] = ()
    """Names of the functions that its cells may call."""
    limits: Limits
    python: str | None
    """Version of the Python in it; None before its first start."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    """When it was first started."""
    end_at: datetime | None = None
    """When it ends whoever uses it; None if nobody has set that."""
    state: State = "not running"
    detached: bool = False
    """Whether it outlives the process that uses it."""
    owned: bool = True
    """Whether a process uses it; a detached sandbox may have no owner."""
    busy: bool = False
    """Whether a cell runs in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxMetrics:
    """What a sandbox uses at a moment, as it says itself, and its limits; sizes in bytes."""

    timestamp: datetime
    cpu_count: int
    cpu_used_pct: float
    """Of one processor: two that are busy are 200."""
    mem_used: int
    mem_total: int
    disk_used: int
    """Of /mnt/data, which is a part of the memory."""
    disk_total: int
    mem_cache: int = 0


@dataclass(frozen=True, slots=True)
class SandboxQuery:
    """Which sandboxes `list` is to return: all that have this metadata, are in one of these states, ..."""

    metadata: Mapping[str, str] | None = None
    state: Sequence[str] | None = None
    started_after: datetime | None = None
    image: str | None = None

    def matches(self, info: SandboxInfo) -> bool:
        return (
            all(info.metadata.get(name) == value for name, value in (self.metadata or {}).items())
            and (self.state is None or info.state in [getattr(one, "value", one) for one in self.state])
            and (self.started_after is None or (info.started_at is not None and info.started_at > self.started_after))
            and (self.image is None or info.image == self.image)
        )


def found_by(
    query: SandboxQuery, metadata: Mapping[str, str] | None, sandboxes: Iterable[SandboxInfo]
) -> list[SandboxInfo]:
    """Return those of a query, each once, the newest first; without states in it, those that run."""
    states = {"running", "paused"} if query.state is None else None
    asked = replace(query, metadata={**(query.metadata or {}), **(metadata or {})})
    there = {info.id: info for info in reversed([*sandboxes]) if states is None or info.state in states}
    rows = [info for info in there.values() if asked.matches(info)]
    return sorted(rows, key=lambda info: info.started_at or datetime.now(UTC), reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUsage:
    """What one cell used; None where it is not known. A cell can make its sandbox lie: figures for people."""

    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None

    def __repr__(self) -> str:
        cpu = "?" if self.cpu_seconds is None else f"{self.cpu_seconds:.3f} s"
        peak = "?" if self.memory_peak_bytes is None else format_bytes(self.memory_peak_bytes)
        return f"CellUsage(cpu={cpu}, memory peak={peak})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDenial:
    """A connection or a request of a cell that was not let out."""

    code: str
    """As docs/codes.md lists it."""
    reason: str
    """With the rule to add, where there is one."""
    host: str | None = None
    """The host that was requested, if it could be read."""
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUsage:
    """What the connections of a sandbox's cells came to, as the host counted it."""

    connections: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """How many connections and requests were refused, by code."""
    received_bytes: int = 0
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package that came into a sandbox."""

    name: str
    version: str
    sha256: str
    """Of its wheel."""
    bytes: int


class UsualSeconds(float):
    """A time limit that nobody asked for: one that is longer than the limit of a setting is that limit."""


def seconds(value: object) -> float:
    """Return a time that a caller gives. Raises `ConfigurationError`."""
    return parse_seconds(0.001)("timeout", value)


def seconds_within(value: object, limits: Limits) -> float:
    """Return the time that a caller gives for one call. Raises `ConfigurationError`, also if it is over the limit."""
    given, longest = seconds(value), limits.cell_timeout
    if isinstance(value, UsualSeconds):
        return min(given, longest)
    if given > longest:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            "timeout is longer than a call may run",
            limit=f"up to {longest:g} s",
            value=f"{given:g} s",
            setting="cell_timeout",
        )
    return given
