"""What this plugin adds: the engine `wasm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engines.select import EngineProvider
from ..api import Plugin
from .codes import NUMBERS, WasmCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable


class WasmProvider(EngineProvider):
    """wasmtime, of the extra `wasm`."""

    name = "wasm"
    image_kind = "own"
    ends_with_owner = True
    caveat = f"Experimental: {NUMBERS}."

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import WasmEngine
        from .settings import WasmSettings

        return WasmEngine(settings.of(WasmSettings))

    def build(self, root: str, *, force: bool, progress: Callable[[str], None]) -> str:
        from ...config.sources import from_files
        from .build import build

        metered = "fuel" in from_files()  # the command has no settings of its own
        return build(force=force, metered=metered, progress=progress)

    def state(self, image: str) -> tuple[str, Literal["ok", "note", "wrong"], str, str] | None:
        from ...core.errors import EngineError
        from .image import COMMAND, find

        try:
            found = find(image)
        except EngineError as error:
            return "image", "wrong", error.message, f"`{COMMAND}`"
        return "image", "ok", f"made on {found.made}, for wasmtime {found.wasmtime}", ""


PLUGIN = Plugin(
    name="wasm",
    codes={"WebAssembly": WasmCode},
    page="docs/wasm.md",
    extra="wasm",
    engines=(WasmProvider(),),
)
