"""A JupyterLab for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, running_lab


@pytest.fixture
def lab(tmp_path: Path, image: str) -> Iterator[Lab]:
    with running_lab(tmp_path, image) as running:
        yield running
