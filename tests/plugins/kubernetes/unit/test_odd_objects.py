"""Objects of a cluster that lack what each has, or have it in another type: an error with a code, or what is left."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.engines.owner_process import OwnerProcess
from sandbox_kernel.plugins.kubernetes import cluster_conditions, warm_pool
from sandbox_kernel.plugins.kubernetes.cluster_api import ClusterApi, known
from sandbox_kernel.plugins.kubernetes.cluster_conditions import conditions
from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster, is_left, is_sandbox, row
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.pod import is_name
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.scripted_api import RUNNING, ScriptedApi
from tests.support.cases import each
from tests.support.patience import within

NAME = "sandbox-kernel-s-1-1-00000000"
SPEC = {"containers": [{"image": "i"}]}


def pod(name: object = NAME, spec: object = SPEC, status: object = None, **metadata: Any) -> dict[str, Any]:
    said = {"name": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    return {"metadata": said, "spec": spec, "status": dict(RUNNING) if status is None else status}


PODS: dict[str, dict[str, Any]] = {
    "no spec": {"metadata": {"name": NAME, "resourceVersion": "1"}},
    "a spec of another type": pod(spec=[]),
    "no container": pod(spec={"containers": []}),
    "a container of another type": pod(spec={"containers": [7]}),
    "limits of another type": pod(spec={"containers": [{"resources": {"limits": []}}]}),
    "memory without end": pod(spec={"containers": [{"resources": {"limits": {"memory": "9" * 5000}}}]}),
    "no time": pod(creationTimestamp=None),
    "a time that is none": pod(creationTimestamp="x"),
    "a time before all": pod(creationTimestamp="0001-01-01T00:00:00"),
    "labels of another type": pod(labels=[1]),
    "a label of another type": pod(labels={"sandbox-kernel/session": {}}),
    "annotations of another type": pod(annotations=[1]),
    "a phase of another type": pod(status={"phase": {}}),
    "a reason of another type": pod(status={"conditions": [{"reason": []}]}),
    "no name": pod(name=None),
    "a name of another type": pod(name={}),
    "a name that is a path": pod(name="sandbox-kernel-?x=-1-1"),
    "a name without end": pod(name=f"sandbox-kernel-s-{'1' * 5000}-1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PODS)
@pytest.mark.parametrize("do", ["list", "reap"])
async def test_an_odd_pod_is_listed_or_refused_with_a_code(api: ScriptedApi, what: str, do: str) -> None:
    api.pods["odd"] = PODS[what]
    found: list[object] = await asyncio.gather(getattr(KubernetesEngine(), do)(), return_exceptions=True)
    api.pods.clear()
    if isinstance(found[0], BaseException):
        assert isinstance(found[0], EngineError)
        assert found[0].code is EndCode.ENGINE_UNKNOWN_ANSWER
    assert not api.seen["delete"]


def test_what_a_pod_does_not_say_is_empty() -> None:
    found = row(PODS["no spec"])
    assert (found.image, found.age_seconds, found.memory_bytes, found.session) == ("", 0, 0, "")
    assert row(pod()).image == "i"  # the control
    assert not is_left(PODS["a time that is none"])


@pytest.mark.parametrize("what", ["no spec", "no container", "a time that is none"])
async def test_an_odd_pod_does_not_end_what_follows_the_others(api: ScriptedApi, what: str) -> None:
    other = "sandbox-kernel-s-1-1-00000001"
    api.pods.update({NAME: PODS[what], other: pod(other)})
    deleted = asyncio.Event()
    following = asyncio.create_task(KubernetesEngine().reap_on(lambda name: deleted.set() if name == other else None))
    try:
        async with within(20):
            await api.until("list", 2)
            api.change(other, {"phase": "Failed"})
            await deleted.wait()
        assert not following.done()
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        api.pods.clear()


POLICIES: dict[str, Any] = {
    "a text": ["x"],
    "a spec of another type": [{"metadata": {"name": "a"}, "spec": "x"}],
    "no list": {"a": 1},
    "types of another type": [{"metadata": {"name": "a"}, "spec": {"policyTypes": 7}}],
    "a type of another type": [{"metadata": {"name": "a"}, "spec": {"policyTypes": [[]]}}],
}


@pytest.mark.parametrize("what", POLICIES)
async def test_policies_that_are_none_forbid_nothing(
    api: ScriptedApi, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_conditions, "SETTLED_SECONDS", 0.0)

    async def policies(request: web.Request) -> web.StreamResponse | None:
        if request.path.endswith("networkpolicies"):
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": POLICIES[what]})
        if request.path.endswith("reviews"):
            return web.json_response({"status": {"allowed": True}})
        return web.json_response({"gitVersion": "v1.34"})

    api.faults.update(look=policies, make=policies)
    cluster = await Cluster.join(KubernetesSettings(), OwnerProcess.of(1))
    try:
        found = {one.name: one.met for one in await conditions(cluster)}
    finally:
        await cluster.leave()
    assert not found["network policy"]
    assert found["rights"]  # the control


CLAIMS: dict[str, dict[str, Any]] = {
    "annotations of another type": {"metadata": {"annotations": [1]}},
    "a name of another type": {"metadata": {"annotations": {warm_pool.ASSIGNED: {"a": 1}}}},
    "a name that is a path": {"metadata": {"annotations": {warm_pool.ASSIGNED: "../../../secrets?x="}}},
    "a pod of another type": {"metadata": {}, "status": {"sandbox": "x"}},
    "a pod that is a path": {"metadata": {}, "status": {"sandbox": {"name": "..", "podIPs": ["198.18.0.1"]}}},
    "a pod without a name": {"metadata": {}, "status": {"sandbox": {"podIPs": ["198.18.0.1"]}}},
}


@each("said", CLAIMS.values(), ids=CLAIMS)
def test_an_odd_claim_gives_no_pod(said: dict[str, Any]) -> None:
    assert (warm_pool.assigned(said), warm_pool.given(said)) == (None, None)


@each("name", ["a", "a.b-c", "0", "x" * 253])
def test_a_name_of_a_pod_is_one(name: str) -> None:
    assert is_name(name)


@each("name", ["", ".", "..", "a..b", "-a", "a-", "A", "a/b", "a?b", "a%2fb", "a\n", "ä", "x" * 254, None, 7, {}])
def test_what_is_no_name_of_a_pod_is_not_taken_for_one(name: object) -> None:
    assert not is_name(name)
    assert not is_sandbox({"metadata": {"name": name}})


async def test_nothing_of_a_name_becomes_more_of_a_path(api: ScriptedApi) -> None:
    client = await ClusterApi.connect(None)
    seen: list[tuple[str, str]] = []

    async def look(request: web.Request) -> web.StreamResponse | None:
        seen.append((request.path, request.query_string))
        return web.json_response({})

    api.faults["look"] = look
    try:
        with pytest.raises(EngineError):
            await client.attach("sandboxes", "../../../secrets?x=", "sandbox")
        await client.request("GET", "/api/v1/a?b=c#d%2f")
    finally:
        await client.close()
    assert seen == [("/api/v1/a?b=c#d%2f", "")]


def test_an_object_of_other_types_is_none() -> None:
    assert known(pod()) == pod()
    with pytest.raises(EngineError):
        known({"metadata": []})
