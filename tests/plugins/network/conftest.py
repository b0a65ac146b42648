"""Hosts beyond a sandbox, and who signs for them, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.authority import Authority
from tests.support.origins import Origins, reachable


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origins]:
    with reachable(tmp_path_factory.mktemp("origins")) as origins:
        yield origins


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
