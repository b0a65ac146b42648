"""A sandbox's protections in Kubernetes' words: the pod. Pure.

What the cluster is asked, and what it says of a pod later, are compared with this same document.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SCRATCH, SandboxSpec
from ...engines.hardening import PAGE_BYTES, protections
from . import pod_gate

LABEL = "sandbox-kernel"
"""What the names of our labels begin with."""
HEARD = "sandbox.users.io/sandbox-kernel"
"""The label by which a process hears of its pods and claims. Its domain is the one in which agent-sandbox lets a claim
label a pod that waited."""
CONTAINER = "sandbox"
SHM = "/dev/shm"  # noqa: S108 (inside the pod)
WAIT_SECONDS = 60
"""How long a pod waits for its owner to attach."""
WHERE_IT_ENDS = "/root/end"
"""Every container has a file of its node's, where it may say why it ended. Cells cannot reach it here: the folder is
root's own in each image, and the attestation looks."""
MASKED = ("/dev/mqueue", "/sys/block", "/sys/bus", "/sys/dev", "/sys/kernel", "/sys/module", "/sys/power")
"""Of what other engines cover, what a pod can: each system has these folders, and no runtime mounts within /proc."""
LOST_SECONDS = 5
"""How long a pod is kept on a node that says nothing. Its pipe has broken by then."""


MAX_NAME = 253
_PART = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")


def is_name(found: object) -> bool:
    """Return whether it may be a pod's name, by the rule of clusters (RFC 1123). Nothing else is part of a path."""
    return isinstance(found, str) and len(found) <= MAX_NAME and _NAME.fullmatch(found) is not None


class Pod(NamedTuple):
    """Where a pod is, and whose."""

    name: str
    namespace: str
    lifetime_seconds: int
    labels: Mapping[str, str]
    """Whose it is."""
    owner: Mapping[str, str] | None = None
    """The caller's own pod in the same namespace, whose end is this one's: its `name` and `uid`."""
    own_users: bool = False
    """Whether the cluster gives a pod user ids of its own."""
    program: str | None = None
    """What the gate becomes at once, for a pod that waits for its owner with its kernel up. Nothing of a session."""


def document(spec: SandboxSpec, pod: Pod) -> dict[str, Any]:
    """Return the pod. Raises `EngineError` for what no pod has."""
    refuse(spec)
    labels = {
        "app.kubernetes.io/name": LABEL,
        f"{LABEL}/session": spec.session_id[:63],
        **pod.labels,
    }
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "labels": labels}
    if pod.owner is not None:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "controller": False, **pod.owner}]
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(spec, pod)}
    metadata["annotations"] = {
        f"{LABEL}/spec": digest(body["spec"]),
        f"{LABEL}/start-timeout": str(math.ceil(spec.limits.start_timeout)),
    }
    return body


def refuse(spec: SandboxSpec) -> None:
    """Raise `EngineError` for what the cluster's nodes do not have: they are other machines."""
    wanted = protections(spec)
    if wanted.attached or wanted.disks:
        what = "scratch on a disk" if wanted.disks else "datasets and volumes"
        raise EngineError(
            EndCode.ENGINE_LACKS_DATA,
            f"the engine kubernetes has no {what}",
            setting="scratch" if wanted.disks else None,
        )


def pod_spec(spec: SandboxSpec, pod: Pod) -> dict[str, Any]:
    wanted = protections(spec)
    places = [(place.path, place.size_bytes) for place in wanted.writable] + [(SHM, wanted.shm_bytes)]
    room = {"cpu": _cpus(spec.limits.cpus), "memory": str(wanted.memory_bytes)}
    gate = ["python3", "-I", "-S", "-c", pod_gate.SOURCE]
    gate += [str(WAIT_SECONDS)] if pod.program is None else ["0", pod.program]
    spec_of_pod: dict[str, Any] = {
        # It runs once, ends with its pipe, and is there for so long at most.
        "restartPolicy": "Never",
        "activeDeadlineSeconds": pod.lifetime_seconds,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{state}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": LOST_SECONDS,
            }
            for state in ("not-ready", "unreachable")
        ],
        # Nothing of the cluster, and nothing of its node.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": bool(wanted.networks),
        "hostPID": "pid" not in wanted.own_namespaces,
        "hostIPC": "ipc" not in wanted.own_namespaces,
        "shareProcessNamespace": False,
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "hostname": wanted.hostname,
        "setHostnameAsFQDN": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": wanted.uid,
            "runAsGroup": wanted.uid,
            "fsGroup": wanted.uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": spec.image,
                "imagePullPolicy": "IfNotPresent",
                "command": gate,
                # For the agent alone, which looks whether its node answers it.
                "env": [
                    {
                        "name": pod_gate.NODE,
                        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.hostIP"}},
                    }
                ],
                "workingDir": wanted.working_folder,
                # The pipe is the pod's life: once its stdin closes, for whatever reason, the agent ends.
                "stdin": True,
                "stdinOnce": True,
                "tty": False,
                "terminationMessagePath": WHERE_IT_ENDS,
                "terminationMessagePolicy": "File",
                "securityContext": {
                    "privileged": False,
                    "allowPrivilegeEscalation": wanted.new_privileges,
                    "readOnlyRootFilesystem": not wanted.writable_root,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": {"requests": room, "limits": room},
                "volumeMounts": [
                    *({"name": _named(path), "mountPath": path} for path, _ in places),
                    *({"name": "nothing", "mountPath": path, "readOnly": True} for path in MASKED),
                ],
            }
        ],
        "volumes": [
            {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
            for name, size in (*((_named(path), size) for path, size in places), ("nothing", PAGE_BYTES))
        ],
    }
    if pod.own_users:
        spec_of_pod["hostUsers"] = False
    if spec.runtime is not None:
        spec_of_pod["runtimeClassName"] = spec.runtime
    return spec_of_pod


def digest(body: Mapping[str, Any]) -> str:
    """Return a name for everything that was asked for."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _cpus(count: float) -> str:
    """Return an amount of processors as the cluster writes it back."""
    thousandths = max(1, round(count * 1000))
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def _named(path: str) -> str:
    return {SCRATCH: "scratch", SHM: "shm"}.get(path, path.strip("/").replace("/", "-"))
