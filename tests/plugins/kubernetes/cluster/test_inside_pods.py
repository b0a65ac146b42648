"""What a cell of a pod may go for that is Kubernetes' own; each works in a pod that lacks the protection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.plugins.kubernetes.settings import NAMESPACE
from tests.plugins.kubernetes.cluster.weaker_pods import Change, an_open_namespace, started
from tests.plugins.kubernetes.engine import UNDER_TEST, kubectl
from tests.support.engines import receive_line

GOES = """
import errno, json, os, socket, sys, time
def reach(address, seconds=1):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=seconds).close()
    except OSError:
        return ""  # or a refusal, which is what a policy may send
    return "answers"
def write(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "written"
aims, closes = json.loads(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while any(map(reach, aims.values())) and time.monotonic() < closes:
    time.sleep(0.1)  # a policy holds a moment after the start, as the agent knows
tokens = "/var/run/secrets/kubernetes.io/serviceaccount/token"
with open("/proc/self/environ") as file:
    variables = sorted(line.partition("=")[0] for line in file.read().split(chr(0)) if line)
print(json.dumps({
    "reached": {name: reach(address) for name, address in aims.items()},
    "written": {path: write(path) for path in ("/root/end", "/etc/hosts", "/dev/mqueue/x", "/etc/resolv.conf")},
    "token": os.path.exists(tokens),
    "services": [name for name in variables if "_PORT" in name],
    "node's paths": [path for path in ("/var/lib/kubelet", "/run/containerd", "/var/log/pods") if os.path.exists(path)],
}), flush=True)
sys.stdin.read()
"""
CLOSES = "20"
"""Seconds that a policy may take to hold for a new pod."""
LISTENS = """
import socket, sys
with socket.create_server(("0.0.0.0", 8000)) as server:
    print(socket.gethostbyname(socket.gethostname()), flush=True)
    sys.stdin.read()
"""


SILENT = {"nobody", "kubelet's port for readers"}
"""What does not listen here, whoever asks."""


def targets(neighbour: str, namespace: str = NAMESPACE) -> dict[str, str]:
    """Return what a pod may aim at, by what it is."""
    service = json.loads(kubectl("get", "service", "kubernetes", "--output=json"))["spec"]
    slices = json.loads(kubectl("get", "endpointslices", "--selector=kubernetes.io/service-name=kubernetes", "-o=json"))
    real = slices["items"][0]
    pod = json.loads(kubectl("get", "pod", f"--namespace={namespace}", neighbour, "--output=json"))["status"]
    return {
        "API server's service": f"{service['clusterIP']}:{service['ports'][0]['port']}",
        "API server itself": f"{real['endpoints'][0]['addresses'][0]}:{real['ports'][0]['port']}",
        "kubelet": f"{pod['hostIP']}:10250",
        "kubelet's port for readers": f"{pod['hostIP']}:10255",
        "another sandbox": f"{pod['podIP']}:8000",
        "nobody": "192.0.2.1:80",
    }


async def found_by(spec: SandboxSpec, change: Change = lambda spec: None, namespace: str = NAMESPACE) -> dict[str, Any]:
    async with started(spec, change, namespace) as container:
        found: dict[str, Any] = json.loads(await receive_line(container))
    return found


async def test_a_cell_reaches_nothing_of_the_cluster_s_and_writes_nothing_of_its_node_s() -> None:
    async with started(UNDER_TEST.spec(LISTENS)) as neighbour:
        await receive_line(neighbour)
        aims = targets(neighbour.id)
        found = await found_by(UNDER_TEST.spec(GOES, json.dumps(aims), CLOSES))
        assert found == {
            "reached": dict.fromkeys(aims, ""),
            "written": {
                "/root/end": "EACCES",
                "/etc/hosts": "EACCES",
                "/dev/mqueue/x": "EROFS",
                "/etc/resolv.conf": "EACCES",
            },
            "token": False,
            "services": [],
            "node's paths": [],
        }


async def test_control_without_a_policy_all_of_them_answer() -> None:
    with an_open_namespace() as namespace:
        async with started(UNDER_TEST.spec(LISTENS), namespace=namespace) as neighbour:
            await receive_line(neighbour)
            aims = targets(neighbour.id, namespace)
            found = await found_by(UNDER_TEST.spec(GOES, json.dumps(aims), "0"), namespace=namespace)
    assert found["reached"] == {name: "" if name in SILENT else "answers" for name in aims}


def root(spec: dict[str, Any]) -> None:
    spec["securityContext"] |= {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    container = spec["containers"][0]
    container["securityContext"]["readOnlyRootFilesystem"] = False
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["mountPath"] != "/dev/mqueue"]


async def test_control_root_without_what_covers_them_writes_them() -> None:
    found = await found_by(UNDER_TEST.spec(GOES, "{}", "0"), root)
    limited = {"/dev/mqueue/x": "EMFILE"}  # the gate's limit is a second protection
    assert found["written"] == {**dict.fromkeys(found["written"], "written"), **limited}


async def test_control_a_token_is_seen_where_a_pod_has_one() -> None:
    found = await found_by(
        UNDER_TEST.spec(GOES, "{}", "0"), lambda spec: spec.update(automountServiceAccountToken=True)
    )
    assert found["token"] is True


async def test_no_variable_of_the_cluster_s_is_among_a_program_s_but_two_addresses() -> None:
    """Those are for the agent, which looks whether they answer; the gate passes no others on."""
    shows = "import json, os; print(json.dumps(sorted(os.environ)), flush=True); input()"
    spec = UNDER_TEST.spec(shows, environment={"TZ": "UTC"})
    async with started(spec, lambda spec: spec.update(enableServiceLinks=True)) as container:
        found = set(json.loads(await receive_line(container)))
    assert {name for name in found if "KUBERNETES" in name or "SANDBOX_KERNEL" in name} <= {
        "KUBERNETES_SERVICE_HOST",
        "SANDBOX_KERNEL_NODE",
    }
    assert "TZ" in found


async def test_a_program_that_is_not_there_ends_its_pod_with_127_and_a_line() -> None:
    async with started(UNDER_TEST.spec(command=("/no/such/program",))) as container:
        assert await container.receive() == b""
        reason = await container.wait()
        assert (reason.kind, reason.exit_code) == ("exited", 127)
        assert reason.detail == "/no/such/program: No such file or directory"


async def test_a_pod_is_given_to_no_other_process_and_is_as_it_was() -> None:
    async with started(UNDER_TEST.spec()) as container:
        with pytest.raises(EngineError) as refused:
            container.detach()
        assert refused.value.code is EndCode.CONTAINER_NOT_ADOPTED
        await container.send(b"still there\n")
        assert await receive_line(container) == b"still there\n"
