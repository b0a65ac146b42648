"""How the cluster, the namespace and the pods' lifetime are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...config.forms import seconds, text
from ...config.setting import rows, setting

NAMESPACE = "sandboxes"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """Which cluster has the sandboxes, and for how long."""

    kubernetes_context: str | None = setting(
        None,
        text(re.compile(r"[A-Za-z0-9@:/._-]{1,253}"), "the name of a context in a kubeconfig file", none=True),
        "The context of the kubeconfig file that names the cluster, for the engine kubernetes. Empty: within a pod the "
        "pod's own cluster, elsewhere the file's current context.",
        "the current context",
        scope="process",
    )
    kubernetes_namespace: str = setting(
        NAMESPACE,
        text(re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"), "the name of a namespace"),
        "The namespace of the cluster that has the sandboxes, and nothing else.",
        scope="process",
    )
    kubernetes_lifetime: float = setting(
        86400.0,
        seconds(60),
        "How long a pod may be there, whatever becomes of its owner, in seconds (or 12h). The cluster ends it then.",
        scope="process",
    )
    kubernetes_warm_pool: str | None = setting(
        None,
        text(re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?"), "the first part of a pool's name", none=True),
        "The warm pools of agent-sandbox (SandboxWarmPool) from which pods are claimed that wait with their kernel up: "
        "the first part of their names. `sandbox-kernel warm-pool` writes one for the other settings. Empty: none.",
        "none",
        scope="process",
    )


GROUP = "Kubernetes"
SETTINGS = rows(KubernetesSettings)
