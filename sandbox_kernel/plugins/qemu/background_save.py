"""A process of its own that takes one state, and ends: whoever wanted it may be gone long before.

    python -I -m sandbox_kernel.plugins.qemu {"image": …, "limits": …}

Starts it, and reads there what was asked for.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...core.helper_processes import start_apart
from ...core.model import AgentOptions, Limits, SandboxSpec

MODULE = "sandbox_kernel.plugins.qemu"
START_SECONDS = 10.0


def begin(spec: SandboxSpec, preload: tuple[str, ...], folder: Path, *, cgroup: bool) -> None:
    """Start such a process for a spec that may be kept. Raises OSError and `subprocess.SubprocessError`."""
    if spec.made_of is None:
        raise ValueError("it is no agent's")
    said = {
        "image": spec.image,
        "limits": asdict(spec.limits),
        "limits_kept": spec.limits_kept,
        "charts": spec.made_of.charts,
        "zone": spec.made_of.zone,
        "preload": preload,
        "folder": str(folder),
        "cgroup": cgroup,
    }
    start_apart(MODULE, json.dumps(said), seconds=START_SECONDS)


def spec_of(said: dict[str, Any]) -> SandboxSpec:
    """Return the spec that was asked for: it has the same state."""
    from ...engines.shipping import command_of, new_uid

    options = AgentOptions(charts=said["charts"], zone=said["zone"])
    limits = Limits(**said["limits"])
    return SandboxSpec(
        session_id=os.urandom(16).hex(),
        image=said["image"],
        limits=limits,
        command=command_of(options, limits),
        limits_kept=said["limits_kept"],
        uid=new_uid(),
        made_of=options,
    )
