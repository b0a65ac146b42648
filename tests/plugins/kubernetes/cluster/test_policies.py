"""What the cluster of the tests does with network policies: without one, a pod reaches what is attacked with one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.plugins.kubernetes.engine import kubeconfig, kubectl
from tests.support.kernels import eventually

NAMESPACE = "sandbox-kernel-policies"
PORT = 8000
DENY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny", "namespace": NAMESPACE},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}
CONNECT = """
import socket, sys
for given in sys.argv[1:]:
    host, _, port = given.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print(given)
    except OSError:
        pass
"""


def pod(name: str) -> str:
    """Return a pod that listens to all that reaches it."""
    container = {
        "name": "listener",
        "image": "sandbox-kernel:base",
        "imagePullPolicy": "Never",
        "command": ["python3", "-m", "http.server", str(PORT)],
    }
    spec = {"containers": [container], "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": NAMESPACE}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture
def targets() -> Iterator[dict[str, str]]:
    """Start two pods; return what the first may aim at, by what it is."""
    if kubeconfig() is None:
        pytest.skip("there is no cluster: make cluster")
    kubectl("create", "namespace", NAMESPACE)
    try:
        account = f"--namespace={NAMESPACE}", "get", "serviceaccount", "default"
        eventually(lambda: "default" in kubectl(*account, "--ignore-not-found"), 30, "the account of its pods")
        for name in ("one", "two"):
            kubectl("apply", "-f", "-", given=pod(name))
        pods = ("pod/one", "pod/two")
        kubectl("wait", f"--namespace={NAMESPACE}", "--for=condition=Ready", *pods, "--timeout=120s")
        kinds = kubectl("get", "pods", f"--namespace={NAMESPACE}", "-o", "json")
        one, two = (item["status"] for item in json.loads(kinds)["items"])
        service = json.loads(kubectl("get", "service", "kubernetes", "-o", "json"))["spec"]
        yield {
            "API server": f"{service['clusterIP']}:{service['ports'][0]['port']}",
            "kubelet of its node": f"{one['hostIP']}:10250",
            "another pod": f"{two['podIP']}:{PORT}",
        }
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


def reached(targets: dict[str, str]) -> set[str]:
    """Return what the first pod can connect to."""
    command = ("exec", f"--namespace={NAMESPACE}", "-i", "one", "--", "python3", "-", *targets.values())
    found = kubectl(*command, given=CONNECT).split()
    return {name for name, address in targets.items() if address in found}


def test_a_policy_closes_what_a_pod_reaches_without_it(targets: dict[str, str]) -> None:
    """The API server by its service, the pod's own node and other pods are open, and closed by a policy that denies."""
    assert reached(targets) == set(targets)
    kubectl("apply", "-f", "-", given=json.dumps(DENY))
    eventually(lambda: not reached(targets), 30, "the end of the pod's ways")
    kubectl("delete", "networkpolicy", "deny", f"--namespace={NAMESPACE}")
    eventually(lambda: reached(targets) == set(targets), 30, "the ways that were there before")


def test_a_pod_has_no_address_that_policies_do_not_know(targets: dict[str, str]) -> None:
    """A link gives itself addresses of IPv6, and rules about a pod's own address do not hold for them."""
    assert targets
    found = kubectl("exec", f"--namespace={NAMESPACE}", "one", "--", "cat", "/proc/net/if_inet6")
    assert {line.split()[-1] for line in found.splitlines()} <= {"lo"}
