"""What is looked at all at once, as it is nearly always in order, comes out as it does one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.policy import mime, terminal
from sandbox_kernel.policy.json_check import MAX_DEPTH, NotPlainError, plain
from sandbox_kernel.policy.slow_text import MAX_WORD, EndlessWords
from tests.support.examples import examples

PIECES = ["a", "\n", "\x1b", "[", "3", "1", "m", "\x1b[31m", "\x85", "é", "ж", "ก", "\u0301", "\ud800", "\x07"]
TEXT = st.lists(st.sampled_from(PIECES)).map("".join)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_json_that_is_plain_is_the_very_same() -> None:
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "x", {"b": []}], "c": {}}
    assert plain(value) is value
    assert mime._texts(value) is value  # noqa: SLF001 (the filter itself)


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype"])
def test_a_poisonous_key_is_found_at_each_depth(key: str) -> None:
    assert plain([{"a": [{key: 1, "b": 2}]}]) == [{"a": [{"b": 2}]}]


def test_a_tree_may_be_so_deep_and_no_deeper() -> None:
    assert plain(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    with pytest.raises(NotPlainError):
        plain(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1: 2}, {"a": {2: 3}}, [object()]])
def test_what_json_has_not_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        plain([[1, value]])


@examples(200)
@given(st.recursive(TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)))
def test_texts_of_json_are_cleaned_each_by_itself(value: Any) -> None:
    def each(one: Any) -> Any:
        if isinstance(one, str):
            return terminal.clean(one)
        if isinstance(one, dict):
            return {terminal.clean(key): each(item) for key, item in one.items()}
        return [each(item) for item in one]

    assert mime._texts(value) == each(value)  # noqa: SLF001


@examples(200)
@given(TEXT)
def test_no_control_is_taken_for_plain_whatever_is_around_it(text: str) -> None:
    controls = [one for one in text if one != "\n" and (ord(one) < 0x20 or one in "\x85\ud800")]
    assert terminal.is_plain(text) == (not controls)


@pytest.mark.parametrize(("between", "parts"), [("é b", False), ("é\u200b", False), ("é", True), ("éa", True)])
def test_only_a_space_ends_an_endless_word(between: str, parts: bool) -> None:
    words = EndlessWords()
    shown = words.feed("ก" * (MAX_WORD - 1)) + words.feed(between) + words.feed("ก" * 2)
    assert (shown != "ก" * (MAX_WORD - 1) + between + "ก" * 2) == parts
