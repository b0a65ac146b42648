"""Whose a sandbox is: by default this process's; one of a keeper, the plugin of the broker, outlives its caller.

Public: plugins may import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, SandboxClosed
from ..core.model import Settings
from ..engines.base import Engine
from ..engines.select import BROKER, ServiceProvider, chosen, make_engine, names, of_session, provider
from ..plugins.api import OwnedSession, SandboxHandle
from .lifetimes import Lifetime, Owned
from .values import AttachedSandbox, Missed, SandboxInfo


class Keeper(Protocol):
    """What has them, and lets a process own one."""

    def ownership(
        self, settings: Settings, seconds: float | None, metadata: Mapping[str, str], how: AttachedSandbox | bool
    ) -> Ownership:
        """Return whose one is that starts, or is taken over. Raises `ConfigurationError` for what cannot outlive us."""

    async def listed(self, given: Mapping[str, Any]) -> list[SandboxInfo]:
        """Return those of this user. Raises `EngineUnavailable` if a keeper is named that is not there."""

    async def described(self, name: str, *, take: bool, given: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        """Return with which arguments a sandbox is made that takes one over. Raises `SandboxClosed`, `EngineError`."""

    async def ended(self, name: str, given: Mapping[str, Any]) -> bool:
        """End one; return whether there was one."""

    async def extended(self, name: str, seconds: float, given: Mapping[str, Any]) -> None:
        """Have one end in so many seconds. Raises `SandboxClosed`, `QuotaExceeded`."""


class NoKeeper:
    """Where that plugin is not here: there are none, and none can be made."""

    def ownership(
        self, settings: Settings, seconds: float | None, metadata: Mapping[str, str], how: AttachedSandbox | bool
    ) -> Ownership:
        provider(BROKER)  # which says that it is missing
        raise AssertionError("there is a broker, and it keeps nothing")

    async def listed(self, given: Mapping[str, Any]) -> list[SandboxInfo]:
        return []

    async def described(self, name: str, *, take: bool, given: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        raise SandboxClosed(EndCode.SANDBOX_NOT_HERE.note(id=name[:64]))

    async def ended(self, name: str, given: Mapping[str, Any]) -> bool:
        return False

    async def extended(self, name: str, seconds: float, given: Mapping[str, Any]) -> None:
        raise SandboxClosed(EndCode.SANDBOX_NOT_HERE.note(id=name[:64]))


def keeper() -> Keeper:
    """Return the keeper of this installation."""
    service = provider(BROKER) if BROKER in names() else None
    found: Keeper = service.keeper() if isinstance(service, ServiceProvider) else NoKeeper()
    return found


class Ownership:
    """Of a sandbox that this process owns, and that ends with it."""

    is_detached = False
    """Whether it outlives this process, until its lifetime is over."""
    is_left = False
    """Whether the end of its session here is not its own."""
    missed = Missed()
    """The dropped output of the cell that ran when this process took the sandbox over."""
    name: str | None = None
    """Its id, where it has one before its session."""
    engine: Engine
    address: str
    """The engine, as the settings name it."""
    lifetime: Lifetime

    def __init__(self, engine: Engine, address: str, limit: float | None) -> None:
        """`limit` is how many seconds it may last, if this process is to end it then."""
        self.engine, self.address = engine, address
        self.lifetime = Lifetime(limit)

    async def start(self, sandbox: SandboxHandle) -> None:
        """Start its session, or take over that of another owner. Raises `SandboxError`."""
        await sandbox.session.started()

    def ends_with_caller(self, session: OwnedSession) -> Owned:
        """Return what is ended where the caller goes without a word."""
        return session

    def leave(self) -> None:
        """Have the end of the session be the end of nothing else. Raises `ConfigurationError` if that cannot be."""
        raise ConfigurationError(UsageCode.NOT_DETACHED)

    async def extend(self, session: OwnedSession, limit: float) -> None:
        """Have the sandbox end in so many seconds. Raises `SandboxError`."""
        self.lifetime.set(limit)


def own(settings: Settings, limit: float | None) -> Ownership:
    """Return that of a sandbox which this process owns, and which may last so many seconds."""
    taken = of_session(settings)
    return Ownership(make_engine(taken), chosen(taken), limit)
