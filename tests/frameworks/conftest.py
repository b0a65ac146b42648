"""What the tests of the adapters share: no framework may look for another machine, and no sandbox is left."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.frameworks import offline
from tests.support.kernels import containers_of, eventually


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks of langchain_tests: they belong to plugins that stay out (pyproject.toml)."""
    for mark in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{mark}: of langchain_tests")


@pytest.fixture(autouse=True)
def no_other_machine() -> Iterator[None]:
    """Frameworks report usage, look for newer versions, models and tokenisers: here they may not even try."""
    offline.watch()
    yield
    tried = list(offline.attempts)
    offline.watch(on=False)
    assert not tried


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """No test may leave a container."""
    yield
    eventually(lambda: not containers_of(os.getpid()), 20, "the containers of this process are gone")
