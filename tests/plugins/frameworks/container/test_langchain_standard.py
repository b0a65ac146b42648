"""The standard tests that LangChain has for tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

if TYPE_CHECKING:
    from sandbox_kernel.plugins.frameworks.langchain import SandboxTool

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxTool]:
    from sandbox_kernel.plugins.frameworks.langchain import SandboxTool

    with SandboxTool(memory="512M") as tool:
        yield tool


class TestUnit(ToolsUnitTests):
    """The standard tests of a tool that need no sandbox."""

    @property
    def tool_constructor(self) -> type[SandboxTool]:
        from sandbox_kernel.plugins.frameworks.langchain import SandboxTool

        return SandboxTool

    @property
    def tool_constructor_params(self) -> dict[str, Any]:
        return {"memory": "512M"}

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "6 * 7"}


class TestIntegration(ToolsIntegrationTests):
    """Those that call it."""

    @pytest.fixture(autouse=True)
    def _remember(self, shared: SandboxTool) -> None:
        self.shared = shared

    @property
    def tool_constructor(self) -> SandboxTool:
        return self.shared

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "6 * 7"}
