"""What a warm pool's pods have, which sessions may take one, what a claim says, and claims without other rights."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import Inside, Limits, SandboxSpec, Settings
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.kubernetes import claimed_pod, warm_pool
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.pod import HEARD, Pod
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from tests.plugins.kubernetes.scripted_api import ScriptedApi
from tests.support.cases import each
from tests.support.patience import within


def waited(settings: Settings | None = None) -> SandboxSpec:
    found = warm_pool.waiting(new_spec(settings or Settings()))
    assert found is not None
    return found


def test_two_sessions_with_the_same_settings_take_from_one_pool() -> None:
    assert new_spec(Settings()).uid != new_spec(Settings()).uid
    assert waited() == waited()


OTHERS = {
    "the image": Settings(image="another:1"),
    "the runtime": Settings(runtime="gvisor"),
    "memory": Settings(limits=Limits(memory=1 << 30)),
    "processors": Settings(limits=replace(Settings().limits, cpus=0.5)),
    "processes": Settings(limits=replace(Settings().limits, pids=99)),
    "open files": Settings(limits=replace(Settings().limits, open_files=99)),
    "charts": Settings(charts=True),
    "the time zone": Settings(time_zone="Asia/Tokyo"),
    "the kernel": Settings(kernel="ir"),
}


@pytest.mark.slow
@each("other", OTHERS.values(), ids=OTHERS)
def test_what_a_pod_has_is_in_the_name_of_its_pool(other: Settings) -> None:
    names = {warm_pool.name("warm", one, 600) for one in (waited(), waited(other))}
    assert len(names) == 2


def test_what_the_host_alone_keeps_is_not_in_the_name() -> None:
    other = Settings(limits=replace(Settings().limits, cell_timeout=7))
    assert warm_pool.name("warm", waited(other), 600) == warm_pool.name("warm", waited(), 600)


def test_a_session_with_something_of_its_own_takes_none() -> None:
    with_variables = new_spec(Settings(environment=(("WORD", "secret-word"),)))
    connected = new_spec(Settings(), inside=Inside(environment={}))
    another_program = replace(new_spec(Settings()), command=("python3",))
    assert [warm_pool.waiting(one) for one in (with_variables, connected, another_program)] == [None] * 3


def test_a_claim_has_nothing_of_a_session_but_whose_it_is() -> None:
    pod = Pod("name", "sandboxes", 600, {HEARD: "mine"})
    found = warm_pool.claim(pod, "warm-1")
    lifecycle = found["spec"].pop("lifecycle")
    assert (lifecycle["shutdownPolicy"], lifecycle["ttlSecondsAfterFinished"]) == ("Delete", 0)
    assert found["spec"] == {
        "warmPoolRef": {"name": "warm-1"},
        "additionalPodMetadata": {"labels": {HEARD: "mine"}},
    }
    assert found["metadata"]["labels"] == {"app.kubernetes.io/name": "sandbox-kernel", HEARD: "mine"}


def test_the_manifests_let_a_claim_add_nothing() -> None:
    template, pool = warm_pool.manifests("warm", Pod("", "sandboxes", 600, {}), waited(), 3)["items"]
    spec = template["spec"]
    assert (spec["envVarsInjectionPolicy"], spec["volumeClaimTemplatesPolicy"]) == ("Disallowed", "Disallowed")
    assert spec["podTemplate"]["spec"]["activeDeadlineSeconds"] == 600
    assert pool["spec"] == {"replicas": 3, "sandboxTemplateRef": {"name": template["metadata"]["name"]}}
    assert len(json.dumps(template)) < 1 << 20  # the cluster takes 1.5 MiB


SAID: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "nothing yet": ({}, None, None),
    "a name, and no pod that runs": ({"sandbox": {"name": "one"}}, None, None),
    "a pod that runs": ({"sandbox": {"name": "one", "podIPs": ["198.18.0.1"]}}, "one", None),
    "no such pool": (
        {"conditions": [{"status": "False", "reason": "WarmPoolNotFound", "message": "none"}]},
        None,
        "none",
    ),
    "it is on its way": ({"conditions": [{"status": "False", "reason": "SandboxNotReady"}]}, None, None),
}


@each("said, pod, why", SAID.values(), ids=SAID)
def test_what_a_claim_says(said: dict[str, Any], pod: str | None, why: str | None) -> None:
    claimed = {"status": said}
    assert (warm_pool.given(claimed), warm_pool.never(claimed)) == (pod, why)


def test_a_claim_says_which_pod_it_is_about_to_get() -> None:
    assert warm_pool.assigned({"metadata": {"name": "claim"}}) is None
    assert warm_pool.assigned({"metadata": {"annotations": {warm_pool.ASSIGNED: "one"}}}) == "one"


@each("status, made", [("False", None), ("True", "one")])
def test_a_pod_that_was_made_for_a_claim_is_its_once_it_runs(status: str, made: str | None) -> None:
    conditions = [{"type": "Finished", "status": "True"}, {"type": "Ready", "status": status}]
    claimed = {"status": {"sandbox": {"name": "one", "podIPs": ["198.18.0.1"]}, "conditions": conditions}}
    assert warm_pool.assigned(claimed) == made


# --- with the rights for claims alone ---------------------------------------------------------------------------------


async def started(api: ScriptedApi, spec: SandboxSpec, name: str | None = None) -> None:
    """Start a sandbox, and end it; `name` is that of its pod, if it is no pod of a session's own."""
    heard = asyncio.Event()

    async def program(wire: web.WebSocketResponse) -> None:
        async for message in wire:
            if b'"op": "claim"' in message.data:
                heard.set()

    api.program = program
    container = await KubernetesEngine(KubernetesSettings(kubernetes_warm_pool="warm")).start(spec)
    async with within(20):
        await heard.wait()
    assert container.id == (name or next(iter(api.claims)))
    await container.kill()


async def test_who_may_claim_alone_has_the_pod_that_waits(api: ScriptedApi) -> None:
    api.makes_pods, api.pool = False, ["waiting"]
    await started(api, new_spec(Settings()), "waiting")
    assert (api.seen["claim"], api.seen["make"], api.claims) == (1, 0, {})


async def test_who_may_claim_alone_has_one_that_is_made_where_none_waits(api: ScriptedApi) -> None:
    api.makes_pods, api.pool = False, []
    await started(api, new_spec(Settings()))
    assert (api.seen["claim"], api.seen["make"], api.claims) == (1, 0, {})


@pytest.mark.slow
async def test_who_may_claim_alone_waits_longer_for_a_pool_than_others(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: one who may start a pod does so."""
    monkeypatch.setattr(claimed_pod, "CLAIM_SECONDS", 0.2)

    async def silent(request: web.Request) -> web.StreamResponse | None:
        claim = await request.json()
        api.claims[claim["metadata"]["name"]] = {**claim, "status": {}}
        return web.json_response(claim, status=201)

    api.faults["claim"] = silent
    spec = new_spec(replace(Settings(), limits=replace(Limits(), start_timeout=1.5)))
    engine = KubernetesEngine(KubernetesSettings(kubernetes_warm_pool="warm"))
    begin = time.monotonic()
    await (await engine.start(spec)).kill()
    assert (api.seen["make"], time.monotonic() - begin < 1.5) == (1, True)
    api.makes_pods, begin = False, time.monotonic()
    with pytest.raises(EngineError) as caught:
        await engine.start(spec)
    assert caught.value.code is KubernetesCode.POD_SLOW
    assert time.monotonic() - begin >= 1.5
    assert (api.seen["make"], api.claims) == (1, {})


async def test_who_may_claim_alone_is_told_why_there_is_no_pod(api: ScriptedApi) -> None:
    api.makes_pods = False
    engine = KubernetesEngine(KubernetesSettings(kubernetes_warm_pool="warm"))
    with pytest.raises(EngineError, match="no such pool"):
        await engine.start(new_spec(Settings()))
    with pytest.raises(EngineError) as caught:  # a session with something of its own takes none of a pool
        await engine.start(new_spec(Settings(environment=(("WORD", "a-word"),))))
    assert caught.value.code is KubernetesCode.CLUSTER_FORBIDS
    assert (api.seen["claim"], api.claims) == (1, {})
