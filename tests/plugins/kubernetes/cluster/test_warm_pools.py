"""Pods claimed from a warm pool of the real agent-sandbox: attested after the claim, and gone with their owner."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.errors import AttestationFailed, EngineError
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.kubernetes import warm_pool
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.pod import Pod
from tests.cluster import agent_sandbox
from tests.cluster.__main__ import Cluster
from tests.plugins.kubernetes.charts import account_s_file, rendered
from tests.plugins.kubernetes.engine import CPUS, kubectl
from tests.support import ROOT
from tests.support.engines import IMAGE
from tests.support.patience import within

NAMESPACE = "sandboxes-of-warm-pools"
POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "nothing", "namespace": NAMESPACE},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}
NAMES_OF_PODS = "--output=jsonpath={.items[*].status.sandbox.name}"
SETTINGS: dict[str, Any] = {"image": IMAGE, "cpus": CPUS, "memory": "256M"}
HERE: dict[str, Any] = {"engine": "kubernetes", "kubernetes_namespace": NAMESPACE, "kubernetes_warm_pool": "warm"}
OWNER = """
import json, sys
from sandbox_kernel import Sandbox
sandbox = Sandbox(**json.loads(sys.argv[1]))
sandbox.run_code("1")
print(sandbox.id, flush=True)
sys.stdin.read()
"""


def pool(replicas: int = 1) -> dict[str, Any]:
    settings = replace(from_keywords(**SETTINGS), charts=True)
    waited = warm_pool.waiting(new_spec(settings))
    assert waited is not None
    return warm_pool.manifests("warm", Pod("", NAMESPACE, 86400, {}), waited, replicas)


def names(kind: str) -> list[str]:
    return kubectl(f"--namespace={NAMESPACE}", "get", kind, "--output=name").split()


def apply(document: object) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", given=json.dumps(document))


async def until(kind: str, count: int) -> list[str]:
    async with within(60):
        while len(found := names(kind)) != count:  # noqa: ASYNC110 (it happens in the cluster)
            await asyncio.sleep(0.2)
    return found


async def until_ready() -> list[str]:
    """Wait until a pod of the pool waits; return all of its pods."""
    path = "--output=jsonpath={.items[*].status.readyReplicas}"
    async with within(60):
        while kubectl(f"--namespace={NAMESPACE}", "get", "sandboxwarmpools", path) != "1":  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return names("pods")


@pytest.fixture(scope="module", autouse=True)
def controller() -> Iterator[None]:
    cluster = Cluster()
    agent_sandbox.start(cluster)
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    apply(POLICY)
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=true")
    agent_sandbox.stop(cluster)


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    kubectl(f"--namespace={NAMESPACE}", "delete", "sandboxwarmpools,sandboxtemplates,sandboxclaims", "--all")
    kubectl(f"--namespace={NAMESPACE}", "wait", "--for=delete", "pods", "--all", "--timeout=90s")


async def test_a_pod_that_waits_is_claimed_and_its_claim_goes_with_the_sandbox() -> None:
    apply(pool())
    waiting = await until_ready()
    async with AsyncSandbox(**HERE, **SETTINGS) as sandbox:
        assert (await sandbox.run_code("6 * 7")).text == "42"
        [claim] = names("sandboxclaims")
        given = kubectl(f"--namespace={NAMESPACE}", "get", claim, "--output=jsonpath={.status.sandbox.name}")
        assert [f"pod/{given}"] == waiting
    await until("sandboxclaims", 0)
    assert not set(waiting) & set(await until("pods", 1))


@pytest.fixture(scope="module")
def claimer(controller: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a kubeconfig file with a token of the chart's account that may claim, and nothing else."""
    accounts = f"{NAMESPACE}-callers"
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": accounts}})
    chosen = ("--set", f"namespace={NAMESPACE}", "--show-only=templates/rights.yaml")
    kubectl("apply", "--filename=-", given=rendered(*chosen, namespace=accounts))
    yield account_s_file(tmp_path_factory.mktemp("claimer"), accounts, "sandbox-claimer")
    kubectl("delete", "namespace", accounts, "--wait=true")


@pytest.mark.parametrize("waits", [True, False])
async def test_who_may_claim_alone_has_a_sandbox_and_can_make_no_pod(
    claimer: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """From a pool in which one waits, and from one that is empty: the controller makes one then."""
    apply(pool())
    waiting = await until_ready()
    if not waits:
        apply(pool(0))
        await until("pods", 0)
    with monkeypatch.context() as patch:
        patch.setenv("KUBECONFIG", str(claimer))
        async with AsyncSandbox(**HERE, **SETTINGS) as sandbox:
            assert (await sandbox.run_code("6 * 7")).text == "42"
            given = kubectl(f"--namespace={NAMESPACE}", "get", "sandboxclaims", NAMES_OF_PODS)
            assert (f"pod/{given}" in waiting) is waits
        with pytest.raises(EngineError) as refused:
            await AsyncSandbox.create(**{**HERE, "kubernetes_warm_pool": None}, **SETTINGS)
    assert refused.value.code is KubernetesCode.CLUSTER_FORBIDS
    await until("sandboxclaims", 0)


async def test_a_claim_whose_owner_is_killed_goes_by_itself() -> None:
    apply(pool())
    await until_ready()
    pipe = asyncio.subprocess.PIPE
    words = [sys.executable, "-c", OWNER, json.dumps({**HERE, **SETTINGS})]
    owner = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert owner.stdout is not None
    assert await owner.stdout.readline()
    assert len(names("sandboxclaims")) == 1
    owner.kill()
    await owner.communicate()
    await until("sandboxclaims", 0)


async def test_a_pod_is_started_where_there_is_no_pool(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with AsyncSandbox(**HERE, **SETTINGS) as sandbox:
            assert (await sandbox.run_code("6 * 7")).text == "42"
            assert names("sandboxclaims") == []
    assert "the warm pool gives no pod" in caplog.text


async def test_a_pod_of_a_template_that_somebody_weakened_is_refused() -> None:
    """The control is the first test: the same template as it is."""
    weak = pool()
    [container] = weak["items"][0]["spec"]["podTemplate"]["spec"]["containers"]
    container["securityContext"]["readOnlyRootFilesystem"] = False
    apply(weak)
    await until_ready()
    with pytest.raises(AttestationFailed, match="securityContext"):
        await AsyncSandbox.create(**HERE, **SETTINGS)
    await until("sandboxclaims", 0)
