"""The manifests that operators apply, as far as their text shows it; the cluster's tests render and try them."""

from __future__ import annotations

from typing import Any

from sandbox_kernel.plugins.kubernetes import warm_pool
from tests.plugins.kubernetes.charts import MANIFESTS, manifests

ALL = manifests(MANIFESTS.read_text(encoding="utf-8"))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in ALL if one["kind"] == kind]


def test_every_piece_is_there_once():
    kinds = sorted(one["kind"] for one in ALL)
    assert kinds == [
        "LimitRange",
        "Namespace",
        "NetworkPolicy",
        "ResourceQuota",
        *("Role", "Role", "RoleBinding", "RoleBinding", "ServiceAccount", "ServiceAccount"),
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicyBinding",
    ]


def test_the_namespace_is_restricted():
    labels = of_kind("Namespace")[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["pod-security.kubernetes.io/enforce-version"] == "latest"


def test_a_caller_has_the_rights_that_the_engine_uses_and_no_other():
    assert of_kind("Role")[0]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/attach"], "verbs": ["create", "get"]},
    ]


def test_a_claimer_has_the_rights_that_a_claim_uses_and_none_to_make_pods():
    _, claimer = of_kind("Role")
    assert claimer["rules"] == [
        {
            "apiGroups": [warm_pool.GROUP],
            "resources": ["sandboxclaims"],
            "verbs": ["create", "list", "watch", "delete"],
        },
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/attach"], "verbs": ["create", "get"]},
    ]
    names = [[one["name"] for one in each["subjects"]] for each in of_kind("RoleBinding")]
    assert names == [["sandbox-caller"], ["sandbox-claimer", "sandbox-caller"]]


def test_no_connection_is_allowed_in_either_direction():
    assert of_kind("NetworkPolicy")[0]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_each_policy_is_bound_to_the_namespace_and_denies():
    names = [one["metadata"]["name"] for one in of_kind("ValidatingAdmissionPolicy")]
    for one in of_kind("ValidatingAdmissionPolicyBinding"):
        names.remove(one["spec"]["policyName"])
        assert one["spec"]["validationActions"] == ["Deny"]
        chosen = one["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
        assert chosen == {"kubernetes.io/metadata.name": of_kind("Namespace")[0]["metadata"]["name"]}
    assert names == []


def test_a_policy_that_cannot_be_evaluated_refuses_and_says_its_reasons():
    for one in of_kind("ValidatingAdmissionPolicy"):
        assert one["spec"]["failurePolicy"] == "Fail"
        assert all(rule["message"].startswith("a sandbox") for rule in one["spec"]["validations"])
