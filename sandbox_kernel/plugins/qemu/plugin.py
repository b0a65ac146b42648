"""What this plugin adds: the engine `qemu`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ...core.model import PRELOAD
from ...engines.select import EngineProvider
from ..api import Plugin
from .codes import QemuCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable
    from ...engines.wall import Wall

_TERMINALS = "the system's own files for terminals of the sandbox, of which nobody can make another kind"


class QemuProvider(EngineProvider):
    """QEMU, the system's."""

    name = "qemu"
    is_emulated = True
    image_kind = "root"
    remedy = "apt-get install --no-install-recommends qemu-system-x86"
    excuses = MappingProxyType(
        {
            "qemu": {"writable places": ("/dev/pts", _TERMINALS)},
            "qemu without a cgroup": {
                "writable places": ("/dev/pts", _TERMINALS),
                "engine: cgroup": ("none", "the machine's own kernel limits the sandbox; QEMU itself is looked at"),
            },
        }
    )

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import QemuEngine

        return QemuEngine(preload=settings.get("preload", PRELOAD))

    def build(self, root: str, *, force: bool, progress: Callable[[str], None]) -> str:
        from .build import build

        return build(root, force=force, progress=progress)

    def state(self, image: str) -> tuple[str, Literal["ok", "note", "wrong"], str, str] | None:
        from .build import state

        return ("machine", *state(image))

    def walls(self) -> tuple[Wall, ...]:
        from .wall import WALL

        return (WALL,)


PLUGIN = Plugin(name="qemu", codes={"Machines": QemuCode}, page="docs/qemu.md", engines=(QemuProvider(),))
