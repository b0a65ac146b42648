"""What plugins prepare before there is a session: asked for, put together, and handed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sandbox_kernel.core.model import Inside, Settings
from sandbox_kernel.engines.preparations import Preparations
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import Plugin, SessionHandle, SessionService


class Part:
    """What one plugin prepared, and of what."""

    def __init__(self, name: str, given: object, state: Mapping[str, Any]) -> None:
        self.given, self._state = given, state
        self.inside = Inside(environment={name: "1"}, lines=(name,))

    def service(self, session: SessionHandle) -> SessionService:
        return SessionService()

    def state(self) -> dict[str, Any]:
        return {"n": int(self._state.get("n", 0)) + 1}


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    def plugin(name: str) -> Plugin:
        return Plugin(name=name, page="", prepare=lambda settings, given, state, environment: Part(name, given, state))

    none = Plugin(name="c", page="", service=lambda settings, session: SessionService())
    monkeypatch.setattr(index, "services", lambda settings, given: [plugin("a"), none, plugin("b")])


@pytest.mark.usefixtures("two")
def test_all_that_is_prepared_goes_into_one_sandbox() -> None:
    inside = Preparations(Settings()).inside
    assert inside == Inside(environment={"a": "1", "b": "1"}, lines=("a", "b"))


@pytest.mark.usefixtures("two")
def test_each_gets_what_its_caller_gives_it_and_what_the_process_before_knew() -> None:
    first = Preparations(Settings(), {"b": "tools"})
    assert (first.of("a").given, first.of("b").given, first.of("c")) == (None, "tools", None)
    assert Preparations(Settings(), state=first.state()).state() == {"a": {"n": 2}, "b": {"n": 2}}


def test_where_nothing_asks_for_a_plugin_nothing_is_prepared() -> None:
    assert Preparations(Settings(), {"network": print}).inside is None
