"""Deletes pods as they end, for a process that does nothing else: `sandbox-kernel reap --follow`.

The owner of a pod deletes it. This is for pods whose owner was killed: a pod ends with its pipe, and stays in the API
as one that is completed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import EngineError
from ...core.tasks import Tasks
from .cluster_namespace import OURS, is_sandbox
from .pod_endings import is_over
from .pod_watch import PodWatch

if TYPE_CHECKING:
    from .cluster_namespace import Cluster

ROUND_SECONDS = 30.0
"""How often all pods that do not run are looked at: some never ran, and a request to delete one may have failed."""
AT_ONCE = 8
"""Requests to delete that are under way at the same time."""


class PodReaper:
    """Deletes ended pods of one namespace, of any owner."""

    def __init__(self, cluster: Cluster, told: Callable[[str], None]) -> None:
        self._cluster, self._told = cluster, told
        self._waiting: dict[str, None] = {}
        """Names to delete, in order. As many as the namespace has pods, at most."""
        self._more = asyncio.Event()
        self._tasks = Tasks()

    async def run(self) -> None:
        """Go on until cancelled. Raises `EngineError` if the cluster does not let it begin."""
        watch = PodWatch(self._cluster.api, self._cluster.pods, OURS, self._hear)
        try:
            await watch.listen()
            for number in range(AT_ONCE):
                self._tasks.start(self._delete(), f"delete pods ({number})")
            while True:
                with contextlib.suppress(EngineError):
                    for name in await self._cluster.reap(fieldSelector="status.phase!=Running"):
                        self._told(name)
                await watch.listen()  # begins again where it failed
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            await self._tasks.close()
            await watch.close()

    def _hear(self, pod: Mapping[str, Any] | None, gone: bool) -> None:
        if pod is None or not is_sandbox(pod):
            return
        name = str(pod["metadata"]["name"])
        if gone:
            self._waiting.pop(name, None)
        elif is_over(pod):
            self._waiting[name] = None
            self._more.set()

    async def _delete(self) -> None:
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            name = next(iter(self._waiting))
            del self._waiting[name]
            with contextlib.suppress(EngineError):  # the next round has it again
                if await self._cluster.remove(name):
                    self._told(name)
