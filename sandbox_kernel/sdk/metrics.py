"""What a sandbox uses, as it says itself; a cell can make it lie."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from .instance import Instance
from .values import SandboxMetrics, SandboxUsage


@dataclass(slots=True)
class _Sample:
    """The processor time of a sandbox at a moment."""

    moment: float
    cpu_seconds: float


class Metrics:
    """What one sandbox uses. Methods raise `SandboxDied` if it is gone."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._sample: _Sample | None = None

    async def usage(self) -> SandboxUsage:
        """See `AsyncSandbox.usage`."""
        await self._instance.ready(fresh=False)
        said = await self._instance.session.usage()
        return SandboxUsage(
            memory_bytes=said.memory_bytes,
            cpu_seconds=said.cpu_seconds,
            processes=said.processes,
            scratch_bytes=said.scratch_bytes,
        )

    async def rows(self, start: datetime | None, end: datetime | None) -> list[SandboxMetrics]:
        """See `AsyncSandbox.get_metrics`."""
        usage, now = await self.usage(), datetime.now(UTC)
        before, moment = self._sample, time.monotonic()
        limits, started = self._instance.settings.limits, self._instance.lifetime.started or now
        cpu = usage.cpu_seconds or 0.0
        since = moment - before.moment if before is not None else (now - started).total_seconds()
        used = cpu - (before.cpu_seconds if before is not None else 0.0)
        self._sample = _Sample(moment, cpu)
        row = SandboxMetrics(
            timestamp=now,
            cpu_count=math.ceil(limits.cpus),
            cpu_used_pct=round(100 * max(0.0, used) / max(since, 1e-3), 2),
            mem_used=usage.memory_bytes or 0,
            mem_total=limits.memory,
            disk_used=usage.scratch_bytes or 0,
            disk_total=limits.scratch_size,
        )
        asked = (start is None or _aware(start) <= now) and (end is None or now <= _aware(end))
        return [row] if asked else []


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.astimezone()
