"""The first process of a machine, as source: it has nothing but the Python of an image."""

from __future__ import annotations

import ast
import sys

import pytest

from sandbox_kernel.plugins.qemu import build_format
from tests.support import ROOT

FOLDER = ROOT / "sandbox_kernel" / "plugins" / "qemu" / "inside"
GATE = "gate"
"""Shipped with what states are taken of, and with no other machine."""


def test_all_that_is_there_is_shipped() -> None:
    there = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "reseed"}  # which a kernel gets
    assert {*build_format.GUEST, GATE} == there


@pytest.mark.parametrize("module", [*build_format.GUEST, GATE])
def test_it_imports_the_standard_library_and_itself_and_is_written_for_an_old_python(module: str) -> None:
    """Any image with Python and ipykernel must do."""
    before = () if module == GATE else build_format.GUEST[: build_format.GUEST.index(module)]
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"), feature_version=(3, 9))):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert (node.level, node.module in before) == (1, True)
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names
