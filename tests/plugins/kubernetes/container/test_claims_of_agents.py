"""An agent that waits for an owner, with Docker in the cluster's place: what whoever claims it hears, and what not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sandbox_kernel.container import wire
from sandbox_kernel.core.model import SandboxSpec, Settings
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.kubernetes import pod_gate, warm_pool
from sandbox_kernel.plugins.kubernetes.pod import Pod, pod_spec
from tests.support.engines import IMAGE
from tests.support.patience import within


def a_spec() -> SandboxSpec:
    return shipping.new_spec(replace(Settings(), image=IMAGE))


async def heard(spec: SandboxSpec) -> list[dict[str, Any]]:
    """Claim an agent that has just begun; return its events up to the one that its kernel is ready."""
    container = await DockerEngine().start(spec)
    decoder, events = wire.Decoder(1 << 24), list[dict[str, Any]]()
    try:
        await container.send(b"".join(wire.encode(wire.AGENT, [b'{"op": "claim", "nonce": "n"}'])))
        async with within(60):
            while not events or events[-1]["op"] != "kernel_ready":
                for kind, parts in decoder.feed(await container.receive()):
                    events += [json.loads(bytes(parts[0]))] if kind == wire.AGENT else []
    finally:
        await container.kill()
    return [event for event in events if event["op"] in {"hello", "kernel_ready"}]


async def test_whoever_claims_an_agent_before_its_kernel_is_up_hears_nothing_from_before() -> None:
    waited = warm_pool.waiting(a_spec())
    assert waited is not None
    assert len(pod_gate.whole(waited)) < 128 << 10
    (pod,) = pod_spec(waited, Pod("", "", 60, {}, program=pod_gate.whole(waited)))["containers"]
    hello, ready = await heard(replace(a_spec(), command=tuple(pod["command"]), program=b""))
    assert (hello["op"], hello["report"]["nonce"], ready["op"]) == ("hello", "n", "kernel_ready")


async def test_control_an_agent_with_somebody_there_says_hello_by_itself() -> None:
    spec = a_spec()
    assert spec.made_of is not None
    first = (await heard(replace(spec, program=shipping.program_of(spec.made_of, spec.limits, warm=True))))[0]
    assert (first["op"], first["report"].get("nonce")) == ("hello", None)
