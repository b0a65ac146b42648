"""The functions that a caller of `run_code` gives along: plain or async, and none of them can lose a cell."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..core.errors import CallbackFailed, wrong_argument
from .execution import Execution

T = TypeVar("T")
Callback = Callable[[T], Awaitable[object] | object]
"""Called with one value; what it returns is awaited if it can be, and otherwise ignored."""


class Prompt(str):
    """What a cell asks for with `input()` or, if `password` is set, with `getpass()`."""

    __slots__ = ("password",)
    password: bool

    @classmethod
    def of(cls, text: str, *, password: bool) -> Prompt:
        prompt = cls(text)
        prompt.password = password
        return prompt


class Callbacks:
    """The callbacks of one cell, by the names of its events. The first failure of each is its last call."""

    def __init__(self, **functions: Callable[[Any], Any] | None) -> None:
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise wrong_argument(name, f"{name} must be a function, not {type(function).__name__}")
        self._functions = {name.removeprefix("on_"): given for name, given in functions.items() if given is not None}
        self._failures: list[tuple[str, Exception]] = []

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(self._functions)

    async def call(self, name: str, value: object) -> Any:
        """Call one of them on the loop; None, and nothing raised, if it fails."""
        function = self._functions.get(name)
        try:
            answer = function(value) if function is not None else None
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            return self._failed(name, error)

    def call_here(self, name: str, value: object, run: Callable[[Awaitable[object]], object]) -> Any:
        """Call one of them in this thread; what is async is handed to `run`."""
        function = self._functions.get(name)
        try:
            answer = function(value) if function is not None else None
            return run(answer) if inspect.isawaitable(answer) else answer
        except Exception as error:
            return self._failed(name, error)

    def finish(self, execution: Execution) -> Execution:
        """Return what the cell brought. Raises `CallbackFailed` if a callback failed."""
        self.check(execution)
        return execution

    def check(self, brought: object) -> None:
        """Raise `CallbackFailed` if a callback failed; `brought` is what there is all the same."""
        if self._failures:
            name, error = self._failures[0]
            raise CallbackFailed(f"on_{name} raised {type(error).__name__}: {error}", brought) from error

    def _failed(self, name: str, error: Exception) -> None:
        self._failures.append((name, error))
        self._functions.pop(name, None)
