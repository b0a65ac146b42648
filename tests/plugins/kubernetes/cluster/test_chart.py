"""The chart in a real cluster: what is applied is what it renders, and what a caller's token can do and cannot."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.attested_start import attestations
from sandbox_kernel.plugins.kubernetes.cluster_api import ClusterApi, ClusterRefused
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.pod import Pod, document
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.charts import MANIFESTS, Installed, account_s_file, install, rendered, tried, uninstall
from tests.plugins.kubernetes.engine import CPUS, UNDER_TEST, kubectl
from tests.support.engines import IMAGE
from tests.support.patience import within

NAMESPACE = "chart-sandboxes"
ANSWER_SECONDS = 30
SETTINGS = Settings(image=IMAGE, limits=replace(Settings().limits, cpus=CPUS))


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    yield install(NAMESPACE)
    uninstall(NAMESPACE)


@pytest.fixture
def caller(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sign in with the token of the chart's service account, and with nothing else."""
    path = account_s_file(tmp_path, installed.callers, "sandbox-caller")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def engine() -> KubernetesEngine:
    return KubernetesEngine(KubernetesSettings(kubernetes_namespace=NAMESPACE))


def test_the_manifests_are_what_the_chart_renders():
    assert MANIFESTS.read_text(encoding="utf-8") == rendered()


def test_a_reaper_is_rendered_for_an_image():
    text = rendered("--set", "reaper.image=sandbox-kernel:base")
    assert "kind: Deployment" in text
    assert "kind: Deployment" not in rendered()


def test_claims_have_a_quota_where_the_operator_says_so():
    words = "count/sandboxclaims.extensions.agents.x-k8s.io"
    assert f'{words}: "7"' in rendered("--set", "quota.claims=7")
    assert words not in rendered()


def test_a_prefix_that_other_names_have_as_well_is_refused():
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("--set", "images={registry.example/sandbox-kernel}")
    assert "end it with" in refused.value.stderr
    assert "registry.example/sandbox-kernel:" in rendered("--set", "images={registry.example/sandbox-kernel:}")


async def test_the_engine_works_with_the_caller_s_token_alone(caller: Path):
    container = await engine().start(UNDER_TEST.spec())
    try:
        async with within(ANSWER_SECONDS):
            await container.send(b"hello\n")
            assert await container.receive() == b"hello\n"
        assert [one.container for one in await engine().list()] == [container.id]
    finally:
        await container.kill()
    assert await engine().list() == ()


async def test_a_sandbox_of_the_caller_s_is_attested(caller: Path):
    lines, _other = await attestations(SETTINGS, engine())
    assert [line.sentence for line in lines if not line.ok] == []
    assert "cluster: running" in {line.name for line in lines}


CLAIMER_S = {
    *(f"{verb} sandboxclaims.extensions.agents.x-k8s.io" for verb in ("create", "list", "watch", "delete")),
    *(f"{verb} pods" for verb in ("get", "list", "watch")),
    *(f"{verb} pods/attach" for verb in ("create", "get")),
}
CALLER_S = {*CLAIMER_S, "create pods", "delete pods"}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
THINGS = (
    *("pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "pods/log", "pods/ephemeralcontainers"),
    *("pods/status", "pods/binding", "pods/eviction", "pods/resize"),
    *("secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "services", "events"),
    *("nodes", "nodes/proxy", "namespaces", "persistentvolumeclaims", "persistentvolumes"),
    *("deployments.apps", "jobs.batch", "networkpolicies.networking.k8s.io", "roles.rbac.authorization.k8s.io"),
    *("rolebindings.rbac.authorization.k8s.io", "runtimeclasses.node.k8s.io", "resourcequotas", "limitranges"),
    *("validatingadmissionpolicies.admissionregistration.k8s.io", "sandboxes.agents.x-k8s.io"),
    *(f"{one}.extensions.agents.x-k8s.io" for one in ("sandboxclaims", "sandboxtemplates", "sandboxwarmpools")),
)


async def _allowed(api: ClusterApi, namespace: str) -> set[str]:
    """Ask the API server, as the caller itself, about each verb of each thing."""
    found = set()
    for thing in THINGS:
        name, _, group = thing.partition(".")
        resource, _, part = name.partition("/")
        for verb in VERBS:
            asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": part}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            }
            said = await api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
            if said["status"]["allowed"]:
                found.add(f"{verb} {thing}")
    return found


@pytest.mark.parametrize(("account", "rights"), [("sandbox-caller", CALLER_S), ("sandbox-claimer", CLAIMER_S)])
async def test_an_account_s_token_can_do_nothing_else(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: str, rights: set[str]
):
    monkeypatch.setenv("KUBECONFIG", str(account_s_file(tmp_path, installed.callers, account)))
    api = await ClusterApi.connect(None)
    try:
        assert await _allowed(api, NAMESPACE) == rights
        for elsewhere in ("default", installed.callers):
            assert await _allowed(api, elsewhere) == set()
    finally:
        await api.close()


@pytest.mark.parametrize(
    "words",
    [
        ("get", "secrets", f"--namespace={NAMESPACE}"),
        ("get", "pods", "--all-namespaces"),
        ("get", "pods", "--namespace=kube-system"),
        ("get", "nodes"),
        ("create", "token", "sandbox-caller", f"--namespace={NAMESPACE}-callers"),
    ],
    ids=lambda words: " ".join(words[:2]) + words[-1][-11:],
)
def test_what_the_caller_may_not_is_refused(caller: Path, words: tuple[str, ...]):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        kubectl(*words)
    assert "forbidden" in refused.value.stderr.lower()


async def test_nobody_starts_a_program_in_a_sandbox(installed: Installed):
    """As the cluster's operator, whom no role holds back; in a namespace without the policy the same is done."""
    container = await engine().start(UNDER_TEST.spec())
    try:
        for words in (
            ("exec", container.id, "--", "id"),
            ("debug", container.id, f"--image={IMAGE}", "--profile=restricted", "--", "id"),
        ):
            with pytest.raises(subprocess.CalledProcessError) as refused:
                kubectl(f"--namespace={NAMESPACE}", *words)
            assert "denied request: a sandbox" in refused.value.stderr
    finally:
        await container.kill()


async def test_control_a_program_is_started_without_the_policy():
    free = KubernetesEngine(KubernetesSettings(kubernetes_namespace="sandboxes"))
    container = await free.start(UNDER_TEST.spec())
    try:
        assert "uid=" in kubectl("--namespace=sandboxes", "exec", container.id, "--", "id")
    finally:
        await container.kill()


async def test_what_is_too_much_is_refused_by_the_quota_and_the_bound_of_one(installed: Installed):
    api = await ClusterApi.connect(None)
    labels = {"sandbox-kernel/host": "here", "sandbox-kernel/owner": "1-2"}
    try:
        for cpus, code in ((4, "CLUSTER_QUOTA_REACHED"), (9, "CLUSTER_REFUSES")):
            spec = UNDER_TEST.spec()
            large = replace(spec, limits=replace(spec.limits, cpus=cpus))
            with pytest.raises(ClusterRefused) as refused:
                await tried(api, document(large, Pod("large", NAMESPACE, 3600, labels)), NAMESPACE)
            assert refused.value.code.name == code
    finally:
        await api.close()


def test_pods_of_others_are_refused_by_pod_security_as_well(installed: Installed):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": NAMESPACE},
        "spec": {
            "containers": [{"name": "one", "image": IMAGE, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
        },
    }
    with pytest.raises(subprocess.CalledProcessError) as refused:
        kubectl("create", "--filename=-", given=json.dumps(pod))
    assert 'violates PodSecurity "restricted:latest"' in refused.value.stderr


async def test_the_doctor_finds_every_piece_with_the_caller_s_rights(caller: Path):
    found = await engine().conditions()
    assert [one for one in found if not one.met] == []
    assert [one.name for one in found] == ["api server", "rights", "pod security", "admission policy", "network policy"]
    assert (await engine().info()).version.startswith("v1.")  # which needs no right to read runtime classes


async def test_the_doctor_reads_the_network_policy_where_it_may(installed: Installed):
    found = {one.name: one for one in await engine().conditions()}
    assert found["network policy"].found == "no connection is allowed, in or out"


async def test_control_the_doctor_says_which_pieces_a_namespace_lacks(installed: Installed):
    bare = KubernetesEngine(KubernetesSettings(kubernetes_namespace=installed.callers))
    lacks = [one.name for one in await bare.conditions() if not one.met]
    assert lacks == ["pod security", "admission policy", "network policy"]


async def test_control_the_doctor_says_which_rights_a_user_lacks(caller: Path, installed: Installed):
    bare = KubernetesEngine(KubernetesSettings(kubernetes_namespace=installed.callers))
    found = {one.name: one for one in await bare.conditions()}
    assert "create pods, get pods" in found["rights"].found
    assert not found["admission policy"].met
