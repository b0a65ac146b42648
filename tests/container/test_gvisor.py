"""The whole kernel on gVisor, where the engine has that runtime: the same cells, the same ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sandbox_kernel.engines.docker.engine import DockerEngine
from tests.support.kernels import Kernel, here_too

Start = Callable[..., Kernel]

pytestmark = pytest.mark.skipif(
    "runsc" not in asyncio.run(DockerEngine().info()).runtimes,
    reason="the engine has no runtime runsc: sandbox-kernel setup --gvisor",
)


def test_cells_files_and_plots(start_kernel: Start, image: str) -> None:
    kernel = start_kernel("--runtime", "runsc")  # gVisor's own kernel has called itself 4.4.0 since 2016
    assert "Linux version 4.4.0" in kernel.run("print(open('/proc/version').read())").text()
    code = "import pandas as pd; pd.DataFrame({'a': [1, 2]}).to_csv('t.csv'); pd.read_csv('t.csv').a.sum()"
    assert here_too(kernel, code, image, "runsc").value == "np.int64(3)"
    plot = kernel.run("%matplotlib inline\nimport matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
    assert any("image/png" in m["content"]["data"] for m in plot.messages if m["msg_type"] == "display_data")


@pytest.mark.long
def test_timeout_restart_and_death(start_kernel: Start) -> None:
    kernel = start_kernel("--runtime", "runsc", "--cell-timeout", "6")
    kernel.run("kept = 42; open('kept.txt', 'w').write('yes')")
    assert kernel.run("while True: pass").ename == "CellTimeout"
    assert kernel.run("kept").value == "42"
    died = kernel.run("import os; os._exit(3)")
    assert died.ename == "KernelDied"
    assert "exit code 3" in died.reply["evalue"]
    assert kernel.run("print(open('kept.txt').read())").text() == "yes\n"
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.run("print(open('kept.txt').read())").text() == "yes\n"
