"""What a session has of the host's is there for each of its kernels: contexts, restarts, and other processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.data import disk_images
from tests.support.command_line import run
from tests.support.engines import IMAGE
from tests.support.kernels import Kernel

LOOK = "open('/mnt/datasets/a/word').read()"


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dataset-") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "word").write_text("found", encoding="utf-8")
        yield Path(folder)


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Docker's datasets need a reader that Docker has, too")


def test_a_context_sees_what_its_sandbox_has(data: Path) -> None:
    with Sandbox(engine="docker", image=IMAGE, datasets={"a": str(data)}) as sandbox:
        context = sandbox.create_context()
        assert sandbox.run_code(LOOK).text == sandbox.run_code(LOOK, context=context).text == "'found'"


def test_a_restarted_kernel_has_its_data_still(data: Path, start_kernel: Callable[..., Kernel]) -> None:
    """The next process takes the sandbox over, and attests nothing of the data that it did not open."""
    kernel = start_kernel("--engine", "docker", "--image", IMAGE, "--dataset", f"a={data}")
    kernel.run("open('kept', 'w').write('x')")
    before = kernel.pid
    kernel.manager.restart_kernel()
    assert kernel.run(f"open('kept').read(), {LOOK}").value == "('x', 'found')"
    assert kernel.pid != before
    kernel.run("import os; os.kill(os.getpid(), 9)")  # and the next kernel of the same process
    assert kernel.run(LOOK).value == "'found'"


@pytest.mark.skipif(disk_images.available() is not None, reason=str(disk_images.available()))
def test_a_run_has_its_dataset_and_its_disk_by_options(data: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        f"import os\nprint({LOOK})\nlines = open('/proc/mounts').read().split()\n"
        "print(lines[lines.index('/mnt/data') + 1], os.statvfs('/mnt/data').f_blocks > 0)\n",
        encoding="utf-8",
    )
    options = ["--dataset", f"a={data}", "--scratch", "disk", "--scratch-size", "64M"]
    done = run("run", script, "--engine", "docker", "--image", IMAGE, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "found" in done.stdout + done.stderr
    assert "ext4 True" in done.stdout + done.stderr
