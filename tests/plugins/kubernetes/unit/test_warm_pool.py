"""What a warm pool's pods have, which sessions may take one, and what a claim's answer means: pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sandbox_kernel.core.model import Inside, Limits, SandboxSpec, Settings
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.kubernetes import warm_pool
from sandbox_kernel.plugins.kubernetes.pod import HEARD, Pod
from tests.support.cases import each


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
