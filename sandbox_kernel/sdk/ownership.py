"""Whose a sandbox is: by default this process's. One that outlives this process is in `detached`."""

from __future__ import annotations

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.model import Settings
from ..engines.base import Engine
from ..engines.select import chosen, make_engine, of_session
from ..session.session import Session
from .cell import Cell
from .lifetimes import Lifetime, Owned
from .values import Missed


class Ownership:
    """Of a sandbox that this process owns, and that ends with it."""

    is_detached = False
    """Whether it outlives this process, until its lifetime is over."""
    is_left = False
    """Whether the end of its session here is not its own."""
    missed = Missed()
    """What the cell that ran when this process took the sandbox over had sent, and nobody kept."""
    name: str | None = None
    """Its id, where it has one before its session."""
    engine: Engine
    address: str
    """The engine, as the settings name it."""
    lifetime: Lifetime

    def __init__(self, settings: Settings, limit: float | None) -> None:
        """`limit` is how many seconds it may last."""
        taken = of_session(settings)
        self.address, self.engine = chosen(taken), make_engine(taken)
        self.lifetime = Lifetime(limit)

    async def start(self, session: Session, cells: dict[str, Cell]) -> None:
        """Start the session, or take over that of another owner. Raises `SandboxError`."""
        await session.started()

    def ends_with_caller(self, session: Session) -> Owned:
        """Return what is ended where the caller goes without a word."""
        return session

    def leave(self) -> None:
        """Have the end of the session be the end of nothing else. Raises `ConfigurationError` if that cannot be."""
        raise ConfigurationError(UsageCode.NOT_DETACHED)

    def take_cell(self) -> Cell | None:
        """Return the cell of the owner before, once."""
        return None

    async def extend(self, session: Session, limit: float) -> None:
        """Have the sandbox end in so many seconds. Raises `SandboxError`."""
        self.lifetime.set(limit)
