"""Which kernels a server that starts sandboxes only takes for some: those that `install` writes, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel.server_extension import is_sandbox
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
