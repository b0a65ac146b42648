"""A pod that waited in a warm pool: claimed, attached to, and told that it has an owner.

The controller writes down which pod a claim gets, and then hands it over. Meanwhile the pod is attached to and looks at
itself. The attestation waits until it is handed over, and no cell runs before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...container import wire
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ...engines.attestation import same
from ...engines.base import AttestationCheck, Inspection
from . import warm_pool
from .cluster_conditions import allowed
from .cluster_namespace import Cluster
from .codes import KubernetesCode
from .container import PodContainer
from .pod import CONTAINER, Pod
from .pod_pipe import PodPipe

CLAIM_SECONDS = 3.0
"""How long a pool may take to give a pod, where one can be started in a second. Else it has `start_timeout`."""
_log = logging.getLogger(__name__)


class Claim:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._said: Mapping[str, Any] = {}
        self._gone = False
        self._changed = asyncio.Event()

    async def make(self, asked: Mapping[str, Any]) -> str:
        """Return the pod that it is about to get. Raises `EngineError`, and TimeoutError where one can be started."""
        cluster = self._cluster
        cluster.claimed.hear(self._name, self._hear)
        cluster.claimed.begin()
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                await cluster.api.request("POST", cluster.claims, asked, namespace=cluster.namespace)
                await cluster.claimed.listen()
                return await self._until(warm_pool.assigned)
        except TimeoutError:
            if await allowed(cluster, "pods", "create"):
                raise
        return await self._until(warm_pool.assigned)

    async def given(self) -> str | None:
        """Return the pod that it got; None if that is not said in time. Raises `EngineError`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLAIM_SECONDS):
                return await self._until(warm_pool.given)
        return None

    async def remove(self) -> None:
        """Delete it, and the pod with it. Raises `EngineError`."""
        self._cluster.claimed.forget(self._name)
        await self._cluster.delete(f"{self._cluster.claims}/{self._name}")

    async def _until(self, what: Callable[[Mapping[str, Any]], str | None]) -> str:
        while (found := what(self._said)) is None:
            if (why := warm_pool.never(self._said)) is not None:
                raise EngineError(KubernetesCode.POD_NOT_STARTED.note(why=why))
            if self._gone:
                raise EngineError(KubernetesCode.POD_DELETED)
            self._changed.clear()
            await self._changed.wait()
        return found

    def _hear(self, said: Mapping[str, Any] | None, gone: bool) -> None:
        if said is not None:  # else it is about to be made
            self._said, self._gone = said, gone
            self._changed.set()


class Whose(NamedTuple):
    """Who has a pod that waited."""

    claim: Claim
    waited: SandboxSpec
    """What it was made of: a session's, but for the program and the user."""
    nonce: str
    """Shows that a report was made after the claim."""


class ClaimedPod(PodContainer):
    """A pod that waited; its kernel is up."""

    def __init__(self, cluster: Cluster, asked: Mapping[str, Any], pipe: PodPipe, whose: Whose) -> None:
        super().__init__(cluster, asked, pipe)
        self._claim, self._waited, self._nonce = whose

    async def look(self, spec: SandboxSpec) -> Inspection:
        return await super().look(self._waited)

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        given = same("cluster: pod of the claim", self.id, await self._claim.given())
        found = await super().compare(report, replace(spec, uid=self._waited.uid))
        nonce = report.get("nonce") if isinstance(report, Mapping) else None
        return (*found, same("nonce of the claim", self._nonce, nonce), given)

    def _hear(self, pod: Mapping[str, Any] | None, gone: bool) -> None:
        if pod is not None or self._pod is not None:  # else it has not got its label yet
            super()._hear(pod, gone)

    async def _remove(self) -> None:
        await self._claim.remove()


async def claim(cluster: Cluster, prefix: str, place: Pod, spec: SandboxSpec) -> ClaimedPod | None:
    """Return a pod of the pool that has what `spec` asks for.

    None, with a word in the log, if there is none in time. Raises `EngineError` if none can be started in its place.
    """
    if (waited := warm_pool.waiting(spec)) is None:
        return None
    made = Claim(cluster, place.name)
    try:
        async with asyncio.timeout(spec.limits.start_timeout):
            name = await made.make(warm_pool.claim(place, warm_pool.name(prefix, waited, place.lifetime_seconds)))
            async with asyncio.timeout(CLAIM_SECONDS):
                return await _attached(cluster, made, warm_pool.asked(waited, place._replace(name=name)), waited)
    except BaseException as error:
        with contextlib.suppress(EngineError):  # else its time ends it
            await asyncio.shield(made.remove())
        if not isinstance(error, (TimeoutError, EngineError)):
            raise
        failed = error
    can_start = await allowed(cluster, "pods", "create")
    if not isinstance(failed, EngineError):
        seconds = CLAIM_SECONDS if can_start else spec.limits.start_timeout
        failed = EngineError(KubernetesCode.POD_SLOW.note(why="the warm pool gives none"), limit=f"{seconds:.0f} s")
    if not can_start:
        raise failed
    _log.warning("the warm pool gives no pod, so one is started: %s", failed.message)
    return None


async def _attached(cluster: Cluster, made: Claim, asked: Mapping[str, Any], waited: SandboxSpec) -> ClaimedPod:
    """Attach to a pod and tell it that it has an owner; the watch that hears of it begins while it looks at itself."""
    pipe = PodPipe(await cluster.api.attach(cluster.namespace, str(asked["metadata"]["name"]), CONTAINER))
    nonce = secrets.token_hex(16)
    try:
        told = b'{"op": "claim", "nonce": "%s"}' % nonce.encode()
        await pipe.pipe.send(b"".join(wire.encode(wire.AGENT, [told])))
        await cluster.watch.listen()
    except BaseException:
        await pipe.close()
        raise
    return ClaimedPod(cluster, asked, pipe, Whose(made, waited, nonce))
