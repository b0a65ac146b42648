"""The chart's server in a cluster: two replicas, and a client in a pod that asks either for the sandboxes of both.

The pods run this checkout with this machine's Python, both mounted from the node, which is this machine.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.plugins.kubernetes.charts import CHART, RELEASE, Installed, helm, manifests, rendered, uninstall
from tests.plugins.kubernetes.checkout_in_pods import PYTHON, mounts, variables, volumes
from tests.plugins.kubernetes.engine import kubectl
from tests.support.authority import Authority
from tests.support.engines import IMAGE
from tests.support.kernels import eventually

NAMESPACE, USERS, RELEASED = "serve-sandboxes", "serve-users", "serve-sandboxes-callers"
NAME, REPLICAS = f"sandbox-serve.{RELEASED}", f"sandbox-serve-replicas.{RELEASED}"
TOKEN = "e2b_" + "0" * 40
VALUES = {
    "namespace": NAMESPACE,
    "quota": {"cpu": "2"},
    "serve": {
        "enabled": True,
        "image": IMAGE,
        "replicas": 0,
        "certificateSecret": "serve",
        "tokensSecret": "tokens",
        "settings": ["--image", IMAGE, "--cpus", "0.3", "--memory", "256M"],
        "from": {"namespaceLabels": {"kubernetes.io/metadata.name": USERS}, "podLabels": {"uses": "the-server"}},
    },
}
ASK = f"""
import http.client, json, ssl, sys
ip, method, path, headers, body = json.loads(sys.argv[1])
context = ssl.create_default_context(cafile="/authority/ca.crt")
class Connection(http.client.HTTPSConnection):
    def connect(self):
        http.client.HTTPConnection.connect(self)
        self.sock = context.wrap_socket(self.sock, server_hostname={NAME!r})
try:
    connection = Connection(ip, timeout=30)
    connection.request(method, path, body and json.dumps(body), {{"Host": {NAME!r}, **headers}})
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode()]))
except OSError as error:
    print(json.dumps([0, repr(error)]))
"""


@pytest.fixture(scope="module")
def ips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Install the chart, and return an address of each replica: a service for each, as the cluster has no names."""
    folder = tmp_path_factory.mktemp("serve")
    authority, found = Authority(folder), Installed(NAMESPACE, RELEASED)
    remove()
    try:
        kubectl("create", "namespace", RELEASED)
        chain = authority.chain(NAME, REPLICAS)
        kubectl(
            *(f"--namespace={RELEASED}", "create", "secret", "generic", "serve"),
            *(f"--from-file={name}={chain}" for name in ("tls.crt", "tls.key")),
            f"--from-file=ca.crt={authority.bundle}",
        )
        kubectl(
            f"--namespace={RELEASED}", "create", "secret", "generic", "tokens", f"--from-literal=tokens=alice {TOKEN}"
        )
        addresses = (service(0), service(1))
        (values := folder / "values.json").write_text(json.dumps(VALUES), encoding="utf-8")
        helm("install", RELEASE, str(CHART), f"--namespace={found.callers}", f"--values={values}")
        kubectl(
            *(f"--namespace={RELEASED}", "patch", "statefulset", "sandbox-serve", "--type=json"),
            f"--patch={json.dumps(patch(addresses))}",
        )
        kubectl(f"--namespace={RELEASED}", "scale", "statefulset", "sandbox-serve", "--replicas=2")
        kubectl("create", "namespace", USERS)
        kubectl(f"--namespace={USERS}", "create", "configmap", "authority", f"--from-file=ca.crt={authority.bundle}")
        for name, labels in (("client", {"uses": "the-server"}), ("stranger", {})):
            kubectl("apply", "-f", "-", given=json.dumps(client_s_pod(name, labels)))
        kubectl(f"--namespace={USERS}", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s")
        kubectl(f"--namespace={RELEASED}", "rollout", "status", "statefulset/sandbox-serve", "--timeout=120s")
        for ip in addresses:
            eventually(lambda ip=ip: asked(ip, "GET", "/healthz")[0] == 200, 60, "the way to a replica")  # type: ignore[misc]
        yield addresses
    finally:
        remove()


def remove() -> None:
    kubectl("delete", "namespace", USERS, "--ignore-not-found", "--timeout=90s")
    uninstall(NAMESPACE)


def service(number: int) -> str:
    """Make a service of one replica, and return its address."""
    spec = {
        "selector": {"statefulset.kubernetes.io/pod-name": f"sandbox-serve-{number}"},
        "ports": [{"name": "clients", "port": 443, "targetPort": 8443}, {"name": "peers", "port": 8443}],
    }
    metadata = {"name": f"only-{number}", "namespace": RELEASED}
    made = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    kubectl("apply", "-f", "-", given=json.dumps(made))
    return kubectl(f"--namespace={RELEASED}", "get", "service", f"only-{number}", "-o=jsonpath={.spec.clusterIP}")


def patch(addresses: tuple[str, str]) -> list[dict[str, Any]]:
    """Return what has the chart's server run this checkout, and find its peers."""
    pod = "/spec/template/spec"
    one = f"{pod}/containers/0"
    names = [{"ip": ip, "hostnames": [REPLICAS]} for ip in addresses]
    return [
        {"op": "replace", "path": f"{one}/args/0", "value": PYTHON[0]},
        {"op": "add", "path": f"{one}/args/1", "value": "-m"},
        {"op": "add", "path": f"{one}/args/2", "value": "sandbox_kernel"},
        *({"op": "add", "path": f"{one}/env/-", "value": value} for value in variables() if value["name"] != "HOME"),
        {"op": "add", "path": f"{pod}/hostAliases", "value": names},
        *({"op": "add", "path": f"{one}/volumeMounts/-", "value": mount} for mount in mounts()),
        *({"op": "add", "path": f"{pod}/volumes/-", "value": volume} for volume in volumes()),
    ]


def client_s_pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "client",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "volumeMounts": [{"name": "authority", "mountPath": "/authority"}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "authority", "configMap": {"name": "authority"}}],
    }
    metadata = {"name": name, "namespace": USERS, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def asked(ip: str, method: str, path: str, body: Any = None, *, pod: str = "client", **headers: str) -> tuple[int, str]:
    """Return status and text of an answer to a pod's request; 0 without one."""
    names = {"X-API-Key": TOKEN, "Content-Type": "application/json"}
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    words = json.dumps([ip, method, path, names, body])
    status, text = json.loads(kubectl("exec", f"--namespace={USERS}", pod, "--", "python3", "-c", ASK, words))
    return status, text


def made(ip: str) -> dict[str, Any]:
    status, text = asked(ip, "POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300})
    assert status == 201, text
    found: dict[str, Any] = json.loads(text)
    return found


def ran(ip: str, sandbox: dict[str, Any], code: str) -> tuple[int, str]:
    names = {"E2b_Sandbox_Id": sandbox["sandboxID"], "E2b_Sandbox_Port": "49999"}
    names |= {"E2B_Traffic_Access_Token": sandbox["trafficAccessToken"], "X_Access_Token": sandbox["envdAccessToken"]}
    return asked(ip, "POST", "/execute", {"code": code}, **names)


def listed(ip: str) -> set[str]:
    status, text = asked(ip, "GET", "/v2/sandboxes")
    assert status == 200, text
    return {row["sandboxID"] for row in json.loads(text)}


def test_either_replica_answers_for_the_sandboxes_of_both_and_one_outlives_the_other(ips: tuple[str, str]) -> None:
    first, second = made(ips[0]), made(ips[1])
    both = {first["sandboxID"], second["sandboxID"]}
    for ip in ips:
        eventually(lambda ip=ip: listed(ip) == both, 30, "the list of both")  # type: ignore[misc]
    for sandbox, ip in ((first, ips[1]), (second, ips[0])):
        status, text = ran(ip, sandbox, "6 * 7")
        assert status == 200, text
        assert "42" in text
    server(0).kill()
    eventually(lambda: listed(ips[1]) == {second["sandboxID"]}, 60, "the list without what went with its replica")
    assert ran(ips[1], first, "1")[0] == 502
    assert ran(ips[1], second, "6 * 7")[0] == 200
    eventually(lambda: asked(ips[0], "GET", "/healthz")[0] == 200, 90, "the replica that has started again")
    assert "42" in ran(ips[0], second, "6 * 7")[1]
    assert asked(ips[0], "DELETE", f"/sandboxes/{second['sandboxID']}")[0] == 204
    words = ("get", "pods", f"--namespace={NAMESPACE}", "--field-selector=status.phase=Running", "-o=name")
    eventually(lambda: not kubectl(*words).strip(), 60, "the end of all sandboxes' pods")


def server(number: int) -> psutil.Process:
    """Return a replica's process, which is one of this machine's."""
    one = {"serve", REPLICAS}
    all_here = (process for process in psutil.process_iter(["cmdline"]) if one <= set(process.info["cmdline"] or ()))
    [found] = [process for process in all_here if process.environ().get("HOSTNAME") == f"sandbox-serve-{number}"]
    return found


def test_a_wrong_token_and_a_pod_without_the_label_get_nothing(ips: tuple[str, str]) -> None:
    assert asked(ips[0], "GET", "/v2/sandboxes", X_API_Key="e2b_" + "1" * 40)[0] == 401
    status, text = asked(ips[0], "GET", "/healthz", pod="stranger")
    assert (status, "rror" in text) == (0, True)
    assert asked(ips[0], "GET", "/healthz")[0] == 200, "the control: the same from a pod with the label"


@pytest.mark.parametrize(
    "missing", ["image", "certificateSecret", "tokensSecret", "from.namespaceLabels.a", "from.podLabels.a"]
)
def test_a_server_that_all_could_use_is_not_rendered(missing: str) -> None:
    given = {"from.namespaceLabels.a": "b", "from.podLabels.a": "b", "certificateSecret": "c", "tokensSecret": "t"}
    words = [f"serve.{name}={value}" for name, value in (given | {"image": "d:1"}).items() if name != missing]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("--set", ",".join(["serve.enabled=true", *words]))
    assert f"serve.{missing.removesuffix('.a')}" in refused.value.stderr


def test_the_server_makes_and_claims_sandboxes_and_has_no_other_role() -> None:
    words = ("image=d:1", "certificateSecret=c", "tokensSecret=t", "from.namespaceLabels.a=b", "from.podLabels.a=b")
    found = manifests(rendered("--set", ",".join(["serve.enabled=true", *(f"serve.{word}" for word in words)])))
    roles = [
        one["roleRef"]["name"]
        for one in found
        if one["kind"].endswith("RoleBinding") and "sandbox-serve" in {each["name"] for each in one["subjects"]}
    ]
    assert sorted(roles) == ["sandbox-caller", "sandbox-claimer"]
