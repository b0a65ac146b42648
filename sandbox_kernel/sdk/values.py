"""What callers of the SDK give and get besides executions and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from ..config.values import seconds as parse_seconds
from ..core.model import Limits, format_bytes


class Keywords(TypedDict, total=False):
    """The settings, as keywords; `sandbox-kernel settings` explains them. None is the default."""

    engine: str | None
    runtime: str | None
    image: str | None
    memory: str | int | None
    cpus: float | None
    pids: int | None
    limits: str | None
    open_files: int | None
    scratch_size: str | int | None
    tmp_size: str | int | None
    shm_size: str | int | None
    cell_timeout: str | float | None
    interrupt_grace: str | float | None
    idle_timeout: str | float | None
    start_timeout: str | float | None
    output_limit: str | int | None
    output_messages: int | None
    message_limit: str | int | None
    file_limit: str | int | None
    folder_limit: str | int | None
    folder_files: int | None
    display_lines: int | None
    display_size: str | int | None
    outputs: str | None
    network: str | Sequence[str] | None
    secrets: str | Sequence[str] | Mapping[str, Mapping[str, object]] | None
    network_connections: int | None
    network_bytes: str | int | None
    network_timeout: str | float | None
    network_proxy: str | None
    network_certificates: str | None
    screen: str | None
    screen_threshold: int | None
    screen_rules: str | None
    screen_overrides: str | None
    monitor: str | Mapping[str, object] | None
    monitor_webhook: str | None
    monitor_command: str | Sequence[str] | None
    uploads: str | None
    downloads: str | None
    audit: str | None
    audit_key: str | None
    audit_size: str | int | None
    audit_source: str | None
    display_name: str | None
    clients: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    """What a sandbox is."""

    id: str
    image: str
    engine: str
    runtime: str
    outputs: str
    network: tuple[str, ...] | Literal["none"]
    """The rules of what its cells may reach."""
    secrets: tuple[str, ...]
    """The variables in which its cells have placeholders."""
    limits: Limits
    python: str | None
    """Version of the Python in it; None before its first start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxUsage:
    """What a sandbox uses now, as it says itself; a cell can make it lie. None where it is not known."""

    memory_bytes: int | None
    cpu_seconds: float | None
    processes: int | None
    scratch_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUsage:
    """What one cell used, as far as it is known. A cell can make its sandbox lie: figures for people."""

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
    """What it was for, as far as that could be read."""
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUsage:
    """What the connections of a sandbox's cells came to, as the host counted it."""

    connections: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """How many connections and requests were refused, by code."""
    received_bytes: int = 0
    sent_bytes: int = 0


def seconds(value: object) -> float:
    """Return a time that a caller gives. Raises `ConfigurationError`."""
    return float(str(parse_seconds(0.001)("timeout", value)))
