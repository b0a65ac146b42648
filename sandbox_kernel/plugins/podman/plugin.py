"""What this plugin adds: the engine `podman`."""

from __future__ import annotations

import shutil
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...core.remedies import as_root, of_system
from ...engines.docker.discovery import OF_PODMAN
from ...engines.select import PODMAN, EngineProvider
from ...engines.wall import Wall, WallCell
from ..api import Plugin

if TYPE_CHECKING:
    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable

_DOCUMENT = (
    "only the document for the OCI runtime shows it, which this process cannot read: the engine is another user's, or "
    "another machine's"
)
_ALWAYS = {
    "engine: MaskedPaths": ("not shown", _DOCUMENT),
    "engine: system call filter": ("not shown", _DOCUMENT),
}
_BEST_EFFORT = "limits = best-effort accepts that the host looks at what is used"

WALL = Wall(
    name="Podman",
    settings="engine = podman",
    engine=PODMAN,
    for_whom="machines that have Podman in Docker's place, such as those with Fedora and RHEL; without root as well",
    kernel="the machine's, behind our list of system calls",
    stops="the same as runc; without root, a way out of the sandbox leads to an ordinary user",
    leaves="the same as runc",
    needs="Podman 4 or newer and its socket; for limits without root, cgroup v2",
    costs="as Docker with runc; a kernel's start takes longer, for nothing is asked before its process is ready",
    enforces={
        "files-number": WallCell("no", "they count as memory"),
        "user": WallCell("partly", "without root, one of 50,000 by chance, which no other sandbox has at the time"),
    },
)


class PodmanProvider(EngineProvider):
    """Podman, found by itself or at an address."""

    name = PODMAN
    keeps_apart = frozenset({"cpuset"})
    excuses = MappingProxyType(
        {
            "podman": _ALWAYS,
            "podman without a cgroup": {
                **_ALWAYS,
                **dict.fromkeys(
                    ("memory limit", "swap", "process limit", "CPU quota and period"), ("whatever it is", _BEST_EFFORT)
                ),
                **dict.fromkeys(
                    (f"engine: {one}" for one in ("Memory", "MemorySwap", "CpuPeriod", "CpuQuota", "PidsLimit")),
                    ("0", _BEST_EFFORT),
                ),
            },
        }
    )

    openings = MappingProxyType(
        {
            "buses_and_drivers_of_the_machine": "/proc/sys/dev can be read, and no other of their places: crun would "
            "mask it by a folder that can be written to",
            "empty_files_without_end": "Podman gives its folders a size and no number of files; the limit of memory "
            "counts them",
        }
    )

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import PodmanEngine

        return PodmanEngine(address)

    def answers(self) -> bool:
        from .discovery import answers

        return answers()

    def remedy(self, address: str) -> str:
        if sys.platform == "darwin":
            return "`podman machine start`"
        if shutil.which("podman") is None:
            return of_system("podman")
        return f"`systemctl --user enable --now podman.socket`, or `{as_root('systemctl enable --now podman.socket')}`"

    def address(self) -> str:
        from .discovery import socket_path

        return f"{OF_PODMAN}{socket_path(self.name)}"

    def walls(self) -> tuple[Wall, ...]:
        return (WALL,)


PLUGIN = Plugin(name="podman", page="docs/install.md", engines=(PodmanProvider(),))
