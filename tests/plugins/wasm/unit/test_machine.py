"""A guest that is as hostile as WebAssembly lets it be: it calls each host function with numbers of its own choice."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

wasmtime = pytest.importorskip("wasmtime", reason="the extra wasm is not installed: `make test-wasm` installs it")
from sandbox_kernel.plugins.wasm.machine import OUT_OF_FUEL, GuestEnded, WasmGuest, new_engine  # noqa: E402

WAT = """(module
  (import "host" "call" (func $call (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2 20000)
  (func (export "host_alloc") (param i32) (result i32) (global.get $room))
  (global $room (mut i32) (i32.const 1024))
  (func (export "room") (param i32) (global.set $room (local.get 0)))
  (func (export "call") (param i32 i32 i32 i32) (result i32)
    (call $call (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "poll") (param i32 i32 i32 i32) (result i32)
    (call $poll (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "turn") (param i32 i32) (result i32) (loop $on (br $on)) (i32.const 0)))"""
SIZE = 131072
FAR = (SIZE - 1, SIZE, 0x7FFFFFFF, -1, -4)
"""Addresses and sizes that lie beyond, as numbers without a sign or with one."""


class Tiny(WasmGuest):
    """A guest of a few functions."""

    def __init__(self, door: Callable[[bytes], bytes] = lambda request: b"answer", **more: Any) -> None:
        engine = new_engine(metered=more.get("metered", False))
        module = wasmtime.Module(engine, WAT)
        super().__init__(engine, module, door, memory=1 << 20, folders=(), environment={}, **more)

    def does(self, name: str, *numbers: int) -> int:
        return int(self.exports[name](self._store, *numbers) or 0)


@pytest.fixture
def guest() -> Iterator[Tiny]:
    one = Tiny()
    yield one
    one.close()


def test_control_a_question_is_answered(guest: Tiny) -> None:
    assert guest.does("call", 16, 4, 8, 12) == 0
    assert guest._get(1024, 6) == b"answer"  # noqa: SLF001


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("place", range(4))
def test_no_number_makes_the_host_read_or_write_elsewhere(guest: Tiny, far: int, place: int) -> None:
    numbers = [16, 4, 8, 12]
    numbers[place] = far
    assert guest.does("call", *numbers) in {0, -2}
    assert (guest.does("call", *numbers) == -2) is (place != 1 or far != 0)
    numbers[place] = far
    assert guest.does("poll", *numbers) in {21, 28}


@pytest.mark.parametrize("room", [0, SIZE - 3, -1, 0x7FFFFFFF])
def test_no_allocator_makes_the_host_write_elsewhere(guest: Tiny, room: int) -> None:
    guest.does("room", room)
    assert guest.does("call", 16, 4, 8, 12) == -2


@pytest.mark.parametrize("count", [0, 65, -1])
def test_a_number_of_waits_is_bounded(guest: Tiny, count: int) -> None:
    assert guest.does("poll", 16, 4096, count, 12) == 28


def test_memory_ends_at_its_limit(guest: Tiny) -> None:
    assert guest.does("grow", 10) == 2
    assert guest.does("grow", 10) == -1
    assert guest.is_full


def test_a_loop_is_ended_from_another_thread(guest: Tiny) -> None:
    threading.Timer(0.2, guest.end).start()
    with pytest.raises(GuestEnded):
        guest.run("x")


def test_a_loop_ends_with_its_fuel_and_the_same_fuel_ends_it_at_the_same_place() -> None:
    left = []
    for _ in range(2):
        one = Tiny(metered=True)
        one.refuel(1000)
        with pytest.raises(wasmtime.Trap) as ended:
            one.run("x")
        assert ended.value.trap_code is OUT_OF_FUEL
        one.refuel(1000)
        one.does("call", 16, 4, 8, 12)
        left.append(one._store.get_fuel())  # noqa: SLF001
        one.close()
    assert left[0] == left[1] < 1000


def test_an_interrupt_sets_its_bits_and_wakes_a_sleep(guest: Tiny) -> None:
    guest._bits = ((5000, 2),)  # noqa: SLF001
    guest._put(16, struct.pack("<QBxxxxxxxIxxxxQQHxxxxxx", 7, 0, 1, 60_000_000_000, 0, 0))  # noqa: SLF001
    threading.Timer(0.2, guest.interrupt).start()
    began = time.monotonic()
    assert guest.does("poll", 16, 4096, 1, 12) == 0
    assert time.monotonic() - began < 30
    threading.Timer(0.2, guest.end).start()
    with pytest.raises(GuestEnded):
        guest.run("x")
    assert guest._get(5000, 1) == b"\x02"  # noqa: SLF001
