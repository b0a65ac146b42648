"""One guest: a wasmtime store with CPython in it, the few host functions that it has, and its memory as a file.

The one module that touches wasmtime-py, the private part of its binding among it: a callback for epochs and the size of
a stack have no public name there. The guest may call each host function with any numbers, so each checks all of them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import wasmtime
from wasmtime import _bindings, _ffi

STACK_BYTES = 8 << 20
"""Of the guest's calls: CPython's own recursion limit comes first."""
THREAD_BYTES = STACK_BYTES + (8 << 20)
PAGE = 65536
MAX_TABLE = 1 << 20
"""Elements of a table: the module has fewer than 100,000 functions."""
MAX_SUBSCRIPTIONS = 64
MAX_FUEL = (1 << 63) - 1
OUT_OF_FUEL = wasmtime.TrapCode.OUT_OF_FUEL
_32 = 0xFFFFFFFF
_EINVAL, _FAULT = 28, 21
_CLOCK, _REALTIME, _ABSOLUTE = 0, 0, 1
_EPOCH = _bindings._wasmtime_store_epoch_deadline_callback.argtypes[1]  # noqa: SLF001
_NOTHING = _bindings._wasmtime_store_epoch_deadline_callback.argtypes[3]  # noqa: SLF001
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_MAP_FIXED = 16

Bits = Sequence[tuple[int, int]]
"""Addresses in the guest's memory, and the bits there that mean an interrupt to CPython's evaluation loop."""
Folder = tuple[str, str, bool]
"""A path here, one in the guest, and whether the guest may write there."""


class GuestEnded(Exception):
    """The guest is gone: it was ended from here."""


def new_engine(*, metered: bool = False) -> wasmtime.Engine:
    """Return an engine whose modules fit each other's files, of the same version of wasmtime and the same machine.

    Those of one that is `metered` count fuel, and fit no other's.
    """
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.consume_fuel = metered
    # First: wasmtime aborts the process for an engine whose stack is larger than this.
    _ffi.wasmtime_config_async_stack_size_set(config.ptr(), STACK_BYTES)
    config.max_wasm_stack = STACK_BYTES
    return wasmtime.Engine(config)


def compiled(engine: wasmtime.Engine, path: str) -> bytes:
    """Compile a module, for two minutes and more, and return what `loaded` takes."""
    return bytes(wasmtime.Module.from_file(engine, path).serialize())


def loaded(engine: wasmtime.Engine, path: str) -> wasmtime.Module:
    """Map a compiled module. It is machine code: the caller knows that nobody else could write it."""
    return wasmtime.Module.deserialize_file(engine, path)


def map_file(place: int | None, size: int, fd: int, start: int) -> int:
    """Have a part of a file, copy on write, where a part of a guest's memory is; with no place, share it anywhere.

    Returns where it is. Raises `OSError`.
    """
    flags, how = mmap.MAP_SHARED if place is None else mmap.MAP_PRIVATE | _MAP_FIXED, mmap.PROT_READ | mmap.PROT_WRITE
    found = ctypes.c_ssize_t(_libc.mmap(place, size, how, flags, fd, start)).value
    if found == -1:
        raise OSError(ctypes.get_errno(), "a file cannot be mapped as a guest's memory")
    return found


class WasmGuest:
    """One instance. All but `interrupt` and `end` belong to one thread, that of the guest."""

    def __init__(
        self,
        engine: wasmtime.Engine,
        module: wasmtime.Module,
        door: Callable[[bytes], bytes],
        *,
        memory: int,
        folders: Sequence[Folder],
        environment: dict[str, str],
        bits: Bits = (),
        longest: int = 1 << 30,
        stderr: bool = False,
        metered: bool = False,
    ) -> None:
        """`door` answers what the guest asks; `memory` is the most that it may have, in bytes.

        Of a question, `longest` bytes are copied at most.

        What it writes to descriptor 2 goes to this process's `stderr`, or nowhere.
        """
        self._engine, self._door, self._bits = engine, door, tuple(bits)
        self._most, self._longest = memory, longest
        self._lock = threading.Condition()
        self._interrupted = self._over = False
        self._store = store = wasmtime.Store(engine)
        store.set_limits(memory_size=memory, table_elements=MAX_TABLE, instances=1, tables=4, memories=1)
        wasi = wasmtime.WasiConfig()
        wasi.argv = ["python"]
        wasi.env = list(environment.items())
        for host, inside, writable in folders:
            wasi.preopen_dir(host, inside, writable)
        if stderr:
            wasi.inherit_stderr()
        store.set_wasi(wasi)
        self._metered = metered
        self.refuel(0)
        self._began = time.monotonic_ns()
        """When the guest's monotonic clock was 0."""
        self._epochs = _EPOCH(self._at_epoch)
        _ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), self._epochs, None, _NOTHING())
        store.set_epoch_deadline(1)
        linker = wasmtime.Linker(engine)
        linker.allow_shadowing = True
        linker.define_wasi()
        four = wasmtime.FuncType([wasmtime.ValType.i32()] * 4, [wasmtime.ValType.i32()])
        linker.define_func("host", "call", four, self._call)
        linker.define_func("wasi_snapshot_preview1", "poll_oneoff", four, self._poll)
        self.exports = exports = linker.instantiate(store, module).exports(store)
        # Looked up once: a caller's own look-up may panic in versions of wasmtime that are in use.
        self._memory: Any = exports["memory"]
        self._turn: Any = exports["turn"]
        self._alloc: Any = exports["host_alloc"]

    # --- what it does -----------------------------------------------------------------------------------------------

    def run(self, code: str) -> None:
        """Run Python in the guest until that returns. Raises `GuestEnded`, or an error of wasmtime."""
        data = code.encode()
        try:
            place = self._alloc(self._store, len(data)) & _32
            self._put(place, data)
            failed = self._turn(self._store, place, len(data))
        except (wasmtime.Trap, wasmtime.WasmtimeError):
            if self._over:
                raise GuestEnded from None
            raise
        if failed:
            raise RuntimeError("Python in the guest raised an exception that nothing takes")

    def interrupt(self) -> None:
        """Have CPython raise KeyboardInterrupt at its next look, from any thread."""
        with self._lock:
            self._interrupted = True
            self._engine.increment_epoch()  # before it wakes: a sleep that returns early looks like one that is over
            self._lock.notify_all()

    def refuel(self, amount: int) -> None:
        """Have it compute so much from now on, if it is metered; 0 is as much as it likes."""
        if self._metered:
            self._store.set_fuel(amount or MAX_FUEL)

    def forget_interrupt(self) -> None:
        """Note that what was to be interrupted is over."""
        self._interrupted = False

    def end(self) -> None:
        """Have it trap at its next function or loop, from any thread."""
        with self._lock:
            self._over = True
            self._engine.increment_epoch()
            self._lock.notify_all()

    def close(self) -> None:
        self._store.close()

    # --- its memory -------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of its memory."""
        return int(self._memory.data_len(self._store))

    @property
    def is_full(self) -> bool:
        """Whether it had nearly all memory that it may have, so that a trap is most likely the lack of more."""
        return self.size > self._most - (64 << 20)

    def copy(self) -> bytes:
        return bytes(self._view())

    def save(self, fd: int) -> int:
        """Write its memory to a file that is empty; return its size. What is zero is left out of the file."""
        view, size = self._view(), self.size
        for start in range(0, size, PAGE):
            page = view[start : start + PAGE]
            if page != bytes(len(page)):
                os.pwrite(fd, page, start)
        os.ftruncate(fd, size)
        return size

    def map(self, fd: int, size: int) -> None:
        """Take a file for its memory, copy on write: sessions share what none of them has changed."""
        self.grow_to(size)
        map_file(self.base, size, fd, 0)

    def grow_to(self, size: int) -> None:
        """Have so much memory. Raises `ValueError` if it has more."""
        if more := (size - self.size) // PAGE:
            self._memory.grow(self._store, more)
        if self.size != size:
            raise ValueError("the image of memory is smaller than the module's own")

    @property
    def base(self) -> int:
        """Where its memory is in this process: at the beginning of a page."""
        return ctypes.addressof(self._memory.data_ptr(self._store).contents)

    def _view(self) -> memoryview:
        return memoryview((ctypes.c_ubyte * self.size).from_address(self.base)).cast("B")

    def _get(self, place: int, size: int) -> bytes:
        if place + size > self.size:
            raise IndexError("beyond the guest's memory")
        return ctypes.string_at(self.base + place, size)

    def _put(self, place: int, data: bytes) -> None:
        if not place or place + len(data) > self.size:
            raise IndexError("beyond the guest's memory")
        ctypes.memmove(self.base + place, data, len(data))

    # --- what it asks of the host -----------------------------------------------------------------------------------

    def _call(self, place: int, size: int, answer_at: int, size_at: int) -> int:
        """Answer one question: bytes in, bytes out."""
        try:
            answer = self._door(self._get(place & _32, min(size & _32, self._longest)))
            room = self._alloc(self._store, len(answer)) & _32
            if answer:
                self._put(room, answer)
            self._put(answer_at & _32, struct.pack("<I", room))
            self._put(size_at & _32, struct.pack("<I", len(answer)))
        except IndexError:
            return -2
        return 0

    def _poll(self, asked_at: int, events_at: int, count: int, count_at: int) -> int:
        """Sleep as poll_oneoff, so that an interrupt or the end wakes the guest; a file is ready at once."""
        count &= _32
        if not 0 < count <= MAX_SUBSCRIPTIONS:
            return _EINVAL
        try:
            asked = self._get(asked_at & _32, 48 * count)
            files: list[bytes] = []
            clocks: list[tuple[int, bytes]] = []
            for start in range(0, 48 * count, 48):
                token, kind = struct.unpack_from("<QB", asked, start)
                event = struct.pack("<QHB5xQH6x", token, 0, kind, 0, 0)
                if kind == _CLOCK:
                    clock, until, _, flags = struct.unpack_from("<IxxxxQQH", asked, start + 16)
                    now = time.time_ns() if clock == _REALTIME else time.monotonic_ns() - self._began
                    clocks.append((max(0, until - now if flags & _ABSOLUTE else until), event))
                else:
                    files.append(event)
            if not files:
                first = min(span for span, _ in clocks)
                self._sleep(first / 1e9)
                files = [event for span, event in clocks if span == first]
            self._put(events_at & _32, b"".join(files))
            self._put(count_at & _32, struct.pack("<I", len(files)))
        except IndexError:
            return _FAULT
        return 0

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._lock:
            while not (self._interrupted or self._over) and (left := until - time.monotonic()) > 0:
                self._lock.wait(min(left, threading.TIMEOUT_MAX))

    def _at_epoch(self, _context: Any, _data: Any, delta: Any, _kind: Any) -> int:
        """Take in what was asked for, on the guest's own thread: nothing else writes its memory meanwhile."""
        delta[0] = 1
        if self._over:
            return int(ctypes.cast(_ffi.wasmtime_error_new(b"ended"), ctypes.c_void_p).value or 0)
        if self._interrupted:
            self._interrupted = False
            base = self.base
            for place, bits in self._bits:
                byte = ctypes.c_ubyte.from_address(base + place)
                byte.value |= bits
        return 0
