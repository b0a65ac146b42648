"""What a hostile guest of WebAssembly hands to its host: messages, and numbers for addresses and sizes.

A message that is not one of a kernel's is dropped, and one that is arrives as it is. Numbers reach a small guest of the
real wasmtime, where that is installed: beyond its memory are pages that end this process when they are touched.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from sandbox_kernel.plugins.wasm.host import Host

from ..judge import require
from .wire import reference

LIMIT = 400
KINDS = (1, 2, 3, 4)
"""A kernel's channels, said again."""
AGENT = 5
SIZE, ROOM = 2 << 16, 1024
WAT = f"""(module
  (import "host" "call" (func $call (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2 3)
  (global $room (mut i32) (i32.const {ROOM}))
  (func (export "room") (param i32) (global.set $room (local.get 0)))
  (func (export "host_alloc") (param i32) (result i32) (global.get $room))
  (func (export "turn") (param i32 i32) (result i32) (i32.const 0))
  (func (export "call") (param i32 i32 i32 i32) (result i32)
    (call $call (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "poll") (param i32 i32 i32 i32) (result i32)
    (call $poll (local.get 0) (local.get 1) (local.get 2) (local.get 3))))"""

_guest: Any = None


class Heard(Host):
    """A host that keeps what it would send."""

    def __init__(self) -> None:
        super().__init__({"max_frame": LIMIT + 65536})
        self.heard: list[tuple[int, list[bytes]]] = []

    def send(self, kind: int, parts: list[bytes]) -> None:
        self.heard.append((kind, [bytes(part) for part in parts]))


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Have one guest for all numbers."""
    global _guest  # noqa: PLW0603
    if find_spec("wasmtime") is not None:
        import wasmtime

        from sandbox_kernel.plugins.wasm.machine import WasmGuest, new_engine

        engine, answer = new_engine(), b"answer"
        module = wasmtime.Module(engine, WAT)
        _guest = WasmGuest(engine, module, lambda asked: answer, memory=SIZE, folders=(), environment={})
    try:
        yield
    finally:
        if _guest is not None:
            _guest.close()
        _guest = None


def run(data: bytes) -> None:
    """The first byte says which: a message, or a function and five numbers, and the guest's memory."""
    if data[:1] != b"n":
        _message(data[1:])
    elif _guest is not None:
        _numbers(data[1:])


def _message(frame: bytes) -> None:
    host = Heard()
    require(host.door(b"S" + frame) == b"", "a message is answered")
    found, broken, rest = reference(struct.pack("!I", len(frame)) + frame)
    honest = [one for one in found if not (broken or rest) and one[0] in KINDS and len(one[1]) >= 4]
    for kind, parts in host.heard:
        require(kind in KINDS or (kind == AGENT and b'"op": "oversized"' in parts[0]), (kind, parts))
        require(kind == AGENT or sum(map(len, parts)) <= LIMIT, "more than a frame may have")
    require(bool(host.heard) == bool(honest) or len(frame) > 4096, (host.heard, honest))
    if honest and sum(map(len, honest[0][1])) <= LIMIT:
        require(host.heard[0] == (honest[0][0], list(honest[0][1])), host.heard)


def _numbers(data: bytes) -> None:
    numbers = struct.unpack("<5i", data[1:21].ljust(20, b"\0"))
    name = "poll" if data[:1] == b"p" else "call"
    _guest._put(16, data[21:].ljust(1, b"\0"))  # noqa: SLF001 (as the guest itself would)
    exports, store = _guest.exports, _guest._store  # noqa: SLF001
    exports["room"](store, numbers[4])
    _guest._interrupted = True  # noqa: SLF001 (a wait is over at once)
    answer = exports[name](store, *numbers[:4])
    require(answer in ({0, -2} if name == "call" else {0, 21, 28}), answer)
    place, size, at, size_at = (number & 0xFFFFFFFF for number in numbers[:4])
    within = place + min(size, _guest._longest) <= SIZE and 0 < at <= SIZE - 4 and 0 < size_at <= SIZE - 4  # noqa: SLF001
    if name == "call":
        require((answer == 0) == (within and 0 < numbers[4] & 0xFFFFFFFF <= SIZE - 6), (numbers, answer))
    require(_guest.size == SIZE, "its memory has grown")


def seeds() -> Iterator[bytes]:
    for kind in (1, 2, 3, 4, AGENT, 6, 7, 99):
        for sizes in ([2, 2, 2, 2], [2, 2, 2, 2, 9], [2], [2, 2, 2, 500], [2, 2, 2, 70000]):
            body = b"".join(b"{}".ljust(size) for size in sizes)
            yield b"m" + struct.pack(f"!BH{len(sizes)}I", kind, len(sizes), *sizes) + body
    yield b"m" + struct.pack("!BH", 4, 65535)
    for name in (b"c", b"p"):
        for place in range(5):
            for far in (0, SIZE - 1, SIZE, 0x7FFFFFFF, -1, -4):
                numbers = [16, 4, 8, 12, ROOM] if name == b"c" else [16, 4096, 1, 12, ROOM]
                numbers[place] = far
                yield b"n" + name + struct.pack("<5i", *numbers) + struct.pack("<QB7xI4xQQH6x", 7, 0, 1, 1 << 40, 0, 0)
