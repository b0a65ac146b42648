"""A pod that waited in a warm pool: claimed, attached to, and told that it has an owner."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...container import wire
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ...engines.attestation import same
from ...engines.base import Check, Inspection
from . import warm_pool
from .cluster_api import ClusterRefused
from .cluster_namespace import NOW, Cluster
from .codes import KubernetesCode
from .container import PodContainer
from .pod import CONTAINER, Pod
from .pod_pipe import PodPipe
from .pod_watch import PodWatch

CLAIM_SECONDS = 3.0
"""How long a pool may take to give a pod. One that is started takes a second."""
_log = logging.getLogger(__name__)


class Claim(Cluster):
    """A claim, in the place of the namespace that a pod is in: the pod ends with it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.api, self.namespace, self.name = cluster.api, cluster.namespace, name
        self._cluster = cluster

    async def make(self, asked: Mapping[str, Any]) -> str | None:
        """Return the pod that it gives; None, with a word in the log, if there is none in time."""
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                return await self._given(asked)
        except TimeoutError:
            why = f"nothing in {CLAIM_SECONDS:.0f} s"
        except EngineError as error:
            why = error.message
        _log.warning("the warm pool gives no pod, so one is started: %s", why)
        await self._undo()
        return None

    async def _given(self, asked: Mapping[str, Any]) -> str:
        found = await self.api.request("POST", self._claims, asked, namespace=self.namespace)
        version = str(found["metadata"]["resourceVersion"])
        query = {"fieldSelector": f"metadata.name={self.name}", "resourceVersion": version}
        async for event in self.api.watch(self._claims, query):
            claimed = event.get("object") or {}
            if (pod := warm_pool.given(claimed)) is not None:
                return pod
            if event.get("type") in {"DELETED", "ERROR"}:
                break
            if (why := warm_pool.never(claimed)) is not None:
                raise EngineError(KubernetesCode.POD_NOT_STARTED.note(why=why))
        raise EngineError(KubernetesCode.POD_DELETED)

    async def attach(self, pod: str, asked: Mapping[str, Any], spec: SandboxSpec) -> ClaimedPod:
        """Return the pod once it was told that it has an owner. Raises `EngineError`."""
        self.watch = PodWatch(self.api, self.namespace, f"metadata.name={pod}", by="fieldSelector")
        try:
            wire = PodPipe(await self.api.attach(self.namespace, pod, CONTAINER))
            try:
                return await self._told(asked, wire, spec)
            except BaseException:
                await wire.close()
                raise
        except BaseException:
            await asyncio.shield(self._undo())
            await self.watch.close()
            raise

    async def _told(self, asked: Mapping[str, Any], wire_: PodPipe, spec: SandboxSpec) -> ClaimedPod:
        nonce = secrets.token_hex(16)
        claim = b'{"op": "claim", "nonce": "%s"}' % nonce.encode()
        await wire_.pipe.send(b"".join(wire.encode(wire.AGENT, [claim])))
        container = ClaimedPod(self, asked, wire_)
        container.waited, container.nonce = spec, nonce
        await self.watch.listen()
        return container

    async def pod(self, name: str) -> dict[str, Any] | None:
        return await self._cluster.pod(name)

    async def remove(self, name: str) -> bool:
        """Delete the claim, and the pod with it; return whether there was one. `name` is the pod's."""
        try:
            await self.api.request("DELETE", f"{self._claims}/{self.name}", NOW, namespace=self.namespace)
        except ClusterRefused as error:
            if error.status in {404, 409}:
                return False
            raise
        return True

    async def leave(self) -> None:
        await self.watch.close()
        await self._cluster.leave()

    async def _undo(self) -> None:
        with contextlib.suppress(EngineError):  # else its time ends it
            await self.remove("")

    @property
    def _claims(self) -> str:
        return f"/apis/{warm_pool.VERSION}/namespaces/{self.namespace}/sandboxclaims"


class ClaimedPod(PodContainer):
    """A pod that waited; its kernel is up."""

    waited: SandboxSpec
    """What it was made of: a session's, but for the program and the user."""
    nonce: str
    """Shows that a report was made after the claim."""

    async def look(self, spec: SandboxSpec) -> Inspection:
        return await super().look(self.waited)

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[Check, ...]:
        found = await super().compare(report, replace(spec, uid=self.waited.uid))
        nonce = report.get("nonce") if isinstance(report, Mapping) else None
        return (*found, same("nonce of the claim", self.nonce, nonce))


async def claim(cluster: Cluster, prefix: str, place: Pod, spec: SandboxSpec) -> ClaimedPod | None:
    """Return a pod of the pool that has what `spec` asks for; None if there is none. Raises `EngineError`."""
    if (waited := warm_pool.waiting(spec)) is None:
        return None
    made = Claim(cluster, place.name)
    pod = await made.make(warm_pool.claim(place, warm_pool.name(prefix, waited, place.lifetime_seconds)))
    if pod is None:
        return None
    return await made.attach(pod, warm_pool.asked(waited, place._replace(name=pod)), waited)
