"""What an adapter needs of its framework: nothing before it is used, and a clear word if it is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

ADAPTERS = {
    "smolagents": "smolagents",
    "inspect_ai": "inspect-ai",
    "openai_agents": "openai-agents",
    "deepagents": "deepagents",
}
MODULES = {"openai-agents": "agents"}
"""Of packages that are imported by another name."""


def python(*lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("adapter", "package"), ADAPTERS.items())
def test_an_adapter_without_its_framework_says_what_to_install(adapter: str, package: str) -> None:
    name = MODULES.get(package, package.replace("-", "_"))
    done = python("import sys", f"sys.modules[{name!r}] = None", f"import sandbox_kernel.plugins.frameworks.{adapter}")
    assert done.returncode == 1
    assert f"ImportError: this adapter needs {package}: `pip install {package}`" in done.stderr


def test_what_the_adapters_share_imports_no_framework() -> None:
    done = python("import sys, sandbox_kernel.plugins.frameworks.answers", "print(*sys.modules)")
    modules = set(done.stdout.split())
    assert "sandbox_kernel.plugins.frameworks" in modules
    assert not modules & {"smolagents", "inspect_ai", "numpy", "PIL"}
