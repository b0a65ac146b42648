"""The engine `kubernetes`: a pod for each session, in one namespace of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ...core.tasks import Tasks
from ...engines.inspectable import EngineInfo, ImageInfo, Listed, MachineCondition, Shown
from ...engines.owner_process import OwnerProcess
from ...engines.shipping import without_home
from . import pod_endings, pod_gate
from .claimed_pod import claim
from .cluster_api import ClusterRefused, listed
from .cluster_conditions import conditions
from .cluster_namespace import Cluster, row
from .codes import KubernetesCode
from .container import PodContainer, not_adopted
from .pod import CONTAINER, Pod, document
from .pod_pipe import PodPipe
from .pod_reaper import PodReaper
from .settings import KubernetesSettings

UNDO_SECONDS = 5.0
"""How long a start that failed may take to leave nothing."""
OWN_POD = ("POD_NAME", "POD_UID", "POD_NAMESPACE")
"""Where a pod has what it is called, by the downward API, if its makers wrote that into its manifest."""


class KubernetesEngine:
    """A namespace of a cluster."""

    def __init__(self, settings: KubernetesSettings | None = None, *, owner_pid: int | None = None) -> None:
        self._settings = settings or KubernetesSettings()
        self._owner = OwnerProcess.of(owner_pid or os.getpid())

    # --- the seam ---------------------------------------------------------------------------------------------------

    async def start(self, spec: SandboxSpec) -> PodContainer:
        """Make a pod, attach to it, and tell it what to run. A start that fails, or is cancelled, leaves no pod."""
        spec = without_home(spec)
        cluster = await Cluster.join(self._settings, self._owner)
        starting = _Start(cluster, self._owner.container_name(spec.session_id.lower()), spec)
        try:
            asked = document(spec, self._place(cluster, starting.name))
            cluster.tidy_soon()
            if (prefix := self._settings.kubernetes_warm_pool) is not None:
                claimed = await claim(cluster, prefix, self._place(cluster, starting.name), spec)
                if claimed is not None:
                    return claimed
            return await starting.run(asked)
        except BaseException:
            await asyncio.shield(starting.undo())
            raise

    async def adopt(self, fd: int, state: dict[str, Any]) -> PodContainer:
        raise not_adopted()

    async def reap(self) -> int:
        """Delete pods that have ended, and those whose owner was a process of this host that is dead."""
        async with self._cluster() as cluster:
            return len(await cluster.reap())

    async def reap_on(self, told: Callable[[str], None]) -> None:
        """Delete pods as they end, until it is cancelled; `told` is called with each name. Raises `EngineError`.

        It raises what the cluster refuses at the beginning; later it waits for an API server that is away.
        """
        async with self._cluster() as cluster:
            await PodReaper(cluster, told).run()

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return "kubernetes"

    async def list(self) -> tuple[Listed, ...]:
        async with self._cluster() as cluster:
            return tuple(map(row, await cluster.ours()))

    async def info(self) -> EngineInfo:
        async with self._cluster() as cluster:
            version = await cluster.api.request("GET", "/version")
            runtimes = await self._runtimes(cluster)
        platform = str(version.get("platform", "")).partition("/")[2]
        return EngineInfo(
            version=str(version.get("gitVersion", "")),
            api_version="v1",
            architecture={"amd64": "x86_64", "arm64": "aarch64"}.get(platform, platform),
            runtimes=runtimes,
            default_runtime="the nodes' own",
            seccomp=True,
            limited=frozenset({"memory", "swap", "cpus", "pids"}),
            cgroup_version="",
            memory_bytes=0,
            folder="",
            product="Kubernetes",
        )

    async def conditions(self) -> tuple[MachineCondition, ...]:
        async with self._cluster() as cluster:
            return await conditions(cluster)

    async def shown(self, container: str) -> Shown:
        return Shown()

    async def image(self, name: str) -> ImageInfo:
        """Return what is known of an image before a node has it: its name."""
        return ImageInfo(size_bytes=0, made="", contents=None)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _place(self, cluster: Cluster, name: str) -> Pod:
        lifetime = int(self._settings.kubernetes_lifetime)
        return Pod(name, cluster.namespace, lifetime, cluster.labels, owner=own_pod(cluster.namespace))

    async def _runtimes(self, cluster: Cluster) -> frozenset[str]:
        """Return the cluster's runtime classes; none where this user may not read them, for a start needs no look."""
        try:
            found = await cluster.api.request("GET", "/apis/node.k8s.io/v1/runtimeclasses")
        except ClusterRefused as error:
            if error.code is KubernetesCode.CLUSTER_FORBIDS:
                return frozenset()
            raise
        return frozenset(str(one["metadata"].get("name")) for one in listed(found))

    @contextlib.asynccontextmanager
    async def _cluster(self) -> Any:
        cluster = await Cluster.join(self._settings, self._owner)
        try:
            yield cluster
        finally:
            await cluster.leave()


class _Start:
    def __init__(self, cluster: Cluster, name: str, spec: SandboxSpec) -> None:
        self.name = name
        self._cluster, self._spec = cluster, spec
        self._pod: Mapping[str, Any] | None = None
        self._gone = False
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._making: asyncio.Task[dict[str, Any]] | None = None

    async def run(self, asked: Mapping[str, Any]) -> PodContainer:
        """Return the pod once it has been told what to run. Raises `EngineError`."""
        seconds = self._spec.limits.start_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._run(asked)
        except TimeoutError as error:
            raise pod_endings.slow(self._pod, seconds) from error

    async def _run(self, asked: Mapping[str, Any]) -> PodContainer:
        cluster = self._cluster
        await cluster.watch.listen()
        cluster.watch.hear(self.name, self._hear)
        making = cluster.api.request("POST", cluster.pods, asked, namespace=cluster.namespace)
        self._making = self._tasks.hold(making, f"make {self.name}")
        await asyncio.shield(self._making)
        while self._pod is None or not pod_endings.is_running(self._pod):
            await self._changed.wait()
            self._changed.clear()
            if self._pod is not None and (error := pod_endings.never(self._pod)) is not None:
                raise error
            if self._gone and self._pod is not None:
                raise EngineError(KubernetesCode.POD_DELETED)
        try:
            wire = PodPipe(await cluster.api.attach(cluster.namespace, self.name, CONTAINER))
        except EngineError as error:
            raise pod_endings.never(self._pod) or error from error
        try:
            await wire.pipe.send(pod_gate.told(self._spec))
        except BaseException:
            await wire.close()
            raise
        return PodContainer(cluster, asked, wire)

    def _hear(self, pod: Mapping[str, Any] | None, gone: bool) -> None:
        self._pod, self._gone = pod or self._pod, gone
        self._changed.set()

    async def undo(self) -> None:
        """Delete the pod, which may be about to be made; bounded."""
        self._cluster.watch.forget(self.name)
        try:
            async with asyncio.timeout(UNDO_SECONDS):
                if self._making is not None:
                    await asyncio.wait([self._making])  # what is deleted before it is there would come all the same
                    self._making.cancelled() or self._making.exception()
                    await self._cluster.remove(self.name)
        except (EngineError, TimeoutError):
            pass  # its gate ends it after a minute, and it is deleted as that of a dead owner is
        finally:
            await self._tasks.close()
            await self._cluster.leave()


def own_pod(namespace: str, environment: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """Return the name and uid of the pod that this process runs in, where that pod can own others in a namespace."""
    name, uid, here = (environment.get(one, "") for one in OWN_POD)
    return {"name": name, "uid": uid} if name and uid and here == namespace else None
