"""What a spec becomes in Kubernetes' words is pure data: a change of it must be seen in a diff of the snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import Attached, Limits
from sandbox_kernel.engines.hardening import Protections, ScratchDisk, protections
from sandbox_kernel.plugins.kubernetes import pod, pod_gate
from sandbox_kernel.plugins.kubernetes.pod import digest, document
from tests.plugins.kubernetes.unit.pods import POD, SPEC
from tests.support.cases import each
from tests.support.json_snapshots import compare

SNAPSHOTS = Path(__file__).parent / "snapshots"


def without_the_gate(asked: dict[str, Any]) -> dict[str, Any]:
    command = asked["spec"]["containers"][0]["command"]
    command[command.index(pod_gate.SOURCE)] = "the gate"
    asked["metadata"]["annotations"] = "of all that is asked for"
    return asked


def test_the_default_pod() -> None:
    compare(SNAPSHOTS / "pod.json", without_the_gate(document(SPEC, POD)))


def test_a_pod_with_every_setting() -> None:
    limits = Limits(memory=4 << 30, cpus=0.5, scratch_size=1 << 30, tmp_size=1 << 20, shm_size=2 << 20)
    spec = replace(SPEC, limits=limits, runtime="gvisor", uid=7)
    owned = POD._replace(owner={"name": "caller", "uid": "f3b7"}, own_users=True)
    compare(SNAPSHOTS / "every-setting.json", without_the_gate(document(spec, owned)))


def test_no_object_of_the_cluster_has_a_line_or_a_variable_of_a_session_s() -> None:
    text = json.dumps(document(SPEC, POD))
    assert [word for word in ("the agent", "TOKEN", "a secret") if word in text] == []
    assert all(word in pod_gate.told(SPEC).decode() for word in ("the agent", "TOKEN", "a secret")), "the pipe has them"


CHANGED: dict[str, Any] = {
    "networks": {"bridge"},
    "own_namespaces": set(),
    "writable": (),
    "hostname": "other",
    "working_folder": "/",
}
"""Other values than those of a sandbox; a number or a truth is changed by itself."""
REFUSED: dict[str, Any] = {
    "attached": (Attached(kind="dataset", name="sales", source="/srv/sales"),),
    "disks": (ScratchDisk("/mnt/data", 1 << 30, 7),),
}
ELSEWHERE = {
    "capabilities": "a pod drops all of them, whatever is asked for",
    "system_calls": "the agent installs the list; a node has one of its own around it",
    "environment": "the gate gets it",
    "host_folders": "a pod has none, whatever is asked for",
    "devices": "a pod has none, whatever is asked for",
    "masked_paths": "a pod covers those of MASKED; the attestation looks at the rest",
    "readonly_paths": "the node's runtime has them",
    "swap_bytes": "a node gives a pod whose request is its limit none",
    "cpu_period_microseconds": "the node's, which the attestation compares",
    "cpu_quota_microseconds": "the node makes it of `cpus`",
    "cpuset": "the setting is refused with pods",
    "pids": "the gate sets it",
    "open_files": "the gate sets it",
    "core_bytes": "the gate sets it",
    "oom_score": "the node's, of the memory that is asked for",
}
"""What is no part of a pod, and where it is instead."""


@pytest.mark.parametrize("field", sorted(set(Protections._fields) - set(ELSEWHERE)))
def test_each_protection_reaches_the_pod(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What were not translated would be missing without a word."""
    before, wanted = document(SPEC, POD), protections(SPEC)
    value: Any = CHANGED.get(field, REFUSED.get(field))
    if value is None:
        was = getattr(wanted, field)
        value = not was if isinstance(was, bool) else was + 1
    monkeypatch.setattr(pod, "protections", lambda _: wanted._replace(**{field: value}))
    if field in REFUSED:
        with pytest.raises(EngineError) as refused:
            document(SPEC, POD)
        assert refused.value.code is EndCode.ENGINE_LACKS_DATA
    else:
        assert document(SPEC, POD) != before


@each("field", sorted(ELSEWHERE))
def test_what_is_elsewhere_names_what_there_is(field: str) -> None:
    assert field in Protections._fields


@each(
    "change",
    [{"uid": 8}, {"image": "other"}, {"runtime": "gvisor"}, {"limits": Limits(cpus=0.25)}, {"session_id": "other"}],
)
def test_the_digest_tells_pods_apart(change: dict[str, Any]) -> None:
    other = document(replace(SPEC, **change), POD)
    before = document(SPEC, POD)
    assert digest(document(SPEC, POD)["spec"]) == digest(before["spec"])
    assert (digest(other["spec"]) != digest(before["spec"])) == ("session_id" not in change)
    assert other != before


@each(("cpus", "said"), [(2.0, "2"), (0.25, "250m"), (1.5, "1500m"), (0.0001, "1m"), (512, "512")])
def test_processors_are_written_as_the_cluster_writes_them_back(cpus: float, said: str) -> None:
    spec = replace(SPEC, limits=replace(SPEC.limits, cpus=cpus))
    resources = document(spec, POD)["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"] == said
