"""What this plugin adds: the command `broker`, and the engine that asks one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.errors import EngineUnavailable
from ...engines import broker_sockets
from ...engines.select import AUTO, ServiceProvider, is_service
from ..api import Command, Plugin
from .codes import BrokerCode
from .command import add_options

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from ...core.model import SandboxSpec, Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable


class BrokerProvider(ServiceProvider):
    """A broker, the operator's or this user's own."""

    name = "broker"

    def remedy(self, address: str) -> str:
        from .client.listener_trust import path_of

        return f"`{broker_sockets.starting(path_of(address))}`"

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .client.engine import BrokerEngine

        return BrokerEngine(address, ahead)

    def ask_ahead(self, address: str, spec: SandboxSpec) -> Ahead:
        from .client.ahead import ask_ahead
        from .client.listener_trust import path_of

        return ask_ahead(path_of(address), spec)

    def answers(self) -> bool:
        from .client import listener_trust

        return listener_trust.operators_answers()

    def own_with(self, engine: str) -> str | None:
        from .client import listener_trust

        path = broker_sockets.own()
        return f"{self.name}://{path}" if listener_trust.own_has(engine) else None

    def others(self) -> list[str]:
        from .client import listener_trust

        return listener_trust.others()

    def is_own(self, address: str) -> bool:
        from .client import listener_trust

        return listener_trust.is_own(listener_trust.path_of(address))

    async def begin(self, address: str) -> None:
        from .client.engine import BrokerEngine

        await BrokerEngine(address).begin()

    async def listens(self, address: str) -> bool:
        from .client.engine import BrokerEngine

        try:
            await BrokerEngine(address).status()
        except EngineUnavailable:
            return False
        return True

    def keeper(self) -> ModuleType:
        from . import detached

        return detached


def run(options: argparse.Namespace) -> int:
    """Own the engine for others: keep sandboxes ready, and give each caller one as fast as it can ask.

    Without --for-all it serves this user alone. A session takes it with `engine = broker`. Callers are known by the
    system, they name what they want, and the container is made from this process's own settings: nobody who may ask
    has a right to the engine. What callers have goes on when the broker ends.
    """
    from ...setup.install import check
    from .command import serve

    settings = check(options.values)
    if is_service(settings.engine) and "engine" not in options.values:
        settings = replace(settings, engine=AUTO)  # the config file is the sessions', who are to come here
    return serve(options, settings)


PLUGIN = Plugin(
    name="broker",
    codes={"Broker": BrokerCode},
    page="docs/broker.md",
    engines=(BrokerProvider(),),
    commands=(
        Command(
            name="broker",
            run=run,
            add_options=add_options,
            group="Checking and maintaining",
            examples={
                "sandbox-kernel broker": "for this user: the next session with engine = broker is ready at once",
                "sandbox-kernel broker --pool 2 --preload numpy,polars": "two ready, with what cells import first",
                "sandbox-kernel broker --for-all --check": "whether the operator's file is in order",
            },
        ),
    ),
)
