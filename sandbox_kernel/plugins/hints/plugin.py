"""What this plugin adds: hints, loaded with the first failure of a cell."""

from __future__ import annotations

from ...core.model import Audience, Settings
from ..api import Beside, CellHints, Plugin
from .codes import HintCode


def hints(settings: Settings, audience: Audience, beside: Beside | None) -> CellHints:
    from .hints import Hints

    return Hints(settings, audience, beside)


PLUGIN = Plugin(name="hints", page="docs/troubleshooting.md", codes={"Hints": HintCode}, hints=hints)
