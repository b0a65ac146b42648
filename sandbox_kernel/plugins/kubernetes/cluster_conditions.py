"""What a cluster must have before sandboxes belong in it: each piece is tried, with the caller's own rights.

A namespace's labels, policies and quotas are not the caller's to read. So pods that must not be there are offered, as
tries that make nothing (`dryRun`): what is missing lets one in. The pieces are those of the chart.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from ...core.errors import EngineError
from ...engines.attestation import as_list, at
from ...engines.inspectable import MachineCondition
from .cluster_api import ClusterRefused, listed
from .cluster_namespace import Cluster
from .codes import KubernetesCode

OLDEST = (1, 30)
"""The first whose attaching can say that stdin is at its end."""
CHART = "install the chart of docs/kubernetes.md, or have the cluster's operator do so"
RIGHTS = (
    *(("pods", "", verb) for verb in ("create", "get", "list", "watch", "delete")),
    *(("pods", "attach", verb) for verb in ("create", "get")),
)
"""All that the engine does in its namespace."""
SETTLED_SECONDS, AGAIN_SECONDS = 15.0, 0.5
"""How long a pod that is let in is offered again, and how often: a policy counts some seconds after it was accepted."""
SAID = 160
"""Characters of a refusal, in a row for people."""
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})")
_RESTRICTED: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_ROOM = {"cpu": "10m", "memory": "16Mi"}


async def conditions(cluster: Cluster) -> tuple[MachineCondition, ...]:
    """Return what was found. Raises `EngineError` where the API server does not answer."""
    found = await asyncio.gather(
        _version(cluster),
        _rights(cluster),
        _refuses(cluster, "pod security", offered({"hostPID": True}, _RESTRICTED), "PodSecurity"),
        _refuses(cluster, "admission policy", offered({}, _RESTRICTED), "denied"),
        _network(cluster),
    )
    return tuple(found)


def offered(more: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod that is no sandbox. Pure."""
    one = {
        "name": "other",
        "image": "sandbox-kernel:offered",
        "securityContext": dict(context),
        "resources": {"requests": _ROOM, "limits": _ROOM},
    }
    metadata = {"name": "sandbox-kernel-offered"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**more, "containers": [one]}}


def version(said: str) -> MachineCondition:
    """Judge the API server's version. Pure."""
    found = _VERSION.match(said)
    met = found is not None and (int(found[1]), int(found[2])) >= OLDEST
    return MachineCondition(
        "api server", met, said or "it does not say its version", "update the cluster to Kubernetes 1.30"
    )


def refused(name: str, by: str, error: ClusterRefused | None) -> MachineCondition:
    """Judge what became of a pod that must not be there. Pure."""
    if error is None:
        since = f", also {SETTLED_SECONDS:.0f} s later"
        return MachineCondition(name, False, f"the cluster lets in a pod that is no sandbox{since}", CHART)
    said = str(error)[:SAID]
    if error.code is KubernetesCode.NAMESPACE_MISSING or error.code is KubernetesCode.CLUSTER_FORBIDS:
        return MachineCondition(name, False, f"not to be tried: {said}", error.code.remedy)
    if error.code is KubernetesCode.CLUSTER_REFUSES and by in str(error):
        return MachineCondition(name, True, "a pod that is no sandbox is refused")
    return MachineCondition(name, False, f"a pod that is no sandbox is refused by something else: {said}", CHART)


async def _version(cluster: Cluster) -> MachineCondition:
    return version(str((await cluster.api.request("GET", "/version")).get("gitVersion", "")))


async def _rights(cluster: Cluster) -> MachineCondition:
    async def may(resource: str, part: str, verb: str) -> str | None:
        if await allowed(cluster, resource, verb, part=part):
            return None
        return f"{verb} {resource}/{part}" if part else f"{verb} {resource}"

    lacks = [one for one in await asyncio.gather(*(may(*one) for one in RIGHTS)) if one is not None]
    there = f"all {len(RIGHTS)} in {cluster.namespace}"
    return MachineCondition("rights", not lacks, f"this user may not: {', '.join(lacks)}" if lacks else there, CHART)


async def allowed(cluster: Cluster, resource: str, verb: str, *, part: str = "", group: str = "") -> bool:
    """Return whether this user may do something in the namespace, as the API server sees it."""
    asked = {
        "namespace": cluster.namespace,
        "group": group,
        "resource": resource,
        "subresource": part,
        "verb": verb,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    said = await cluster.api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return at(said, "status", "allowed") is True


async def _refuses(cluster: Cluster, name: str, pod: Mapping[str, Any], by: str) -> MachineCondition:
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLED_SECONDS
    while True:
        try:
            await cluster.api.request("POST", cluster.pods, pod, query={"dryRun": "All"}, namespace=cluster.namespace)
        except ClusterRefused as error:
            return refused(name, by, error)
        if loop.time() >= until:
            return refused(name, by, None)
        await asyncio.sleep(AGAIN_SECONDS)


async def _network(cluster: Cluster) -> MachineCondition:
    group = "networking.k8s.io"
    if not await allowed(cluster, "networkpolicies", "list", group=group):
        return MachineCondition("network policy", True, "not this user's to read: each sandbox looks what answers it")
    path = f"/apis/{group}/v1/namespaces/{cluster.namespace}/networkpolicies"
    try:
        rows = listed(await cluster.api.request("GET", path, namespace=cluster.namespace))
    except EngineError as error:
        return MachineCondition("network policy", False, str(error)[:SAID], CHART)
    return network([dict(one.get("spec") or {}) for one in rows])


def network(policies: list[dict[str, Any]]) -> MachineCondition:
    """Judge the policies of the namespace: together they allow what any of them allows. Pure."""
    whole = [one for one in policies if not one.get("podSelector")]
    kinds = [as_list(one.get("policyTypes")) for one in whole]
    closed = all(any(name in one for one in kinds) for name in ("Ingress", "Egress"))
    opened = any(one.get("ingress") or one.get("egress") for one in policies)
    if closed and not opened:
        return MachineCondition("network policy", True, "no connection is allowed, in or out")
    found = "a policy allows connections" if opened else "no policy forbids all connections, in and out"
    return MachineCondition("network policy", False, found, CHART)
