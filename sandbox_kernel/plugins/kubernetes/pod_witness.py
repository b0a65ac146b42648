"""What the cluster says of a pod, compared with what it was asked for. Pure.

A cluster may change a pod before it runs, by admission webhooks and by defaults. Defaults are in a table; all else that
is more, less or other than what was asked for is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.model import SandboxSpec
from ...engines.attestation import as_list, at, same, short
from ...engines.base import AttestationCheck, Inspection
from .pod import CONTAINER, LABEL, MASKED, digest
from .pod_endings import is_running
from .pod_gate import KEPT

ANY = object()
OF_THE_GATE = 1
"""System call filters that the gate puts around what it becomes."""
DEFAULTS: Mapping[str, object] = {
    "nodeName": ANY,
    "schedulerName": ANY,
    "priority": ANY,
    "priorityClassName": ANY,
    "preemptionPolicy": ANY,
    "serviceAccountName": ANY,
    "serviceAccount": ANY,
    "imagePullSecrets": ANY,
    "nodeSelector": ANY,
    "affinity": ANY,
    "overhead": ANY,
    "hostUsers": True,
    "tolerations": ANY,
}
"""What a cluster may add to a pod: where it runs and how its image comes. The pod has no token of its account."""
FALSE_IF_ABSENT = frozenset({
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "setHostnameAsFQDN",
    "privileged",
    "tty",
})  # fmt: skip
"""Fields that a cluster may leave out where they are false. All others that are missing have another meaning."""

FOR_A_RUNTIME = (
    "container.apparmor.security.beta.kubernetes.io/",
    "seccomp",
    "cri-o",
    "crio.io",
    "io.katacontainers.",
    "dev.gvisor.",
    "io.containerd.",
    "nri.io",
    "cdi.k8s.io/",
)
"""What names of annotations have that runtimes take their orders from: beside the pod's fields, and stronger."""


def witness(spec: SandboxSpec, asked: Mapping[str, Any], found: Mapping[str, Any]) -> Inspection:
    """Compare a pod as the cluster has it with the one that was asked for."""
    variables = frozenset(spec.environment) | frozenset(KEPT)
    return Inspection(tuple(_compared(asked, found)), variables, mounts=frozenset(MASKED), engine="kubernetes")


def process_line(spec: SandboxSpec, report: object) -> AttestationCheck:
    """Compare the limit of processes, which is one of the pod's user."""
    return same("processes of the user", [spec.limits.pids] * 2, at(report, "rlimits", "nproc"))


def filter_line(report: object) -> AttestationCheck:
    """The node put a filter of its own around the gate's; a system that counts the filters of a process counts both."""
    counted = at(report, "seccomp_filters")
    ok = counted is None or (type(counted) is int and counted > OF_THE_GATE)
    return AttestationCheck("system call filter of the node", "there", "there" if ok else "none", ok)


def _compared(asked: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[AttestationCheck]:
    wanted, has = asked["spec"], found.get("spec") or {}
    yield same("cluster: spec", digest(wanted), at(found, "metadata", "annotations", f"{LABEL}/spec"))
    yield from _described(asked["metadata"], found.get("metadata"))
    yield same("cluster: running", True, is_running(found))
    for name in sorted(set(wanted) | set(has)):
        if name not in {"containers", "volumes", "tolerations"}:
            yield _line("cluster: ", name, wanted, has, DEFAULTS.get(name))
    yield same("cluster: volumes", _sorted(wanted["volumes"]), _sorted(has.get("volumes")))
    containers = as_list(has.get("containers"))
    yield same("cluster: containers", [CONTAINER], [at(one, "name") for one in containers])
    one, other = wanted["containers"][0], containers[0] if containers and isinstance(containers[0], Mapping) else {}
    for name in sorted(set(one) | set(other)):
        yield _line("cluster: container's ", name, one, other, None)
    restarts = [at(status, "restartCount") for status in as_list(at(found, "status", "containerStatuses"))]
    yield same("cluster: restarts", [0], restarts)


def _described(asked: Mapping[str, Any], found: object) -> Iterator[AttestationCheck]:
    """Labels choose the policies of the network; annotations are none of a runtime's, whatever else they say."""
    labels = {name: at(found, "labels", name) for name in asked["labels"]}
    yield same("cluster: labels", dict(asked["labels"]), labels)
    annotations = at(found, "annotations")
    names = sorted(map(str, annotations)) if isinstance(annotations, Mapping) else []
    orders = [name for name in names if any(word in name for word in FOR_A_RUNTIME)]
    yield same("cluster: annotations for a runtime", [], orders)


def _line(of: str, name: str, wanted: Mapping[str, Any], found: Mapping[str, Any], default: object) -> AttestationCheck:
    """Compare one field; what was not asked for may be there as the cluster's default."""
    if wanted.get(name) is None and (default is ANY or (default is not None and found.get(name) == default)):
        return AttestationCheck(f"{of}{name}", "the cluster's", short(found.get(name)), ok=True)
    asked, has = (_plain({name: one[name]} if name in one else {}) for one in (wanted, found))
    return AttestationCheck(f"{of}{name}", short(at(asked, name)), short(at(has, name)), ok=asked == has)


def _plain(value: object) -> object:
    """Return a value in which a field that is empty is the same as one that is not there."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if not _is_absent(key, item)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _is_absent(name: object, value: object) -> bool:
    return value in (None, "", [], {}) or (value is False and name in FALSE_IF_ABSENT)


def _sorted(value: object) -> object:
    return sorted(map(str, map(_plain, value))) if isinstance(value, list) else value
