"""Which engine "auto" takes changes while a kernel runs: an operator's broker comes, or goes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.support.brokers import Daemon, a_broker
from tests.support.engines import IMAGE
from tests.support.kernels import Kernel

PROGRAM = """
import sys
from sandbox_kernel.engines.broker import places
places.OPERATORS = sys.argv.pop(1)
from sandbox_kernel.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    """A place for the operator's broker that is the test's own."""
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run/broker.sock"


def start(folder: Path, operator: Path) -> Kernel:
    """Start a kernel with `engine = auto`."""
    place = folder / "kernels" / "auto"
    place.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-c", PROGRAM, str(operator), "-f", "{connection_file}", "--image", IMAGE]
    (place / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "auto", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    manager = KernelManager(kernel_name="auto", kernel_spec_manager=specs)
    manager.start_kernel()
    return Kernel(manager)


def restart(kernel: Kernel) -> None:
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=30)


@pytest.mark.parametrize("change", ["comes", "goes"])
def test_a_restart_goes_on_with_the_sandbox_and_not_with_another_engine(
    tmp_path: Path, operator: Path, change: str
) -> None:
    def lent(daemon: Daemon) -> int:
        return len([row for row in asyncio.run(daemon.engine().list()) if row.state in {"running", "handed over"}])

    with a_broker() as daemon:
        if change == "goes":
            operator.symlink_to(daemon.path)
        kernel = start(tmp_path, operator)
        try:
            kernel.run("open('kept.txt', 'w').write('yes')")
            assert lent(daemon) == (change == "goes")
            if change == "goes":
                operator.unlink()
            else:
                operator.symlink_to(daemon.path)
            for _ in range(2):
                restart(kernel)
                assert kernel.run("open('kept.txt').read()").value == "'yes'"
                assert lent(daemon) == (change == "goes")
        finally:
            kernel.close()
        another = start(tmp_path, operator)  # control: one that begins takes what is there now
        try:
            another.run("1 + 1")
            assert lent(daemon) == (change == "comes")
        finally:
            another.close()
