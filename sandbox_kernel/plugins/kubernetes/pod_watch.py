"""What happens to the pods of this process, heard by one watch for all of them.

A watch ends now and then, and with the API server. What was missed is made up for by a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.tasks import Tasks
from .cluster_api import ClusterApi, listed

Pod = Mapping[str, Any]
Heard = Callable[[Pod | None, bool], None]
"""Takes the last that is known of a pod, and whether it is gone."""
AGAIN_SECONDS = 0.5
"""Between two watches, unless the first went on for as long: one that ends at once is not asked again at once."""
CHANGES = {"ADDED", "MODIFIED", "DELETED"}


class PodWatch:
    """Pods with certain labels, or claims of pods."""

    def __init__(self, api: ClusterApi, path: str, selector: str, heard: Heard | None = None) -> None:
        """`heard` hears of each of them, whatever its name."""
        self._all = heard
        self._api, self._path = api, path
        self._selected = {"labelSelector": selector}
        self._heard: dict[str, Heard] = {}
        self._tasks = Tasks()
        self._running: asyncio.Task[object] | None = None
        self._listening: asyncio.Future[None] | None = None

    async def listen(self) -> None:
        """Return once it hears. Raises `EngineError` if the API server does not let it."""
        await asyncio.shield(self.begin())

    def begin(self) -> asyncio.Future[None]:
        """Begin to hear, beside other work; see `listen`."""
        if self._running is None or self._listening is None or self._running.done():
            self._listening = asyncio.get_running_loop().create_future()
            self._running = self._tasks.start(self._listen(), "hear of pods", failed=self._deaf)
        return self._listening

    def hear(self, name: str, heard: Heard) -> None:
        """Call `heard` with the pod of a name whenever it changes, and when it was deleted."""
        self._heard[name] = heard

    def forget(self, name: str) -> None:
        self._heard.pop(name, None)

    async def close(self) -> None:
        await self._tasks.close()
        self._deaf(EngineError(EndCode.ENGINE_LOST))

    def _deaf(self, error: BaseException) -> None:
        if self._listening is not None and not self._listening.done():
            self._listening.set_exception(error)
            self._listening.exception()  # there may be nobody left to take it

    async def _listen(self) -> None:
        version = ""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                if not version:
                    version = await self._list()
                query = {**self._selected, "resourceVersion": version, "allowWatchBookmarks": "true"}
                async for event in self._api.watch(self._path, query):
                    version = self._take(event, version)
                    if not version:
                        break
            except EngineError as error:
                version = ""
                if self._listening is not None and not self._listening.done():
                    self._deaf(error)
                    return
            lasted = version and loop.time() - began >= AGAIN_SECONDS
            await asyncio.sleep(0 if lasted else AGAIN_SECONDS)

    async def _list(self) -> str:
        awaited = dict(self._heard)  # of what is made meanwhile, the list may say nothing
        found = await self._api.request("GET", self._path, query=self._selected)
        pods = {str(one["metadata"]["name"]): one for one in listed(found)}
        if self._listening is not None and not self._listening.done():
            self._listening.set_result(None)
        for name, heard in awaited.items():
            if self._heard.get(name) is heard:
                heard(pods.get(name), name not in pods)
        if self._all is not None:
            for pod in pods.values():
                self._all(pod, False)
        return str(found["metadata"]["resourceVersion"])

    def _take(self, event: Mapping[str, Any], version: str) -> str:
        """Take in one event; return from where to go on, and nothing where that is not known."""
        kind, pod = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            return ""
        metadata = pod.get("metadata") or {}
        heard = self._heard.get(str(metadata.get("name", "")))
        for one in (heard, self._all):
            if one is not None and kind in CHANGES:
                one(pod, kind == "DELETED")
        return str(metadata.get("resourceVersion") or version)
