"""Each test has fork servers of its own, and leaves none: one of another test would be taken for its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel.plugins.provisioner.forked_process import ForkServers
from tests.support.kernels import eventually


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServers]:
    """Fork servers of this test's own, which end with it."""
    found = ForkServers()
    monkeypatch.setattr("sandbox_kernel.plugins.provisioner.provisioner.SERVERS", found)
    yield found
    own = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    own = [one for one in own if getattr(one.function, "__self__", None) is found]
    for timer in own:
        timer.cancel()
    eventually(lambda: found._servers or not any(one.is_alive() for one in own), 30, "none is being started")  # noqa: SLF001
    for one in found._servers.values():  # noqa: SLF001
        one.close()
    for timer in own:
        timer.join(30)
        assert not timer.is_alive()
