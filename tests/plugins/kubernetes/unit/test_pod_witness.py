"""Whatever a cluster changes of a pod differs: the changes are made of the pod itself, so none is forgotten."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel.engines.base import AttestationCheck
from sandbox_kernel.plugins.kubernetes.pod_witness import DEFAULTS, FALSE_IF_ABSENT, filter_line, witness
from tests.plugins.kubernetes.unit.pods import SPEC, asked_for, running
from tests.support.cases import each

Path = tuple[str | int, ...]
NOT_COMPARED = {("tolerations",): "where a pod may run"}
"""Fields of a pod's spec that may be another one's, and why that is no protection less."""


def different(found: dict[str, Any]) -> list[AttestationCheck]:
    return [line for line in witness(SPEC, asked_for(), found).lines if not line.ok]


def everything(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each value of a document, with its place: the whole one, its parts, and theirs."""
    yield path, value
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from everything(part, (*path, key))


def place(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def with_spec(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return a running pod whose spec is the one that was asked for, but for a change."""
    pod = running(asked_for())
    spec = copy.deepcopy(asked_for()["spec"])
    change(spec)
    pod["spec"] = spec
    return pod


def other(value: Any) -> Any:
    """Return a value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x"


def compared() -> list[tuple[Path, Any]]:
    return [
        (path, value)
        for path, value in everything(asked_for()["spec"])
        if not any(path[: len(skipped)] == skipped for skipped in NOT_COMPARED)
    ]


LEAVES = [(path, value) for path, value in compared() if not isinstance(value, dict | list)]
GATHERED = [(path, value) for path, value in compared() if isinstance(value, dict | list)]
PARTS = [path for path, value in compared() if path and not (value is False and path[-1] in FALSE_IF_ABSENT)]


def test_what_was_asked_for_is_accepted_with_the_cluster_s_defaults() -> None:
    assert different(running(asked_for())) == []
    assert different(with_spec(lambda spec: None)) == []
    assert len(LEAVES) > 60, "what follows changes each of them"


@each("path", [path for path, _ in LEAVES], ids=lambda path: ".".join(map(str, path)))
def test_another_value_differs(path: Path) -> None:
    def change(spec: dict[str, Any]) -> None:
        holder = place(spec, path[:-1])
        holder[path[-1]] = other(holder[path[-1]])

    assert different(with_spec(change))


@each("path", PARTS, ids=lambda path: ".".join(map(str, path)))
def test_a_value_that_is_missing_differs(path: Path) -> None:
    def change(spec: dict[str, Any]) -> None:
        del place(spec, path[:-1])[path[-1]]

    assert different(with_spec(change))


@each("name", sorted(FALSE_IF_ABSENT))
def test_what_may_be_missing_is_asked_for_as_false(name: str) -> None:
    assert [value for path, value in everything(asked_for()["spec"]) if path and path[-1] == name] == [False]


@each("path", [path for path, _ in LEAVES], ids=lambda path: ".".join(map(str, path)))
def test_a_value_of_another_type_differs(path: Path) -> None:
    def change(spec: dict[str, Any]) -> None:
        place(spec, path[:-1])[path[-1]] = {"a": "b"}

    assert different(with_spec(change))


@each("path", [path for path, _ in GATHERED], ids=lambda path: ".".join(map(str, path)) or "spec")
def test_something_more_differs(path: Path) -> None:
    def change(spec: dict[str, Any]) -> None:
        gathered = place(spec, path)
        if isinstance(gathered, list):
            gathered.append(copy.deepcopy(gathered[0]))
        else:
            gathered["somethingMore"] = "x"

    assert different(with_spec(change))


MORE: dict[str, Any] = {
    "initContainers": [{"name": "first", "image": "other", "restartPolicy": "Always"}],
    "ephemeralContainers": [{"name": "debugger", "image": "other", "targetContainerName": "sandbox"}],
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["api"]}],
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "runtimeClassName": "weaker",
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    "resources": {"limits": {"cpu": "64"}},
    "readinessGates": [{"conditionType": "x"}],
    "schedulingGates": [{"name": "x"}],
    "os": {"name": "linux"},
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "shareProcessNamespace": True,
    "setHostnameAsFQDN": True,
    "subdomain": "x",
    "hostnameOverride": "x",
}
MORE_OF_A_CONTAINER: dict[str, Any] = {
    "args": ["x"],
    "envFrom": [{"secretRef": {"name": "others"}}],
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "volumeDevices": [{"name": "disk", "devicePath": "/dev/xvda"}],
    "lifecycle": {"postStart": {"exec": {"command": ["x"]}}},
    "livenessProbe": {"exec": {"command": ["x"]}},
    "readinessProbe": {"exec": {"command": ["x"]}},
    "startupProbe": {"exec": {"command": ["x"]}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "restartPolicy": "Always",
    "tty": True,
}
MORE_OF_A_SECURITY_CONTEXT: dict[str, Any] = {
    "privileged": True,
    "procMount": "Unmasked",
    "runAsUser": 0,
    "runAsNonRoot": False,
    "seccompProfile": {"type": "Unconfined"},
    "appArmorProfile": {"type": "Unconfined"},
    "seLinuxOptions": {"type": "spc_t"},
    "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
}
MORE_OF_A_POD_S: dict[str, Any] = {
    "supplementalGroups": [0],
    "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}],
    "fsGroupChangePolicy": "Always",
    "windowsOptions": {"hostProcess": True},
}
TOKEN = {
    "name": "kube-api-access",
    "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]},
}
VOLUMES: dict[str, Any] = {
    "token": TOKEN,
    "host": {"name": "host", "hostPath": {"path": "/"}},
    "secret": {"name": "secret", "secret": {"secretName": "others"}},
    "claim": {"name": "claim", "persistentVolumeClaim": {"claimName": "others"}},
    "image": {"name": "image", "image": {"reference": "others"}},
}


UNASKED: list[tuple[Path, dict[str, Any], str]] = [
    ((), MORE, "cluster: {}"),
    (("containers", 0), MORE_OF_A_CONTAINER, "cluster: container's {}"),
    (("containers", 0, "securityContext"), MORE_OF_A_SECURITY_CONTEXT, "cluster: container's securityContext"),
    (("securityContext",), MORE_OF_A_POD_S, "cluster: securityContext"),
]
"""Where a field is added, which fields, and the line that says so."""


@each(("path", "name", "value", "line"), [(path, *row, line) for path, more, line in UNASKED for row in more.items()])
def test_a_field_or_a_right_that_was_not_asked_for_differs(path: Path, name: str, value: Any, line: str) -> None:
    found = different(with_spec(lambda spec: place(spec, path).update({name: value})))
    assert [one.name for one in found] == [line.format(name)]


@each(("name", "volume"), VOLUMES.items())
def test_a_volume_that_was_not_asked_for_differs(name: str, volume: Any) -> None:
    """Whether it is mounted or not: a container that joins later could."""
    found = different(with_spec(lambda spec: spec["volumes"].append(volume)))
    assert [line.name for line in found] == ["cluster: volumes"]


def test_a_token_that_is_mounted_differs() -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["volumes"].append(TOKEN)
        place = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        spec["containers"][0]["volumeMounts"].append(place)

    found = [line.name for line in different(with_spec(change))]
    assert found == ["cluster: volumes", "cluster: container's volumeMounts"]


def test_another_container_beside_it_differs() -> None:
    found = different(with_spec(lambda spec: spec["containers"].append({"name": "sidecar", "image": "other"})))
    assert [line.name for line in found] == ["cluster: containers"]
    found = different(with_spec(lambda spec: spec["containers"].insert(0, {"name": "sidecar", "image": "other"})))
    assert "cluster: containers" in [line.name for line in found]


ODD: dict[str, Any] = {"nothing": None, "a text": "x", "a list": [], "a mapping": {}, "a number": 1}


@each(("name", "value"), ODD.items())
def test_an_answer_of_another_form_differs_and_does_not_fail(name: str, value: Any) -> None:
    assert different({"metadata": {}, "spec": {"containers": value, "volumes": value}, "status": {}})
    assert different({"metadata": {}, "spec": {"containers": [value]}, "status": {"containerStatuses": []}})


@each("name", sorted(DEFAULTS))
def test_a_default_of_the_cluster_is_a_field_that_is_not_asked_for(name: str) -> None:
    assert name not in asked_for()["spec"] or name in {one for (one,) in NOT_COMPARED}


def test_one_that_does_not_run_or_runs_again_or_was_asked_for_otherwise_differs() -> None:
    pod = running(asked_for())
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
    assert [line.name for line in different(pod)] == ["cluster: running"]
    pod = running(asked_for())
    pod["status"]["containerStatuses"][0]["restartCount"] = 1
    assert [line.name for line in different(pod)] == ["cluster: restarts"]
    pod = running(asked_for())
    pod["metadata"]["annotations"]["sandbox-kernel/spec"] = "of another"
    assert [line.name for line in different(pod)] == ["cluster: spec"]


ORDERS = (
    "container.apparmor.security.beta.kubernetes.io/sandbox",
    "seccomp.security.alpha.kubernetes.io/pod",
    "seccomp-profile.kubernetes.cri-o.io/sandbox",
    "io.kubernetes.cri-o.userns-mode",
    "cpu-quota.crio.io",
    "io.katacontainers.config.hypervisor.kernel_params",
    "dev.gvisor.flag.network",
    "devices.nri.io/container.sandbox",
    "cdi.k8s.io/gpu",
)


@each("name", ORDERS)
def test_an_annotation_that_a_runtime_obeys_differs(name: str) -> None:
    pod = running(asked_for())
    pod["metadata"]["annotations"][name] = "unconfined"
    assert [line.name for line in different(pod)] == ["cluster: annotations for a runtime"]


def test_an_annotation_of_a_network_or_an_admission_plugin_does_not_differ() -> None:
    pod = running(asked_for())
    pod["metadata"]["annotations"] |= {"cni.projectcalico.org/podIP": "x", "kubernetes.io/limit-ranger": "x"}
    assert different(pod) == []


@each("name", sorted(asked_for()["metadata"]["labels"]))
def test_a_label_that_is_missing_or_another_one_differs(name: str) -> None:
    """A policy of the network chooses pods by their labels. One more is nothing less: the control."""
    pod = running(asked_for())
    pod["metadata"]["labels"]["more"] = "x"
    assert different(pod) == []
    pod["metadata"]["labels"][name] = "x"
    assert [line.name for line in different(pod)] == ["cluster: labels"]
    del pod["metadata"]["labels"][name]
    assert [line.name for line in different(pod)] == ["cluster: labels"]


@pytest.mark.parametrize(("counted", "ok"), [(None, True), (3, True), (2, True), (1, False), (0, False), ("2", False)])
def test_the_node_s_own_filter_is_wanted_where_filters_are_counted(counted: object, ok: bool) -> None:
    assert filter_line({"seccomp_filters": counted}).ok is ok
