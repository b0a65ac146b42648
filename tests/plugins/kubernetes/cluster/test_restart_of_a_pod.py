"""A restart of a kernel whose session is a pod: a new pod, and no error."""

from __future__ import annotations

from pathlib import Path

from jupyter_client.manager import KernelManager

from tests.plugins.kubernetes.engine import CPUS, kubectl
from tests.support.engines import IMAGE
from tests.support.kernels import Kernel, eventually, install

SETTINGS = (
    "--engine",
    "kubernetes",
    "--image",
    IMAGE,
    "--cpus",
    str(CPUS),
    "--memory",
    "512M",
    "--scratch-size",
    "64M",
)


def pods_of(kernel: Kernel) -> set[str]:
    names = kubectl("get", "pods", "--namespace=sandboxes", "--output=name").split()
    return {name for name in names if f"-{kernel.pid}-" in name}


def test_a_restart_of_a_kernel_begins_with_a_new_pod(tmp_path: Path) -> None:
    specs = install(tmp_path, *SETTINGS)
    manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=specs)
    manager.start_kernel()
    kernel = Kernel(manager)
    try:
        kernel.client.wait_for_ready(timeout=90)
        assert kernel.run("x = 1; print(x)", 90).text() == "1\n"
        [before] = pods_of(kernel)
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=90)
        again = kernel.run("print('x' in globals())", 90)
        assert (again.reply["status"], again.text()) == ("ok", "False\n")
        [after] = pods_of(kernel)
        assert after != before
        eventually(lambda: before not in kubectl("get", "pods", "--namespace=sandboxes", "-o=name"), 10, "it is gone")
    finally:
        kernel.close()
    eventually(lambda: after not in kubectl("get", "pods", "--namespace=sandboxes", "-o=name"), 10, "it is gone, too")
