"""No test of the MCP server may leave a container."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.kernels import containers_of, eventually


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    eventually(lambda: not containers_of(os.getpid()), 20, "the containers of this process are gone")
