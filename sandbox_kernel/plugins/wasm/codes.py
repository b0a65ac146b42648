"""The codes of the engine `wasm`: what a guest cannot do."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_OTHER = "Use another engine: docker, podman, bubblewrap or qemu."
_EXTRA = "Run `pip install wasmtime==50.0.1`, and then `sandbox-kernel build --engine wasm`."
NUMBERS = (
    "some integers of libraries have 32 bits there, and overflow without a word; of 3,368 examples in docstrings, 28 "
    "differ from other machines (docs/wasm.md#integers)"
)
"""What the banner and the doctor say of the numbers of its cells."""


@unique
class WasmCode(Code):
    """Why the engine wasm does not start a sandbox, or a cell in one fails (docs/wasm.md)."""

    WASM_NOT_INSTALLED = "failure", "the package wasmtime is not installed", _EXTRA
    WASM_VERSION_UNSAFE = "failure", "wasmtime {version} has known faults that let a guest out: {why}", _EXTRA
    WASM_LACKS = "failure", "a sandbox of the engine wasm has no {what}", _OTHER
    WASM_NO_PROCESSES = "failure", "a sandbox of the engine wasm has no processes, so no commands", _OTHER
    WASM_NO_SOCKETS = "failure", "a sandbox of the engine wasm has no sockets, so nothing ends this wait", _OTHER
    WASM_NO_PAGE_MAP = "failure", "this machine shows no process which of its pages changed, so no checkpoints", _OTHER
    WASM_NOT_METERED = (
        "failure",
        "the image of the engine wasm was built without fuel",
        "Set fuel in a config file, and run `sandbox-kernel build --engine wasm`. It is a tenth slower.",
    )
    WASM_ALONE = "failure", "the engine wasm alone has the setting {what}", "Set engine = wasm, or leave it out."
    WASM_PATH = "failure", "a sandbox of the engine wasm shows files of its working folder alone", "Use /mnt/data."
