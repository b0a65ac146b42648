"""What the first process of a machine is told: the sandbox that it makes, and what lets a machine begin anew.

Pure but for the clock and the host's random numbers.
"""

from __future__ import annotations

import base64
import os
import time
from typing import Any

from ...core.model import SandboxSpec
from ...engines import filter as system_calls
from ...engines.bubblewrap.launcher import PROC, Root, etc
from ...engines.hardening import protections

SEED_BYTES = 64
MACHINE = "x86_64"


def anew() -> dict[str, Any]:
    """Return the time and a seed: what a machine that is, or may be, another's copy has to be told first."""
    return {"time_ns": time.time_ns(), "seed": base64.b64encode(os.urandom(SEED_BYTES)).decode()}


def clock() -> dict[str, Any]:
    """Return the order to set the clock."""
    return {"op": "clock", "time_ns": time.time_ns()}


def start(spec: SandboxSpec, root: Root, *, watch_draws: bool = False) -> dict[str, Any]:
    """Return the order to start a sandbox for `spec`; `watch_draws` has the machine note who draws random numbers."""
    wanted = protections(spec)
    return {
        "op": "start",
        **anew(),
        "watched_draws": watch_draws,
        "command": list(spec.command),
        "environment": {**root.environment, **wanted.environment},
        "uid": wanted.uid,
        "folder": wanted.working_folder,
        "hostname": wanted.hostname,
        "memory_bytes": wanted.memory_bytes,
        "pids": wanted.pids,
        "cpu_quota": wanted.cpu_quota_microseconds,
        "cpu_period": wanted.cpu_period_microseconds,
        "open_files": wanted.open_files,
        "masked": [path for path in wanted.masked_paths if path.startswith(PROC)],
        "readonly": list(wanted.readonly_paths),
        "etc": etc(wanted),
        "writable": [
            {
                "path": place.path,
                "bytes": place.size_bytes,
                "files": place.files,
                "mode": place.mode,
                "owner": place.owner or 0,
            }
            for place in wanted.writable
        ],
        "shm_bytes": wanted.shm_bytes,
        "calls": base64.b64encode(system_calls.program(wanted.system_calls, MACHINE)).decode(),
    }
