"""The report of a run: what each cell did and used, what it left, and why the run ended as it did.

`report.schema.json` beside this file describes it. No I/O but writing whole files at once.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ...core.behaviour import THRESHOLD, Behaviour, BehaviourRow
from ...core.codes import Survived, UsageCode
from ...core.screen_findings import Finding
from ...files.host_paths import Folder, open_parent, usable
from ...sdk.values import NetworkUsage
from .exit_codes import End
from .policy_events import Events

VERSION = 1
"""Of the report's form: a reader may rely on every field of its schema, and a new meaning is a new version."""
SCHEMA = f"urn:sandbox-kernel:run-report:{VERSION}"
UNENDED = "the run has not ended"
"""The reason in the report of a run that goes on, or was killed."""
MAX_TEXT = 10_000
"""Characters of one text that came from a cell."""


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    text = resources.files(__package__).joinpath("report.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def now() -> datetime:
    return datetime.now(UTC)


def moment(time: datetime | None) -> str | None:
    """Return a time as ISO 8601 in UTC, to the millisecond."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class RunFailure:
    """The error that ended a cell; `limit` and what follows are there if the host ended it."""

    name: str
    value: str
    fault: str
    limit: str | None = None
    reached: str | None = None
    survived: str | None = None
    kept: Survived | None = None
    code: str | None = None
    setting: str | None = None
    by_host: bool = False
    """Whether the host gave the error its name: a cell can raise an exception of any name."""

    def to_json(self) -> dict[str, Any]:
        texts = {name: _cut(getattr(self, name)) for name in ("name", "value", "fault")}
        more = {name: _cut(getattr(self, name)) for name in ("limit", "reached", "survived", "setting")}
        return {**texts, **more, "kept": self.kept, "code": self.code, "by_host": self.by_host}


@dataclass(slots=True)
class CellRecord:
    """What one code cell did. Times in seconds, sizes in bytes; what was not measured is None."""

    index: int
    """Of the cell in the executed notebook, from 0."""
    number: int
    """Among its code cells, from 1."""
    source: str
    status: str = "not run"
    injected: bool = False
    execution_count: int | None = None
    started: datetime | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    outputs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Count and bytes by type, as they stand in the notebook."""
    error: RunFailure | None = None
    reason: str | None = None
    events: Events = field(default_factory=Events)
    findings: list[Finding] = field(default_factory=list)
    """What the screen found in its source."""
    behaviour: Behaviour | None = None
    """None for one that did not run to an end."""

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "number": self.number,
            "source_sha256": hashlib.sha256(self.source.encode(errors="replace")).hexdigest(),
            "injected_parameters": self.injected,
            "status": self.status,
            "execution_count": self.execution_count,
            "started": moment(self.started),
            "seconds": _rounded(self.seconds),
            "cpu_seconds": _rounded(self.cpu_seconds),
            "memory_peak_bytes": self.memory_peak_bytes,
            "outputs": [
                {"type": name, "count": count, "bytes": size} for name, (count, size) in sorted(self.outputs.items())
            ],
            "error": None if self.error is None else self.error.to_json(),
            "reason": _cut(self.reason),
            "policy_events": self.events.to_json(),
            **({"findings": [one.to_json() for one in self.findings]} if self.findings else {}),
            "behaviour": None if self.behaviour is None else self.behaviour.to_json(),
        }


@dataclass(slots=True)
class NetworkRecord:
    """What cells may reach, and what their connections came to."""

    rules: tuple[str, ...]
    secrets: tuple[str, ...]
    """Their names."""
    usage: NetworkUsage = field(default_factory=NetworkUsage)

    def to_json(self) -> dict[str, Any]:
        refused = [{"code": code, "count": count} for code, count in sorted(self.usage.refused.items())]
        return {
            "rules": list(self.rules),
            "secrets": list(self.secrets),
            "connections": self.usage.connections,
            "refused": refused,
            "received_bytes": self.usage.received_bytes,
            "sent_bytes": self.usage.sent_bytes,
        }


@dataclass(slots=True)
class RunReport:
    """Everything that is known of a run; `to_json` is valid at any moment of it."""

    source: dict[str, Any]
    sandbox: dict[str, Any]
    versions: dict[str, Any]
    started: datetime = field(default_factory=now)
    ended: datetime | None = None
    end: End | None = None
    cells: list[CellRecord] = field(default_factory=list)
    events: Events = field(default_factory=Events)
    """What was refused outside of any cell."""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    inputs_refused: list[dict[str, str]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    notebook: str | None = None
    """Where the executed notebook is."""
    output: str | None = None
    """The folder beneath which `files` are."""
    notebook_sha256: str | None = None
    """This and what follows are for the receipt alone: of the notebook as it was written last."""
    attested: dict[str, Any] | None = None
    """What the sandbox has shown to be; None if it never did."""
    audit: dict[str, Any] | None = None
    """The last line that the run has in the audit; None without one."""
    network: NetworkRecord | None = None
    """None if cells could reach nothing."""
    variation: dict[str, Any] | None = None
    """The circumstances of a run that is compared, and what Python asked the system for."""
    by_risk: dict[str, Any] | None = None
    """Which engine was chosen, and why, where the engine is chosen by risk."""
    answered: dict[str, Any] | None = None
    """The report of the earlier run that answers this one."""
    threshold: int = THRESHOLD
    """Points of behaviour from which a run is not safe."""

    def behaviour(self, seconds: float) -> Behaviour:
        """Return what the run did that matters, in so many seconds until now."""
        cells = [cell.behaviour for cell in self.cells if cell.behaviour is not None]
        beside = [BehaviourRow.of(seen, count) for seen, count in self.events.counts.items()]
        return Behaviour.joined(cells, beside, threshold=self.threshold, seconds=seconds)

    def to_json(self) -> dict[str, Any]:
        if self.answered is not None:
            return self.answered
        ended = self.ended or now()
        end = self.end or End(kind="platform failed", reason=UNENDED)
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "started": moment(self.started),
            "ended": moment(ended),
            "seconds": _rounded((ended - self.started).total_seconds()),
            "exit": {
                "code": end.code,
                "kind": end.kind,
                "reason": _cut(end.reason),
                "cell": end.cell,
                "why": end.why,
            },
            "source": self.source,
            "sandbox": self.sandbox,
            "versions": self.versions,
            "inputs": {"files": self.inputs, "refused": self.inputs_refused},
            "cells": [cell.to_json() for cell in self.cells],
            "policy_events": self.events.to_json(),
            "behaviour": self.behaviour((ended - self.started).total_seconds()).to_json(),
            "notebook": self.notebook,
            "output": {"folder": self.output, "files": self.files},
            **({} if self.network is None else {"network": self.network.to_json()}),
            **({} if self.by_risk is None else {"by_risk": self.by_risk}),
            **({} if self.variation is None else {"variation": self.variation}),
        }


class OutputFile:
    """A file that is written anew each time, as a whole, in a folder that is opened once and kept."""

    def __init__(self, path: Path, folder: Folder | None = None, *, setting: str | None = None) -> None:
        """Open the folder, unless it is given. Raises `ConfigurationError`."""
        self.path = path
        self._setting = setting
        with self._errors():
            self._folder, self._name = (folder, path.name) if folder is not None else open_parent(path)

    def write(self, text: str) -> str:
        """Write atomically: a reader finds the old file or the new one. Return its SHA-256.

        Raises `ConfigurationError`.
        """
        data = text.encode("utf-8", "backslashreplace")
        with self._errors(), self._folder.create(self._name) as file:
            file.write(data)
            file.commit()
        return hashlib.sha256(data).hexdigest()

    def _errors(self) -> AbstractContextManager[None]:
        return usable(UsageCode.PLACE_UNFIT, f"{self.path} cannot be written", setting=self._setting)


def write_report(file: OutputFile, report: RunReport) -> None:
    file.write(json.dumps(report.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
