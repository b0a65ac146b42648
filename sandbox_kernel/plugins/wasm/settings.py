"""What a session of the engine `wasm` does besides, at a cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...config.forms import choice
from ...config.setting import rows, setting

if TYPE_CHECKING:
    from ...core.model import Settings

GROUP = "Where cells run"


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmSettings:
    """Of this engine alone."""

    undo: str = setting(
        "off",
        choice("off", "on"),
        "Take a checkpoint before each cell, for some milliseconds: the magic undo takes a cell back, and one that is "
        "killed leaves the variables from before it. The engine wasm alone has it.",
        scope="sandbox",
    )


SETTINGS = rows(WasmSettings)


def check(settings: Settings) -> None:
    """Raise `ConfigurationError` for what another engine cannot do."""
    if settings.of(WasmSettings).undo == "on" and settings.engine != "wasm":
        from ...core.errors import ConfigurationError
        from .codes import WasmCode

        raise ConfigurationError(WasmCode.WASM_ALONE.note(what="undo"), value=settings.engine, setting="undo")
