"""The agent between two hosts: what the second one hears is of the fresh kernel, however soon it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.session.agent_link import Link
from tests.support.patience import within


async def heard(link: Link, op: str, **fields: object) -> dict[str, Any]:
    """Return the next event of a kind, and how many of which came before it."""
    before: list[str] = []
    async for kind, parts in link.frames():
        if kind != wire.AGENT:
            continue
        event = json.loads(parts[0])
        if event["op"] == op and all(event.get(name) == value for name, value in fields.items()):
            return {**event, "before": before}
        before.append(event["op"])
    pytest.fail(f"the agent ended before {op!r}, after {before}")


@pytest.mark.parametrize("runtime", [None, "runsc"])
async def test_a_host_that_comes_before_the_old_kernel_is_collected_hears_of_the_fresh_one(
    image: str, runtime: str | None
) -> None:
    container = await DockerEngine().start(new_spec(Settings(image=image, runtime=runtime)))
    link = Link(container, 4 << 20)
    try:
        async with within(60):
            assert (await heard(link, "kernel_ready"))["number"] == 1
            # Both at once: the agent reads the second with the first, when the kernel was killed just now.
            link.send(wire.AGENT, [json.dumps({"op": "park", "id": 1}).encode()])
            link.tell("resume")
            resumed = await heard(link, "resumed")
            assert (resumed["number"], resumed["ready"]) == (2, False)
            ready = await heard(link, "kernel_ready")
            assert (ready["number"], ready["before"]) == (2, [])
    finally:
        await link.close()
        await container.kill()
