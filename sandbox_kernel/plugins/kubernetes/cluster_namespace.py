"""One namespace of one cluster, for all pods of this process that one loop has: one client and one watch for all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ...core.errors import EngineError
from ...core.tasks import Tasks
from ...core.version import __version__
from ...engines.attestation import as_list, at
from ...engines.inspectable import Listed
from ...engines.owner_process import OwnerProcess, host_name
from .cluster_api import ClusterApi, ClusterRefused, known, kubeconfig, listed
from .pod import HEARD, LABEL, digest, is_name
from .pod_endings import is_over
from .pod_watch import PodWatch
from .settings import KubernetesSettings
from .warm_pool import VERSION

OURS = f"app.kubernetes.io/name={LABEL}"
REAP_AGE_SECONDS = 30
TIDY_SECONDS, TIDY_EACH_SECONDS = 10.0, 30.0
"""How long what is left is looked for beside other work, and how often."""
MAX_LISTED = 5000
MAX_DIGITS = 18
"""Of a number that the cluster says."""
Key = tuple[KubernetesSettings, str | None]
"""Its settings, and the kubeconfig file that they are read with."""
NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


class Cluster:
    """One namespace of one cluster, for all pods of this process that one loop has."""

    _all: ClassVar[MutableMapping[asyncio.AbstractEventLoop, dict[Key, Cluster]]] = WeakKeyDictionary()

    def __init__(self, api: ClusterApi, key: Key, owner: OwnerProcess) -> None:
        self.api, self._key = api, key
        self.namespace = key[0].kubernetes_namespace
        labels = {
            f"{LABEL}/host": host_name()[:63],
            f"{LABEL}/owner": f"{owner.pid}-{owner.started}",
            f"{LABEL}/version": __version__[:63],
        }
        self.labels = {**labels, HEARD: digest(labels)[:40]}
        selector = f"{HEARD}={self.labels[HEARD]}"
        self.watch = PodWatch(api, self.pods, selector)
        self.claimed = PodWatch(api, self.claims, selector)
        """Hears of claims from the first one on."""
        self.users = 0
        """Who needs it."""
        self._tasks = Tasks()
        self._tidy_at = 0.0

    @classmethod
    async def join(cls, settings: KubernetesSettings, owner: OwnerProcess) -> Cluster:
        """Return the one of these settings, for one more user. Raises `EngineError`."""
        here = cls._all.setdefault(asyncio.get_running_loop(), {})
        key = settings, kubeconfig()
        while (found := here.get(key)) is None:
            made = cls(await ClusterApi.connect(settings.kubernetes_context), key, owner)
            if key in here:
                await made.api.close()
            else:
                here[key] = made
        found.users += 1
        return found

    @classmethod
    def open_here(cls) -> list[Cluster]:
        """Return those that the running loop has."""
        return list(cls._all.get(asyncio.get_running_loop(), {}).values())

    async def leave(self) -> None:
        """One user less; the last one closes it."""
        self.users -= 1
        if self.users == 0:
            self._all[asyncio.get_running_loop()].pop(self._key, None)
            await asyncio.shield(self._close())

    async def _close(self) -> None:
        await self._tasks.close()
        await self.api.close()  # first: a cancelled watch would leave its connection open
        await self.watch.close()
        await self.claimed.close()

    # --- what others have left ---

    def tidy_soon(self) -> None:
        """Delete what owners of this machine have left, in the background; bounded."""
        now = asyncio.get_running_loop().time()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EACH_SECONDS
            self._tasks.start(self._tidy(), "delete pods that have ended")

    async def _tidy(self) -> None:
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(TIDY_SECONDS):
                await self.reap(labelSelector=f"{OURS},{LABEL}/host={self.labels[f'{LABEL}/host']}")

    async def ours(self, **query: str) -> list[dict[str, Any]]:
        """Return the pods of sandboxes; what else has their label is none of them."""
        asked = {"labelSelector": OURS, "limit": str(MAX_LISTED), **query}
        found = listed(await self.api.request("GET", self.pods, query=asked, namespace=self.namespace))
        return [pod for pod in found if is_sandbox(pod)]

    async def reap(self, **query: str) -> list[str]:
        """Delete the pods that nobody has any more: see `is_left`. Return their names. Raises `EngineError`."""
        left = [str(pod["metadata"]["name"]) for pod in await self.ours(**query) if is_left(pod)]
        return [name for name in left if await self.remove(name)]

    async def pod(self, name: str) -> dict[str, Any] | None:
        """Return what the cluster says of a pod; None if there is none."""
        try:
            return known(await self.api.request("GET", f"{self.pods}/{name}", namespace=self.namespace))
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def remove(self, name: str) -> bool:
        """Delete a pod at once; return whether there was one."""
        return await self.delete(f"{self.pods}/{name}")

    async def delete(self, path: str) -> bool:
        try:
            await self.api.request("DELETE", path, NOW, namespace=self.namespace)
        except ClusterRefused as error:
            if error.status in {404, 409}:
                return False
            raise
        return True

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def claims(self) -> str:
        return f"/apis/{VERSION}/namespaces/{self.namespace}/sandboxclaims"


def is_sandbox(pod: Mapping[str, Any]) -> bool:
    name = pod["metadata"].get("name")
    return is_name(name) and OwnerProcess.parse(name) is not None


def is_left(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has ended, has an owner that was a process of this host and is dead, or never ran.

    A pod that no node takes has no end of its own. Its owner waits `start_timeout`, which is written on it.
    """
    one = row(pod)
    if is_over(pod) or (one.owner_alive is False and one.age_seconds >= REAP_AGE_SECONDS):
        return True
    waits = str((pod["metadata"].get("annotations") or {}).get(f"{LABEL}/start-timeout", ""))[:9]
    return one.state == "pending" and waits.isdecimal() and one.age_seconds >= int(waits) + REAP_AGE_SECONDS


def row(pod: Mapping[str, Any]) -> Listed:
    """Return what a pod says of itself; what it does not say is empty, and its age then 0."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    owner = OwnerProcess.parse(metadata["name"])
    here = labels.get(f"{LABEL}/host") == host_name()[:63]
    container = next(iter(as_list(at(pod, "spec", "containers"))), None)
    memory = str(at(container, "resources", "limits", "memory"))[:MAX_DIGITS]
    return Listed(
        session=labels.get(f"{LABEL}/session", ""),
        container=metadata["name"],
        owner_pid=owner.pid if owner else None,
        owner_alive=owner.alive() if owner and here else None,
        state=str((pod.get("status") or {}).get("phase", "")).lower(),
        age_seconds=_age(str(metadata.get("creationTimestamp", ""))),
        image=str(at(container, "image") or ""),
        memory_bytes=int(memory) if memory.isdecimal() else 0,
        version=labels.get(f"{LABEL}/version", ""),
    )


def _age(began: str) -> int:
    """Return the seconds since a time of the cluster's, 0 for a text that is no time: its pod stays."""
    try:
        return max(0, int(time.time() - datetime.fromisoformat(began).timestamp()))
    except (ValueError, OverflowError):
        return 0
