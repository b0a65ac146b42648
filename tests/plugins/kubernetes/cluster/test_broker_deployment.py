"""The chart's broker in a cluster: pods of other accounts, without a right to make pods, ask it with projected tokens.

The pods run this checkout with this machine's Python, both mounted from the node, which is this machine.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.cluster.__main__ import Cluster
from tests.plugins.broker.network import Authority
from tests.plugins.kubernetes.charts import CHART, RELEASE, Installed, helm, manifests, rendered, uninstall
from tests.plugins.kubernetes.checkout_in_pods import PYTHON, mounts, variables, volumes
from tests.plugins.kubernetes.engine import kubeconfig, kubectl
from tests.support.engines import IMAGE
from tests.support.kernels import eventually

NAMESPACE, HUB = "broker-sandboxes", "broker-hub"
NAME = f"sandbox-broker.{NAMESPACE}-callers"
ADDRESS = f"broker://{NAME}:7443"
VALUES = {
    "namespace": NAMESPACE,
    "quota": {"cpu": "2"},
    "broker": {
        "enabled": True,
        "image": IMAGE,
        "certificateSecret": "broker",
        "pool": 1,
        "from": {"namespaceLabels": {"kubernetes.io/metadata.name": HUB}, "podLabels": {"asks": "the-broker"}},
        "ceilings": "\n".join((
            "[all]",
            "denied = true",
            f'[caller_group."system:serviceaccounts:{HUB}"]',
            "denied = false",
            f'[caller."system:serviceaccount:{HUB}:bob"]',
            "sessions = 1",
            f'[caller."system:serviceaccount:{HUB}:mallory"]',
            "denied = true",
            "",
        )),
    },
}  # fmt: skip
USE = f"""
import json, sys, time
from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
from pathlib import Path
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from sandbox_kernel.plugins.broker.settings import BrokerSettings
def run(code, told=False):
    begin = time.monotonic()
    with Sandbox(engine={ADDRESS!r}, image={IMAGE!r}, cpus=0.4, memory="256M") as one:
        said = (lambda output: print("running", flush=True)) if told else None
        found = one.run_code(code, on_stdout=said)
        text, seconds = found.text, time.monotonic() - begin
        return {{"text": text, "seconds": seconds, "error": found.error and found.error.code}}
def status(token=None):
    import asyncio
    settings = BrokerSettings()
    if token is not None:
        Path("/tmp/token").write_text(token)
        settings = BrokerSettings(broker_token="/tmp/token")
    return asyncio.run(BrokerEngine({ADDRESS!r}, settings=settings).status())
try:
    said = SAID
except SandboxError as error:
    said = {{"refused": error.code.code, "message": error.message}}
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("broker")
    authority = Authority(folder)
    found = Installed(NAMESPACE, f"{NAMESPACE}-callers")
    remove()
    try:
        kubectl("create", "namespace", found.callers)
        files = authority.server(NAME)
        kubectl(
            *(f"--namespace={found.callers}", "create", "secret", "tls", "broker"),
            *(f"--cert={files.certificate}", f"--key={files.private_key}"),
        )
        (values := folder / "values.json").write_text(json.dumps(VALUES), encoding="utf-8")
        helm("install", RELEASE, str(CHART), f"--namespace={found.callers}", f"--values={values}")
        kubectl(
            *(f"--namespace={found.callers}", "patch", "deployment", "sandbox-broker", "--type=json"),
            f"--patch={json.dumps(patch())}",
        )
        kubectl("create", "namespace", HUB)
        kubectl(f"--namespace={HUB}", "create", "configmap", "broker", f"--from-file=ca.crt={authority.file}")
        ip = kubectl(
            f"--namespace={found.callers}", "get", "service", "sandbox-broker", "-o=jsonpath={.spec.clusterIP}"
        )
        for name in ("alice", "bob", "mallory"):
            kubectl(f"--namespace={HUB}", "create", "serviceaccount", name)
            kubectl("apply", "-f", "-", given=json.dumps(user_s_pod(name, ip)))
        kubectl("apply", "-f", "-", given=json.dumps(user_s_pod("stranger", ip, account="alice", labels={})))
        kubectl(f"--namespace={HUB}", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s")
        kubectl(f"--namespace={found.callers}", "rollout", "status", "deployment/sandbox-broker", "--timeout=120s")
        yield found
    finally:
        remove()


def remove() -> None:
    kubectl("delete", "namespace", HUB, "--ignore-not-found", "--timeout=90s")
    uninstall(NAMESPACE)


def patch() -> list[dict[str, Any]]:
    """Return what has the chart's broker run this checkout: its image has no package of ours."""
    pod = "/spec/template/spec"
    one = f"{pod}/containers/0"
    return [
        {"op": "replace", "path": f"{one}/command/0", "value": PYTHON[0]},
        {"op": "add", "path": f"{one}/command/1", "value": "-m"},
        {"op": "add", "path": f"{one}/command/2", "value": "sandbox_kernel"},
        {"op": "replace", "path": f"{one}/env", "value": variables()},
        *({"op": "add", "path": f"{one}/volumeMounts/-", "value": mount} for mount in mounts()),
        *({"op": "add", "path": f"{pod}/volumes/-", "value": volume} for volume in volumes()),
    ]


def user_s_pod(name: str, ip: str, account: str | None = None, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a user's pod, as docs/kubernetes.md has it; the cluster of the tests has no names, so it brings one."""
    sources = [
        {"serviceAccountToken": {"audience": "sandbox-kernel", "expirationSeconds": 600, "path": "token"}},
        {"configMap": {"name": "broker"}},
    ]
    container = {
        "name": "user",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
        "env": variables(),
        "volumeMounts": [*mounts(), {"name": "broker", "mountPath": "/var/run/secrets/sandbox-kernel"}],
    }
    spec = {
        "serviceAccountName": account or name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "hostAliases": [{"ip": ip, "hostnames": [NAME]}],
        "containers": [container],
        "volumes": [*volumes(), {"name": "broker", "projected": {"sources": sources}}],
    }
    metadata = {"name": name, "namespace": HUB, "labels": {"asks": "the-broker"} if labels is None else labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def asked(pod: str, said: str) -> dict[str, Any]:
    """Return what a program in a user's pod says."""
    found = kubectl(*("exec", f"--namespace={HUB}", "-i", pod, "--", *PYTHON, "-"), given=USE.replace("SAID", said))
    answer: dict[str, Any] = json.loads(found.splitlines()[-1])
    return answer


@contextlib.contextmanager
def kubectl_process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(Cluster().binaries / "kubectl"), f"--kubeconfig={kubeconfig()}", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def pods() -> list[str]:
    """Return the sandboxes that run."""
    words = ("get", "pods", "--field-selector=status.phase=Running", "-o=jsonpath={.items[*].metadata.name}")
    return kubectl(f"--namespace={NAMESPACE}", *words).split()


def broker() -> psutil.Process:
    """Return the broker's process, which is one of this machine's."""
    words = {"broker", NAMESPACE, "--token-review"}
    running = psutil.process_iter(["name", "cmdline"])  # one that ends meanwhile has neither
    [found] = [
        one
        for one in running
        if (one.info["name"] or "").startswith("python") and words <= set(one.info["cmdline"] or ())
    ]
    return found


STATUS = "status()"


def told(said: str, name: str) -> Any:
    """Return one thing that alice's pod is told."""
    return asked("alice", said)[name]


def test_a_pod_without_a_right_has_a_sandbox_and_then_one_that_waited(deployed: Installed) -> None:
    words = ("auth", "can-i", "create", "pods", f"--namespace={NAMESPACE}", f"--as=system:serviceaccount:{HUB}:alice")
    with pytest.raises(subprocess.CalledProcessError):  # it says no
        kubectl(*words)
    first = asked("alice", 'run("6 * 7")')
    assert first["text"] == "42", first
    eventually(lambda: len(pods()) == 1 and told(STATUS, "ready") == 1, 90, "the sandbox that waits")
    [waiting] = pods()
    again = asked("alice", 'run("6 * 7")')
    assert again["text"] == "42", again
    assert again["seconds"] < first["seconds"], (first, again)
    print(
        f"from the request to the first result: {first['seconds']:.2f} s, and {again['seconds']:.2f} s where one waits"
    )
    eventually(lambda: waiting not in pods(), 30, "the end of the one that waited, with its caller's")


def test_a_caller_has_what_the_ceilings_say(deployed: Installed) -> None:
    assert told(STATUS, "sessions") == 64
    assert asked("bob", STATUS)["sessions"] == 1
    refused = asked("mallory", STATUS)
    assert refused["refused"] == "broker-denied", refused


@pytest.mark.parametrize("audience", ["other", "https://kubernetes.default.svc"])
def test_a_token_for_another_audience_is_refused(deployed: Installed, audience: str) -> None:
    words = ("create", "token", "alice", f"--namespace={HUB}", "--duration=10m")
    tokens = {one: kubectl(*words, f"--audience={one}").strip() for one in (audience, "sandbox-kernel")}
    for one, token in tokens.items():
        found = asked("alice", f"status(token={token!r})")
        assert found.get("refused") == ("broker-unknown-caller" if one == audience else None), found


def test_a_pod_without_the_label_does_not_reach_the_broker(deployed: Installed) -> None:
    """With the same account and token; the label is all that it lacks."""
    assert asked("stranger", STATUS)["refused"] == "broker-unavailable"
    kubectl(f"--namespace={HUB}", "label", "pod", "stranger", "asks=the-broker")
    eventually(lambda: "sessions" in asked("stranger", STATUS), 30, "the way to the broker")


def test_a_broker_that_is_killed_ends_its_callers_sandboxes_with_a_reason(deployed: Installed) -> None:
    command = ("exec", f"--namespace={HUB}", "-i", "alice", "--", *PYTHON, "-u", "-")
    source = USE.replace("SAID", 'run("import time; print(1, flush=True); time.sleep(100)", told=True)')
    with kubectl_process(*command) as caller:
        assert caller.stdin is not None
        assert caller.stdout is not None
        caller.stdin.write(source)
        caller.stdin.close()
        assert caller.stdout.readline() == "running\n"
        before = set(pods())
        assert before
        begin = time.monotonic()
        broker().kill()
        said = json.loads(caller.stdout.readline())
        seconds = time.monotonic() - begin
    assert said["error"] == "broker-connection-lost", said
    assert seconds < 10
    eventually(lambda: not before & set(pods()), 30, "the end of its pods")
    eventually(lambda: asked("alice", STATUS).get("sessions") == 64, 60, "the next broker")


def test_the_broker_may_ask_whose_a_token_is_and_what_a_caller_may() -> None:
    named = ("broker.from.namespaceLabels.a=b", "broker.from.podLabels.a=b", "broker.certificateSecret=c")
    words = ("broker.enabled=true", "broker.image=registry.example/broker:1", *named)
    found = manifests(rendered("--set", ",".join(words)))
    [role] = [one for one in found if one["kind"] == "ClusterRole"]
    assert role["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    [ceilings] = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    assert ceilings == {"broker.toml": "[all]\ndenied = true\n"}


@pytest.mark.parametrize("missing", ["image", "certificateSecret", "from.namespaceLabels.a", "from.podLabels.a"])
def test_a_broker_that_all_could_ask_is_not_rendered(missing: str) -> None:
    given = {"from.namespaceLabels.a": "b", "from.podLabels.a": "b", "certificateSecret": "c", "image": "d:1"}
    words = [f"broker.{name}={value}" for name, value in given.items() if name != missing]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("--set", ",".join(["broker.enabled=true", *words]))
    assert f"broker.{missing.removesuffix('.a')} name" in refused.value.stderr or missing == "image"
