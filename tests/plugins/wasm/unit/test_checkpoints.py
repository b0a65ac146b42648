"""Checkpoints of a guest's memory, held against whole copies of it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

wasmtime = pytest.importorskip("wasmtime", reason="the extra wasm is not installed: `make test-wasm` installs it")
from sandbox_kernel.plugins.wasm.checkpoints import MAX_NAMED, MAX_TURNS, PAGE, Checkpoints  # noqa: E402
from sandbox_kernel.plugins.wasm.machine import WasmGuest, new_engine  # noqa: E402

MODULE = """(module
  (memory (export "memory") 2 20000)
  (func (export "host_alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "turn") (param i32 i32) (result i32) (i32.const 0)))"""
FIRST, MOST = 1 << 20, 64 << 20


class Guests:
    """One guest after the other, whose memory tests write to."""

    def __init__(self, image: Path) -> None:
        image.write_bytes(os.urandom(FIRST // 2) + bytes(FIRST // 2))
        self.file = os.open(image, os.O_RDONLY)
        self.engine = new_engine()
        self.module = wasmtime.Module(self.engine, MODULE)
        self.made = self.made_of(MOST)
        self.guest = self.next()

    def made_of(self, most: int) -> Checkpoints:
        return Checkpoints(os.open("/proc/self/pagemap", os.O_RDONLY), most, self.file, FIRST)

    def next(self) -> WasmGuest:
        self.guest = WasmGuest(self.engine, self.module, bytes, memory=MOST, folders=(), environment={})
        self.made.fill(self.guest)
        return self.guest

    def write(self, page: int, count: int = 1) -> None:
        self.guest._put(page * PAGE or 1, os.urandom(count * PAGE - 1))  # noqa: SLF001

    def back(self, name: str) -> bytes:
        found = self.made.find(name)
        assert found is not None
        self.guest.close()
        self.made.go_back(found)
        return self.next().copy()


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[Guests]:
    made = Guests(tmp_path / "image")
    yield made
    made.guest.close()


@pytest.mark.parametrize("seed", range(8))
def test_each_way_back_is_to_the_memory_as_it_was(guests: Guests, seed: int) -> None:
    """Single pages, long rows, more memory, less of it again, and a guest that begins anew in between."""
    chance, copies = random.Random(seed), dict[str, bytes]()
    for turn in range(60):
        pages = guests.guest.size // PAGE
        for _ in range(chance.randrange(6)):
            guests.write(chance.randrange(pages))
        if chance.random() < 0.2:
            count = chance.randrange(200, pages + 1) if pages > 200 else pages
            guests.write(chance.randrange(pages - count + 1), count)
        if chance.random() < 0.2 and pages * PAGE < MOST // 4:
            guests.guest.grow_to(guests.guest.size + (chance.randrange(1, 40) << 16))
        if chance.random() < 0.1:
            guests.guest.close()
            guests.made.forget()
            guests.next()
        elif copies and chance.random() < 0.3:
            name = chance.choice(sorted(copies))
            assert guests.back(name) == copies[name]
            there = {one.name for one in guests.made.kept}
            copies = {name: copy for name, copy in copies.items() if name in there}
        else:
            name = f"c{turn % 15}"
            guests.made.take(guests.guest, name)
            copies[name] = guests.guest.copy()
            guests.made.take(guests.guest, "")


def test_what_was_taken_before_a_cell_is_returned_to_once(guests: Guests) -> None:
    copies = []
    for page in range(3):
        guests.made.take(guests.guest, "")
        copies.append(guests.guest.copy())
        guests.write(page)
    assert [guests.back("") for _ in range(3)] == copies[::-1]
    assert guests.made.find("") is None


def test_the_number_and_the_size_of_what_is_kept_are_bounded(guests: Guests) -> None:
    for number in range(50):
        guests.write(number % 5)
        guests.made.take(guests.guest, f"n{number}")
        guests.made.take(guests.guest, "")
    names = [one.name for one in guests.made.kept]
    assert (len([name for name in names if not name]), len([name for name in names if name])) == (MAX_TURNS, MAX_NAMED)
    guests.guest.close()
    guests.made = guests.made_of(FIRST * 2)
    guests.next()
    for number in range(8):
        guests.write(0, FIRST // PAGE)
        guests.made.take(guests.guest, f"n{number}")
    assert 1 < len(guests.made.kept) < 4
    copy = guests.guest.copy()
    guests.write(0)
    assert guests.back("n7") == copy


def test_a_saved_state_is_the_memory_and_the_files(guests: Guests, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for one in (before, after):
        one.mkdir()
    (before / "folder").mkdir()
    (before / "folder" / "file").write_bytes(os.urandom(3 << 20))
    (before / "folder" / "file").chmod(0o741)
    (before / "a link").symlink_to("/etc/passwd")
    guests.guest.grow_to(4 << 20)
    guests.write(7)
    guests.write(300, 500)
    guests.made.follow(guests.guest)
    (tmp_path / "saved").write_bytes(b"".join(guests.made.saved([str(before)])))
    copy = guests.guest.copy()
    guests.guest.close()
    guests.made = guests.made_of(MOST)
    guests.made.load(os.open(tmp_path / "saved", os.O_RDONLY), [str(after)])
    assert guests.next().copy() == copy
    assert (after / "folder" / "file").read_bytes() == (before / "folder" / "file").read_bytes()
    assert (after / "folder" / "file").stat().st_mode & 0o777 == 0o741
    assert (after / "a link").readlink() == Path("/etc/passwd")
    with (tmp_path / "saved").open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(ValueError, match="cut short"):
        guests.made.load(os.open(tmp_path / "saved", os.O_RDONLY), [str(after)])
