"""The order of tests for several workers: none is lost, modules stay together, and each worker's part begins large."""

from __future__ import annotations

import random

import pytest

from tests.support.cases import each
from tests.support.order import sizes, spread


def listed(**counts: int) -> list[tuple[str, int]]:
    """Return tests as (file, number), the modules of a folder ten tests each."""
    return [
        (f"tests/{folder}/test_{number // 10}.py", number % 10)
        for folder, count in counts.items()
        for number in range(count)
    ]


def path(test: tuple[str, int]) -> str:
    return test[0]


def folders(tests: list[tuple[str, int]]) -> list[str]:
    """Return the folders of tests as they follow one another."""
    names = [name.split("/")[1] for name, _ in tests]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


@each("workers", [1, 2, 3, 4])
@each("counts", [{"unit": 50}, {"browser": 30, "container": 70, "unit": 500}, {"browser": 50}, {}])
def test_each_test_is_there_once_and_modules_stay_as_they_were(workers: int, counts: dict[str, int]) -> None:
    tests = listed(**counts)
    order = spread(tests, workers, path)
    assert sorted(order) == sorted(tests)
    for name in {name for name, _ in tests}:
        assert [number for file, number in order if file == name] == list(range(10))


def test_browsers_are_at_one_worker_and_each_has_its_small_tests_last() -> None:
    tests = listed(container=60, unit=300, browser=30, attacks=30)
    modules = sorted({name for name, _ in tests}, key=lambda name: random.Random(name).random())
    order = spread(sorted(tests, key=lambda test: modules.index(test[0])), 3, path)
    parts = []
    for size in sizes(len(order), 3):
        parts.append(order[:size])
        del order[:size]
    assert folders(parts[0]) == ["browser", "unit"]
    for part in parts[1:]:
        names = folders(part)
        assert names[-1] == "unit"
        assert set(names[:-1]) <= {"container", "attacks"}


@pytest.mark.parametrize(("count", "workers", "found"), [(10, 3, [3, 3, 4]), (9, 3, [3, 3, 3]), (1, 2, [0, 1])])
def test_the_parts_are_those_that_xdist_makes(count: int, workers: int, found: list[int]) -> None:
    assert list(sizes(count, workers)) == found
