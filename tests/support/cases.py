"""One statement about many values as one test: what pytest does around a test costs more than most of these do.

`each` takes what `pytest.mark.parametrize` takes, and stands where that would. All cases are tried, in any order, and
what fails names its case. Fixtures are set up once for all of them, so it is for statements that change nothing around
them; a fixture that is made again for each test is refused. What takes long by itself is better parametrised, as
workers share tests and not cases.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

FOR_ONE_TEST = {"tmp_path", "monkeypatch", "capsys", "capfd", "caplog", "recwarn"}
"""Fixtures that would be another one for each case if it were a test."""
NAME_LENGTH = 200

Test = Callable[..., Any]
Case = tuple[str, dict[str, Any]]


def each(
    names: str | Sequence[str], values: Iterable[Any], ids: Iterable[object] | Callable[[Any], object] | None = None
) -> Callable[[Test], Test]:
    """Return a decorator that makes one test of all cases.

    Raises `ValueError` if there is no case, and `TypeError` if the test has not these arguments, or a fixture that is
    for one test alone.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [*_cases(keys, list(values), ids)]
    if not cases:
        raise ValueError(f"there is no case of {', '.join(keys)}")

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        if missing := set(keys) - set(signature.parameters):
            raise TypeError(f"{test.__name__} has no argument {', '.join(sorted(missing))}")
        if single := FOR_ONE_TEST & set(signature.parameters):
            raise TypeError(f"{test.__name__} has {', '.join(sorted(single))}, which is for one test alone")

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def together(**fixtures: Any) -> None:
                faults = Faults(len(cases))
                for name, arguments in random.sample(cases, len(cases)):
                    with faults.of(name):
                        await test(**fixtures, **arguments)
                faults.raise_them()
        else:

            @functools.wraps(test)
            def together(**fixtures: Any) -> None:
                faults = Faults(len(cases))
                for name, arguments in random.sample(cases, len(cases)):
                    with faults.of(name):
                        test(**fixtures, **arguments)
                faults.raise_them()

        others = [one for key, one in signature.parameters.items() if key not in keys]
        together.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return together

    return decorate


def some(values: Iterable[Any], *, of: int) -> list[Any]:
    """Return many cases that are much alike for `pytest.mark.parametrize`: one of so many is tried each time.

    The others have the mark `long`.
    """
    return [pytest.param(one, marks=pytest.mark.long if number % of else ()) for number, one in enumerate(values)]


def paired(*values: Iterable[Any]) -> list[Any]:
    """Return cases of several arguments for `pytest.mark.parametrize`: each value of each is in one that is tried.

    The other combinations have the mark `long`. It is for arguments of which none is known to change what another does.
    """
    lists = [list(one) for one in values]
    count = max(len(one) for one in lists)
    tried = [tuple(number % len(one) for one in lists) for number in range(count)]
    return [
        pytest.param(
            *(one[number] for one, number in zip(lists, places, strict=True)),
            marks=() if places in tried else pytest.mark.long,
        )
        for places in itertools.product(*(range(len(one)) for one in lists))
    ]


def _cases(
    keys: list[str], values: list[Any], ids: Iterable[object] | Callable[[Any], object] | None
) -> Iterable[Case]:
    given = None if ids is None or callable(ids) else list(ids)
    if given is not None and len(given) != len(values):
        raise ValueError(f"{len(values)} cases have {len(given)} names")
    for number, value in enumerate(values):
        arguments = dict(zip(keys, [value] if len(keys) == 1 else value, strict=True))
        if given is not None:
            name = str(given[number])
        else:
            words = (str(ids(one)) if callable(ids) else _word(one) for one in arguments.values())
            name = "-".join(words)
        yield name, arguments


def _word(value: object) -> str:
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= NAME_LENGTH else f"{text[:NAME_LENGTH]}... ({len(text)} characters)"


class Faults:
    """What fails in some of many cases."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.found: list[Exception] = []

    def of(self, name: str) -> _Case:
        return _Case(self, name)

    def raise_them(self) -> None:
        """Raise what has failed, if anything: the one error as it is, or a group of several."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise ExceptionGroup(f"{len(self.found)} of {self.count} cases fail", self.found)


class _Case:
    """One case. An error is kept; what pytest raises itself, as at its time limit, ends all and is named."""

    def __init__(self, faults: Faults, name: str) -> None:
        self._faults, self._name = faults, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> bool:
        if error is None:
            return False
        if kind is pytest.skip.Exception:
            raise RuntimeError(f"the case {self._name} skips, and all others with it") from error
        error.add_note(f"in the case: {self._name}")
        if isinstance(error, Exception) and kind is not pytest.exit.Exception:
            self._faults.found.append(error)
            return True
        return False
