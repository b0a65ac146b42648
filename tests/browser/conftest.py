"""A JupyterLab for each test that asks for one of its own, and one for all tests in whose pages nothing acts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, running_lab


@pytest.fixture
def lab(tmp_path: Path, image: str) -> Iterator[Lab]:
    with running_lab(tmp_path, image) as running:
        yield running


@pytest.fixture(scope="session")
def _one_lab(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("lab"), image) as running:
        yield running


@pytest.fixture
def shared_lab(_one_lab: Lab) -> Lab:
    """A new page of a JupyterLab that others have used and will use; no attack may have worked in it."""
    _one_lab.renew()
    return _one_lab
