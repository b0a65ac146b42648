"""The engine `kubernetes`: a pod for each session, in one namespace of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ...engines.inspectable import Condition, EngineInfo, ImageInfo, Listed, Shown
from ...engines.owner_process import Owner, host_name
from . import pod_endings, pod_gate
from .cluster_namespace import Cluster
from .container import PodContainer
from .pod import CONTAINER, LABEL, Pod, document
from .pod_pipe import PodPipe
from .settings import KubernetesSettings

REAP_AGE_SECONDS = 30
Rows = list[dict[str, Any]]
OURS = f"app.kubernetes.io/name={LABEL}"


class KubernetesEngine:
    """A namespace of a cluster."""

    def __init__(self, settings: KubernetesSettings | None = None, *, owner_pid: int | None = None) -> None:
        self._settings = settings or KubernetesSettings()
        self._owner = Owner.of(owner_pid or os.getpid())

    # --- the seam ---------------------------------------------------------------------------------------------------

    async def start(self, spec: SandboxSpec) -> PodContainer:
        """Make a pod, attach to it, and tell it what to run. A start that fails, or is cancelled, leaves no pod."""
        cluster = await Cluster.join(self._settings, self._owner)
        name = self._owner.container_name(spec.session_id.lower())
        try:
            asked = document(spec, self._place(cluster, name))
            await cluster.watch.listen()
            return await self._start(cluster, asked, spec)
        except BaseException:
            await asyncio.shield(self._undo(cluster, name))
            raise

    async def _start(self, cluster: Cluster, asked: Mapping[str, Any], spec: SandboxSpec) -> PodContainer:
        name = str(asked["metadata"]["name"])
        seen: list[Mapping[str, Any] | None] = [None]
        changed = asyncio.Event()

        def heard(pod: Mapping[str, Any] | None) -> None:
            seen[0] = pod
            changed.set()

        cluster.watch.hear(name, heard)
        await cluster.api.request("POST", cluster.pods, asked, namespace=cluster.namespace)
        try:
            async with asyncio.timeout(spec.limits.start_timeout):
                while seen[0] is None or not pod_endings.is_running(seen[0]):
                    await changed.wait()
                    changed.clear()
                    if seen[0] is not None and (error := pod_endings.never(seen[0])) is not None:
                        raise error
        except TimeoutError as error:
            raise pod_endings.slow(seen[0], spec.limits.start_timeout) from error
        wire = PodPipe(await cluster.api.attach(cluster.namespace, name, CONTAINER))
        try:
            await wire.pipe.send(pod_gate.told(spec))
        except BaseException:
            await wire.close()
            raise
        return PodContainer(cluster, asked, wire)

    async def adopt(self, fd: int, state: dict[str, Any]) -> PodContainer:
        raise _not_adopted()

    async def pass_on(self, state: dict[str, Any], owner_pid: int) -> None:
        """Do nothing: this process moves a pod's pipe, whoever has its other end, and the pod ends with either."""

    async def reap(self) -> int:
        """Delete pods that have ended, and those whose owner was a process of this host that is dead."""
        count = 0
        async with self._cluster() as cluster:
            for pod in await self._ours(cluster):
                one = _listed(pod)
                lost = one.owner_alive is False and one.age_seconds >= REAP_AGE_SECONDS
                if lost or pod_endings.is_over(pod):
                    count += await cluster.remove(one.container)
        return count

    # --- for people -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return "kubernetes"

    async def list(self) -> tuple[Listed, ...]:
        async with self._cluster() as cluster:
            return tuple(map(_listed, await self._ours(cluster)))

    async def info(self) -> EngineInfo:
        async with self._cluster() as cluster:
            version = await cluster.api.request("GET", "/version")
            runtimes = await cluster.api.request("GET", "/apis/node.k8s.io/v1/runtimeclasses")
        platform = str(version.get("platform", "")).partition("/")[2]
        return EngineInfo(
            version=str(version.get("gitVersion", "")),
            api_version="v1",
            architecture={"amd64": "x86_64", "arm64": "aarch64"}.get(platform, platform),
            runtimes=frozenset(str(one["metadata"]["name"]) for one in runtimes.get("items") or ()),
            default_runtime="the nodes' own",
            seccomp=True,
            limited=frozenset({"memory", "swap", "cpus", "pids"}),
            cgroup_version="",
            memory_bytes=0,
            folder="",
            product="Kubernetes",
        )

    async def conditions(self) -> tuple[Condition, ...]:
        return ()

    async def shown(self, container: str) -> Shown:
        return Shown()

    async def image(self, name: str) -> ImageInfo:
        """Return what is known of an image before a node has it: its name."""
        return ImageInfo(size_bytes=0, made="", contents=None)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _place(self, cluster: Cluster, name: str) -> Pod:
        return Pod(name, cluster.namespace, int(self._settings.kubernetes_lifetime), cluster.labels)

    @contextlib.asynccontextmanager
    async def _cluster(self) -> Any:
        cluster = await Cluster.join(self._settings, self._owner)
        try:
            yield cluster
        finally:
            await cluster.leave()

    async def _ours(self, cluster: Cluster) -> Rows:
        found = await cluster.api.request(
            "GET", cluster.pods, query={"labelSelector": OURS}, namespace=cluster.namespace
        )
        return list(found.get("items") or ())

    async def _undo(self, cluster: Cluster, name: str) -> None:
        cluster.watch.forget(name)
        with contextlib.suppress(EngineError):
            await cluster.remove(name)
        await cluster.leave()


def _not_adopted() -> EngineError:
    return EngineError(
        EndCode.CONTAINER_NOT_ADOPTED, "no pod can be adopted: its pipe ends with the process that has it"
    )


def _listed(pod: Mapping[str, Any]) -> Listed:
    """Return what a pod says of itself."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    owner = Owner.parse(metadata["name"])
    here = labels.get(f"{LABEL}/host") == host_name()[:63]
    began = datetime.fromisoformat(str(metadata["creationTimestamp"]).replace("Z", "+00:00"))
    container = pod["spec"]["containers"][0]
    return Listed(
        session=labels.get(f"{LABEL}/session", ""),
        container=metadata["name"],
        owner_pid=owner.pid if owner else None,
        owner_alive=owner.alive() if owner and here else None,
        state=str((pod.get("status") or {}).get("phase", "")).lower(),
        age_seconds=max(0, int(time.time() - began.timestamp())),
        image=container["image"],
        memory_bytes=int(((container.get("resources") or {}).get("limits") or {}).get("memory", 0)),
        version=labels.get(f"{LABEL}/version", ""),
    )
