"""One namespace of one cluster, for all pods of this process that one loop has: one client and one watch for all."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from ...core.version import __version__
from ...engines.owner_process import Owner, host_name
from .cluster_api import ClusterApi, ClusterRefused
from .pod import LABEL
from .pod_watch import PodWatch
from .settings import KubernetesSettings

NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


class Cluster:
    """One namespace of one cluster, for all pods of this process that one loop has."""

    _all: ClassVar[dict[tuple[int, KubernetesSettings], Cluster]] = {}

    def __init__(self, api: ClusterApi, key: tuple[int, KubernetesSettings], owner: Owner) -> None:
        self.api, self._key = api, key
        self.namespace = key[1].kubernetes_namespace
        self.labels = {
            f"{LABEL}/host": host_name()[:63],
            f"{LABEL}/owner": f"{owner.pid}-{owner.started}",
            f"{LABEL}/version": __version__[:63],
        }
        selector = ",".join(f"{name}={value}" for name, value in self.labels.items())
        self.watch = PodWatch(api, self.namespace, selector)
        self.users = 0
        """Who needs it."""

    @classmethod
    async def join(cls, settings: KubernetesSettings, owner: Owner) -> Cluster:
        """Return the one of these settings, for one more user. Raises `EngineError`."""
        key = (id(asyncio.get_running_loop()), settings)
        if (found := cls._all.get(key)) is None:
            made = cls(await ClusterApi.connect(settings.kubernetes_context), key, owner)
            found = cls._all.setdefault(key, made)
            if found is not made:
                await made.api.close()
        found.users += 1
        return found

    async def leave(self) -> None:
        """One user less; the last one closes it."""
        self.users -= 1
        if self.users == 0:
            self._all.pop(self._key, None)
            await self.watch.close()
            await self.api.close()

    async def pod(self, name: str) -> dict[str, Any] | None:
        """Return what the cluster says of a pod; None if there is none."""
        try:
            return await self.api.request("GET", f"{self.pods}/{name}", namespace=self.namespace)
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def remove(self, name: str) -> bool:
        """Delete a pod at once; return whether there was one."""
        try:
            await self.api.request("DELETE", f"{self.pods}/{name}", NOW, namespace=self.namespace)
        except ClusterRefused as error:
            if error.status in {404, 409}:
                return False
            raise
        return True

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"
