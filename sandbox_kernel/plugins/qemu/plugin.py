"""What this plugin adds: the engine `qemu`, and snapshots of sandboxes with the command `snapshots`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ...core.model import PRELOAD
from ...engines.select import EngineProvider
from ...engines.wall import Wall, WallCell
from ..api import Command, Diagnosis, Plugin
from .codes import QemuCode, SnapshotCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from typing import Literal

    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable
    from ...sdk.snapshots import Snapshots

OWN = WallCell("yes", "in its own kernel")
WALL = Wall(
    name="QEMU",
    settings="engine = qemu",
    engine="qemu",
    for_whom="code that is expected to attack, where a fault of the machine's kernel must not be the end of it",
    kernel="a Linux of its own, on a machine that QEMU emulates; QEMU is a program in a sandbox of bubblewrap's",
    stops="the same, and faults of a Linux kernel in whatever call: the one that is met is the sandbox's own",
    leaves="a fault of QEMU's in the few devices that there are, and then one of the machine's kernel in the few "
    "calls that QEMU may make",
    needs="what bubblewrap needs, and QEMU; a kernel and a disk, which `build` makes on Debian for x86_64",
    costs="it is emulated, with KVM or without: computing takes ten times as long and more, and a cold start seconds",
    enforces={
        "user": WallCell("partly", "QEMU, if root starts it; otherwise it is the user who starts it"),
        "inodes": OWN,
        "sys": WallCell("yes", "except for its own cgroup"),
        "kernel": WallCell("yes", "Linux, on a machine that QEMU emulates"),
        "calls": OWN,
        "calls-agent": OWN,
        "ends": WallCell("yes", "by its reaper"),
    },
)


_SHARED = "the host's folder, by the one device that shows it; QEMU has it as a layer of its own"
_TERMINALS = "the system's own files for terminals of the sandbox, of which nobody can make another kind"


class QemuProvider(EngineProvider):
    """QEMU, the system's."""

    name = "qemu"
    is_emulated = True
    image_kind = "root"
    excuses = MappingProxyType(
        {
            "qemu": {"writable places": ("/dev/pts", _TERMINALS), "file system of a dataset": ("9p", _SHARED)},
            "qemu without a cgroup": {
                "writable places": ("/dev/pts", _TERMINALS),
                "file system of a dataset": ("9p", _SHARED),
                "engine: cgroup": ("none", "the machine's own kernel limits the sandbox; QEMU itself is looked at"),
            },
        }
    )

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import QemuEngine

        return QemuEngine(preload=settings.get("preload", PRELOAD))

    def remedy(self, address: str) -> str:
        from .artifacts import install

        return install()

    def build(self, root: str, *, force: bool, progress: Callable[[str], None]) -> str:
        from .build import build

        return build(root, force=force, progress=progress)

    def state(self, image: str) -> tuple[str, Literal["ok", "note", "wrong"], str, str] | None:
        from .build import state

        return ("machine", *state(image))

    def walls(self) -> tuple[Wall, ...]:

        return (WALL,)


def snapshots() -> Snapshots:
    """Return what the SDK asks about snapshots."""
    from .snapshots import copies

    return copies


def inventory(settings: Settings) -> Mapping[str, Diagnosis]:
    """Say what snapshots this user has."""
    from .snapshots import snapshot_command

    return snapshot_command.inventory(settings)


def tidy(settings: Settings) -> str:
    """Remove snapshots that are too old, or were never finished."""
    from .snapshots import snapshot_command

    return snapshot_command.tidy(settings)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots`."""
    from .snapshots import snapshot_command

    snapshot_command.add_options(parser)


def list_snapshots(options: argparse.Namespace) -> int:
    """List the snapshots of sandboxes that this user has, or delete some.

    What is older than `snapshots_age` is removed before. A snapshot has all that its sandbox had in memory.
    """
    from .snapshots import snapshot_command

    return snapshot_command.run(options)


PLUGIN = Plugin(
    name="qemu",
    codes={"Machines": QemuCode, "Snapshots": SnapshotCode},
    page="docs/qemu.md",
    engines=(QemuProvider(),),
    snapshots=snapshots,
    inventory=inventory,
    tidy=tidy,
    commands=(
        Command(
            name="snapshots",
            run=list_snapshots,
            add_options=add_options,
            shown=("snapshots_size", "snapshots_age"),
            group="Checking and maintaining",
            examples={
                "sandbox-kernel snapshots": "name, age, size, engine and image of each",
                "sandbox-kernel snapshots delete before-the-model": "one less",
            },
        ),
    ),
)
