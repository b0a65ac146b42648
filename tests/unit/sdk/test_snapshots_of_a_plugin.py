"""Snapshots where the plugin is not here that has them: there are none, and no engine of ours is asked for one."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from sandbox_kernel import AbilityMissing, AsyncSandbox, ConfigurationError
from sandbox_kernel.core.codes import EndCode, UsageCode
from sandbox_kernel.plugins import index


@pytest.fixture(autouse=True)
def _without_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SNAPSHOTS", "gone")


async def test_there_are_none() -> None:
    assert await AsyncSandbox.snapshots() == []
    for call in (AsyncSandbox.from_snapshot("one"), AsyncSandbox.delete_snapshot("one")):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.code is UsageCode.PLUGIN_MISSING


async def test_an_engine_that_cannot_is_said_first() -> None:
    """What would help is another engine; the plugin alone would not."""
    async with AsyncExitStack() as after:
        sandbox = AsyncSandbox(engine="unix:///none.sock")
        after.push_async_callback(sandbox.kill)
        for call in (sandbox.snapshot("one"), sandbox.fork(2)):
            with pytest.raises(AbilityMissing) as caught:
                await call
            assert caught.value.code is EndCode.ENGINE_CANNOT_SNAPSHOT
        with pytest.raises(ConfigurationError, match="from 1 to 20"):
            await sandbox.fork(21)
