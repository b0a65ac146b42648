"""A spec, the pod that is asked for, and what a cluster says of it once it runs."""

from __future__ import annotations

import copy
from typing import Any

from sandbox_kernel.core.model import Limits, SandboxSpec
from sandbox_kernel.plugins.kubernetes.pod import Pod, document

SPEC = SandboxSpec(
    session_id="0123456789abcdef",
    image="registry.example/sandbox-kernel:data",
    limits=Limits(),
    command=("python3", "-I", "-c", "the agent"),
    uid=300123456,
    environment={"TOKEN": "a secret"},
)
POD = Pod("sandbox-kernel-0123456789ab-1-2-aa", "sandboxes", 3600, {"sandbox-kernel/owner": "1-2"})


def asked_for() -> dict[str, Any]:
    return document(SPEC, POD)


def running(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the pod as a cluster without admission webhooks has it, while it runs."""
    pod = copy.deepcopy(asked)
    pod["metadata"] |= {"uid": "f3b7", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod["spec"] |= {
        "nodeName": "node1",
        "schedulerName": "default-scheduler",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "hostUsers": True,
    }
    pod["spec"]["tolerations"].append({"key": "node.example/own", "operator": "Exists"})
    for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "setHostnameAsFQDN"):
        del pod["spec"][name]  # what is false is not said
    pod["spec"]["containers"][0].pop("tty")
    pod["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "sandbox", "restartCount": 0, "state": {"running": {"startedAt": "then"}}}],
    }
    return pod
