"""What a session of the engine `wasm` does besides, at a cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ...config.forms import Form, choice, number
from ...config.setting import rows, setting

if TYPE_CHECKING:
    from ...core.model import Settings

fuel = cast("Form[int]", number(int, 0, 10**15))
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
    fuel: int = setting(
        0,
        fuel,
        "How much a cell may compute, in instructions of WebAssembly, on each machine nearly the same. 0 is no limit. "
        "The engine wasm alone has it, with an image that was built while it was in a config file.",
        "no limit",
        scope="sandbox",
    )


SETTINGS = rows(WasmSettings)


def check(settings: Settings) -> None:
    """Raise `ConfigurationError` for what another engine cannot do."""
    own = settings.of(WasmSettings)
    for name, is_set in (("undo", own.undo == "on"), ("fuel", own.fuel > 0)):
        if is_set and settings.engine != "wasm":
            from ...core.errors import ConfigurationError
            from .codes import WasmCode

            raise ConfigurationError(WasmCode.WASM_ALONE.note(what=name), value=settings.engine, setting=name)
