"""What tests with a scripted API server share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster
from tests.plugins.kubernetes.scripted_api import ScriptedApi, scripted_api


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedApi]:
    """Serve an API server; whoever asked it has let go of it, and of all pods, in the end."""
    async with scripted_api(tmp_path, monkeypatch) as found:
        yield found
        assert not found.pods
        assert not Cluster.open_here()
