"""`sandbox_kernel.integrations`, as the adapters were called before: the same modules by both names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

MODULES = ("e2b", "e2b_files", "answers", "inspect_commands")
"""Of those that need no framework."""


@pytest.mark.parametrize("first", ["integrations", "plugins.frameworks"])
def test_a_module_is_the_same_by_both_names(first: str) -> None:
    """Whichever name comes first, in a new process, and by each form of an import."""
    program = f"""
import importlib, sys
importlib.import_module("sandbox_kernel.{first}.e2b")
from sandbox_kernel.integrations.e2b import Sandbox
from sandbox_kernel.integrations import as_text, e2b
from sandbox_kernel.plugins.frameworks import e2b as now
import sandbox_kernel.integrations.e2b_files as files
assert e2b is now and Sandbox is now.Sandbox and e2b is sys.modules["sandbox_kernel.integrations.e2b"]
assert now.__name__ == now.__spec__.name == "sandbox_kernel.plugins.frameworks.e2b"
assert files is sys.modules["sandbox_kernel.plugins.frameworks.e2b_files"]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", MODULES)
def test_each_module_is_there_by_its_name_of_before(name: str) -> None:
    before = importlib.import_module(f"sandbox_kernel.integrations.{name}")
    assert before is importlib.import_module(f"sandbox_kernel.plugins.frameworks.{name}")
    assert before.__spec__ is not None
    assert before.__spec__.name == f"sandbox_kernel.plugins.frameworks.{name}"


def test_a_module_that_is_not_there_is_not_there_by_that_name_either() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"sandbox_kernel\.plugins\.frameworks\.nothing"):
        importlib.import_module("sandbox_kernel.integrations.nothing")
