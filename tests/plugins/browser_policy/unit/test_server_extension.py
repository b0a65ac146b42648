"""Which kernels a server that starts sandboxes only takes for some: those that `install` writes, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.browser_policy import extension
from sandbox_kernel.plugins.browser_policy.extension import is_sandbox
from sandbox_kernel.server_extension import _jupyter_server_extension_points as points
from tests.support import ROOT
from tests.support.kernels import install


@pytest.mark.parametrize("engine", ["docker", "broker", "broker:///run/sandbox-kernel/broker.sock"])
def test_what_install_writes_is_a_sandbox_whatever_its_engine(tmp_path: Path, engine: str) -> None:
    specs = install(tmp_path, "--engine", engine)
    assert is_sandbox(specs, "sandbox-python")


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "-m", "ipykernel_launcher"],
        ["python", "-I", "-m", "sandbox_kernel_x"],
        ["python", "-c", "x", "-m", "sandbox_kernel"],
        ["python", "-c", "x", "/a/sandbox_kernel/kernel/launch.py"],
        ["python", "/a/launch.py"],
        ["/a/sandbox_kernel/kernel/launch.py"],
        ["python", "-I", "-S", "/a/sandbox_kernel/kernel/launch.py"],
        ["python", "-I", "-S", "/a/sandbox_kernel/kernel/launch.py", "sandbox_kernel", "-f", "x"],
        ["python", "-I"],
        ["python", "-m", "sandbox_kernel"],  # the notebook's folder may have a module of that name
        ["python", "-P", "-m", "sandbox_kernel"],  # and so may PYTHONPATH
        ["-I", "-m", "sandbox_kernel"],
    ],
)
def test_another_kernel_is_none(tmp_path: Path, argv: list[str]) -> None:
    (folder := tmp_path / "other").mkdir()
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "x", "language": "python"}))
    assert not is_sandbox(KernelSpecManager(kernel_dirs=[str(tmp_path)]), "other")


def test_traits_of_a_jupyter_server_that_pages_name_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = {one for one in re.findall(r"\bc\.(Sandbox\w+)\.(\w+)", text) if one[0] != "SandboxKernel"}
    assert ("SandboxKernels", "allowed") in named
    assert [(owner, one) for owner, one in named if one not in getattr(extension, owner).class_trait_names()] == []


def test_a_server_that_is_configured_for_it_loads_nothing_where_the_folder_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [one["module"] for one in points()] == [extension.__name__]
    monkeypatch.setattr(index, "is_here", lambda name: False)
    assert points() == []
