"""Sandboxes that a broker keeps, so that they outlive their owner: made, found, taken over, left and ended.

One engine is for one sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....core.codes import EndCode
from ....core.errors import EngineError
from ..codes import BrokerCode
from . import packets
from .channel import Channel, connect
from .container import BrokerContainer, Given
from .engine import BrokerEngine

if TYPE_CHECKING:
    from ....core.model import SandboxSpec
    from ....engines.pipe import Pipe

MAX_PAGES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a broker says of a sandbox to its next owner."""

    fd: int
    state: dict[str, Any]
    """For `KeptEngine.adopt`."""
    settings: str
    session: dict[str, Any]
    """What the owner before noted of the session."""
    cell: dict[str, Any] | None
    """The same of the cell that runs."""
    row: dict[str, Any]
    own: bool
    """Whether it was this user who made it."""


class KeptContainer(BrokerContainer):
    """A sandbox whose pipe the broker has, too."""

    _kept = False

    def let_go(self) -> None:
        """Have the end of this process's part be the end of nothing else, from now on."""
        self._kept = True

    async def begin(self) -> dict[str, int]:
        """Hear all from now on, from the beginning of the cell that runs; return what of that was dropped."""
        if self._channel is None:
            raise EngineError(EndCode.CONTAINER_GONE)
        missing = (await self._channel.ask("begin"))[0].get("missing")
        given = missing if isinstance(missing, dict) else {}
        return {name: count for name in ("messages", "bytes") if type(count := given.get(name)) is int and count > 0}

    async def kill(self) -> None:
        if not self._kept:
            await super().kill()
            return
        channel, self._channel = self._channel, None
        if channel is not None and channel.is_open:
            channel.tell("leave")
        self._pipe.close()
        self._left.set()
        if channel is not None:
            channel.close()


class KeptEngine(BrokerEngine):
    """A broker that keeps the sandbox which it is asked for."""

    def __init__(self, address: str, *, seconds: float, metadata: Mapping[str, str], settings: str = "") -> None:
        super().__init__(address)
        self._wish = {"seconds": seconds, "metadata": dict(metadata), "settings": settings}
        self._channel: Channel | None = None
        self._one: KeptContainer | None = None

    @property
    def container(self) -> KeptContainer | None:
        """The one that was made or taken over last."""
        return self._one

    def beside(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kept": {"name": spec.session_id, **self._wish}}

    async def connect(self, name: str, *, take: bool) -> Found:
        """Become the owner of a sandbox. Raises `EngineError` if there is none of that name, or it has an owner."""
        channel = Channel(await connect(self.path))
        try:
            said, files = await channel.ask("connect", name=name, take=take)
            try:
                (fd,), kept = files, said["kept"]
                found = Found(
                    fd=fd,
                    state=said,
                    settings=packets.text(kept["settings"], packets.MAX_SETTINGS),
                    session=kept["session"] if isinstance(kept["session"], dict) else {},
                    cell=kept["cell"] if isinstance(kept["cell"], dict) else None,
                    row=row(kept),
                    own=kept["own"] is True,
                )
            except (LookupError, TypeError, ValueError) as error:
                for one in files:
                    os.close(one)
                raise EngineError(BrokerCode.BROKER_IMPROPER, f"what the broker says is not proper: {error}") from error
        except BaseException:
            channel.close()
            raise
        self._channel = channel
        return found

    async def adopt(self, fd: int, state: dict[str, Any]) -> BrokerContainer:
        channel, self._channel = self._channel, None
        if channel is None:
            os.close(fd)
            raise EngineError(EndCode.CONTAINER_NOT_ADOPTED)
        try:
            return self._container({**state, "warm": False}, [fd], channel)
        except EngineError:
            channel.close()
            raise

    async def described(self, name: str) -> dict[str, Any]:
        """Return with which settings and metadata a sandbox was made. Raises `EngineError` if there is none."""
        return await self._query("described", name=name)

    async def end(self, name: str) -> None:
        """End a sandbox, whoever owns it. Raises `EngineError`."""
        await self._query("end", name=name)

    async def extend(self, name: str, seconds: float) -> float:
        """Have a sandbox end in so many seconds; return when it does. Raises `EngineError` and `QuotaExceeded`."""
        return _number((await self._query("extend", name=name, lasts=seconds)).get("left"))

    async def kept(self) -> list[dict[str, Any]]:
        """Return what there is to be taken over, the oldest first."""
        rows: list[dict[str, Any]] = []
        for _ in range(MAX_PAGES):
            said = await self._query("kept", after=len(rows))
            try:
                rows += map(row, said["rows"])
            except (LookupError, TypeError, ValueError) as error:
                raise EngineError(
                    BrokerCode.BROKER_IMPROPER, f"what the broker lists is not proper: {error}"
                ) from error
            if said.get("more") is not True:
                break
        return rows

    def _made(self, given: Given, pipe: Pipe, channel: Channel | None) -> KeptContainer:
        self._one = KeptContainer(self.path, given, pipe, channel)
        return self._one


def row(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a list, each value of its own kind. Raises LookupError, TypeError or ValueError."""
    if not packets.NAME.fullmatch(name := packets.text(said["name"])):
        raise ValueError("that is no name")
    return {
        **said,
        "name": name,
        "metadata": packets.metadata(said["metadata"]),
        "age": _number(said["age"]),
        "left": _number(said["left"]),
        "owned": said["owned"] is True,
        "busy": said["busy"] is True,
    }


def _number(said: Any) -> float:
    if type(said) not in {int, float} or not abs(said) < packets.MAX_SECONDS:
        raise EngineError(BrokerCode.BROKER_IMPROPER, "what the broker says is no number")
    return float(said)
