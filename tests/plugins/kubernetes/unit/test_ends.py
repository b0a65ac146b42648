"""Each end of a pod has a name, comes in bounded time, and leaves nothing: with an API server that plays them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from sandbox_kernel.core.codes import Code, EndCode
from sandbox_kernel.core.errors import EngineError, SandboxDied
from sandbox_kernel.core.model import ExitReason, Limits, SandboxSpec
from sandbox_kernel.plugins.kubernetes import cluster_api, pod_watch
from sandbox_kernel.plugins.kubernetes import container as container_module
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine, own_pod
from sandbox_kernel.plugins.kubernetes.pod_watch import PodWatch
from sandbox_kernel.session.lifecycle import of_sandbox
from tests.plugins.kubernetes.scripted_api import RUNNING, ScriptedApi, refused, refusing
from tests.support.engines import ECHO, SMALL, new_spec, receive_line
from tests.support.patience import until, within

Metadata = Mapping[str, Any]
NOW = "2026-01-01T00:00:01Z"
STEPS = ("list", "watch", "make", "attach")


def a_spec(start_timeout: float = 20.0) -> SandboxSpec:
    return new_spec(ECHO, limits=replace(SMALL, start_timeout=start_timeout))


def terminated(code: int, reason: str = "Error", **status: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"phase": "Failed", "containerStatuses": [{"state": state}], **status}


def going(reason: str | None = None) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": f"by {reason}"}
    return {**RUNNING, "conditions": [condition] if reason else []}


async def test_a_pod_answers_and_leaves_nothing(api: ScriptedApi) -> None:
    container = await KubernetesEngine().start(a_spec())
    await container.send(b"hello\n")
    assert await receive_line(container) == b"hello\n"
    await container.kill()
    assert (await container.wait()).kind == "killed"


# --- after it ran -----------------------------------------------------------------------------------------------------

ENDS: Mapping[str, tuple[Mapping[str, Any] | None, Metadata, str, Code | None]] = {
    "out of memory": (terminated(137, "OOMKilled"), {}, "out_of_memory", None),
    "its own exit": (terminated(3), {}, "exited", None),
    "killed": (terminated(137), {}, "killed", None),
    "evicted by its node": (
        terminated(137, reason="Error") | {"reason": "Evicted"},
        {},
        "killed",
        KubernetesCode.POD_EVICTED,
    ),
    "its lifetime": (terminated(137) | {"reason": "DeadlineExceeded"}, {}, "killed", KubernetesCode.POD_DEADLINE),
    "its node shuts down": (terminated(137) | {"reason": "Terminated"}, {}, "killed", KubernetesCode.NODE_LOST),
    "deleted": (going(), {"deletionTimestamp": NOW}, "killed", KubernetesCode.POD_DELETED),
    "evicted by the API": (
        going("EvictionByEvictionAPI"),
        {"deletionTimestamp": NOW},
        "killed",
        KubernetesCode.POD_EVICTED,
    ),
    "preempted": (going("PreemptionByScheduler"), {"deletionTimestamp": NOW}, "killed", KubernetesCode.POD_EVICTED),
    "its node is gone": (
        going("DeletionByTaintManager"),
        {"deletionTimestamp": NOW},
        "killed",
        KubernetesCode.NODE_LOST,
    ),
    "deleted by force": (None, {}, "killed", KubernetesCode.POD_DELETED),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ENDS)
async def test_each_end_has_a_name(api: ScriptedApi, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, metadata, kind, code = ENDS[what]
    monkeypatch.setattr(container_module, "GOING_SECONDS", 0.2)
    container = await KubernetesEngine().start(a_spec())
    if status is None:
        api.delete(container.id)
    else:
        api.change(container.id, status, **metadata)
        if kind in {"exited", "out_of_memory"} or "exitCode" in str(status):
            await api.hang_up(container.id)
    async with within(4):
        reason = await container.wait()
    assert (reason.kind, reason.code) == (kind, code)
    await container.kill()
    died = of_sandbox(reason, Limits(), None)
    assert died.code is (code or {"out_of_memory": EndCode.OUT_OF_MEMORY}.get(kind, EndCode.SANDBOX_DIED))


async def test_an_end_is_named_though_the_pod_is_deleted_at_once(api: ScriptedApi) -> None:
    """Who follows the ends of pods deletes faster than their owners look."""
    container = await KubernetesEngine().start(a_spec())
    api.change(container.id, terminated(137, "OOMKilled"))
    api.delete(container.id)
    async with within(4):
        assert (await container.wait()).kind == "out_of_memory"
    await container.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers", [True, pytest.param(False, marks=pytest.mark.long)], ids=["it answers", "it does not"]
)
async def test_a_broken_attach_is_an_end(api: ScriptedApi, answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that is restarted breaks it; so does a kubelet. The session waits five seconds for the reason."""
    container = await KubernetesEngine().start(a_spec())
    if not answers:
        hold = asyncio.Event()
        monkeypatch.setattr(cluster_api, "REQUEST_SECONDS", 60.0)
        api.faults["look"] = _silent(hold)
        api.faults["delete"] = _silent(hold)
    await api.hang_up(container.id)
    async with within(5):
        assert await container.receive() == b""
        reason = await container.wait()
    assert (reason.kind, reason.code) == ("engine_lost", KubernetesCode.ATTACH_LOST)
    assert isinstance(of_sandbox(reason, Limits(), None), SandboxDied)
    if not answers:
        with pytest.raises(EngineError) as caught:
            await container.kill()
        assert caught.value.code is EndCode.CONTAINER_NOT_REMOVED
        hold.set()
        api.faults.clear()
        api.pods.clear()
    else:
        await container.kill()


def _silent(until: asyncio.Event) -> Any:
    async def fault(request: web.Request) -> web.StreamResponse | None:
        await until.wait()
        return refused(503, "too late")

    return fault


def test_an_end_without_a_code_is_told_as_before() -> None:
    assert of_sandbox(ExitReason(kind="killed"), Limits(), None).code is EndCode.SANDBOX_DIED


# --- before it runs ---------------------------------------------------------------------------------------------------

REFUSED: Mapping[str, tuple[int, str, Code]] = {
    "quota": (403, 'pods "x" is forbidden: exceeded quota: room, used: pods=1', KubernetesCode.CLUSTER_QUOTA_REACHED),
    "namespace": (404, 'namespaces "sandboxes" not found', KubernetesCode.NAMESPACE_MISSING),
    "rights": (403, 'pods is forbidden: User "me" cannot create resource', KubernetesCode.CLUSTER_FORBIDS),
    "token": (401, "Unauthorized", KubernetesCode.CLUSTER_FORBIDS),
    "runtime class": (
        403,
        'pods "x" is forbidden: pod rejected: RuntimeClass "kata" not found',
        KubernetesCode.RUNTIME_CLASS_MISSING,
    ),
    "admission": (403, "admission webhook denied the request", KubernetesCode.CLUSTER_REFUSES),
    "policy": (422, "ValidatingAdmissionPolicy 'only' denied request", KubernetesCode.CLUSTER_REFUSES),
    "busy": (429, "too many requests", KubernetesCode.CLUSTER_BUSY),
    "broken": (500, "etcdserver: request timed out", EndCode.ENGINE_FAILED),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", REFUSED)
async def test_each_refusal_has_a_name(api: ScriptedApi, what: str) -> None:
    status, message, code = REFUSED[what]
    api.faults["make"] = refusing(status, message)
    with pytest.raises(EngineError) as caught:
        await KubernetesEngine().start(a_spec())
    assert caught.value.code is code


def waiting(reason: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "as it is"}}
    return {"phase": "Pending", "containerStatuses": [{"state": state}]}


NEVER: Mapping[str, tuple[Mapping[str, Any], Code]] = {
    "no image": (waiting("ErrImagePull"), KubernetesCode.POD_IMAGE_NOT_THERE),
    "no image again": (waiting("ImagePullBackOff"), KubernetesCode.POD_IMAGE_NOT_THERE),
    "no such name": (waiting("InvalidImageName"), KubernetesCode.POD_IMAGE_NOT_THERE),
    "no program": (waiting("RunContainerError"), KubernetesCode.POD_NOT_STARTED),
    "over": (terminated(1), KubernetesCode.POD_NOT_STARTED),
    "evicted": ({"phase": "Failed", "reason": "Evicted"}, KubernetesCode.POD_EVICTED),
    "slow": (waiting("ContainerCreating"), KubernetesCode.POD_SLOW),
    "no room": (
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no cpu"}]},
        KubernetesCode.POD_UNSCHEDULABLE,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", NEVER)
async def test_each_pod_that_never_runs_has_a_reason(api: ScriptedApi, what: str) -> None:
    api.status, code = NEVER[what]
    with pytest.raises(EngineError) as caught:
        await KubernetesEngine().start(a_spec(start_timeout=0.3 if what in {"slow", "no room"} else 20))
    assert caught.value.code is code


async def test_a_pod_that_is_deleted_before_it_runs_is_not_waited_for(api: ScriptedApi) -> None:
    api.status = waiting("ContainerCreating")
    starting = asyncio.create_task(KubernetesEngine().start(a_spec()))
    await api.until("make")
    async with within(4):
        await until(lambda: api.pods)
        api.delete(next(iter(api.pods)))
        with pytest.raises(EngineError) as caught:
            await starting
    assert caught.value.code is KubernetesCode.POD_DELETED


@pytest.mark.parametrize("step", STEPS)
async def test_a_start_that_is_cancelled_leaves_nothing(api: ScriptedApi, step: str) -> None:
    """Also where the pod is made after its maker has gone: a request that is under way is not taken back."""
    hold = asyncio.Event()

    async def fault(request: web.Request) -> web.StreamResponse | None:
        await hold.wait()
        return None

    api.faults[step] = fault
    starting = asyncio.create_task(KubernetesEngine().start(a_spec()))
    await api.until(step)
    starting.cancel()
    await asyncio.sleep(0)
    hold.set()
    with pytest.raises(asyncio.CancelledError):
        await starting


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_an_api_server_that_answers_nothing_is_not_waited_for(
    api: ScriptedApi, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_api, "REQUEST_SECONDS", 0.3)
    hold = asyncio.Event()
    api.faults[step] = _silent(hold)
    async with within(8):
        with pytest.raises(EngineError) as caught:
            await KubernetesEngine().start(a_spec(start_timeout=1))
    assert caught.value.code in {KubernetesCode.CLUSTER_UNREACHABLE, KubernetesCode.POD_SLOW}
    hold.set()


async def test_a_busy_api_server_is_asked_again_when_it_says(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr("sandbox_kernel.plugins.kubernetes.cluster_api.asyncio.sleep", sleep)
    for said in ("1", "86400", "soon", "-3"):
        api.faults["make"] = refusing(429, "slow down", Retry_After=said)
        with pytest.raises(EngineError):
            await KubernetesEngine().start(a_spec())
    assert set(pauses) - {0, 0.5} == {1.0, cluster_api.MAX_AGAIN_SECONDS, cluster_api.AGAIN_SECONDS}


@pytest.mark.parametrize("granted", ["v4.channel.k8s.io", None], ids=["an older one", "none"])
async def test_an_attach_by_another_protocol_is_not_taken(api: ScriptedApi, granted: str | None) -> None:
    async def other(request: web.Request) -> web.StreamResponse | None:
        wire = web.WebSocketResponse(protocols=(granted,) if granted else ())
        if granted:  # although it was not asked for
            wire.headers["Sec-WebSocket-Protocol"] = granted
        await wire.prepare(request)
        await wire.receive()
        return wire

    api.faults["attach"] = other
    with pytest.raises(EngineError, match="v5") as caught:
        await KubernetesEngine().start(a_spec())
    assert caught.value.code is EndCode.ENGINE_UNKNOWN_ANSWER
    api.faults.clear()
    await (await KubernetesEngine().start(a_spec())).kill()  # the control


ORDERS = "a\x1b[2Jb\u202ec\r\nd\x07"
"""What a terminal obeys, and what makes a line read otherwise than it is."""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a refusal", "a pod that waits", "an end"])
async def test_what_the_cluster_says_is_repeated_so_that_no_terminal_obeys_it(api: ScriptedApi, how: str) -> None:
    async def program(wire: web.WebSocketResponse) -> None:
        await wire.send_bytes(b"\x03" + json.dumps({"status": "Failure", "message": ORDERS}).encode())

    if how == "an end":
        api.program = program
        container = await KubernetesEngine().start(a_spec())
        text = (await container.wait()).detail
        await container.kill()
    else:
        state = {"waiting": {"reason": "ErrImagePull", "message": ORDERS}}
        if how == "a refusal":
            api.faults["make"] = refusing(422, ORDERS)
        else:
            api.status = {"phase": "Pending", "containerStatuses": [{"state": state}]}
        with pytest.raises(EngineError) as caught:
            await KubernetesEngine().start(a_spec())
        text = str(caught.value)
    assert text.isprintable()
    assert "\\x1b[2Jb\\u202ec" in text  # the control: it is repeated


# --- the watch --------------------------------------------------------------------------------------------------------

ODD: Mapping[str, bytes | None] = {
    "its end": None,
    "410": b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}',
    "garbage": b"\x00\xff{",
    "no object": b'{"type":"MODIFIED"}',
    "an object of another type": b'{"type":"MODIFIED","object":[]}',
    "a pod of odd parts": b'{"type":"MODIFIED","object":{"metadata":{},"status":{"containerStatuses":[7]}}}',
    "deep": b"[" * 100_000,
    "too long": b" " * (cluster_api.LINE_BYTES + (1 << 20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ODD)
async def test_a_watch_goes_on_after(api: ScriptedApi, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens to a pod is heard all the same."""
    monkeypatch.setattr(pod_watch, "AGAIN_SECONDS", 0.05)
    container = await KubernetesEngine().start(a_spec())
    await api.until("watch")
    api.say(ODD[what])
    await api.until("watch", 2)
    api.change(container.id, terminated(137, "OOMKilled"))
    await api.hang_up(container.id)
    async with within(4):
        assert (await container.wait()).kind == "out_of_memory"
    await container.kill()


async def test_a_watch_whose_connection_is_closed_between_two_events_ends_with_a_reason(api: ScriptedApi) -> None:
    client = await cluster_api.ClusterApi.connect(None)
    api.pods["one"] = {"metadata": {"name": "one", "resourceVersion": "7"}}
    seen = []

    async def look() -> None:
        async for event in client.watch("/api/v1/namespaces/sandboxes/pods", {"resourceVersion": "0"}):
            seen.append(event["object"]["metadata"]["name"])
            await client.close()

    with pytest.raises(EngineError) as caught:
        await look()
    assert (seen, caught.value.code) == (["one"], KubernetesCode.CLUSTER_UNREACHABLE)
    api.pods.clear()


@pytest.mark.parametrize("step", ["watch", "look"])
async def test_what_is_asked_while_all_is_closed_ends_with_a_code(api: ScriptedApi, step: str) -> None:
    """On a connection that was used before: the client asks again by itself if that breaks."""
    hold, client = asyncio.Event(), await cluster_api.ClusterApi.connect(None)

    async def version(request: web.Request) -> web.StreamResponse | None:
        return web.json_response({})

    async def ask() -> None:
        if step == "look":
            await client.request("GET", "/version")
        async for _ in client.watch("/api/v1/namespaces/sandboxes/pods", {"resourceVersion": "0"}):
            pass

    api.faults["look"] = version
    await client.request("GET", "/version")
    api.faults[step] = _silent(hold)
    asking = asyncio.create_task(ask())
    async with within(20):
        await api.until(step, 2 if step == "look" else 1)
        await client.close()
        with pytest.raises(EngineError) as caught:
            await asking
    assert caught.value.code is KubernetesCode.CLUSTER_UNREACHABLE
    hold.set()


async def test_a_watch_that_ends_at_once_is_asked_again_after_a_pause(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    async def ends(request: web.Request) -> web.StreamResponse | None:
        return web.Response()

    api.faults["watch"] = ends
    monkeypatch.setattr(pod_watch, "AGAIN_SECONDS", 3600.0)  # so long does none of them go on
    monkeypatch.setattr("sandbox_kernel.plugins.kubernetes.pod_watch.asyncio.sleep", sleep)
    client = await cluster_api.ClusterApi.connect(None)
    watch = PodWatch(client, "/api/v1/namespaces/sandboxes/pods", "a=b")
    try:
        async with within(20):
            await watch.listen()
            await api.until("watch", 4)
    finally:
        await watch.close()
        await client.close()
    assert pauses.count(3600.0) >= 3


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_the_own_pod_owns_those_of_its_namespace_alone() -> None:
    said = {"POD_NAME": "hub", "POD_UID": "1-2", "POD_NAMESPACE": "sandboxes"}
    assert own_pod("sandboxes", said) == {"name": "hub", "uid": "1-2"}
    assert own_pod("others", said) is None
    assert own_pod("sandboxes", {**said, "POD_UID": ""}) is None


async def test_what_an_owner_in_a_pod_makes_is_owned_by_that_pod(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("POD_NAME", "hub"), ("POD_UID", "1-2"), ("POD_NAMESPACE", "sandboxes")):
        monkeypatch.setenv(name, value)
    container = await KubernetesEngine().start(a_spec())
    (owner,) = api.pods[container.id]["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Pod", "controller": False, "name": "hub", "uid": "1-2"}
    await container.kill()
