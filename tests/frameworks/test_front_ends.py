"""The suites and runners that front ends are made of, on the real kernel, by its name alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import jupyter_kernel_test
import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from tests.support import ROOT
from tests.support.kernel_suite import IPythonSamples
from tests.support.kernels import Kernel, containers_of, eventually, install
from tests.support.programs import program

Start = Callable[..., Kernel]
NOTEBOOKS = ROOT / "notebooks"


@pytest.fixture(scope="module", autouse=True)
def _kernel_by_name(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[None]:
    """The kernel, findable by its name, as after `sandbox-kernel install`."""
    folder = tmp_path_factory.mktemp("jupyter")
    install(folder, "--image", image, "--cell-timeout", "60")
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = str(folder / "share/jupyter")
    yield
    if before is None:
        del os.environ["JUPYTER_PATH"]
    else:
        os.environ["JUPYTER_PATH"] = before


class TestIPython(IPythonSamples, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-python"


class TestIopubWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "sandbox-python"
    support_iopub_welcome = True


def notebook(*cells: str) -> nbformat.NotebookNode:
    document = nbformat.v4.new_notebook()
    document.metadata["kernelspec"] = {"name": "sandbox-python", "display_name": "", "language": "python"}
    document.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return document


def test_nbclient_runs_a_notebook() -> None:
    document = notebook("x = 20", "print(x + 1)", "x + 2")
    NotebookClient(document, timeout=60).execute()
    assert document.cells[1].outputs[0].text == "21\n"
    assert document.cells[2].outputs[0].data["text/plain"] == "22"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(0)", "KernelDied"),
        ("b = bytearray(4 << 30)\nfor i in range(0, 4 << 30, 4096): b[i] = 1", "OutOfMemory"),
    ],
)
def test_nbclient_sees_a_dead_kernel_and_the_notebook_says_why(code: str, reason: str) -> None:
    """Its variables are gone, so a batch does not go on: as with a kernel that is a process of its own."""
    document = notebook(code, "print('next')")
    with pytest.raises(DeadKernelError):
        NotebookClient(document, timeout=60).execute()
    assert document.cells[0].outputs[-1].ename == reason
    assert not document.cells[1].outputs


def test_papermill_says_a_dead_kernel_by_its_exit_code(tmp_path: Path) -> None:
    nbformat.write(notebook("print(1)", "import os; os._exit(0)", "print('never')"), tmp_path / "in.ipynb")
    done = outside(tmp_path, "papermill", "in.ipynb", "out.ipynb", "--no-progress-bar")
    assert done.returncode == 138, done.stderr
    assert "\nsandbox-kernel: the kernel " in done.stderr


def test_a_client_that_asks_like_a_person_keeps_its_kernel_process() -> None:
    """A notebook that a person has open is told, and goes on with a new kernel."""
    manager = KernelManager(kernel_name="sandbox-python")
    manager.start_kernel()
    with closing(Kernel(manager)) as kernel:
        assert kernel.run("import os; os._exit(0)").ename == "KernelDied"
        assert kernel.run("print('next')").text() == "next\n"


def test_nbclient_goes_on_after_a_dead_kernel_if_told_so() -> None:
    document = notebook("import os; os._exit(3)", "print('next')")
    NotebookClient(document, timeout=60, allow_errors=True).execute()
    assert document.cells[0].outputs[-1].ename == "KernelDied"
    assert document.cells[1].outputs[-1].text == "next\n"


def test_nbclient_sees_a_killed_kernel_process() -> None:
    """A front end that watches the process sees the truth when that is what died."""
    document = notebook("import time; time.sleep(60)")
    client = NotebookClient(document, timeout=60)
    with client.setup_kernel():
        pid = client.km.provisioner.pid  # type: ignore[union-attr]
        from threading import Timer

        killer = Timer(1.0, os.kill, [pid, 9])
        killer.start()
        with pytest.raises(DeadKernelError):
            client.execute_cell(document.cells[0], 0)
        killer.join()
    eventually(lambda: not containers_of(pid), 5, "the container is gone")


@pytest.mark.parametrize("code", ["import os; os.chdir({!r})", "%cd -q {}"])
def test_an_invisible_cell_may_change_into_the_notebook_s_folder_on_the_host(tmp_path: Path, code: str) -> None:
    """As VS Code and Quarto begin. A cell that a notebook shows is told that there is no such folder."""
    where = "import os; print(os.getcwd(), type(os.chdir).__name__)"
    document = notebook(
        code.format(str(tmp_path)), where, code.format("/root"), where, f"import os; os.chdir({str(tmp_path)!r})"
    )
    client = NotebookClient(document, timeout=60)
    with client.setup_kernel():
        for index, cell in enumerate(document.cells):
            if index < 4:
                client.execute_cell(cell, index, store_history=index % 2 == 1)
        with pytest.raises(CellExecutionError, match="FileNotFoundError"):
            client.execute_cell(document.cells[4], 4)
    assert [document.cells[index].outputs[0].text for index in (1, 3)] == ["/mnt/data builtin_function_or_method\n"] * 2


def outside(tmp_path: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Python module as a program, in a folder without any configuration of ours."""
    name, *others = arguments
    return subprocess.run(
        [*program(name), *others],
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
        check=False,
    )


def test_papermill_passes_parameters(tmp_path: Path) -> None:
    document = notebook("factor = 1", "print(6 * factor)")
    document.cells[0].metadata["tags"] = ["parameters"]
    source, target = tmp_path / "in.ipynb", tmp_path / "out.ipynb"
    nbformat.write(document, source)
    command = [*program("papermill"), str(source), str(target), "-p", "factor", "7"]
    done = subprocess.run(
        [*command, "--no-progress-bar"], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = [output for cell in nbformat.read(target, as_version=4).cells for output in cell.get("outputs", [])]
    assert [output.text for output in outputs] == ["42\n"]


def test_nbconvert_executes(tmp_path: Path) -> None:
    source = tmp_path / "in.ipynb"
    nbformat.write(notebook("print(6 * 7)"), source)
    command = [*program("nbconvert"), "--to", "notebook", "--execute", str(source), "--output", "out.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[0].outputs[0].text == "42\n"


@pytest.mark.long
def test_papermill_runs_the_demo(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, image: str) -> None:
    """The notebook of `make demo`, by the name of a kernel with folders; what it made is beside the executed one."""
    folder = tmp_path_factory.mktemp("demo-kernel")
    place = ("--uploads", str(NOTEBOOKS / "data"), "--downloads", str(tmp_path))
    install(folder, "--image", image, *place, name="sandbox-demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "share/jupyter"))
        arguments = ["-k", "sandbox-demo", "--no-progress-bar"]
        done = outside(tmp_path, "papermill", str(NOTEBOOKS / "quickstart.ipynb"), "done.ipynb", *arguments)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"carrier_summary.csv", "delays.png", "weather_summary.csv", "done.ipynb"}
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    cells = nbformat.read(tmp_path / "done.ipynb", as_version=4).cells
    assert any(output.get("name") == "stdout" for output in cells[-1].outputs)


@pytest.mark.long
def test_nbmake_passes_and_fails_notebooks(tmp_path: Path) -> None:
    """`pytest --nbmake`: the kernel that the notebook names, and the one that is named for it."""
    nbformat.write(notebook("x = 6 * 7", "assert x == 42"), tmp_path / "good.ipynb")
    nbformat.write(notebook("import os", "assert os.getcwd() == '/elsewhere', os.getcwd()"), tmp_path / "bad.ipynb")
    host = notebook("import os; assert os.getcwd() == '/mnt/data'")
    host.metadata["kernelspec"]["name"] = "python3"
    nbformat.write(host, tmp_path / "named.ipynb")
    quiet = ["--color=no", "-p", "no:randomly", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    done = outside(tmp_path, "pytest", "--nbmake", "--nbmake-kernel=sandbox-python", *quiet)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 passed" in done.stdout.replace("1 failed, ", "")
    assert "/mnt/data" in done.stdout


@pytest.mark.long
def test_jupyter_run_runs_scripts(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import os\nprint(os.getcwd(), 6 * 7)\n")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    run = ("jupyter_client.runapp", "--kernel=sandbox-python")
    done = outside(tmp_path, *run, "good.py")
    assert (done.returncode, done.stdout) == (0, "/mnt/data 42\n"), done.stderr
    done = outside(tmp_path, *run, stdin="print(6 * 7)")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    done = outside(tmp_path, *run, "bad.py")
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
