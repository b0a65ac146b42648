"""The process that owns a shared sandbox, while a kernel is in it: `python -m … SOCKET SETTINGS`, by `engine`.

It is a broker whose engine starts kernels in one sandbox. That is started with the first kernel and attested, as every
session does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...config.sources import changed
from ...core.errors import EngineError
from ...core.model import SCRATCH, Limits, SandboxSpec, Settings
from ...engines.shipping import nested_config
from ...sdk.bare_session import bare_session
from ..broker import create_request
from ..broker.ceilings import OWN, Policy
from ..broker.codes import BrokerCode
from ..broker.create_request import CreateRequest
from ..broker.daemon import Broker, bound, on_signals
from .codes import SharedCode
from .container import JoinedKernel
from .place import digest

if TYPE_CHECKING:
    from ...engines.inspectable import Inspectable

LINGER_SECONDS = 2.0
"""How long it waits for the next kernel when the last one has left: a notebook is restarted within that."""


class JoinEngine:
    """Starts kernels in the sandbox of one session. What else is asked of it, the session's engine knows."""

    def __init__(self, said: dict[str, Any]) -> None:
        """Raises `SandboxError`, LookupError, TypeError or ValueError for settings that are none."""
        given = {**said, "limits": Limits(**said["limits"])}
        data = {name: tuple(found) for name, found in given.pop("data").items()}
        settings = changed(Settings(**given), data)
        self.session = bare_session(settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session.engine, name)

    async def start(self, spec: SandboxSpec) -> JoinedKernel:
        return JoinedKernel(await self.session.open_nested(nested_config(spec, SCRATCH)), self.session.touch)


async def run(path: Path, said: dict[str, Any]) -> None:
    """Own a sandbox, and listen at `path`, until the last kernel has left. Raises `ConfigurationError`."""
    expected, name = digest(said), path.stem.rpartition("-")[0]

    def read(asked: object) -> CreateRequest:
        if not isinstance(asked, dict):
            raise EngineError(BrokerCode.BROKER_IMPROPER)
        if asked.pop("shared", None) != expected:
            raise EngineError(SharedCode.SHARED_OTHER_SETTINGS.note(name=name), setting="engine")
        return create_request.read(asked)

    sock, lock = bound(str(path))
    engine = JoinEngine(said)
    policy = Policy(everybody=OWN, only=os.geteuid())
    broker = Broker(cast("Inspectable", engine), policy, read=read, idle_seconds=LINGER_SECONDS)
    on_signals(broker, None)
    broker.listen(sock)
    try:
        await broker.run()
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)
        os.close(lock)  # the next owner may begin, while this sandbox ends
        await engine.session.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), json.loads(sys.argv[2])))
