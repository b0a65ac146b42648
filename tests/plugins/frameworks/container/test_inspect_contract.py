"""The contract of inspect_ai: the checks that it has for whoever provides a sandbox environment.

They are as they are, but for one thing: where they give an ended command 5 s to disappear, it has a tenth of that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import anyio
import pytest
import pytest_asyncio
from inspect_ai.util import SandboxUserUnsupportedError
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from sandbox_kernel.plugins.frameworks.inspect_ai import KernelSandboxEnvironment

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

DIFFERENT = {"test_exec_as_user": "a sandbox has one user, who is not root; no process can become another one"}
"""The checks that this sandbox fails by design, and why. SandboxUserUnsupportedError is the contract's word for it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_for_all() -> AsyncIterator[KernelSandboxEnvironment]:
    environments = await KernelSandboxEnvironment.sample_init("checks", None, {})
    yield environments["default"].as_type(KernelSandboxEnvironment)
    await KernelSandboxEnvironment.sample_cleanup("checks", None, environments, interrupted=False)


@pytest.fixture
def sandbox_env(
    one_for_all: KernelSandboxEnvironment, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> KernelSandboxEnvironment:
    monkeypatch.setattr(self_check, "anyio", SimpleNamespace(sleep=lambda seconds: anyio.sleep(seconds / 10)))
    if reason := DIFFERENT.get(request.node.originalname):
        mark = pytest.mark.xfail(reason=reason, raises=SandboxUserUnsupportedError, strict=True)
        request.node.add_marker(mark)
    return one_for_all


async def test_all_checks_of_the_framework_are_here() -> None:
    """The control: a version with more checks brings them, and the list of differences names only what exists."""
    assert len(self_check.__all__) >= 44
    assert set(self_check.__all__) <= set(globals())
    assert set(DIFFERENT) <= set(self_check.__all__)
