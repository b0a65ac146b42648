"""A broker in the place of an engine: it owns one, makes sandboxes for its callers, and hands their pipes over.

- `words`: What is said between a caller and a broker: one small JSON document a packet, errors as data.
- `places`: Where a broker listens, and whether whoever listens there may be believed.
- `ahead`: A request before there is an event loop.
- `channel`: A caller's connection to a broker: questions with answers, and what it hears unasked.
- `summon`: Starting the user's own broker, where none listens.
- `container`: One sandbox that a broker made: its pipe is this process's, its end is told by the broker.
- `kept`: Sandboxes that outlive their owner: made, found, taken over, left.
- `engine`: The broker as an engine: start, adopt, list, reap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import EngineUnavailable
from ..select import ServiceProvider

if TYPE_CHECKING:
    from ...core.model import SandboxSpec, Settings
    from ..about import Inspectable
    from ..base import Ahead


class BrokerProvider(ServiceProvider):
    """A broker, the operator's or this user's own."""

    name = "broker"
    remedy = "sandbox-kernel broker, or another engine"

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import BrokerEngine

        return BrokerEngine(address, ahead)

    def ask_ahead(self, address: str, spec: SandboxSpec) -> Ahead:
        from .ahead import ask_ahead
        from .places import path_of

        return ask_ahead(path_of(address), spec)

    def answers(self) -> bool:
        from . import places

        return places.operators_answers()

    def own_is_there(self) -> bool:
        import os

        from . import places

        return os.path.lexists(places.own())

    def own_with(self, engine: str) -> str | None:
        from . import places

        path = places.own()
        return f"{self.name}://{path}" if places.own_has(engine) else None

    def others(self) -> list[str]:
        from . import places

        return places.others()

    def is_own(self, address: str) -> bool:
        from . import places

        return places.is_own(places.path_of(address))

    async def begin(self, address: str) -> None:
        from .engine import BrokerEngine

        await BrokerEngine(address).begin()

    async def listens(self, address: str) -> bool:
        from .engine import BrokerEngine

        try:
            await BrokerEngine(address).status()
        except EngineUnavailable:
            return False
        return True


PROVIDER = BrokerProvider()
