"""The blocking SDK is the asynchronous one: what `make blocking` writes is up to date, and nothing is left out."""

from __future__ import annotations

import pytest

from sandbox_kernel import AsyncSandbox, ConfigurationError, Sandbox
from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.plugins import index
from tests.support import blocking_sdk


def test_what_is_generated_is_up_to_date() -> None:
    blocking_sdk.check_is_up_to_date("sandbox_kernel.sdk.blocking")


def test_each_public_method_has_its_blocking_form() -> None:
    blocking_sdk.check_is_whole("sandbox_kernel.sdk.blocking")


@pytest.mark.parametrize("kind", [AsyncSandbox, Sandbox])
@pytest.mark.parametrize("part", ["commands", "pty"])
def test_commands_are_refused_where_their_plugin_is_gone(
    kind: type[AsyncSandbox | Sandbox], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "is_here", lambda name: name != "commands")
    with pytest.raises(ConfigurationError, match="the plugin commands is not a part of this installation") as refused:
        getattr(kind(), part)
    assert refused.value.code is UsageCode.PLUGIN_MISSING
