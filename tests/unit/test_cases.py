"""Many cases in one test: each is tried, each that fails is named, and none can hide another."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.support.cases import each


def notes(error: BaseException) -> list[str]:
    return error.__notes__


def test_each_case_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each("number", range(10))
    def test(number: int) -> None:
        tried.append(number)
        assert number not in {3, 7}, f"it is {number}"

    with pytest.raises(ExceptionGroup, match="2 of 10 cases fail") as caught:
        test()
    assert sorted(tried) == list(range(10))
    failed = sorted(caught.value.exceptions, key=str)
    assert [notes(error) for error in failed] == [["in the case: 3"], ["in the case: 7"]]
    assert [str(error).splitlines()[0] for error in failed] == ["it is 3", "it is 7"]


def test_one_that_fails_is_raised_as_it_is() -> None:
    error = OSError("broken")

    @each(("a", "b"), [("x", 1), ("y", 2)])
    def test(a: str, b: int) -> None:
        if (a, b) == ("y", 2):
            raise error

    with pytest.raises(OSError, match="broken") as caught:
        test()
    assert caught.value is error
    assert notes(error) == ["in the case: y-2"]


async def test_it_waits_for_what_has_to_be_waited_for() -> None:
    tried = []

    @each("name", ["a", "b"], ids=["first", "second"])
    async def test(name: str) -> None:
        tried.append(name)
        assert name == "a"

    with pytest.raises(AssertionError) as caught:
        await test()
    assert sorted(tried) == ["a", "b"]
    assert notes(caught.value) == ["in the case: second"]


def test_several_of_them_are_all_pairs() -> None:
    tried = []

    @each("a", "xy")
    @each("b, c", [(1, 2), (3, 4)], ids=lambda one: f"<{one}>")
    def test(a: str, b: int, c: int) -> None:
        tried.append((a, b, c))
        assert (a, b) != ("y", 3)

    with pytest.raises(AssertionError) as caught:
        test()
    assert sorted(tried) == [("x", 1, 2), ("x", 3, 4), ("y", 1, 2), ("y", 3, 4)]
    assert notes(caught.value) == ["in the case: <3>-<4>", "in the case: y"]


def test_fixtures_are_the_arguments_that_are_left() -> None:
    @each("number", [1])
    def test(number: int, audit_key: str) -> None:
        assert (number, audit_key) == (1, "a key")

    assert list(inspect.signature(test).parameters) == ["audit_key"]
    test(audit_key="a key")


@each("outcome", [pytest.fail, pytest.exit])
def test_what_pytest_raises_ends_all_and_names_its_case(outcome: Any) -> None:
    """At a test's time limit, the next case would have none."""
    tried = []

    @each("number", [1, 2])
    def test(number: int) -> None:
        tried.append(number)
        outcome("enough")

    with pytest.raises(outcome.Exception, match="enough") as caught:
        test()
    assert len(tried) == 1
    assert notes(caught.value) == [f"in the case: {tried[0]}"]


def test_a_case_that_skips_fails() -> None:
    @each("number", [1, 2])
    def test(number: int) -> None:
        pytest.skip("not here")

    with pytest.raises(RuntimeError, match="skips, and all others with it"):
        test()


def test_what_proves_nothing_or_shares_what_it_should_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no case of number"):
        each("number", [])
    with pytest.raises(ValueError, match="2 cases have 1 names"):
        each("number", [1, 2], ids=["one"])
    with pytest.raises(TypeError, match="has no argument other"):
        each("other", [1])(lambda number: None)
    with pytest.raises(TypeError, match="has tmp_path"):
        each("number", [1])(lambda number, tmp_path: None)
    with pytest.raises(ValueError, match="zip"):
        each("a, b", [(1,)])
