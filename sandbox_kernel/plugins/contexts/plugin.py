"""What this plugin adds: `create_context` and its like for callers of the SDK."""

from __future__ import annotations

from typing import Any

from ..api import Plugin, SandboxHandle
from .codes import ContextCode


def sdk(sandbox: SandboxHandle) -> Any:
    """Return the contexts of one sandbox."""
    from .contexts import Contexts

    return Contexts(sandbox)


def nested(link: Any) -> Any:
    """Return what has the further agents of a container."""
    from .nested_agents import NestedAgentLinks

    return NestedAgentLinks(link)


PLUGIN = Plugin(name="contexts", page="docs/contexts.md", codes={"Contexts": ContextCode}, sdk=sdk, nested=nested)
