"""Which engine the settings name. Imports core, and each engine when it is the one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.model import Settings

if TYPE_CHECKING:
    from .docker.engine import DockerEngine


def make_engine(settings: Settings) -> DockerEngine:
    """Return the engine (`engines.base.Engine`) that the settings name. Nothing is connected before its first use."""
    from .docker.engine import DockerEngine

    return DockerEngine(base_url=None if settings.engine == "docker" else settings.engine)
