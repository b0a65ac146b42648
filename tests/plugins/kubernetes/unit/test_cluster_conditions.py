"""What the doctor makes of a cluster's answers: a piece that is missing is never taken for one that is there."""

from __future__ import annotations

from collections import Counter

import pytest
from aiohttp import web

from sandbox_kernel.engines.owner_process import OwnerProcess
from sandbox_kernel.plugins.kubernetes import cluster_conditions
from sandbox_kernel.plugins.kubernetes.cluster_api import refusal
from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.scripted_api import ScriptedApi, refused

CLOSED = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
SOME = {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress", "Egress"]}
POLICY = "ValidatingAdmissionPolicy 'sandboxes-pods' with binding 'sandboxes-pods' denied request: a sandbox has one"
SECURITY = 'pods "one" is forbidden: violates PodSecurity "restricted:latest": host namespaces'


@pytest.mark.parametrize(
    ("said", "met"),
    [("v1.34.4", True), ("v1.30.0", True), ("v2.0.0", True), ("v1.29.9", False), ("v1.3.0", False), ("", False)],
)
def test_an_api_server_is_new_enough_to_say_that_a_pipe_is_at_its_end(said: str, met: bool):
    assert cluster_conditions.version(said).met is met


@pytest.mark.parametrize(
    ("name", "by", "status", "message", "met"),
    [
        ("pod security", "PodSecurity", 403, SECURITY, True),
        ("pod security", "PodSecurity", 422, POLICY, False),
        ("admission policy", "denied", 422, POLICY, True),
        ("admission policy", "denied", 404, 'namespaces "sandboxes" not found', False),
        ("admission policy", "denied", 403, 'User "one" cannot create resource "pods"', False),
        ("admission policy", "denied", 403, "exceeded quota: sandboxes", False),
        ("admission policy", "denied", 403, "is forbidden: maximum cpu usage per Container is 8", False),
        ("admission policy", "denied", 403, SECURITY, False),
        ("admission policy", "denied", 500, "etcd is gone", False),
    ],
)
def test_only_the_refusal_by_a_piece_shows_that_it_is_there(name: str, by: str, status: int, message: str, met: bool):
    found = cluster_conditions.refused(name, by, refusal(status, {"message": message}, "sandboxes"))
    assert found.met is met
    assert met or found.remedy


def test_a_pod_that_is_let_in_shows_that_a_piece_is_missing():
    assert not cluster_conditions.refused("admission policy", "denied", None).met


@pytest.mark.slow
@pytest.mark.parametrize(("later", "met"), [(3, True), (None, False)])
async def test_a_policy_that_was_just_installed_is_waited_for(
    api: ScriptedApi, later: int | None, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server takes a policy at once and counts it some time after. The control is a cluster that has none."""
    monkeypatch.setattr(cluster_conditions, "SETTLED_SECONDS", 15.0 if met else 1.0)
    monkeypatch.setattr(cluster_conditions, "AGAIN_SECONDS", 0.01)
    offers: Counter[str] = Counter()

    async def policed(request: web.Request) -> web.StreamResponse | None:
        pod = await request.json()
        what = SECURITY if pod["spec"].get("hostPID") else POLICY
        offers[what] += 1
        return web.json_response(pod, status=201) if later is None or offers[what] <= later else refused(403, what)

    async def others(request: web.Request) -> web.StreamResponse | None:
        return web.json_response({"status": {"allowed": True}, "gitVersion": "v1.34.4"})

    api.faults.update(make=policed, look=others)
    cluster = await Cluster.join(KubernetesSettings(), OwnerProcess.of(1))
    try:
        found = {one.name: one for one in await cluster_conditions.conditions(cluster)}
    finally:
        await cluster.leave()
    assert {found["pod security"].met, found["admission policy"].met} == {met}
    assert min(offers.values()) >= (4 if met else 2)


@pytest.mark.parametrize(
    ("policies", "met"),
    [
        ([CLOSED], True),
        ([CLOSED, SOME], True),
        ([{**CLOSED, "policyTypes": ["Ingress"]}, {**CLOSED, "policyTypes": ["Egress"]}], True),
        ([], False),
        ([SOME], False),
        ([{**CLOSED, "policyTypes": ["Ingress"]}], False),
        ([CLOSED, {**SOME, "egress": [{}]}], False),
        ([{**CLOSED, "ingress": [{}]}], False),
    ],
)
def test_policies_forbid_all_connections_together_or_are_said_not_to(policies: list[dict[str, object]], met: bool):
    assert cluster_conditions.network(policies).met is met
