"""The image of the attacks."""

from __future__ import annotations

import pytest

from tests.support.engines import IMAGE


@pytest.fixture(scope="session")
def image() -> str:
    """Real kernels start from the image that the attacks run in."""
    return IMAGE
