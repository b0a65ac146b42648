"""What enters the namespace of the sandboxes: each rule of the policy, by a pod that breaks this rule alone."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel.plugins.kubernetes.cluster_api import ClusterApi, ClusterRefused
from sandbox_kernel.plugins.kubernetes.pod import Pod, document
from tests.plugins.kubernetes.charts import manifests, rendered, tried
from tests.plugins.kubernetes.engine import UNDER_TEST, kubectl
from tests.support.patience import within

POLICED, FREE = "policy-alone", "policy-none"
"""Two namespaces without any other piece of the chart; the first has the policies."""
READY_SECONDS = 30
MARK = {"app.kubernetes.io/name": "sandbox-kernel", "sandbox-kernel/host": "here", "sandbox-kernel/owner": "1-2"}
Change = Callable[[dict[str, Any]], None]


def honest() -> dict[str, Any]:
    return copy.deepcopy(document(UNDER_TEST.spec(), Pod("honest", POLICED, 3600, MARK)))


def put(path: str, value: object) -> Change:
    """Return a change that sets a value; None removes it."""
    *parents, last = path.split("/")

    def change(pod: dict[str, Any]) -> None:
        found: Any = pod
        for name in parents:
            found = found[int(name) if isinstance(found, list) else name]
        if isinstance(found, list):
            found.append(value)
        elif value is None:
            del found[last]
        else:
            found[last] = value

    return change


def label(name: str, value: str | None) -> Change:
    def change(pod: dict[str, Any]) -> None:
        pod["metadata"]["labels"].pop(name)
        if value is not None:
            pod["metadata"]["labels"][name] = value

    return change


ONE = "spec/containers/0"
OTHER = {"name": "other", "image": "sandbox-kernel:base"}
ROOM = {"cpu": "100m", "memory": "64Mi"}
COUNT, WHOSE, WHERE = "one container", "whose it is", "no node of its choice"
ACCOUNT, VARIABLES, VOLUMES = "no token of a service account", "no variables", "no volumes but memory"
USER, PRIVILEGES, CHANGES = "not root", "no privileges", "changes nothing of its pod's"
RESOURCES, LIFETIME, ONCE = "requests are its limits", "lives for", "runs once"
NODE, BESIDE, IMAGE, RUNTIME = "nothing of its node's", "beside the first", "image begins with", "runtime class"

RULES: dict[str, tuple[Change, str]] = {
    "a second container": (put("spec/containers/-", OTHER), COUNT),
    "an init container": (put("spec/initContainers", [OTHER]), COUNT),
    "a container of another name": (put(f"{ONE}/name", "other"), COUNT),
    "no label of ours": (label("app.kubernetes.io/name", "another"), WHOSE),
    "no label of its host": (label("sandbox-kernel/host", None), WHOSE),
    "no label of its owner": (label("sandbox-kernel/owner", None), WHOSE),
    "a finalizer": (put("metadata/finalizers", ["example.com/never"]), WHERE),
    "a node of its choice": (put("spec/nodeName", "node1"), WHERE),
    "a gate of the scheduler": (put("spec/schedulingGates", [{"name": "example.com/never"}]), WHERE),
    "a priority of the system": (put("spec/priorityClassName", "system-cluster-critical"), WHERE),
    "a token": (put("spec/automountServiceAccountToken", True), ACCOUNT),
    "a token unless the account says no": (put("spec/automountServiceAccountToken", None), ACCOUNT),
    "links to services": (put("spec/enableServiceLinks", True), ACCOUNT),
    "a variable": (put(f"{ONE}/env/-", {"name": "SECRET", "value": "s"}), VARIABLES),
    "another field as the variable": (
        put(f"{ONE}/env/0/valueFrom", {"fieldRef": {"fieldPath": "metadata.name"}}),
        VARIABLES,
    ),
    "variables of a secret": (put(f"{ONE}/envFrom", [{"secretRef": {"name": "one"}}]), VARIABLES),
    "a folder of the node": (put("spec/volumes/-", {"name": "node", "hostPath": {"path": "/"}}), VOLUMES),
    "a secret": (put("spec/volumes/-", {"name": "secret", "secret": {"secretName": "one"}}), VOLUMES),
    "a projected token": (
        put(
            "spec/volumes/-",
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ),
        VOLUMES,
    ),
    "a claim": (put("spec/volumes/-", {"name": "data", "persistentVolumeClaim": {"claimName": "one"}}), VOLUMES),
    "the node's disk": (put("spec/volumes/-", {"name": "disk", "emptyDir": {"sizeLimit": "1Gi"}}), VOLUMES),
    "memory without a size": (put("spec/volumes/-", {"name": "memory", "emptyDir": {"medium": "Memory"}}), VOLUMES),
    "root, maybe": (put("spec/securityContext/runAsNonRoot", False), USER),
    "the image's user": (put("spec/securityContext/runAsUser", None), USER),
    "the image's group": (put("spec/securityContext/runAsGroup", None), USER),
    "another group": (put("spec/securityContext/supplementalGroups", [4]), USER),
    "another group of files": (put("spec/securityContext/fsGroup", 4), USER),
    "no filter": (put("spec/securityContext/seccompProfile", {"type": "Unconfined"}), USER),
    "no filter named": (put("spec/securityContext/seccompProfile", None), USER),
    "a switch of the kernel": (
        put("spec/securityContext/sysctls", [{"name": "kernel.shm_rmid_forced", "value": "0"}]),
        USER,
    ),
    "all privileges": (
        put(f"{ONE}/securityContext", {"privileged": True}),
        PRIVILEGES,
    ),
    "setuid programs": (put(f"{ONE}/securityContext/allowPrivilegeEscalation", True), PRIVILEGES),
    "a root to write to": (put(f"{ONE}/securityContext/readOnlyRootFilesystem", False), PRIVILEGES),
    "a capability": (
        put(f"{ONE}/securityContext/capabilities", {"drop": ["ALL"], "add": ["NET_ADMIN"]}),
        PRIVILEGES,
    ),
    "the usual capabilities": (put(f"{ONE}/securityContext/capabilities", None), PRIVILEGES),
    "a user of the container's": (put(f"{ONE}/securityContext/runAsUser", 4000), CHANGES),
    "a filter of the container's": (
        put(f"{ONE}/securityContext/seccompProfile", {"type": "Unconfined"}),
        CHANGES,
    ),
    "more limits than requests": (
        put(f"{ONE}/resources", {"requests": ROOM, "limits": {**ROOM, "cpu": "1"}}),
        RESOURCES,
    ),
    "no limit of memory": (put(f"{ONE}/resources", {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}), RESOURCES),
    "no limits": (put(f"{ONE}/resources", {}), RESOURCES),
    "a device": (
        put(
            f"{ONE}/resources",
            {"requests": {**ROOM, "example.com/gpu": "1"}, "limits": {**ROOM, "example.com/gpu": "1"}},
        ),
        RESOURCES,
    ),
    "no end": (put("spec/activeDeadlineSeconds", None), LIFETIME),
    "a late end": (put("spec/activeDeadlineSeconds", 86401), LIFETIME),
    "another start": (put("spec/restartPolicy", "OnFailure"), ONCE),
    "a slow end": (put("spec/terminationGracePeriodSeconds", 600), ONCE),
    "no pipe": (put(f"{ONE}/stdin", False), ONCE),
    "a pipe that is opened again": (put(f"{ONE}/stdinOnce", False), ONCE),
    "the node's network": (put("spec/hostNetwork", True), NODE),
    "the node's processes": (put("spec/hostPID", True), NODE),
    "the node's shared memory": (put("spec/hostIPC", True), NODE),
    "shared processes": (put("spec/shareProcessNamespace", True), NODE),
    "a port": (put(f"{ONE}/ports", [{"containerPort": 80}]), NODE),
    "the cluster's names": (put("spec/dnsPolicy", "ClusterFirst"), NODE),
    "names": (put("spec/hostAliases", [{"ip": "192.0.2.1", "hostnames": ["example.com"]}]), NODE),
    "a hook": (put(f"{ONE}/lifecycle", {"postStart": {"exec": {"command": ["id"]}}}), BESIDE),
    "a probe": (put(f"{ONE}/livenessProbe", {"exec": {"command": ["id"]}}), BESIDE),
    "another image": (put(f"{ONE}/image", "example.com/sandbox-kernel:base"), IMAGE),
    "an image whose name begins so": (put(f"{ONE}/image", "sandbox-kernel-evil:base"), IMAGE),
    "a runtime class that is not listed": (put("spec/runtimeClassName", "policy-runtime"), RUNTIME),
}


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> Iterator[None]:
    policies = rendered("--set", f"namespace={POLICED}", "--show-only=templates/admission.yaml")
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "policy-runtime"},
        "handler": "runc",
    }
    text = f"{policies}\n---\n{json.dumps(runtime)}"
    for name in (POLICED, FREE):
        text += f"\n---\n{json.dumps({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}})}"
    kubectl("apply", "--filename=-", given=text)
    yield
    kubectl("delete", "--filename=-", "--timeout=60s", given=text)


@pytest.fixture
async def api() -> AsyncIterator[ClusterApi]:
    api = await ClusterApi.connect(None)
    try:
        yield api
    finally:
        await api.close()


async def _policed(api: ClusterApi) -> None:
    """Wait until the policy is in force, and the namespace has its account."""
    broken = honest()
    broken["spec"]["restartPolicy"] = "OnFailure"
    async with within(READY_SECONDS):
        while True:
            try:
                await tried(api, broken, POLICED)
            except ClusterRefused as error:
                if ONCE in str(error):
                    return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", RULES)
async def test_a_pod_that_breaks_a_rule_is_refused_with_its_reason(api: ClusterApi, name: str):
    await _policed(api)
    change, reason = RULES[name]
    pod = honest()
    change(pod)
    with pytest.raises(ClusterRefused) as refused:
        await tried(api, pod, POLICED)
    assert reason in str(refused.value)
    assert refused.value.code.name == "CLUSTER_REFUSES"
    await tried(api, pod, FREE)  # control: nothing but the policy refuses it


async def test_an_honest_pod_enters(api: ClusterApi):
    await _policed(api)
    await tried(api, honest(), POLICED)


def test_every_rule_of_the_policy_is_broken_by_one_of_these():
    found = manifests(rendered("--show-only=templates/admission.yaml"))
    rules = [
        rule["message"]
        for one in found
        if one["kind"] == "ValidatingAdmissionPolicy"
        for rule in one["spec"]["validations"]
    ]
    tested = {reason for _, reason in RULES.values()}
    untested = [one for one in rules if not any(reason in one for reason in tested)]
    assert untested == ["a sandbox is attached to; nobody starts a program in it or connects to its ports"]
