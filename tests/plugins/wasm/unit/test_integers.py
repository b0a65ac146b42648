"""The guest's layer of integers: who gets 64 bits, on a machine where an index is said to have 32."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

np = pytest.importorskip("numpy", reason="numpy is not installed")

from sandbox_kernel.plugins.wasm.inside.integers import (  # noqa: E402
    ALL,
    EACH,
    FIRST,
    LATER,
    LIBRARIES,
    TABLE,
    for_cells,
    for_compiled_code,
    install,
)


class Pair(NamedTuple):
    values: Any
    counts: Any


NARROW = np.arange(3, dtype=np.int32)
CALL = compile("result = function(*args, **options)", f"{LIBRARIES[0]}python315.zip/numpy/lib/x.py", "exec")


def by_a_library(function: Any, *args: Any, **options: Any) -> Any:
    names = {"function": function, "args": args, "options": options}
    exec(CALL, names)  # noqa: S102
    return names["result"]


def widths(result: Any) -> list[int]:
    return [one.dtype.itemsize for one in result]


def test_a_cell_gets_64_bits_and_a_library_what_it_was_compiled_for() -> None:
    function = for_cells(lambda: NARROW, narrow=np.int32)
    assert function().dtype == np.int64
    assert function().tolist() == [0, 1, 2]
    assert by_a_library(function).dtype == np.int32


def test_a_number_is_as_wide_and_its_arithmetic_right() -> None:
    counted = for_cells(lambda: np.int32(70_000), narrow=np.int32)()
    assert (type(counted), int(counted * counted)) == (np.int64, 4_900_000_000)


def test_other_types_are_left_alone() -> None:
    for value in (np.arange(2.0), np.arange(2, dtype=np.uint8), 7, "x", None):
        assert for_cells(lambda value=value: value, narrow=np.int32)() is value


@pytest.mark.parametrize(
    ("places", "expected"),
    [(ALL, [8, 8]), (EACH, [8, 8]), (FIRST, [8, 4]), (LATER, [4, 8])],
    ids=["all", "each", "first", "later"],
)
def test_only_the_meant_places_of_a_tuple_are_widened(places: slice, expected: list[int]) -> None:
    assert widths(for_cells(lambda: (NARROW, NARROW), places, np.int32)()) == expected


@pytest.mark.parametrize(
    ("places", "expected"), [(ALL, 8), (FIRST, 8), (EACH, 4), (LATER, 4)], ids=["all", "first", "each", "later"]
)
def test_a_result_alone(places: slice, expected: int) -> None:
    assert for_cells(lambda: NARROW, places, np.int32)().dtype.itemsize == expected


def test_a_named_tuple_stays_one() -> None:
    result = for_cells(lambda: Pair(NARROW, NARROW), LATER, np.int32)()
    assert type(result) is Pair
    assert widths(result) == [4, 8]


def test_an_array_of_the_callers_own_is_what_comes_back() -> None:
    assert for_cells(lambda out: out, narrow=np.int32)(out=NARROW) is NARROW


def test_compiled_code_that_refuses_int64_is_asked_again_with_what_it_takes() -> None:
    asked: list[list[str]] = []

    def compiled(array: Any, arrays: list[Any]) -> str:
        asked.append([str(one.dtype) for one in (array, *arrays)])
        if len(asked) == 1:
            raise ValueError("Buffer dtype mismatch, expected 'intp_t' but got 'long long'")
        return "done"

    wide = np.arange(2, dtype=np.int64)
    assert for_compiled_code(compiled)(wide, arrays=[wide, np.ones(1)]) == "done"
    assert asked == [["int64", "int64", "float64"], [np.dtype(np.intp).name, np.dtype(np.intp).name, "float64"]]


def test_another_refusal_is_the_callers() -> None:
    asked: list[int] = []

    def compiled() -> None:
        asked.append(1)
        raise ValueError("lengths differ")

    with pytest.raises(ValueError, match="lengths differ"):
        for_compiled_code(compiled)()
    assert asked == [1]


def test_nothing_changes_where_an_index_has_64_bits() -> None:
    before = {
        name: getattr(np, name)
        for module, cls, _, names in TABLE
        if (module, cls) == ("numpy", "")
        for name in names.split()
    }
    install()
    assert before == {name: getattr(np, name) for name in before}
    assert np.int_ is np.int64
