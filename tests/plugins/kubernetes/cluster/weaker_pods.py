"""Pods that lack a protection: the engine asks for it, and another pod is made, as a webhook would have it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import patch

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.plugins.kubernetes.cluster_api import ClusterApi
from sandbox_kernel.plugins.kubernetes.container import PodContainer
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.settings import NAMESPACE, KubernetesSettings
from tests.plugins.kubernetes.engine import kubectl

Change = Callable[[dict[str, Any]], object]
OPEN = "sandbox-kernel-open"
"""A namespace without a policy."""


@contextlib.contextmanager
def changed(change: Change) -> Iterator[None]:
    """Change the `spec` of pods between the engine and the cluster."""
    request = ClusterApi.request

    async def weaker(api: ClusterApi, method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        if method == "POST" and path.endswith("/pods"):
            body = copy.deepcopy(body)
            change(body["spec"])
        return await request(api, method, path, body, **more)

    with patch.object(ClusterApi, "request", weaker):
        yield


@contextlib.asynccontextmanager
async def started(
    spec: SandboxSpec, change: Change = lambda spec: None, namespace: str = NAMESPACE
) -> AsyncIterator[PodContainer]:
    """Start a pod that is changed on its way, and end it."""
    with changed(change):
        container = await KubernetesEngine(KubernetesSettings(kubernetes_namespace=namespace)).start(spec)
    try:
        yield container
    finally:
        await container.kill()


@contextlib.contextmanager
def an_open_namespace() -> Iterator[str]:
    """Make a namespace in which nothing is closed, for a while."""
    kubectl("create", "namespace", OPEN)
    try:
        yield OPEN
    finally:
        kubectl("delete", "namespace", OPEN, "--timeout=120s")
