"""A broker for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plugins.broker.brokers import Daemon, a_broker


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with a_broker() as daemon:
        yield daemon
