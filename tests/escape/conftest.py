"""The attacks and their tools are found by bare names, here and in the container."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path += [
    str(Path(__file__).parent),
    str(Path(__file__).parent.parent / "engines"),
]  # at the end: other folders have a conftest, too


@pytest.fixture(scope="session")
def image() -> str:
    """Real kernels start from the image that the attacks run in."""
    from engine_tools import IMAGE

    return IMAGE
