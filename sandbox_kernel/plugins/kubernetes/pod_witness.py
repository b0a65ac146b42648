"""What the cluster says of a pod, compared with what it was asked for. Pure.

A cluster may change a pod before it runs, by admission webhooks and by defaults. Defaults are in a table; all else that
is more, less or other than what was asked for is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.model import SandboxSpec
from ...engines.attestation import at, same, short
from ...engines.base import Check, Inspection
from .pod import CONTAINER, LABEL, MASKED, digest
from .pod_endings import is_running
from .pod_gate import KEPT

ANY = object()
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


def witness(spec: SandboxSpec, asked: Mapping[str, Any], found: Mapping[str, Any]) -> Inspection:
    """Compare a pod as the cluster has it with the one that was asked for."""
    variables = frozenset(spec.environment) | frozenset(KEPT)
    return Inspection(tuple(_compared(asked, found)), variables, mounts=frozenset(MASKED), engine="kubernetes")


def process_line(spec: SandboxSpec, report: object) -> Check:
    """Compare the limit of processes, which is one of the pod's user."""
    return same("processes of the user", [spec.limits.pids] * 2, at(report, "rlimits", "nproc"))


def _compared(asked: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Check]:
    wanted, has = asked["spec"], found.get("spec") or {}
    yield same("cluster: spec", digest(wanted), at(found, "metadata", "annotations", f"{LABEL}/spec"))
    yield same("cluster: running", True, is_running(found))
    for name in sorted(set(wanted) | set(has)):
        if name not in {"containers", "volumes", "tolerations"}:
            yield _line(f"cluster: {name}", wanted.get(name), has.get(name), DEFAULTS.get(name))
    yield same("cluster: volumes", _sorted(wanted["volumes"]), _sorted(has.get("volumes")))
    containers = has.get("containers")
    names = [at(one, "name") for one in containers] if isinstance(containers, list) else containers
    yield same("cluster: containers", [CONTAINER], names)
    one, other = wanted["containers"][0], containers[0] if isinstance(containers, list) and containers else {}
    for name in sorted(set(one) | set(other)):
        yield _line(f"cluster: container's {name}", one.get(name), other.get(name), None)
    statuses = at(found, "status", "containerStatuses")
    restarts = at(statuses[0], "restartCount") if isinstance(statuses, list) and len(statuses) == 1 else None
    yield same("cluster: restarts", 0, restarts)


def _line(name: str, wanted: object, found: object, default: object) -> Check:
    """Compare one value; what was not asked for may be there as the cluster's default."""
    if wanted is None and (default is ANY or (default is not None and found == default)):
        return Check(name, "the cluster's", short(found), ok=True)
    wanted, found = _plain(wanted), _plain(found)
    return Check(name, short(wanted), short(found), ok=wanted == found)


def _plain(value: object) -> object:
    """Return a value in which what is false or empty is the same as what is not there, and memory is in bytes."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item or (item == 0 and item is not False)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if value in (False, "", None) else value


def _sorted(value: object) -> object:
    return sorted(map(str, map(_plain, value))) if isinstance(value, list) else value
