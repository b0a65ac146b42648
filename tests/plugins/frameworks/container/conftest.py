"""What the tests of the adapters share: no framework may look for another machine, and no sandbox is left."""

from pathlib import Path

import pytest

from tests.frameworks.conftest import no_other_machine, nothing_left, pytest_configure

__all__ = ["no_other_machine", "nothing_left", "pytest_configure"]

SUITE = "test_inspect_contract.py"
"""It is marked long, and imports its framework at once: a second for each worker that then runs none of it."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name == SUITE and config.option.markexpr == "not long" else None
