"""Podman where no Docker is seen, with root and without: contract, `verify`, setup and demo."""

from __future__ import annotations

import os

import pytest

from tests.other_dockers import __main__ as beside
from tests.other_dockers import podman


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", podman.NAMES)
def test_it_does_what_docker_does(name: str) -> None:
    if (why := podman.absent()) is not None:
        pytest.skip(why)
    if os.geteuid() != 0:
        pytest.skip("it is started in a namespace of mounts, which root alone makes")
    assert beside.test(name)
