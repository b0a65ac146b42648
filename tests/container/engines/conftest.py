"""A real engine, containers that are gone after each test, and a program to run inside."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from tests.support.engines import ECHO, IMAGE, SMALL, receive_all

NOT_ON: dict[str, dict[str, str]] = {
    "runsc": {
        "test_a_fork_bomb_is_an_ordinary_error": (
            "gVisor's processes are not the host's, so the process limit does not count them: a fork bomb ends at the "
            "memory limit, and the sandbox with it"
        ),
    }
}
"""Contract tests that a runtime cannot pass, each with the reason."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runtime" in metafunc.fixturenames:
        metafunc.parametrize("runtime", ["runc", "runsc"], scope="session")


@pytest.fixture(scope="session")
def runtimes() -> set[str]:
    return set(asyncio.run(DockerEngine().info()).runtimes)


@pytest.fixture(autouse=True)
def _only_what_the_runtime_can(request: pytest.FixtureRequest) -> None:
    """Skip what the engine has no runtime for, and mark the declared differences, which must stay true."""
    if "runtime" not in request.fixturenames:
        return
    runtime = request.getfixturevalue("runtime")
    if runtime not in request.getfixturevalue("runtimes"):
        pytest.skip(f"the engine has no runtime {runtime!r}")
    if reason := NOT_ON.get(runtime, {}).get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def engine() -> DockerEngine:
    return DockerEngine()


@pytest.fixture
def make_spec() -> Callable[..., SandboxSpec]:
    def make(code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        if fields.get("runtime") == "runc":
            fields["runtime"] = None  # the default, and so named nowhere
        return SandboxSpec(
            **{
                "session_id": secrets.token_hex(8),
                "image": IMAGE,
                "limits": SMALL,
                "command": ("python3", "-I", "-c", code, *arguments),
                "uid": 300_000_000 + secrets.randbelow(100_000_000),
                **fields,
            }
        )

    return make


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
