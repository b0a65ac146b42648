"""What this plugin adds: the engine `shared`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engines.select import EngineProvider
from ..api import Plugin
from .codes import SharedCode

if TYPE_CHECKING:
    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable


class SharedProvider(EngineProvider):
    """The sandbox of a name that kernels of this user share; "shared" alone is one more name."""

    name = "shared"
    is_shared = True

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import SharedEngine

        return SharedEngine(address, settings)


PLUGIN = Plugin(name="shared", page="docs/contexts.md", codes={"Shared": SharedCode}, engines=(SharedProvider(),))
