"""Sandboxes of callers of the network: real TLS on loopback, a real engine, and how each end shows itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from tests.plugins.broker.network import NetworkDaemon, a_network_daemon
from tests.support.engines import IMAGE
from tests.support.patience import within

CEILINGS = """
[all]
denied = true

[certificate.alice]
denied = false
sessions = 2

[certificate.bob]
denied = false
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkDaemon]:
    with a_network_daemon(tmp_path_factory.mktemp("network"), "--pool", "1", ceilings=CEILINGS) as daemon:
        yield daemon


def sandbox(daemon: NetworkDaemon, name: str = "alice", **settings: Any) -> AsyncSandbox:
    return AsyncSandbox(image=IMAGE, **daemon.settings(name), **settings)


async def test_a_sandbox_runs_cells_and_gives_large_outputs(daemon: NetworkDaemon) -> None:
    async with within(60), sandbox(daemon) as one:
        assert (await one.run_code("6 * 7")).text == "42"
        large = await one.run_code("print('x' * 3_000_000)")
        assert len("".join(large.logs.stdout)) > 1_000_000
        assert (await one.run_code("1")).text == "1"
