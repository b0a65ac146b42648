"""The broker as an engine: a request is names and numbers, and its answer brings a pipe."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ....core.codes import Code, EndCode
from ....core.errors import EngineError
from ....core.model import SandboxSample, SandboxSpec
from ....engines.abilities import PAUSE, Ability
from ....engines.demultiplexer import Demultiplexer
from ....engines.pipe import Pipe, StreamFraming
from ..codes import BrokerCode
from . import packets
from .ahead import PendingCreate, asked
from .channel import BrokerChannel, connect
from .container import CHANNEL, BrokerContainer, Given
from .listener_trust import is_own, path_of

if TYPE_CHECKING:
    from ....engines import base
    from ....engines.attachment import Volume
    from ....engines.inspectable import CrowdInfo, EngineInfo, ImageInfo, Listed, MachineCondition, Shown

START_SECONDS = 60.0
REAP_SECONDS = 80.0
VOLUME_SECONDS = 120.0
"""For a volume to be made, or to be let go of by what makes another one."""


class BrokerEngine:
    """A broker that listens on a unix socket."""

    abilities = PAUSE
    """At best: whether a sandbox can, its broker says with it."""
    lacks: Mapping[Ability, Code] = MappingProxyType(
        {Ability.SNAPSHOT: BrokerCode.BROKER_CANNOT_SNAPSHOT, Ability.FORK: BrokerCode.BROKER_CANNOT_SNAPSHOT}
    )
    """What none of it can, whatever engine the broker has, and what is said then."""

    def __init__(self, address: str = "broker", ahead: base.Ahead | None = None) -> None:
        """`address` is "broker", or "broker:///path" of a socket; `ahead` is a request that it has already."""
        self._ahead = ahead
        self.path = path_of(address)
        self._is_own = is_own(self.path)

    # --- the seam ---------------------------------------------------------------------------------------------------

    def asked(self, spec: SandboxSpec) -> dict[str, Any]:
        """Return how a sandbox is asked for. Raises `EngineError` for one that is not our agent's."""
        return asked(spec)

    def beside(self, spec: SandboxSpec) -> dict[str, Any]:
        return {}

    async def start(self, spec: SandboxSpec) -> BrokerContainer:
        """Have a sandbox made. A start that fails, or is cancelled, leaves nothing behind."""
        ahead, self._ahead = self._ahead, None
        sent = isinstance(ahead, PendingCreate) and ahead.spec == spec
        if ahead is not None and not sent:
            ahead.give_up()
        request = {**packets.request(spec), "spec": self.asked(spec), **self.beside(spec)}
        channel = BrokerChannel(ahead.socket if isinstance(ahead, PendingCreate) and sent else await self._connected())
        try:
            reply, files = await channel.ask("start", seconds=START_SECONDS, sent=sent, **request)
            try:
                (fd,) = files
                facts = Given.read(reply)
                pipe = Pipe.attach(fd, reply["pipe"], _stream(reply["pipe"]))
            except (LookupError, TypeError, ValueError, OSError) as error:
                for fd in files:
                    os.close(fd)
                raise EngineError(
                    BrokerCode.BROKER_IMPROPER, f"what the broker says of a sandbox is not understood: {error!r}"
                ) from error
            container = self._made(facts, pipe, channel)
            container.claim()
        except BaseException:
            channel.close()  # the broker ends what it made for this connection
            raise
        return container

    async def adopt(self, fd: int, state: dict[str, Any]) -> BrokerContainer:
        channel: BrokerChannel | None = None
        try:
            if CHANNEL in state:
                channel = BrokerChannel(socket.socket(fileno=state[CHANNEL]), asked=int(state["asked"]))
            given = Given.read({**state, "warm": False})
            pipe = Pipe.attach(fd, state["pipe"], _stream(state["pipe"]))
        except (LookupError, TypeError, ValueError, OSError) as error:
            if channel is not None:
                channel.close()
            raise EngineError(
                EndCode.CONTAINER_NOT_ADOPTED, f"no sandbox can be adopted from this state ({error!r})"
            ) from error
        try:
            if channel is not None:
                await channel.ask("adopt")
        except EngineError:  # its broker is gone: the sandbox is this process's all the same
            channel = None
        except BaseException:
            pipe.close()
            if channel is not None:
                channel.close()
            raise
        return self._made(given, pipe, channel)

    async def reap(self) -> int:
        said = await self._query("reap", seconds=REAP_SECONDS)
        return int(said["count"])

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"broker://{self.path}"

    async def begin(self) -> None:
        """Have the user's own broker listen, if this is it. Raises `EngineUnavailable`."""
        (await self._connected()).close()

    async def status(self) -> dict[str, Any]:
        """Return what the broker says of itself: version, engine, what it has and what it refused."""
        return await self._query("status")

    async def info(self) -> EngineInfo:
        from ....engines.inspectable import EngineInfo

        said = (await self._query("info"))["info"]
        return EngineInfo(**{**said, **{name: frozenset(said[name]) for name in ("runtimes", "limited")}})

    async def conditions(self) -> tuple[MachineCondition, ...]:
        from ....engines.inspectable import MachineCondition

        return tuple(MachineCondition(**row) for row in (await self._query("conditions"))["rows"])

    async def shown(self, container: str) -> Shown:
        from ....engines.inspectable import Shown

        said = (await self._query("shown", container=container))["shown"]
        return Shown(**{**said, **{name: frozenset(said[name]) for name in ("inside", "own", "mounts")}})

    async def image(self, name: str) -> ImageInfo:
        from ....engines.inspectable import ImageInfo

        said = (await self._query("image", image=name))["image"]
        return ImageInfo(**{**said, "variables": tuple((key, value) for key, value in said["variables"])})

    async def volumes(self) -> tuple[Volume, ...]:
        """Return this user's volumes at the broker. This and what follows raise `EngineError`."""
        from ....engines.attachment import Volume

        rows = (await self._query("volumes", seconds=VOLUME_SECONDS))["rows"]
        return tuple(Volume(str(name), int(size), used, str(users)) for name, size, used, users in rows)

    async def create_volume(self, name: str, size: int | None = None) -> None:
        await self._query("create_volume", seconds=VOLUME_SECONDS, name=name, size=size)

    async def remove_volume(self, name: str) -> None:
        await self._query("remove_volume", seconds=VOLUME_SECONDS, name=name)

    async def rename_volume(self, name: str, new: str) -> None:
        await self._query("rename_volume", seconds=VOLUME_SECONDS, name=name, new=new)

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _connected(self) -> socket.socket:
        """Return a connection; the user's own broker is started for it, where there is none."""
        if not self._is_own:
            return await connect(self.path)
        from .channel import connect_or_start

        return await connect_or_start(self.path, "sandbox_kernel", "broker", "--socket", self.path)

    async def _query(self, op: str, **fields: Any) -> dict[str, Any]:
        channel = BrokerChannel(await connect(self.path))
        try:
            return (await channel.ask(op, **fields))[0]
        finally:
            channel.close()

    def _made(self, given: Given, pipe: Pipe, channel: BrokerChannel | None) -> BrokerContainer:
        return BrokerContainer(given, pipe, channel)

    async def list(self) -> tuple[Listed, ...]:
        from ....engines.inspectable import Listed

        return tuple(Listed(**row) for row in (await self._query("list"))["rows"])

    async def used(self, container: str) -> SandboxSample:
        return packets.sample(await self._query("used", container=container))

    async def crowd(self) -> CrowdInfo:
        """Return what the broker has of all users, for those who may see them; for another, of itself."""
        from ....engines.inspectable import CrowdInfo, CrowdUser

        said = await self._query("crowd")
        try:
            users = tuple(CrowdUser(**row) for row in said["rows"])
            return CrowdInfo(ready=said["ready"], size=said["size"], most=said["most"], users=users)
        except (LookupError, TypeError, ValueError) as error:
            raise EngineError(
                BrokerCode.BROKER_IMPROPER, f"what the broker says is not understood: {error!r}"
            ) from error


def _stream(state: dict[str, Any]) -> StreamFraming | None:
    """Return what takes the engine's stream apart, if the broker's engine makes one of two."""
    return Demultiplexer.of(state) if "header" in state else None
