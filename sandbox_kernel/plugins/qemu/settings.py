"""How much room snapshots have, and how long a paused machine keeps its memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...config.forms import seconds, size
from ...config.setting import rows, setting
from ...core.model import GIB, KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuSettings:
    """What is kept of machines on this user's disk."""

    snapshots_size: int = setting(
        20 * GIB,
        size(64 * KIB),
        "What all snapshots of this user may take together.",
        scope="process",
    )
    snapshots_age: float = setting(
        30 * 86400.0,
        seconds(1),
        "An older snapshot is removed when snapshots are next used.",
        "30 days",
        scope="process",
    )
    pause_memory: float = setting(
        300.0,
        seconds(1),
        "How long a paused sandbox of the engine qemu keeps its memory. Then it is written to this user's data "
        "folder, and its processes end; `resume` reads it again. Other engines keep the memory.",
        scope="process",
    )


GROUP = "Names and records"
SETTINGS = rows(QemuSettings)
