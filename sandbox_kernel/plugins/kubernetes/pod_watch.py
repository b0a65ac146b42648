"""What happens to the pods of this process, heard by one watch for all of them.

A watch ends now and then, and with the API server. What was missed is made up for by a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...core.errors import EngineError
from ...core.tasks import Tasks
from .cluster_api import ClusterApi

Pod = Mapping[str, Any]
Heard = Callable[[Pod | None], None]
AGAIN_SECONDS = 0.5
GONE = 410
"""What is asked for is older than the API server remembers."""


class PodWatch:
    """Pods with certain labels, in one namespace."""

    def __init__(self, api: ClusterApi, namespace: str, selector: str) -> None:
        self._api, self._namespace = api, namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = selector
        self._heard: dict[str, Heard] = {}
        self._tasks = Tasks()
        self._running: asyncio.Task[object] | None = None
        self._listening: asyncio.Future[None] | None = None

    async def listen(self) -> None:
        """Return once it hears. Raises `EngineError` if the API server does not let it."""
        if self._running is None or self._listening is None or self._running.done():
            self._listening = asyncio.get_running_loop().create_future()
            self._running = self._tasks.start(self._listen(), "hear of pods")
        await asyncio.shield(self._listening)

    def hear(self, name: str, heard: Heard) -> None:
        """Call `heard` with the pod of a name whenever it changes, and with None when it was deleted."""
        self._heard[name] = heard

    def forget(self, name: str) -> None:
        self._heard.pop(name, None)

    async def close(self) -> None:
        await self._tasks.close()

    async def _listen(self) -> None:
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                query = {"labelSelector": self._selector, "resourceVersion": version, "allowWatchBookmarks": "true"}
                async for event in self._api.watch(self._path, query):
                    version = self._take(event, version)
                    if not version:
                        break
            except EngineError as error:
                version = ""
                if self._listening is not None and not self._listening.done():
                    self._listening.set_exception(error)
                    return
            await asyncio.sleep(AGAIN_SECONDS if not version else 0)

    async def _list(self) -> str:
        found = await self._api.request(
            "GET", self._path, query={"labelSelector": self._selector}, namespace=self._namespace
        )
        pods = {str(one["metadata"]["name"]): one for one in found.get("items") or ()}
        if self._listening is not None and not self._listening.done():
            self._listening.set_result(None)
        for name, heard in list(self._heard.items()):
            heard(pods.get(name))
        return str(found["metadata"]["resourceVersion"])

    def _take(self, event: Mapping[str, Any], version: str) -> str:
        """Take in one event; return from where to go on, and nothing where that is not known."""
        kind, pod = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            return ""
        metadata = pod.get("metadata") or {}
        heard = self._heard.get(str(metadata.get("name", "")))
        if heard is not None and kind != "BOOKMARK":
            heard(None if kind == "DELETED" else pod)
        return str(metadata.get("resourceVersion") or version)
