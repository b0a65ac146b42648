"""Who keeps sandboxes that outlive their caller: the plugin of the broker, where it is a part of this installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..core.codes import EndCode
from ..core.errors import SandboxClosed
from ..core.model import Settings
from ..engines.select import BROKER, ServiceProvider, names, provider
from .ownership import Ownership
from .values import Attached, SandboxInfo


class Keeper(Protocol):
    """What has them, and lets a process own one."""

    def ownership(
        self, settings: Settings, seconds: float | None, metadata: Mapping[str, str], how: Attached | bool
    ) -> Ownership:
        """Return whose one is that starts, or is taken over. Raises `ConfigurationError` for what cannot outlive us."""

    async def listed(self, service: Mapping[str, Any]) -> list[SandboxInfo]:
        """Return those of this user. Raises `EngineUnavailable` if a keeper is named that is not there."""

    async def described(self, name: str, *, take: bool, service: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        """Return with which arguments a sandbox is made that takes one over. Raises `SandboxClosed`, `EngineError`."""

    async def ended(self, name: str, service: Mapping[str, Any]) -> bool:
        """End one; return whether there was one."""

    async def extended(self, name: str, seconds: float, service: Mapping[str, Any]) -> None:
        """Have one end in so many seconds. Raises `SandboxClosed`, `QuotaExceeded`."""


class NoKeeper:
    """Where that plugin is not here: there are none, and none can be made."""

    def ownership(
        self, settings: Settings, seconds: float | None, metadata: Mapping[str, str], how: Attached | bool
    ) -> Ownership:
        provider(BROKER)  # which says that it is missing
        raise AssertionError("there is a broker, and it keeps nothing")

    async def listed(self, service: Mapping[str, Any]) -> list[SandboxInfo]:
        return []

    async def described(self, name: str, *, take: bool, service: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        raise SandboxClosed(EndCode.SANDBOX_NOT_HERE.note(id=name[:64]))

    async def ended(self, name: str, service: Mapping[str, Any]) -> bool:
        return False

    async def extended(self, name: str, seconds: float, service: Mapping[str, Any]) -> None:
        raise SandboxClosed(EndCode.SANDBOX_NOT_HERE.note(id=name[:64]))


def keeper() -> Keeper:
    """Return the keeper of this installation."""
    service = provider(BROKER) if BROKER in names() else None
    found: Keeper = service.keeper() if isinstance(service, ServiceProvider) else NoKeeper()
    return found
