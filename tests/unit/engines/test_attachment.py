"""What an engine is told of what is mounted, and who is asked for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Attached, Limits, SandboxSpec, Settings
from sandbox_kernel.engines import attachment
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins import index

SPEC = new_spec(Settings())
SALES = Attached(kind="dataset", name="sales", source="/srv/sales")


@pytest.fixture
def no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "is_here", lambda _: False)


@pytest.mark.usefixtures("no_plugin")
def test_a_sandbox_with_nothing_asks_no_plugin() -> None:
    held = attachment.hold(SPEC)
    assert (held.names, held.devices, held.identities()) == ({}, {}, {})
    assert (attachment.of(Settings()), attachment.owner(()), attachment.watch({}, partial=False)) == ((), None, None)


@pytest.mark.usefixtures("no_plugin")
@pytest.mark.parametrize(
    ("spec", "setting"),
    [
        (replace(SPEC, attached=(SALES,)), "datasets"),
        (replace(SPEC, attached=(Attached(kind="volume", name="models"),)), "volumes"),
        (replace(SPEC, limits=Limits(scratch="disk")), "scratch"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_no_plugin_opens_is_refused(spec: SandboxSpec, setting: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        attachment.hold(spec)
    assert (raised.value.code, raised.value.setting) == (UsageCode.PLUGIN_MISSING, setting)


@pytest.mark.usefixtures("no_plugin")
def test_an_engine_that_makes_scratch_itself_asks_no_plugin_for_it() -> None:
    assert attachment.hold(replace(SPEC, limits=Limits(scratch="disk")), disks=False).names == {}
