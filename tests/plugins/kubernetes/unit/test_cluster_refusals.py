"""What an API server says, in our words: whose fault it is, what to do, and which setting it is about."""

from __future__ import annotations

from typing import Any

from sandbox_kernel.core.codes import Code, EndCode
from sandbox_kernel.plugins.kubernetes.cluster_api import refusal
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from tests.support.cases import each

K = KubernetesCode
QUOTA = (
    'pods "p" is forbidden: exceeded quota: all, requested: requests.memory=2Gi, used: requests.memory=1Gi, limited: '
    "requests.memory=2Gi"
)
CLASS = 'pods "p" is forbidden: pod rejected: RuntimeClass "kata-never" not found'
RIGHTS = 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "sandboxes"'
SECURITY = 'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
POLICY = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'sandboxes' with binding 'b' denied request: no"
WEBHOOK = 'admission webhook "x" denied the request: not signed'
INVALID = 'Pod "p" is invalid: spec.containers[0].image: Required value'

Row = tuple[int, str, Code, str | None]
ROWS: dict[str, Row] = {
    "a namespace that is not there": (
        404,
        'namespaces "sandboxes" not found',
        K.NAMESPACE_MISSING,
        "kubernetes_namespace",
    ),
    "a quota that is used up": (403, QUOTA, K.CLUSTER_QUOTA_REACHED, None),
    "a runtime class that is not there": (403, CLASS, K.RUNTIME_CLASS_MISSING, "runtime"),
    "a right that is missing": (403, RIGHTS, K.CLUSTER_FORBIDS, None),
    "an account that is not known": (401, "Unauthorized", K.CLUSTER_FORBIDS, None),
    "too many requests": (429, "Too many requests, please try again later.", K.CLUSTER_BUSY, None),
    "Pod Security": (403, SECURITY, K.CLUSTER_REFUSES, None),
    "an admission policy": (403, POLICY, K.CLUSTER_REFUSES, None),
    "an admission policy that says it is invalid": (422, POLICY, K.CLUSTER_REFUSES, None),
    "an admission webhook": (403, WEBHOOK, K.CLUSTER_REFUSES, None),
    "a pod that is no pod": (422, INVALID, K.CLUSTER_REFUSES, None),
    "another namespace": (404, 'namespaces "others" not found', EndCode.ENGINE_FAILED, None),
    "a pod that is not there": (404, 'pods "p" not found', EndCode.ENGINE_FAILED, None),
    "a conflict": (409, 'pods "p" already exists', EndCode.ENGINE_FAILED, None),
    "a fault": (500, "etcdserver: request timed out", EndCode.ENGINE_FAILED, None),
}


@each(("name", "row"), ROWS.items())
def test_a_refusal_has_its_code_and_its_setting(name: str, row: Row) -> None:
    status, said, code, setting = row
    error = refusal(status, {"kind": "Status", "message": said}, "sandboxes")
    assert (error.code, error.setting, error.status) == (code, setting, status)
    if code not in {K.NAMESPACE_MISSING, K.CLUSTER_BUSY, K.RUNTIME_CLASS_MISSING}:
        assert said[:60] in error.message


def test_a_runtime_class_that_is_missing_is_named() -> None:
    assert refusal(403, {"message": CLASS}, "sandboxes").message.startswith("the cluster has no runtime 'kata-never'")


STRANGE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no text": {"message": None, "reason": None},
    "a number": {"message": 7},
    "a list": {"message": ["x"]},
    "too much": {"message": "x" * 100_000},
}


@each(("name", "said"), STRANGE.items())
def test_an_answer_without_a_reason_is_an_error_all_the_same(name: str, said: dict[str, Any]) -> None:
    for status in (400, 401, 403, 404, 409, 422, 429, 500, 503):
        error = refusal(status, said, "sandboxes")
        assert 10 < len(error.message) < 600
