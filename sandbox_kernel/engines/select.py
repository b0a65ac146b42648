"""Which engine the settings name. Imports core, and each engine when it is the one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.model import SandboxSpec, Settings

if TYPE_CHECKING:
    from .about import Inspectable
    from .base import Ahead


def make_engine(settings: Settings, ahead: Ahead | None = None) -> Inspectable:
    """Return the engine that the settings name. Nothing is connected before its first use.

    Its first start takes up what was asked `ahead`.
    """
    from .docker.engine import DockerEngine

    return DockerEngine(base_url=_address(settings), ahead=ahead)


def ask_ahead(settings: Settings, spec: SandboxSpec) -> Ahead:
    """Ask the engine that the settings name for a container, before there is an event loop.

    Raises OSError if it does not take that in at once, and `ConfigurationError` for an engine that cannot be.
    """
    from .docker.ahead import ask_ahead
    from .docker.discovery import socket_path

    return ask_ahead(socket_path(_address(settings)), spec)


def addresses(environment: Mapping[str, str]) -> list[str]:
    """Return where an engine may be on this machine, best first, as those who set it up mean it (DOCKER_HOST)."""
    from .docker import discovery

    return discovery.addresses(environment)


def _address(settings: Settings) -> str | None:
    return None if settings.engine == "docker" else settings.engine
