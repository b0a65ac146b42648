"""Joins a shared sandbox, after starting its owner where there is none."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from functools import cached_property
from typing import Any

from ...core.errors import EngineError, EngineUnavailable
from ...core.model import SandboxSpec, Settings
from ...engines.inspectable import EngineInfo, ImageInfo, Inspectable, Listed, MachineCondition, Shown
from ...engines.pipe import Pipe
from ...engines.select import AUTO, chosen, make_engine, of_session
from ..broker.client.channel import BrokerChannel, connect_or_start
from ..broker.client.container import BrokerContainer, Given
from ..broker.client.engine import BrokerEngine
from .codes import SharedCode
from .container import SharedContainer
from .place import described, digest, name_of, socket_of

OWNER = f"{__package__}.owner"
TRIES = 3
"""An owner may end in the moment in which it is asked."""


class OwnerEngine(BrokerEngine):
    """The owner of one shared sandbox: a broker whose sandboxes are kernels in it."""

    def __init__(self, address: str, settings: Settings) -> None:
        super().__init__(f"broker://{socket_of(address)}")
        self._settings = settings

    @cached_property
    def _said(self) -> dict[str, Any]:
        return described(self._settings, chosen(self._settings))

    def asked(self, spec: SandboxSpec) -> dict[str, Any]:
        return {**super().asked(replace(spec, attached=())), "shared": digest(self._said)}

    async def _connected(self) -> socket.socket:
        return await connect_or_start(self.path, OWNER, self.path, json.dumps(self._said))

    def _made(self, given: Given, pipe: Pipe, channel: BrokerChannel | None) -> BrokerContainer:
        return SharedContainer(given, pipe, channel)


class SharedEngine:
    """See the module. What asks after engines asks the one beneath."""

    def __init__(self, address: str, settings: Settings) -> None:
        self._address = address
        self._settings = replace(settings, engine=AUTO)
        self._beneath: Inspectable | None = None

    @property
    def address(self) -> str:
        return self._address

    @property
    def beneath(self) -> Inspectable:
        if self._beneath is None:
            self._beneath = make_engine(of_session(self._settings))
        return self._beneath

    async def start(self, spec: SandboxSpec) -> BrokerContainer:
        """Start one more kernel in the sandbox. Raises `EngineError`."""
        watched = any(self._settings.get(name, None) is not None for name in ("monitor", "trace"))
        if spec.made_of is None or spec.made_of.inside is not None or watched:
            raise EngineError(SharedCode.SHARED_SERVES_NOTHING)
        own, name = self._settings, name_of(self._address)
        if (spec.image, spec.runtime, spec.limits) != (own.image, own.runtime, own.limits):
            raise EngineError(SharedCode.SHARED_OTHER_SETTINGS.note(name=name), setting="engine")
        owner = OwnerEngine(self._address, own)
        for left in reversed(range(TRIES)):
            try:
                return await owner.start(spec)
            except EngineUnavailable as error:
                if not left:
                    note = SharedCode.SHARED_NOT_STARTED.note(name=name, why=error.message)
                    raise EngineUnavailable(note) from error
        raise AssertionError("it was tried")

    async def adopt(self, fd: int, state: dict[str, Any]) -> BrokerContainer:
        """Go on with a kernel that another process of this user gave up."""
        return await OwnerEngine(self._address, self._settings).adopt(fd, state)

    async def reap(self) -> int:
        return await self.beneath.reap()

    # --- what is asked after ---

    async def info(self) -> EngineInfo:
        return await self.beneath.info()

    async def conditions(self) -> tuple[MachineCondition, ...]:
        return await self.beneath.conditions()

    async def list(self) -> tuple[Listed, ...]:
        return await self.beneath.list()

    async def shown(self, container: str) -> Shown:
        return await self.beneath.shown(container)

    async def image(self, name: str) -> ImageInfo:
        return await self.beneath.image(name)
