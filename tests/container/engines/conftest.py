"""Real engines, containers that are gone after each test, and a program to run inside."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from tests.support.engines import Docker, EngineUnderTest, new_spec, receive_all, under_test

NOT_ON: dict[str, dict[str, str]] = {
    "runsc": {
        "test_a_fork_bomb_is_an_ordinary_error": (
            "gVisor's processes are not the host's, so the process limit does not count them: a fork bomb ends at the "
            "memory limit, and the sandbox with it"
        ),
    }
}
"""Tests of what is inside that a runtime of Docker's cannot pass, each with the reason."""


LEFT = {"broker-of-bubblewrap"}
"""Those of `make test-long`: a broker passes on what it has from Docker and from bubblewrap in one way."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runtime" in metafunc.fixturenames:
        metafunc.parametrize("runtime", ["runc", "runsc"], scope="session")
    if "under_test" in metafunc.fixturenames:
        engines = [
            pytest.param(one, id=one.name, marks=pytest.mark.long if one.name in LEFT else ()) for one in under_test()
        ]
        metafunc.parametrize("under_test", engines, scope="session")


@pytest.fixture(autouse=True)
def _only_what_it_can(request: pytest.FixtureRequest) -> None:
    """Skip what is not to be had here, and mark the declared differences, which must stay true."""
    if "under_test" in request.fixturenames:
        engine: EngineUnderTest = request.getfixturevalue("under_test")
        absent, lacks = engine.absent(), engine.lacks
    elif "runtime" in request.fixturenames:
        runtime = request.getfixturevalue("runtime")
        absent, lacks = Docker(runtime, runtime).absent(), NOT_ON.get(runtime, {})
    else:
        return
    if absent is not None:
        pytest.skip(absent)
    if reason := lacks.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def engine() -> DockerEngine:
    return DockerEngine()


@pytest.fixture
def make_spec() -> Callable[..., SandboxSpec]:
    return new_spec


@pytest.fixture
async def start(engine: DockerEngine) -> AsyncIterator[Callable[..., Awaitable[DockerContainer]]]:
    """Start containers that do not outlive the test."""
    started = []

    async def start(spec: SandboxSpec, body: dict[str, Any] | None = None) -> DockerContainer:
        container = await (engine.start(spec) if body is None else engine.start_body(spec.session_id, body))
        started.append(container)
        return container

    yield start
    for container in started:
        await container.kill()


@pytest.fixture
def run(start: Callable[..., Awaitable[DockerContainer]]) -> Callable[..., Awaitable[Any]]:
    """Run a program to its end and return the JSON document that it prints."""

    async def run(spec: SandboxSpec) -> Any:
        container = await start(spec)
        output = await receive_all(container)
        reason = await container.wait()
        assert reason.kind == "exited", reason
        assert reason.exit_code == 0, reason.detail
        return json.loads(output)

    return run
