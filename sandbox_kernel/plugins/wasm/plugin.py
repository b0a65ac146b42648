"""What this plugin adds: the engine `wasm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engines.select import EngineProvider
from ...engines.wall import Wall
from ..api import Plugin
from .codes import WasmCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable

WALL = Wall(
    name="WebAssembly",
    settings="engine = wasm",
    engine="wasm",
    for_whom="simple work on a machine with nothing but Python; experimental, and numpy's integers have 32 bits there "
    "where the guest's own layer does not make them 64",
    kernel="none: wasmtime's few host functions, in a process with few system calls",
    stops="all that needs a system call, a process, a socket or memory outside of its own",
    leaves="a fault of wasmtime's; where a user may have no namespaces, nothing stands behind that",
    needs="the extra wasm, and two minutes for `build`",
    costs="computing takes two to four times as long; a start takes less than any other engine's",
    enforces={},
)


class WasmProvider(EngineProvider):
    """wasmtime, of the extra `wasm`."""

    name = "wasm"
    image_kind = "own"

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import WasmEngine

        return WasmEngine()

    def build(self, root: str, *, force: bool, progress: Callable[[str], None]) -> str:
        from .build import build

        return build(force=force, progress=progress)

    def state(self, image: str) -> tuple[str, Literal["ok", "note", "wrong"], str, str] | None:
        from ...core.errors import EngineError
        from .image import COMMAND, find

        try:
            found = find(image)
        except EngineError as error:
            return "image", "wrong", error.message, f"`{COMMAND}`"
        return "image", "ok", f"made on {found.made}, for wasmtime {found.wasmtime}", ""

    def walls(self) -> tuple[Wall, ...]:
        return (WALL,)


PLUGIN = Plugin(
    name="wasm",
    codes={"WebAssembly": WasmCode},
    page="docs/wasm.md",
    extra="wasm",
    engines=(WasmProvider(),),
)
