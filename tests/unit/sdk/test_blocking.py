"""The blocking SDK is the asynchronous one: what `make blocking` writes is up to date, and nothing is left out."""

from __future__ import annotations

import inspect

import pytest

from sandbox_kernel.sdk import blocking, commands
from tests.support import blocking_sdk


def test_what_is_generated_is_up_to_date() -> None:
    assert blocking_sdk.generated() == blocking_sdk.BLOCKING.read_text(encoding="utf-8"), "make blocking"


@pytest.mark.parametrize("source", blocking_sdk.ASYNCHRONOUS)
def test_each_public_method_has_its_blocking_form(source: type) -> None:
    public = {each for each in dir(source) if not each.startswith("_")} - blocking_sdk.NOT_FOR_CALLERS
    assert public
    for each in public:
        there, here = getattr(source, each), getattr(getattr(blocking, source.__name__.removeprefix("Async")), each)
        assert here.__doc__ or not there.__doc__, each
        if callable(there):
            assert not inspect.iscoroutinefunction(here), each


def test_a_change_of_a_signature_shows() -> None:
    class AsyncPty(commands.AsyncPty):
        async def kill(self, pid: int, signal: int) -> bool:  # type: ignore[override]
            """End a shell."""
            return signal > pid

    text = blocking_sdk.generated((AsyncPty,))
    assert "def kill(self, pid: int, signal: int) -> bool:" in text
    assert "return self._call(self._inner.kill, pid, signal)" in text
