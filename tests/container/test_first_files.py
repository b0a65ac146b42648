"""The first thing that everybody does: to read the file beside the notebook, and to find what was saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from tests.support.kernels import Kernel, install

READ = "open('sales.csv').read()"
TAKES_OVER = """
import ipywidgets
out = ipywidgets.Output()
out.msg_id = get_ipython().kernel.get_parent()["header"]["msg_id"]
"""


@pytest.fixture
def start(tmp_path: Path, image: str) -> Iterator[Callable[..., Kernel]]:
    """Start a kernel for a notebook in a folder of its own, `work`."""
    kernels: list[Kernel] = []
    work = tmp_path / "work"
    work.mkdir()

    def start(*settings: str) -> Kernel:
        specs = install(tmp_path, "--image", image, *settings)
        manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=specs)
        manager.start_kernel(cwd=str(work))
        kernels.append(Kernel(manager))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.close()


def test_a_file_beside_the_notebook_is_one_step_away_and_what_is_saved_comes_out(start, tmp_path: Path) -> None:
    """Neither folder is there at the start, and nothing is restarted."""
    work = tmp_path / "work"
    (work / "sales.csv").write_text("a,b\n")
    (work / "mymodule.py").write_text("answer = 42\n")
    kernel = start("--uploads", "uploads", "--downloads", "downloads")
    result = kernel.run(READ)
    assert result.ename == "FileNotFoundError"
    said = result.text("stderr")
    assert "sales.csv lies beside the notebook, where cells do not see it. Put a copy into the folder `uploads`" in said
    assert str(tmp_path) not in said
    assert "mymodule.py lies beside the notebook" in kernel.run("import mymodule").text("stderr")
    absent = kernel.run("open('absent.csv')").text("stderr")
    assert "beside the notebook" in absent
    assert "lies beside" not in absent
    assert sorted(path.name for path in work.iterdir()) == ["mymodule.py", "sales.csv"]
    (work / "uploads").mkdir()
    for name in ("sales.csv", "mymodule.py"):
        (work / name).rename(work / "uploads" / name)
    assert kernel.run(READ).value == "'a,b\\n'"
    assert kernel.run("import mymodule; mymodule.answer").value == "42"
    assert "leave `uploads/` out" in kernel.run("open('uploads/sales.csv')").text("stderr")
    assert kernel.run("open('result.csv', 'w').write('x')").value == "1"
    assert (work / "downloads" / "result.csv").read_text() == "x"


def test_a_cell_that_reads_what_is_said_in_it_does_not_hear_what_lies_beside_the_notebook(start, tmp_path) -> None:
    """An Output widget gives all that a cell shows back to the kernel. The control is the cell before there is one."""
    (tmp_path / "work" / "sales.csv").write_text("a,b\n")
    kernel = start("--uploads", "uploads")
    assert "lies beside the notebook" in kernel.run(READ).text("stderr")
    said = kernel.run(TAKES_OVER + READ).text("stderr")
    assert "cells see the files of the sandbox" in said
    assert "lies beside" not in said
    assert "lies beside" not in kernel.run(READ).text("stderr")
    kernel.restart()
    assert "lies beside the notebook" in kernel.run(READ).text("stderr")  # another page of displays


def test_the_clock_of_a_cell_shows_the_time_of_the_zone(start) -> None:
    kernel = start("--time-zone", "Asia/Tokyo")
    assert kernel.run("import time; time.tzname").value == "('JST', 'JST')"
    assert kernel.run("!date +%Z").text().strip() == "JST"


def test_what_cells_ask_of_the_shell_is_answered(start) -> None:
    kernel = start()
    for code in ("!pip install sklearn", "%pip install sklearn", "!conda install x"):
        assert "a cell cannot install packages" in kernel.run(code).text("stderr")
    for code in ("!wget https://192.0.2.1/f.csv", "!curl https://192.0.2.1/f.csv", "!git clone https://192.0.2.1/r"):
        assert "a cell cannot download anything" in kernel.run(code).text("stderr")
    assert "this part of it is missing" in kernel.run("import numpy.foo").text("stderr")
    assert "no such program" in kernel.run("import subprocess; subprocess.run(['aws'])").text("stderr")
    for code in ("!aws x", "%%bash\naws x", "%%bash\naws x\necho on", "import os; os.system('aws x')"):
        assert kernel.run(code).text("stderr").count("no such program") == 1
    assert "no such program" not in kernel.run("print('no aws: not found')").text("stderr")
    assert "a cell cannot" not in kernel.run("!ls").text("stderr")
