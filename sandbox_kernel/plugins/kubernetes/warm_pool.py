"""The warm pools of kubernetes-sigs/agent-sandbox: what one is made of, and what a session may take from it. Pure.

A pool's pods are the same as others but for two things: their program is in the template, for it has nothing of a
session, and they have one user. All that a session asks for is in the pool's name, so that nothing else is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ...core.model import PRELOAD, SandboxSpec
from ...engines.attestation import as_list, at
from ...engines.shipping import COMMAND, program_of
from ...engines.user_ids import UID_RANGE
from . import pod_gate
from .pod import HEARD, LABEL, Pod, digest, is_name, pod_spec
from .pod_endings import shown

GROUP = "extensions.agents.x-k8s.io"
VERSION = f"{GROUP}/v1beta1"
KEY_CHARACTERS = 20
ASSIGNED = "agents.x-k8s.io/sandbox-name"
"""Where the controller writes down which pod it has taken for a claim, some 60 ms before it says that it is done."""
POOL = "pool"
"""Whose a pod is that nobody has claimed, as its labels say."""


def waiting(spec: SandboxSpec) -> SandboxSpec | None:
    """Return the spec of a pool's pod that would suit a session; None if the session has parts of its own."""
    made_of = spec.made_of
    if made_of is None or made_of.inside is not None or made_of.variables or spec.environment or spec.attached:
        return None
    if (spec.command, spec.program) != (COMMAND, program_of(made_of, spec.limits)):
        return None
    program = program_of(made_of, spec.limits, warm=True, unattended=True, preload=PRELOAD)
    unnamed = replace(spec, session_id="", command=pod_gate.WAITING, program=program, uid=UID_RANGE[0])
    low, high = UID_RANGE
    return replace(unnamed, uid=low + int(digest(_spec(unnamed, 0))[:16], 16) % (high - low))


def name(prefix: str, spec: SandboxSpec, lifetime_seconds: int) -> str:
    """Return the name of the pool whose pods are as `waiting` says."""
    return f"{prefix}-{digest(_spec(spec, lifetime_seconds))[:KEY_CHARACTERS]}"


def manifests(prefix: str, pool: Pod, spec: SandboxSpec, replicas: int) -> dict[str, Any]:
    named = name(prefix, spec, pool.lifetime_seconds)
    metadata = {"name": named, "namespace": pool.namespace, "labels": {"app.kubernetes.io/name": LABEL}}
    body = _spec(spec, pool.lifetime_seconds)
    template = {
        "apiVersion": VERSION,
        "kind": "SandboxTemplate",
        "metadata": metadata,
        "spec": {
            "podTemplate": {"metadata": _described(body), "spec": body},
            # The namespace's own policy lets nothing through; the controller's would allow what is public.
            "networkPolicyManagement": "Unmanaged",
            "envVarsInjectionPolicy": "Disallowed",
            "volumeClaimTemplatesPolicy": "Disallowed",
            "service": False,
        },
    }
    pods = {
        "apiVersion": VERSION,
        "kind": "SandboxWarmPool",
        "metadata": metadata,
        "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": named}},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [template, pods]}


def claim(pod: Pod, pool: str) -> dict[str, Any]:
    """Return a claim, which the cluster deletes once its pod has ended, and when its time is over."""
    end = datetime.now(UTC) + timedelta(seconds=pod.lifetime_seconds)
    labels = {"app.kubernetes.io/name": LABEL, **pod.labels}
    return {
        "apiVersion": VERSION,
        "kind": "SandboxClaim",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": labels},
        "spec": {
            "warmPoolRef": {"name": pool},
            "additionalPodMetadata": {"labels": {HEARD: pod.labels[HEARD]}},
            "lifecycle": {
                "shutdownTime": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "shutdownPolicy": "Delete",
                "ttlSecondsAfterFinished": 0,
            },
        },
    }


def asked(spec: SandboxSpec, pod: Pod) -> dict[str, Any]:
    """Return the pod that a claim has to have given."""
    body = _spec(spec, pod.lifetime_seconds)
    metadata = {"name": pod.name, "namespace": pod.namespace, **_described(body)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def assigned(claimed: Mapping[str, Any]) -> str | None:
    """Return the pod that the controller is about to give to a claim, or has made for it, as none waited, and runs."""
    if (waited := _name(at(claimed, "metadata", "annotations", ASSIGNED))) is not None:
        return waited
    conditions = as_list(at(claimed, "status", "conditions"))
    ready = any(at(one, "type") == "Ready" and at(one, "status") == "True" for one in conditions)
    return given(claimed) if ready else None


def given(claimed: Mapping[str, Any]) -> str | None:
    """Return the pod of a claim; None while it has none that runs."""
    return _name(at(claimed, "status", "sandbox", "name")) if at(claimed, "status", "sandbox", "podIPs") else None


def never(claimed: Mapping[str, Any]) -> str | None:
    """Return why a claim gives nothing soon; None while it may."""
    for one in (claimed.get("status") or {}).get("conditions") or ():
        if one.get("status") == "False" and one.get("reason") in NOTHING:
            return shown(one.get("message") or one["reason"])
    return None


def _name(found: object) -> str | None:
    return str(found) if is_name(found) else None


NOTHING = {"WarmPoolNotFound", "TemplateNotFound", "InvalidMetadata", "ReconcilerError"}


def _spec(spec: SandboxSpec, lifetime_seconds: int) -> dict[str, Any]:
    return pod_spec(spec, Pod("", "", lifetime_seconds, {}, program=pod_gate.whole(spec)))


def _described(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the labels and annotations of a pool's pods."""
    return {
        "labels": {"app.kubernetes.io/name": LABEL, f"{LABEL}/host": POOL, f"{LABEL}/owner": POOL},
        "annotations": {f"{LABEL}/spec": digest(body)},
    }
