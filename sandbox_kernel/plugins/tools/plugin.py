"""What this plugin adds: functions of the caller's that cells call, `Sandbox(tools=[...])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.model import Settings
from ..api import Plugin, Preparation
from .codes import ToolCode


def prepare(settings: Settings, given: object, state: Mapping[str, Any], environment: Mapping[str, str]) -> Preparation:
    """Return the tools that a caller gives. Raises `ConfigurationError` for one that cannot be offered."""
    from .tool_calls import OfferedTools
    from .tools import Tools

    return OfferedTools(Tools.given(given))


PLUGIN = Plugin(
    name="tools",
    page="docs/sdk.md",
    codes={"Tools": ToolCode},
    prepare=prepare,
    no_snapshot=lambda settings: "its cells have tools of its caller",
    python_alone=True,
)
